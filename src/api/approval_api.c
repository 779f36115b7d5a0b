/* api/approval_api.c: see approval_api.h. */
#include "api/approval_api.h"

#include "api/session_ops.h"
#include "base/json/json.h"
#include "broker/approval.h"
#include "store/store.h"

/* ---- in the program ---- */

void droste_on_approval(droste *d, droste_ask_fn *fn, void *arg)
{
    d->ask_fn = fn;
    d->ask_arg = arg;
}

/* A droste_approval is the first member of a struct approval. */
static void approval_pass(droste *d, struct approval *a, struct droste_session *session)
{
    droste_approval *shown = (droste_approval *)(void *)a;
    shown->session = session;
    if (d->ask_fn)
        d->ask_fn(d->ask_arg, shown);
    else
        approval_leave(a);
}

void api_approve_run(void *arg, struct approval *a)
{
    approval_pass(arg, a, NULL);
}

void api_approve_session(void *arg, struct approval *a)
{
    struct droste_session *s = arg;
    approval_pass(s->d, a, s);
}

int droste_approval_answer(
    droste_approval *a, int approve, const char *by, const char *reason, droste_error *err)
{
    return approval_answer((struct approval *)(void *)a, approve != 0, by, reason, api_error(err));
}

void droste_approval_leave(droste_approval *a)
{
    approval_leave((struct approval *)(void *)a);
}

/* ---- through the record ---- */

static struct store *approval_store(droste_record *record)
{
    return (struct store *)(void *)record;
}

int droste_record_approvals(droste_record *record, const char *run, const char *account,
    droste_approval_fn *fn, void *arg, droste_error *err)
{
    store_approval_fn *inner = (store_approval_fn *)(void (*)(void))fn;
    return store_approvals(approval_store(record), run, account, inner, arg, api_error(err));
}

int droste_record_approval(
    droste_record *record, int64_t id, droste_approval_fn *fn, void *arg, droste_error *err)
{
    store_approval_fn *inner = (store_approval_fn *)(void (*)(void))fn;
    return store_approval_read(approval_store(record), id, inner, arg, api_error(err));
}

int droste_record_answer(droste_record *record, int64_t id, const char *json, size_t len,
    const char *by, droste_error *err)
{
    err = api_error(err);
    const droste_value result = { json, len };
    int rc = json_check(json, len, &json_limits_large, err);
    return rc < 0 ? error_wrap(err, "the result")
                  : store_call_result(approval_store(record), id, result, by, err);
}

int droste_record_decide(droste_record *record, int64_t id, int approve, const char *by,
    const char *reason, droste_error *err)
{
    return store_call_decide(
        approval_store(record), id, approve != 0, by, reason, false, api_error(err));
}
