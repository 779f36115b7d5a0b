/* lm/cache.h: caches answers by the request's key, in a recording (docs/replay.md).
 *
 * The file has the format that `record` writes; its index is in memory, the answers are not. The
 * index also knows which call is currently asking for a key, so that an identical call can wait for
 * that answer.
 */
#pragma once

#include "lm/client.h"

struct cache;

/* An answer, or a failure, that several calls share. */
struct shared_answer {
    unsigned holders;
    struct error error;
    struct buf text; /* of a failure: all of a message that the error has in part, or nothing */
    char *finish;
};

/* Creates an answer with one reference; NULL without memory. */
struct shared_answer *shared_answer_new(
    const struct error *error, const char *text, size_t len, const char *finish);
/* The same of a reply; of a failure with its whole message. */
struct shared_answer *shared_answer_of(const struct lm_reply *reply);
/* Drops a reference; NULL is fine. */
void shared_answer_drop(struct shared_answer *answer);

/* Without a path (NULL) nothing is stored, and only concurrent calls are deduplicated. ERROR_IO,
 * ERROR_ARGUMENT (a line is not a recorded call, with its number), ERROR_PROTOCOL (the last line
 * is incomplete). */
int cache_open(const char *path, struct cache **out, struct error *err);
void cache_close(struct cache *cache);

/* The answer for this key; NULL if there is none, or its line can no longer be read. */
struct shared_answer *cache_find(struct cache *cache, const char *key);
/* Stores a call's answer. After a failed write, the cache is read-only. */
void cache_keep(
    struct cache *cache, const char *key, const struct lm_call *call, const struct lm_reply *reply);

/* The call that is asking for this key; NULL: none. Setting NULL never fails. */
struct lm_call *cache_asker(struct cache *cache, const char *key);
int cache_set_asker(struct cache *cache, const char *key, struct lm_call *call, struct error *err);
