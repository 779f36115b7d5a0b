/* serve/http/idempotency.c: see idempotency.h. Answers are kept in memory for a day, the newest
 * ones. */
#include "serve/http/idempotency.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/http/request.h"

enum { IDEMPOTENCY_MAX = 4096, IDEMPOTENCY_ANSWER_MAX = 64 << 10, IDEMPOTENCY_SLOTS = 1024 };
enum { IDEMPOTENCY_SECONDS = 86400 };

struct idempotent {
    char key[HASH_TEXT_SIZE], request[HASH_TEXT_SIZE]; /* of account and key; of what was asked */
    uint64_t began_ns;
    bool is_done;
    unsigned status;
    char type[64];
    char location[SERVE_ID_SIZE + 32];
    struct buf body;
    struct idempotent *next;          /* of its slot */
    struct idempotent *newer, *older; /* of all */
};

struct idempotency {
    struct idempotent *slots[IDEMPOTENCY_SLOTS];
    struct idempotent *newest, *oldest;
    size_t count;
};

static struct idempotent **idempotency_slot(struct server *s, const char *key)
{
    unsigned long n = strtoul((char[]){ key[0], key[1], key[2], key[3], '\0' }, NULL, 16);
    return &s->idempotency->slots[n % IDEMPOTENCY_SLOTS];
}

static struct idempotent *idempotency_find(struct server *s, const char *key)
{
    struct idempotent *one = *idempotency_slot(s, key);
    while (one && strcmp(one->key, key) != 0)
        one = one->next;
    return one;
}

static void idempotency_drop(struct server *s, struct idempotent *one)
{
    struct idempotency *all = s->idempotency;
    struct idempotent **at = idempotency_slot(s, one->key);
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    *(one->newer ? &one->newer->older : &all->newest) = one->older;
    *(one->older ? &one->older->newer : &all->oldest) = one->newer;
    all->count--;
    buf_free(&one->body);
    free(one);
}

/* Makes room by forgetting the oldest answer; false: all are of requests under way. */
static bool idempotency_make_room(struct server *s)
{
    struct idempotent *one = s->idempotency->oldest;
    if (s->idempotency->count < IDEMPOTENCY_MAX)
        return true;
    while (one && !one->is_done)
        one = one->newer;
    if (one)
        idempotency_drop(s, one);
    return one != NULL;
}

static struct idempotent *idempotency_add(struct server *s, const char *key, const char *request)
{
    if (!s->idempotency)
        s->idempotency = calloc(1, sizeof *s->idempotency);
    struct idempotency *all = s->idempotency;
    struct idempotent *one = all && idempotency_make_room(s) ? calloc(1, sizeof *one) : NULL;
    if (!one)
        return NULL;
    memcpy(one->key, key, HASH_TEXT_SIZE);
    memcpy(one->request, request, HASH_TEXT_SIZE);
    one->began_ns = clock_ns();
    struct idempotent **slot = idempotency_slot(s, key);
    one->next = *slot;
    *slot = one;
    one->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = one;
    all->newest = one;
    all->count++;
    return one;
}

/* The hashes of account and key, and of what is asked: method, target and body. */
static int idempotency_hash(struct request *r, const char *text, char *key, char *request)
{
    struct buf named = { 0 }, asked = { 0 };
    buf_printf(&named, "%s %s", r->account->key.id, text);
    buf_printf(&asked, "%s %s\n", r->route->method, r->target);
    buf_append(&asked, buf_text(&r->body), r->body.len);
    int rc = buf_failed(&named) || buf_failed(&asked) ? -1 : 0;
    if (rc == 0)
        rc = hash_sha256(named.data, named.len, key, NULL);
    if (rc == 0)
        rc = hash_sha256(asked.data, asked.len, request, NULL);
    buf_free(&named);
    buf_free(&asked);
    return rc;
}

static bool idempotency_is_key(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return n > 0 && n <= 255;
}

static void idempotency_repeat(struct request *r, const struct idempotent *one)
{
    request_reply(r, one->status, one->type[0] ? one->type : NULL, one->body.data, one->body.len);
    request_header(r, "Idempotency-Replayed", "true");
    if (one->location[0])
        request_header(r, MHD_HTTP_HEADER_LOCATION, one->location);
}

bool idempotency_begin(struct request *r)
{
    const char *text = request_header_of(r, "Idempotency-Key");
    char key[HASH_TEXT_SIZE], request[HASH_TEXT_SIZE];
    if (!text)
        return true;
    if (!idempotency_is_key(text)) {
        request_refuse(r, 400, "argument", "an Idempotency-Key has 1 to 255 visible characters");
        return false;
    }
    struct server *s = r->server;
    if (idempotency_hash(r, text, key, request) < 0) {
        request_refuse_memory(r);
        return false;
    }
    struct idempotent *one = s->idempotency ? idempotency_find(s, key) : NULL;
    if (!one) {
        r->idempotent = idempotency_add(s, key, request);
        if (!r->idempotent)
            request_refuse(r, 503, "busy", "too many requests with an Idempotency-Key; try again");
        return r->idempotent != NULL;
    }
    if (strcmp(one->request, request) != 0) {
        request_refuse(r, 409, "idempotency_request_mismatch",
            "this Idempotency-Key was used for another request");
    } else if (!one->is_done) {
        request_refuse(r, 409, "idempotency_in_progress",
            "the first request with this Idempotency-Key is under way; try again");
        request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    } else {
        idempotency_repeat(r, one);
    }
    return false;
}

void idempotency_keep(
    struct request *r, unsigned status, const char *type, const void *data, size_t len)
{
    struct idempotent *one = r->idempotent;
    if (!one || one->is_done || status >= 500 || status == 429 || status == 409 ||
        len > IDEMPOTENCY_ANSWER_MAX)
        return;
    one->is_done = true;
    one->status = status;
    snprintf(one->type, sizeof one->type, "%s", type ? type : "");
    buf_append(&one->body, data, len);
}

void idempotency_locate(struct request *r, const char *location)
{
    snprintf(r->idempotent->location, sizeof r->idempotent->location, "%s", location);
}

void idempotency_end(struct request *r)
{
    struct idempotent *one = r->idempotent;
    r->idempotent = NULL;
    if (!one)
        return;
    if (!one->is_done || buf_failed(&one->body))
        idempotency_drop(r->server, one);
}

void idempotency_sweep(struct server *s, uint64_t now_ns)
{
    struct idempotent *one = s->idempotency ? s->idempotency->oldest : NULL, *newer;
    for (; one; one = newer) {
        newer = one->newer;
        if ((double)(now_ns - one->began_ns) / 1e9 < IDEMPOTENCY_SECONDS)
            return;
        if (one->is_done)
            idempotency_drop(s, one);
    }
}

void idempotency_close(struct server *s)
{
    while (s->idempotency && s->idempotency->newest)
        idempotency_drop(s, s->idempotency->newest);
    free(s->idempotency);
}
