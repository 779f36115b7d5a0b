/* serve/sandbox/leaving.c: see leaving.h. */
#include "serve/sandbox/leaving.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "serve/http/work.h"
#include "serve/log.h"
#include "serve/sandbox/owners.h"
#include "serve/sandbox/volume.h"

struct leaving {
    struct work w;
    struct list volumes; /* "KEY NAME" */
    size_t at;
    bool is_working, is_closed;
    const char *store;
    /* Of the volume that is committed now: */
    char *root;
    const char *key, *name;
    char commit[DROSTE_COMMIT_SIZE];
    uint64_t began_ns;
    int rc;
    droste_error err;
};

static void leaving_free(struct leaving *l)
{
    list_clear(&l->volumes);
    free(l->root);
    free(l);
}

static void leaving_run(struct work *w)
{
    struct leaving *l = (struct leaving *)w;
    droste_volume *v = NULL;
    droste *d = NULL;
    l->rc = sandbox_volume_droste(l->root, &d, &l->err);
    if (l->rc == 0)
        l->rc = droste_volume_open(d, l->name, DROSTE_VOLUME_ALONE, &v, &l->err);
    if (l->rc == 0)
        l->rc = droste_volume_commit(v, l->store, l->commit, NULL, &l->err);
    droste_volume_close(v);
    droste_free(d);
}

static void leaving_next(struct leaving *l)
{
    struct server *s = l->w.server;
    free(steal(&l->root));
    if (l->at < l->volumes.count) {
        char *space = strchr(l->volumes.items[l->at], ' ');
        *space = '\0';
        l->key = l->volumes.items[l->at++];
        l->name = space + 1;
        l->root = sandbox_volume_root_of(s, l->key);
    }
    if (!l->root) {
        leaving_free(steal(&s->leaving));
        return;
    }
    l->began_ns = clock_ns();
    l->is_working = true;
    work_start(&l->w);
}

static void leaving_warn(const struct leaving *l, const char *name, const char *why)
{
    log_event(l->w.server, LOG_WARNING,
        "what the volume '%s' has since its last commit is on this node only: %s", name, why);
}

static void leaving_on_committed(void *arg, const struct bus_answer *a)
{
    struct leaving *l = arg;
    if (a->result != BUS_OK)
        leaving_warn(l, l->name, a->why);
    if (!l->w.server->closing)
        leaving_next(l);
}

static void leaving_end(struct work *w)
{
    struct leaving *l = (struct leaving *)w;
    struct server *s = w->server;
    l->is_working = false;
    const struct owner *o = l->is_closed ? NULL : owners_find(s, l->key, l->name);
    if (l->rc < 0)
        leaving_warn(l, l->name, l->err.text);
    if (l->is_closed)
        leaving_free(l);
    else if (l->rc < 0 || !o || strcmp(owner_commit(o), l->commit) == 0)
        leaving_next(l);
    else
        owners_commit(s, l->key, l->name, l->commit, l->began_ns, leaving_on_committed, l);
}

void leaving_start(struct server *s)
{
    const char *store = owners_store(s);
    struct leaving *l = store && !s->leaving ? calloc(1, sizeof *l) : NULL;
    if (!l)
        return;
    *l = (struct leaving){ .w = { .server = s, .run = leaving_run, .end = leaving_end },
        .store = store };
    s->leaving = l;
    (void)owners_list_committed(s, &l->volumes); /* without memory, as many as there are */
    leaving_next(l);
}

bool leaving_is_over(const struct server *s)
{
    return !s->leaving;
}

void leaving_close(struct server *s)
{
    static const char why[] = "the server stops";
    struct leaving *l = steal(&s->leaving);
    if (!l)
        return;
    l->is_closed = true;
    if (l->is_working)
        leaving_warn(l, l->name, why);
    for (size_t i = l->at; i < l->volumes.count; i++)
        leaving_warn(l, strchr(l->volumes.items[i], ' ') + 1, why);
    if (!l->is_working)
        leaving_free(l);
}
