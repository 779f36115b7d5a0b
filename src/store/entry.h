/* store/entry.h: an entry of a log: a statement that writes, and its parameters (log.h).
 *
 * The byte of its statement, then for each parameter a byte for its type and its value. Ids of
 * steps are those of the log, from 1 in the order in which they began, because another record has
 * other ones.
 */
#pragma once

#include "base/buf.h"
#include "store/internal.h"

enum entry_type {
    ENTRY_NULL = 'n',
    ENTRY_INT = 'i',
    ENTRY_REAL = 'd',
    ENTRY_TEXT = 't',    /* 32 bits of length, bytes */
    ENTRY_RUN = 'r',     /* like a text: the id of a run of this log */
    ENTRY_VALUE = 'v',   /* like a text: a value, of which the row has the hash */
    ENTRY_STEP = 's',    /* a call or cell */
    ENTRY_REQUEST = 'q', /* a request to the network */
    ENTRY_OWNER = 'o',   /* the process that writes: four parameters, without a value */
    ENTRY_END = '.',
};

struct entry_kind {
    char code; /* 0: of no entry */
    bool makes_step, makes_request, makes_run;
    bool may_match_nothing;
};

/* The ids in a record of the steps or requests of a log, in order. */
struct entry_ids {
    int64_t *ids;
    size_t count, room;
};
int entry_ids_add(struct entry_ids *ids, int64_t id, struct error *err);

/* NULL: what this statement writes is of this process alone. */
const struct entry_kind *entry_kind(enum statement which);
/* STATEMENT_COUNT: unknown. */
enum statement entry_statement(char code);

void entry_put_int(struct buf *out, enum entry_type type, int64_t value);
void entry_put_real(struct buf *out, double value);
/* NULL: none. */
void entry_put_bytes(struct buf *out, enum entry_type type, const void *data, size_t len);

/* Of the write that goes on; NULL: it is not logged. */
struct buf *entry_begin(struct store *store, enum statement which);
/* A part of that write that is a row of its own; in the log it comes before it. */
struct buf *entry_more(struct store *store, enum statement which);
int64_t entry_step(const struct store *store, int64_t step);
int64_t entry_request(const struct store *store, int64_t request);
/* The write was committed; `id` is what its statement returned. */
int entry_commit(struct store *store, int64_t id, struct error *err);
