/* store/import.c: makes a run of its log (log.h), in one transaction.
 *
 * The log comes from another machine and is not trusted. Its entries name statements of a table,
 * none of which selects rows but by the ids of runs, calls, cells and requests; these are ids that
 * this log has made, so an entry cannot touch another run.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/text.h"
#include "store/entry.h"
#include "store/log.h"
#include "store/unit.h"

struct import {
    struct store *store;
    const char *root;
    struct list runs;
    struct entry_ids steps, requests;
    const char *at, *end; /* what is left of the unit */
};

static void import_free(struct import *im)
{
    list_clear(&im->runs);
    free(im->steps.ids);
    free(im->requests.ids);
}

static int import_damaged(const struct import *im, struct error *err)
{
    return error_set(err, ERROR_PROTOCOL, "the log of run '%.64s' is damaged", im->root);
}

/* ---- parameters ---- */

static bool import_take(struct import *im, void *out, size_t len)
{
    if ((size_t)(im->end - im->at) < len)
        return false;
    memcpy(out, im->at, len);
    im->at += len;
    return true;
}

static bool import_take_bytes(struct import *im, droste_value *out)
{
    uint32_t len;
    if (!import_take(im, &len, sizeof len) || (size_t)(im->end - im->at) < le32toh(len))
        return false;
    *out = (droste_value){ .data = im->at, .len = le32toh(len) };
    im->at += out->len;
    return true;
}

/* SQLite copies what is bound here: the parameters of one statement fit in memory twice. */
static void import_bind_text(struct query *q, const char *text, size_t len)
{
    int rc = sqlite3_bind_text64(q->stmt, ++q->at, text, len, SQLITE_TRANSIENT, SQLITE_UTF8);
    if (rc != SQLITE_OK && q->error.code == ERROR_NONE)
        store_error(q->store, rc, &q->error);
}

/* The first run of an entry that makes one is the new one, and the first of all is the root. */
static int import_run(struct import *im, struct query *q, bool is_new, struct error *err)
{
    char run[STORE_RUN_ID_SIZE];
    droste_value text;
    if (!import_take_bytes(im, &text) || text.len >= sizeof run)
        return import_damaged(im, err);
    memcpy(run, text.data, text.len);
    run[text.len] = '\0';
    bool first = im->runs.count == 0;
    if (!is_new && !list_has(&im->runs, run))
        return import_damaged(im, err);
    if (is_new && (!text_is_name(run) || (first && strcmp(run, im->root) != 0)))
        return import_damaged(im, err);
    import_bind_text(q, text.data, text.len);
    return is_new ? list_add(&im->runs, run, err) : 0;
}

static int import_number(struct import *im, struct query *q, char type, struct error *err)
{
    const struct entry_ids *ids = type == ENTRY_STEP ? &im->steps : &im->requests;
    uint64_t bits;
    double real;
    if (!import_take(im, &bits, sizeof bits))
        return import_damaged(im, err);
    bits = le64toh(bits);
    memcpy(&real, &bits, sizeof real);
    if (type == ENTRY_REAL) {
        bind_real(q, real);
        return 0;
    }
    if (type == ENTRY_INT) {
        bind_int(q, (int64_t)bits);
        return 0;
    }
    if (bits > ids->count)
        return import_damaged(im, err);
    bind_id(q, bits ? ids->ids[bits - 1] : 0);
    return 0;
}

static int import_value(struct import *im, struct query *q, struct error *err)
{
    char hash[HASH_TEXT_SIZE];
    droste_value value;
    if (!import_take_bytes(im, &value))
        return import_damaged(im, err);
    int rc = blob_write(im->store, value, hash, err);
    if (rc == 0)
        import_bind_text(q, hash, strlen(hash));
    return rc;
}

static int import_text(struct import *im, struct query *q, struct error *err)
{
    droste_value text;
    if (!import_take_bytes(im, &text))
        return import_damaged(im, err);
    import_bind_text(q, text.data, text.len);
    return 0;
}

/* `makes_run`: the next id is that of a new run. */
static int import_parameter(
    struct import *im, struct query *q, char type, bool *makes_run, struct error *err)
{
    bool is_new = *makes_run;
    switch (type) {
    case ENTRY_NULL:
        bind_text(q, NULL);
        return 0;
    case ENTRY_INT:
    case ENTRY_REAL:
    case ENTRY_STEP:
    case ENTRY_REQUEST:
        return import_number(im, q, type, err);
    case ENTRY_RUN:
        *makes_run = false;
        return import_run(im, q, is_new, err);
    case ENTRY_VALUE:
        return import_value(im, q, err);
    case ENTRY_TEXT:
        return import_text(im, q, err);
    case ENTRY_OWNER:
        bind_owner_unlogged(q, &im->store->owner);
        return 0;
    default:
        return import_damaged(im, err);
    }
}

/* ---- entries ---- */

static int import_run_statement(
    struct import *im, struct query *q, const struct entry_kind *kind, struct error *err)
{
    bool row = false, more = false;
    int rc = query_step(q, &row, err);
    if (rc < 0)
        return rc;
    int64_t id = row ? take_int(q) : 0;
    if (row)
        rc = query_step(q, &more, err);
    if (rc < 0)
        return rc;
    if (!row && !kind->may_match_nothing)
        return import_damaged(im, err);
    return kind->makes_step      ? entry_ids_add(&im->steps, id, err)
           : kind->makes_request ? entry_ids_add(&im->requests, id, err)
                                 : 0;
}

