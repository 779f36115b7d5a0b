/* lm/record.h: recordings of model calls, one JSON line for each finished call (docs/replay.md).
 *
 * A call's key says which request it was, without keeping the request in memory: the SHA-256 of
 * {"model":M,"messages":"<SHA-256 of the messages' JSON array>","max_tokens":N,"temperature":T}.
 * With the messages hashed apart, a replay can try a request under each model of its file cheaply.
 */
#ifndef DROSTE_LM_RECORD_H
#define DROSTE_LM_RECORD_H

#include <sys/types.h>

#include "lm/client.h"

enum { RECORD_VERSION = 1 };

struct record;

/* Opens for appending; makes the file readable by its owner only. */
int record_open(const char *path, struct record **out, struct error *err);
/* One line, one write. Errors: ERROR_IO. */
int record_append(struct record *record, const char *key, const struct lm_call *call,
    const struct lm_reply *reply, struct error *err);
/* Where the last line is that was appended here, without its end. */
int record_last(const struct record *record, off_t *at, size_t *len);
/* NULL is fine. */
void record_close(struct record *record);

/* Fills call->body, head_len and messages_at from call->request and call->model, if that was not done
 * yet. */
int record_write_head(struct lm_call *call, struct error *err);
/* By which the same question to `model` is known again; the head must have been written. */
int record_key(
    struct lm_call *call, const char *model, char out[HASH_TEXT_SIZE], struct error *err);

#endif
