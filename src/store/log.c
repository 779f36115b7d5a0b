/* store/log.c: collects what is written of a run, and packs it into units (log.h). */
#include "store/log.h"

#include <endian.h>
#include <stdlib.h>

#include "store/entry.h"
#include "store/unit.h"

/* Of what is small, compression would save less than it costs. */
enum { UNIT_COMPRESS_FROM = 1024, UNIT_COMPRESS_LEVEL = 1 };

struct store_log {
    struct store view; /* the caller's, with this log */
    void (*wake)(void *arg);
    void *arg;
    struct entry_ids steps, requests; /* they increase */
    struct buf entry, more;           /* of the write that goes on */
    struct buf pending;
    bool makes_step, makes_request;
    bool is_sending;
    uint64_t sent, sent_ns; /* written when the unit on its way was taken */
    struct hold hold;
};

/* 0: none of this log. */
static int64_t log_number(const struct entry_ids *ids, int64_t id)
{
    size_t low = 0, high = ids->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ids->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ids->count && ids->ids[low] == id ? (int64_t)low + 1 : 0;
}

int64_t entry_step(const struct store *store, int64_t step)
{
    return store->log && step ? log_number(&store->log->steps, step) : 0;
}

int64_t entry_request(const struct store *store, int64_t request)
{
    return store->log ? log_number(&store->log->requests, request) : 0;
}

/* ---- entries ---- */

struct buf *entry_begin(struct store *store, enum statement which)
{
    const struct entry_kind *kind = entry_kind(which);
    struct store_log *log = store->log;
    if (!log || !kind)
        return NULL;
    buf_clear(&log->entry);
    buf_clear(&log->more);
    log->makes_step = kind->makes_step;
    log->makes_request = kind->makes_request;
    buf_putc(&log->entry, kind->code);
    return &log->entry;
}

struct buf *entry_more(struct store *store, enum statement which)
{
    struct store_log *log = store->log;
    if (!log)
        return NULL;
    if (log->more.len > 0)
        buf_putc(&log->more, ENTRY_END);
    buf_putc(&log->more, entry_kind(which)->code);
    return &log->more;
}

static void log_written(void *arg)
{
    struct store_log *log = arg;
    log->hold.written++;
    if (!log->is_sending)
        log->wake(log->arg);
}

int entry_commit(struct store *store, int64_t id, struct error *err)
{
    struct store_log *log = store->log;
    int rc = log->makes_step      ? entry_ids_add(&log->steps, id, err)
             : log->makes_request ? entry_ids_add(&log->requests, id, err)
                                  : 0;
    if (log->more.len > 0) {
        buf_append(&log->pending, buf_text(&log->more), log->more.len);
        buf_putc(&log->pending, ENTRY_END);
    }
    buf_append(&log->pending, buf_text(&log->entry), log->entry.len);
    buf_putc(&log->pending, ENTRY_END);
    if (rc == 0 && (buf_failed(&log->entry) || buf_failed(&log->more) || buf_failed(&log->pending)))
        rc = error_memory(err);
    log_written(log); /* without memory the hold stays closed: nothing more is paid for */
    return rc;
}

/* ---- units ---- */

/* 0: compression gains nothing. */
static size_t unit_compress(struct store_log *log, struct buf *out)
{
    size_t bound = ZSTD_compressBound(log->pending.len);
    if (log->pending.len < UNIT_COMPRESS_FROM || !buf_reserve(out, bound))
        return 0;
    size_t len = ZSTD_compressCCtx(log->view.zstd, out->data + out->len, bound, log->pending.data,
        log->pending.len, UNIT_COMPRESS_LEVEL);
    return ZSTD_isError(len) || len >= log->pending.len ? 0 : len;
}

bool store_log_take(struct store_log *log, struct buf *unit)
{
    struct unit_head head = { .magic = { 'D', 'L' }, .format = UNIT_FORMAT };
    if (log->is_sending || log->hold.written == log->sent || buf_failed(&log->pending))
        return false;
    buf_append(unit, &head, sizeof head);
    size_t at = unit->len - (buf_failed(unit) ? 0 : sizeof head);
    size_t packed = unit_compress(log, unit);
    if (packed > 0)
        unit->len += packed;
    else
        buf_append(unit, buf_text(&log->pending), log->pending.len);
    if (buf_failed(unit))
        return false;
    head.flags = packed > 0 ? UNIT_PACKED : 0;
    head.version = htole32((uint32_t)schema_version);
    head.len = htole32((uint32_t)(packed > 0 ? packed : log->pending.len));
    head.size = htole32((uint32_t)log->pending.len);
    memcpy(unit->data + at, &head, sizeof head);
    if (log->pending.len > 1 << 20)
        buf_free(&log->pending);
    else
        buf_clear(&log->pending);
    log->is_sending = true;
    log->sent = log->hold.written;
    log->sent_ns = hold_clock_ns();
    return true;
}

void store_log_kept(struct store_log *log)
{
    uint64_t sent = log->sent, sent_ns = log->sent_ns;
    log->is_sending = false;
    if (log->hold.written > sent)
        log->wake(log->arg);
    hold_confirm(&log->hold, sent, sent_ns);
}

static void log_hurry(void *arg)
{
    struct store_log *log = arg;
    if (!log->is_sending)
        log->wake(log->arg);
}

/* ---- open and close ---- */

static int log_read_ids(struct store *store, enum statement which, const char *run,
    struct entry_ids *ids, struct error *err)
{
    cleanup_query struct query q = query_open(store, which);
    bool row = false;
    bind_text(&q, run);
    int rc = query_step(&q, &row, err);
    while (rc == 0 && row) {
        rc = entry_ids_add(ids, take_int(&q), err);
        if (rc == 0)
            rc = query_step(&q, &row, err);
    }
    return rc;
}

int store_log_open(struct store *store, const char *run, void (*wake)(void *arg), void *arg,
    struct store_log **out, struct error *err)
{
    struct store_log *log = calloc(1, sizeof *log);
    if (!log)
        return error_memory(err);
    log->view = *store;
    log->view.log = log;
    log->wake = wake;
    log->arg = arg;
    log->hold = (struct hold){
        /* asks with an empty unit whether this process is still the one that writes */
        .fresh_ns = STORE_LOG_FRESH_MS * 1000000ull,
        .ask = log_written,
        .hurry = log_hurry,
        .arg = log
    };
    TAILQ_INIT(&log->hold.waits);
    int rc = run ? log_read_ids(store, STATEMENT_TREE_STEPS, run, &log->steps, err) : 0;
    if (rc == 0 && run)
        rc = log_read_ids(store, STATEMENT_TREE_REQUESTS, run, &log->requests, err);
    if (rc < 0) {
        store_log_close(log);
        return rc;
    }
    *out = log;
    return 0;
}

void store_log_close(struct store_log *log)
{
    if (!log)
        return;
    free(log->steps.ids);
    free(log->requests.ids);
    buf_free(&log->entry);
    buf_free(&log->more);
    buf_free(&log->pending);
    free(log);
}

struct store *store_log_store(struct store_log *log)
{
    return &log->view;
}

struct hold *store_log_hold(struct store_log *log)
{
    return &log->hold;
}
