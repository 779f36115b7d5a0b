/* api/api.c: see api.h. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/loop.h"
#include "store/store.h"

_Static_assert(sizeof((struct error *)0)->text == DROSTE_ERROR_SIZE, "as the public one has");
_Static_assert((int)DROSTE_ERROR_STORE == (int)ERROR_STORE &&
                   (int)DROSTE_ERROR_MODEL_REPLAY == (int)ERROR_MODEL_REPLAY &&
                   (int)DROSTE_ERROR_BUDGET_RECORD == (int)ERROR_BUDGET_RECORD,
    "enum error_code has the public codes");

struct error *api_error_or(struct error *err, struct error *other)
{
    if (!err)
        return other;
    *err = (struct error){ 0 };
    return err;
}

/* ---- waiting ---- */

int api_enter(droste *d, struct error *err)
{
    if (d->waits)
        return error_set(err, ERROR_ARGUMENT,
            "a callback may not call a function that waits on the same droste");
    d->waits = true;
    return 0;
}

int api_wait(droste *d, const bool *done, struct error *err)
{
    int rc = api_enter(d, err);
    if (rc < 0)
        return rc;
    rc = loop_run_until(d->loop, done, err);
    d->waits = false;
    return rc;
}

int api_wait_soon(droste *d, const bool *done, const bool *soon, int ms, struct error *err)
{
    int rc = api_enter(d, err);
    if (rc < 0)
        return rc;
    rc = loop_wait_soon(d->loop, done, soon, ms, err);
    d->waits = false;
    return rc;
}

void api_forget_interrupt(droste *d)
{
    uint64_t count;
    (void)!read(d->interrupt_fd, &count, sizeof count);
}

/* ---- the record ---- */

int api_store(droste *d, struct store **out, struct error *err)
{
    return api_store_at(d, d->settings.database, out, err);
}

int api_store_at(droste *d, const char *wanted, struct store **out, struct error *err)
{
    const char *path = wanted ? wanted : "";
    *out = NULL;
    if (strcmp(path, "none") == 0)
        return 0;
    if (d->store && strcmp(path, d->store_path) != 0) {
        if (d->run_count > 0 || d->store_users > 0)
            return error_set(
                err, ERROR_ARGUMENT, "the record cannot be another one while runs are under way");
        store_close(d->store);
        d->store = NULL;
    }
    if (!d->store) {
        free(steal(&d->store_path));
        d->store_path = strdup(path);
        int rc =
            d->store_path ? store_open(path[0] ? path : NULL, &d->store, err) : error_memory(err);
        if (rc < 0)
            return rc;
    }
    *out = d->store;
    return 0;
}
