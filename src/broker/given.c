/* broker/given.c: see given.h. */
#include "broker/given.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/text.h"

struct given {
    unsigned holders, users;
    enum value_kind kind;
    char *data;
    size_t len;
    char hash[HASH_TEXT_SIZE]; /* "": nobody has asked for it */
    struct context *context;   /* while there are users */
};

struct given *given_new(enum value_kind kind, const char *data, size_t len)
{
    struct given *g = calloc(1, sizeof *g);
    char *copy = text_copy(data, len);
    if (!g || !copy) {
        free(g);
        free(copy);
        return NULL;
    }
    *g = (struct given){ .holders = 1, .kind = kind, .data = copy, .len = len };
    return g;
}

struct given *given_hold(struct given *g)
{
    if (g)
        g->holders++;
    return g;
}

void given_drop(struct given *g)
{
    if (!g || --g->holders > 0)
        return;
    context_free(g->context);
    free(g->data);
    free(g);
}

const char *given_bytes(const struct given *g, size_t *len)
{
    *len = g->len;
    return g->data;
}

const char *given_hash(struct given *g, struct error *err)
{
    if (!g->hash[0] && hash_sha256(g->data, g->len, g->hash, err) < 0)
        return NULL;
    return g->hash;
}

int given_use(struct given *g, const struct context **out, struct error *err)
{
    int rc = g->context ? 0 : context_from_memory(g->data, g->len, g->kind, &g->context, err);
    if (rc < 0)
        return rc;
    g->users++;
    *out = g->context;
    return 0;
}

void given_rest(struct given *g)
{
    if (--g->users > 0)
        return;
    context_free(g->context);
    g->context = NULL;
}