static int import_entry(struct import *im, struct error *err)
{
    char code = *im->at++, type = 0;
    enum statement which = entry_statement(code);
    if (which == STATEMENT_COUNT)
        return import_damaged(im, err);
    const struct entry_kind *kind = entry_kind(which);
    bool makes_run = kind->makes_run;
    cleanup_query struct query q = query_open(im->store, which);
    int most = sqlite3_bind_parameter_count(q.stmt);
    int rc = 0;
    while (rc == 0 && import_take(im, &type, 1) && type != ENTRY_END)
        rc =
            q.at < most ? import_parameter(im, &q, type, &makes_run, err) : import_damaged(im, err);
    if (rc < 0)
        return rc;
    if (type != ENTRY_END || q.at != most)
        return import_damaged(im, err);
    return import_run_statement(im, &q, kind, err);
}

/* ---- units ---- */

static int import_entries(struct import *im, const char *data, size_t len, struct error *err)
{
    int rc = 0;
    im->at = data;
    im->end = data + len;
    while (rc == 0 && im->at < im->end)
        rc = import_entry(im, err);
    return rc;
}

static int import_packed(
    struct import *im, const char *data, size_t len, size_t size, struct error *err)
{
    cleanup_free char *plain = malloc(size + 1);
    if (!plain)
        return error_memory(err);
    size_t unpacked = ZSTD_decompressDCtx(im->store->unzstd, plain, size, data, len);
    if (ZSTD_isError(unpacked) || unpacked != size)
        return import_damaged(im, err);
    return import_entries(im, plain, size, err);
}

/* The head at `data`, with numbers of this machine. */
static int import_head(const struct import *im, const char *data, size_t len,
    struct unit_head *head, struct error *err)
{
    if (len < sizeof *head)
        return import_damaged(im, err);
    memcpy(head, data, sizeof *head);
    head->version = le32toh(head->version);
    head->len = le32toh(head->len);
    head->size = le32toh(head->size);
    if (memcmp(head->magic, "DL", 2) != 0 || head->len > len - sizeof *head ||
        head->size > UNIT_SIZE_MAX)
        return import_damaged(im, err);
    if (head->format != UNIT_FORMAT || head->version != (uint32_t)schema_version)
        return error_set(err, ERROR_STORE,
            "the log of run '%.64s' is of another version (%u, not %d): a node with the "
            "version that began the run can continue it",
            im->root, head->version, schema_version);
    return 0;
}

int store_import_check(const char *run, const void *data, size_t len, struct error *err)
{
    const struct import im = { .root = run };
    struct unit_head head;
    int rc = 0;
    for (const char *at = data, *end = at + len; rc == 0 && at < end;) {
        rc = import_head(&im, at, (size_t)(end - at), &head, err);
        at += rc == 0 ? sizeof head + head.len : 0;
    }
    return rc;
}

static int import_units(struct import *im, const char *data, size_t len, struct error *err)
{
    struct unit_head head;
    int rc = 0;
    while (rc == 0 && len > 0) {
        if (import_head(im, data, len, &head, err) < 0)
            return -(int)err->code;
        data += sizeof head;
        rc = head.flags & UNIT_PACKED ? import_packed(im, data, head.len, head.size, err)
                                      : import_entries(im, data, head.len, err);
        data += head.len;
        len -= sizeof head + head.len;
    }
    return rc == 0 && im->runs.count == 0 ? import_damaged(im, err) : rc;
}

/* A run that has no end is one whose process is gone. */
static int import_interrupt(struct import *im, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < im->runs.count; i++) {
        cleanup_query struct query find = query_open(im->store, STATEMENT_RUN_OWNER);
        bool row = false;
        bind_text(&find, im->runs.items[i]);
        rc = query_step(&find, &row, err);
        const char *status = row ? take_text(&find) : NULL;
        if (rc < 0 || !status || strcmp(status, "running") != 0)
            continue;
        query_close(&find);
        cleanup_query struct query q = query_open(im->store, STATEMENT_RUN_INTERRUPT);
        bind_text(&q, im->runs.items[i]);
        rc = query_step(&q, &row, err);
    }
    return rc;
}

static int import_remove(struct store *store, const char *run, struct error *err)
{
    struct error why = { 0 };
    droste_record_freed freed = { 0 };
    if (store_run_remove(store, run, &freed, &why) == 0 || why.code == ERROR_NOT_FOUND)
        return 0;
    *err = why;
    return -(int)why.code;
}

int store_import(
    struct store *store, const char *run, const void *data, size_t len, struct error *err)
{
    struct import im = { .store = store, .root = run };
    int rc = import_remove(store, run, err);
    if (rc == 0)
        rc = query_run(store, STATEMENT_BEGIN_WRITE, err);
    if (rc < 0)
        return rc;
    rc = import_units(&im, data, len, err);
    if (rc == 0)
        rc = import_interrupt(&im, err);
    if (rc == 0)
        rc = query_run(store, STATEMENT_COMMIT, err);
    if (rc < 0)
        query_rollback(store);
    import_free(&im);
    return rc;
}
