/* serve/native/batch_runs.c: what the server does for the runs of a batch.
 *
 * Each run has the limits of its key, and waits for a place, as one that a client starts itself. A
 * key's limit only makes the batch slower; a day's cost that is used up, or a server that stops,
 * ends it, and it can be resumed.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/native/batch.h"
#include "serve/native/contexts.h"
#include "serve/native/run_options.h"
#include "serve/options.h"

/* The run of a task. */
struct batch_place {
    struct admission admission;
    struct served_batch *batch;
    const droste_request *request;
    struct run *run;   /* NULL: it waits */
    uint64_t retry_ns; /* when it asks for a place again; 0: it has asked */
    bool is_starting;  /* in batch_on_start, which reports a failure itself */
    int failed;
    droste_error err;
    struct batch_place *next;
};

static void place_free(struct batch_place *p)
{
    struct batch_place **at = &p->batch->places;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    admission_leave(&p->admission);
    free(p);
}

static void place_on_done(void *arg, droste_result *result)
{
    struct batch_place *p = arg;
    const droste_request *request = p->request;
    p->run = NULL;
    place_free(p);
    request->done(request->arg, result);
}

/* The settings of the task with the limits of its key; a resumed run has those of its beginning. */
static int place_begin(struct batch_place *p)
{
    struct served_batch *b = p->batch;
    struct server *s = b->server;
    droste_request request = *p->request;
    cleanup_buf struct buf words = { 0 };
    char id[SERVE_ID_SIZE];
    double held = 0;
    for (size_t i = 0; request.settings && request.settings[i]; i += 2)
        sandbox_setting(&words, request.settings[i], request.settings[i + 1]);
    if (!runs_put_limits(s, b->owner, request.settings, &held, &words)) {
        droste_batch_stop(
            b->running, "budget", "the models of this key have cost what they may on this day");
        return 1;
    }
    cleanup_free const char **settings = sandbox_list_settings(&words);
    p->err = (droste_error){ .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    if (!settings || server_make_id(s, id) < 0)
        return -1;
    request.settings = settings;
    request.account = b->owner->key.id;
    if (request.resume) { /* all of it is in the record */
        snprintf(id, sizeof id, "%s", request.resume);
        request.question = NULL;
        request.context = NULL;
        request.data = NULL;
        request.contexts = NULL;
        request.settings = NULL;
        request.kind = NULL;
    } else {
        request.id = id;
    }
    request.done = place_on_done;
    request.arg = p;
    const struct runs_begin begin = { &request, id, b->owner, &p->admission, held };
    return runs_begin(s, &begin, &p->run, &p->err);
}

static void place_go(struct admission *a)
{
    struct batch_place *p =
        (struct batch_place *)((char *)a - offsetof(struct batch_place, admission));
    int rc = place_begin(p);
    if (rc == 0)
        return;
    admission_leave(a);
    p->failed = rc;
    if (rc > 0 || p->is_starting)
        return; /* the batch stops, or batch_on_start fails */
    struct served_batch *b = p->batch;
    const droste_request *request = p->request;
    droste_error err = p->err;
    place_free(p);
    droste_batch_refuse(b->running, request, &err);
}

static void place_refuse(
    struct admission *a, unsigned status, const char *code, const char *text, double wait)
{
    struct batch_place *p =
        (struct batch_place *)((char *)a - offsetof(struct batch_place, admission));
    if (wait > 0)
        p->retry_ns = clock_ns() + (uint64_t)(wait * 1e9);
    else
        droste_batch_stop(p->batch->running, "interrupt", text);
}

static int batch_on_start(void *arg, const droste_request *request, droste_error *err)
{
    struct served_batch *b = arg;
    struct batch_place *p = calloc(1, sizeof *p);
    if (!p) {
        *err = (droste_error){ .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
        return -1;
    }
    *p = (struct batch_place){ .batch = b, .request = request, .next = b->places };
    p->admission = (struct admission){
        .server = b->server, .account = b->owner, .go = place_go, .refuse = place_refuse
    };
    b->places = p;
    p->is_starting = true;
    admission_seek(&p->admission);
    p->is_starting = false;
    if (p->failed >= 0)
        return 0;
    *err = p->err;
    place_free(p);
    return -1;
}

static int batch_on_stop(void *arg, const droste_request *request)
{
    struct served_batch *b = arg;
    struct batch_place *p = b->places;
    while (p && p->request != request)
        p = p->next;
    if (p && p->run) {
        runs_suspend(p->run);
        return 0;
    }
    if (p)
        place_free(p);
    return 1;
}

void batch_seek_places(struct served_batch *b, uint64_t now_ns)
{
    struct batch_place *next;
    for (struct batch_place *p = b->places; p; p = next) {
        next = p->next;
        if (p->retry_ns == 0 || p->retry_ns > now_ns)
            continue;
        p->retry_ns = 0;
        admission_seek(&p->admission);
    }
}

/* ---- what a task may have ---- */

static int batch_fail_check(droste_error *err, const char *text)
{
    *err = (droste_error){ .code = DROSTE_ERROR_ARGUMENT };
    snprintf(err->text, sizeof err->text, "%s", text);
    return -1;
}

/* A context is a stored one of the account, by its id. */
static bool batch_is_stored(const struct served_batch *b, const char *path)
{
    size_t n = strlen(b->contexts);
    return strncmp(path, b->contexts, n) == 0 && path[n] == '/' &&
           contexts_have(b->contexts, path + n + 1);
}

static int batch_on_check(void *arg, const droste_request *request, droste_error *err)
{
    static const char text[] =
        "a task's context on a server is the id of a stored one (POST /v1/contexts), or "
        "context_text or context_json";
    struct served_batch *b = arg;
    if (request->context && !batch_is_stored(b, request->context))
        return batch_fail_check(err, text);
    for (size_t i = 0; request->contexts && request->contexts[i]; i++)
        if (!batch_is_stored(b, strchr(request->contexts[i], '=') + 1))
            return batch_fail_check(err, text);
    return runs_check_settings(b->server, request->settings, err);
}

void batch_set_host(struct served_batch *b)
{
    b->host = (droste_batch_host){ .settings = b->settings,
        .directory = b->contexts,
        .name = "tasks",
        .check = batch_on_check,
        .start = batch_on_start,
        .stop = batch_on_stop,
        .arg = b };
}
