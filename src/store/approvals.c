/* store/approvals.c: reads the calls that ask for an approval. */
#include "base/buf.h"
#include "store/internal.h"

static int approval_take(struct query *q, store_approval_fn *fn, void *arg, struct error *err)
{
    cleanup_buf struct buf arguments = { 0 }, result = { 0 };
    struct owner owner;
    droste_approval a = { .id = take_int(q) };
    a.run = take_text(q);
    a.root = take_text(q);
    a.account = take_text(q);
    a.tool = take_text(q);
    const droste_value request = { .hash = take_text(q) };
    const char *question = take_text(q);
    a.asked_ms = take_int(q);
    a.until_ms = take_int(q);
    a.decision = take_text(q);
    a.decided_ms = take_int(q);
    a.decided_by = take_text(q);
    a.decision_reason = take_text(q);
    a.begun_ms = take_int(q);
    a.repeated = take_int(q) > 0;
    const droste_value reply = { .hash = take_text(q) };
    const char *status = take_text(q), *run_status = take_text(q);
    take_owner(q, &owner);
    int rc = query_check(q, err);
    if (rc < 0)
        return rc;
    if (!status || !run_status || !a.tool || !a.run || !a.root)
        return error_set(err, ERROR_STORE, "a call in the record is damaged");
    if (question) {
        a.tool = COST_TOOL;
        buf_puts(&arguments, question);
    } else if (request.hash) {
        rc =
            blob_read(q->store, request.hash, STORE_VALUE_MAX, store_append_piece, &arguments, err);
    }
    a.wants_result = strncmp(a.tool, CLIENT_TOOLS ".", sizeof CLIENT_TOOLS) == 0;
    if (rc == 0 && a.wants_result && reply.hash)
        rc = blob_read(q->store, reply.hash, STORE_VALUE_MAX, store_append_piece, &result, err);
    a.result = reply.hash ? buf_text(&result) : NULL;
    a.result_len = result.len;
    a.arguments = buf_text(&arguments);
    a.len = arguments.len;
    a.ended = strcmp(status, "running") != 0;
    a.interrupted = strcmp(run_status, "interrupted") == 0 ||
                    (strcmp(run_status, "running") == 0 && owner_is_gone(&owner, &q->store->owner));
    return rc < 0 ? rc : fn(arg, &a, err);
}

int store_approval_read(
    struct store *store, int64_t call, store_approval_fn *fn, void *arg, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_APPROVAL_READ);
    bool row;
    bind_int(&q, call);
    int rc = query_step(&q, &row, err);
    if (rc == 0 && !row)
        rc = error_set(err, ERROR_NOT_FOUND, "there is no approval %lld", (long long)call);
    return rc < 0 ? rc : approval_take(&q, fn, arg, err);
}

static int approvals_take_all(struct query *q, store_approval_fn *fn, void *arg, struct error *err)
{
    bool row;
    int rc = query_step(q, &row, err);
    while (rc == 0 && row) {
        rc = approval_take(q, fn, arg, err);
        if (rc == 0)
            rc = query_step(q, &row, err);
    }
    return rc;
}

int store_approvals(struct store *store, const char *run, const char *account,
    store_approval_fn *fn, void *arg, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_APPROVALS);
    bind_text(&q, run);
    bind_text(&q, account);
    return approvals_take_all(&q, fn, arg, err);
}

int store_cost_questions(
    struct store *store, const char *root, store_approval_fn *fn, void *arg, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_COST_QUESTIONS);
    bind_text(&q, root);
    return approvals_take_all(&q, fn, arg, err);
}

int store_version(struct store *store, int64_t *version, struct error *err)
{
    return query_int(store, STATEMENT_DATA_VERSION, version, err);
}
