/* broker/shared_value.c: reference-counted contexts of child runs. */
#include "broker/shared_value.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/text.h"

struct shared_value {
    unsigned holders, users;
    enum value_kind kind;
    char *data;
    size_t len;
    char hash[HASH_TEXT_SIZE]; /* "": not computed yet */
    struct context *context;   /* only while in use */
};

struct shared_value *shared_value_new(enum value_kind kind, const char *data, size_t len)
{
    struct shared_value *g = calloc(1, sizeof *g);
    char *copy = text_copy(data, len);
    if (!g || !copy) {
        free(g);
        free(copy);
        return NULL;
    }
    *g = (struct shared_value){ .holders = 1, .kind = kind, .data = copy, .len = len };
    return g;
}

struct shared_value *shared_value_hold(struct shared_value *g)
{
    if (g)
        g->holders++;
    return g;
}

void shared_value_drop(struct shared_value *g)
{
    if (!g || --g->holders > 0)
        return;
    context_free(g->context);
    free(g->data);
    free(g);
}

const char *shared_value_bytes(const struct shared_value *g, size_t *len)
{
    *len = g->len;
    return g->data;
}

const char *shared_value_hash(struct shared_value *g, struct error *err)
{
    if (!g->hash[0] && hash_sha256(g->data, g->len, g->hash, err) < 0)
        return NULL;
    return g->hash;
}

int shared_value_use(struct shared_value *g, const struct context **out, struct error *err)
{
    int rc = g->context ? 0 : context_from_memory(g->data, g->len, g->kind, &g->context, err);
    if (rc < 0)
        return rc;
    g->users++;
    *out = g->context;
    return 0;
}

void shared_value_rest(struct shared_value *g)
{
    if (--g->users > 0)
        return;
    context_free(g->context);
    g->context = NULL;
}
