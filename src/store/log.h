/* store/log.h: the log of a run: what is written of it and its descendants, for another record.
 *
 * A log lends a `struct store` that writes to the same file. What is committed through it is also
 * encoded: the statement, and its parameters by type. Entries that are committed while others are
 * on their way form a unit, which the program keeps elsewhere as it is, after all earlier units.
 * store_import makes the same run of them in another record, with other ids of calls and cells, as
 * an interrupted run.
 *
 * A unit (little endian): "DL", the format (1), flags (1: compressed with zstd), then 32 bits each
 * for the version of the tables, the bytes that follow, and their size when unpacked.
 */
#pragma once

#include "base/buf.h"
#include "base/hold.h"
#include "store/store.h"

struct store_log;

enum { STORE_LOG_FRESH_MS = 1000 };

/* `wake` says that store_log_take has something; it must not call it. `run`: a run in the record
 * that continues, which store_import has made; NULL: a new one. */
int store_log_open(struct store *store, const char *run, void (*wake)(void *arg), void *arg,
    struct store_log **out, struct error *err);
void store_log_close(struct store_log *log); /* NULL is fine */

/* Valid as long as the log. */
struct store *store_log_store(struct store_log *log);
/* Open when all that was written is kept. */
struct hold *store_log_hold(struct store_log *log);

/* Takes the next unit, which then is on its way until store_log_kept. False: there is none, or one
 * is on its way, or memory ran out (`unit` has failed). */
bool store_log_take(struct store_log *log, struct buf *unit);
void store_log_kept(struct store_log *log);

/* Replaces the run and its descendants in this record, if they are there, by those of the units,
 * which follow each other in `data`. Runs without an end are `interrupted` afterwards. ERROR_STORE:
 * a log of another version; ERROR_PROTOCOL: a damaged one; ERROR_ARGUMENT: the run is active. */
int store_import(
    struct store *store, const char *run, const void *data, size_t len, struct error *err);
/* Whether the units' version is this one's, without a record. The same errors. */
int store_import_check(const char *run, const void *data, size_t len, struct error *err);
