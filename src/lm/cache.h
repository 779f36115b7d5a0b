/* lm/cache.h: answers that were given before, by the request's key, in a recording (docs/replay.md).
 *
 * The file is what `record` writes; the index over it is in memory, the answers are not. Beside
 * them the index knows which call is asking for a key right now, so that another one like it can
 * wait for that answer.
 */
#ifndef DROSTE_LM_CACHE_H
#define DROSTE_LM_CACHE_H

#include "lm/client.h"

struct cache;

/* An answer (or a failure) that several calls may share. */
struct shared_answer {
    unsigned holders;
    struct error error;
    struct buf text;
    char *finish;
};

/* The answer with this outcome, held once; NULL without memory. */
struct shared_answer *shared_answer_new(
    const struct error *error, const char *text, size_t len, const char *finish);
/* Lets go of it; NULL is fine. */
void shared_answer_drop(struct shared_answer *answer);

/* Without a path (NULL) nothing is kept: it only knows who is asking. Errors: ERROR_IO, ERROR_ARGUMENT (a
 * line that is no recorded call's, with its number), ERROR_PROTOCOL (a last line that is torn). */
int cache_open(const char *path, struct cache **out, struct error *err);
void cache_close(struct cache *cache);

/* The answer to this key, NULL where there is none. A line that cannot be read any more is none. */
struct shared_answer *cache_find(struct cache *cache, const char *key);
/* Keeps a call's answer. A file that cannot be written any more is only read from then on. */
void cache_keep(
    struct cache *cache, const char *key, const struct lm_call *call, const struct lm_reply *reply);

/* The call that asks for this key; NULL: none. Setting it to NULL never fails. */
struct lm_call *cache_asker(struct cache *cache, const char *key);
int cache_set_asker(struct cache *cache, const char *key, struct lm_call *call, struct error *err);

#endif
