/* api/custom_api.c: environments of the embedding program, by their names (env/common/custom.h). */
#include "api/custom_api.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "env/common/custom.h"

struct custom_entry {
    struct custom_entry *next;
    char *name, *about;
    droste_custom_environment ops;
    void *arg;
};

static void free_entry(struct custom_entry *e)
{
    free(e->name);
    free(e->about);
    free(e);
}

void api_customs_free(droste *d)
{
    struct custom_entry *e;
    while ((e = d->customs)) {
        d->customs = e->next;
        free_entry(e);
    }
}

static struct custom_entry *custom_api_find_entry(const droste *d, const char *name)
{
    struct custom_entry *e = d->customs;
    while (e && strcmp(e->name, name) != 0)
        e = e->next;
    return e;
}

int api_custom_open(droste *d, const char *name, struct environment **out, struct error *err)
{
    const struct custom_entry *e = custom_api_find_entry(d, name);
    *out = NULL;
    return e ? custom_open(d->loop, name, &e->ops, e->arg, out, err) : 0;
}

static int check_entry(
    const droste *d, const char *name, const droste_custom_environment *table, struct error *err)
{
    if (!name || !name[0] || strchr(name, ':') || environment_named(name))
        return error_set(err, ERROR_ARGUMENT,
            "an environment of the program cannot be called '%.40s': take a name that is none of "
            "Droste's own, without a ':'",
            name ? name : "");
    if (custom_api_find_entry(d, name))
        return error_set(
            err, ERROR_ARGUMENT, "there is an environment '%.40s' of the program already", name);
    if (table->size < sizeof *table || !table->open || !table->set || !table->execute ||
        !table->interrupt || !table->reply || !table->close)
        return error_set(err, ERROR_ARGUMENT,
            "the environment '%.40s' is incomplete: set its size and all functions", name);
    return 0;
}

int droste_custom_add(droste *d, const char *name, const droste_custom_environment *environment,
    void *arg, droste_error *err)
{
    err = api_error(err);
    int rc = check_entry(d, name, environment, err);
    struct custom_entry *e = rc == 0 ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return rc < 0 ? rc : error_memory(err);
    e->name = strdup(name);
    e->about = environment->about ? strdup(environment->about) : NULL;
    e->arg = arg;
    e->ops = *environment;
    e->ops.about = e->about;
    if (!e->name || (environment->about && !e->about)) {
        free_entry(e);
        return error_memory(err);
    }
    e->next = d->customs;
    d->customs = e;
    return 0;
}

void droste_custom_output(droste_custom_sandbox *s, int stream, const char *data, size_t len)
{
    custom_output(s, stream, data, len);
}

int droste_custom_result(droste_custom_sandbox *s, uint64_t operation, const char *json, size_t len,
    const char *submit, size_t submit_len, droste_error *err)
{
    return custom_result(s, operation, json, len, submit, submit_len, api_error(err));
}

int droste_custom_call(
    droste_custom_sandbox *s, uint64_t call, const char *json, size_t len, droste_error *err)
{
    return custom_call(s, call, json, len, api_error(err));
}

void droste_custom_cancel(droste_custom_sandbox *s, uint64_t call)
{
    custom_cancel(s, call);
}

void droste_custom_end(droste_custom_sandbox *s, const char *why)
{
    custom_end(s, why ? why : "it does not say why");
}
