/* lm/record.h: recordings of model calls, one JSON line for each finished call (docs/replay.md).
 *
 * A call's key identifies its request without keeping it in memory: the SHA-256 of
 * {"model":M,"messages":"<SHA-256 of the messages' JSON array>","max_tokens":N,"temperature":T}.
 * Because the messages are hashed separately, a replay can cheaply try a request under each model
 * of its file.
 */
#pragma once

#include <sys/types.h>

#include "lm/client.h"

enum { RECORD_VERSION = 1 };

struct record;

/* Opens for appending; a new file is readable only by its owner. */
int record_open(const char *path, struct record **out, struct error *err);
/* Appends a line in one write. ERROR_IO. */
int record_append(struct record *record, const char *key, const struct lm_call *call,
    const struct lm_reply *reply, struct error *err);
/* The position of the last line appended here, without its newline. */
int record_last(const struct record *record, off_t *at, size_t *len);
/* NULL is fine. */
void record_close(struct record *record);

/* Fills call->body, head_len and messages_at from call->request and call->model, unless that was
 * done. */
int record_write_head(struct lm_call *call, struct error *err);
/* The key of this request to `model`; the head must have been written. */
int record_key(
    struct lm_call *call, const char *model, char out[HASH_TEXT_SIZE], struct error *err);
/* Appends the reply of a finished call; one that cannot be recorded becomes the error. NULL is
 * fine. */
void record_reply(struct record *record, struct lm_call *call, struct lm_reply *reply);
