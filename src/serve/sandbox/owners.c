/* serve/sandbox/owners.c: see owners.h. */
#include "serve/sandbox/owners.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "serve/http/work.h"
#include "serve/log.h"
#include "serve/sandbox/volume.h"

static const char owners_bucket[] = "droste-volumes", unowned[] = "-";

struct owner {
    char key[KEY_ID_SIZE], name[SERVE_NAME_SIZE];
    char node[NODE_NAME_SIZE], commit[DROSTE_COMMIT_SIZE];
    uint64_t revision;
    bool is_parked;   /* its directory is moved away until the lease is back */
    bool is_changing; /* this node opens it, or renews its lease */
    struct owners *all;
    struct owner *next;
};

struct owners {
    struct server *s;
    struct bus *bus;
    struct owner *first;
    bool is_known;
};

/* ---- keys and values ---- */

void owners_key(const char *key, const char *name, char out[BUS_SUBJECT_MAX + 1])
{
    size_t n = (size_t)snprintf(out, BUS_SUBJECT_MAX + 1, "%s.", key);
    for (const char *p = name; *p && n + 3 < BUS_SUBJECT_MAX; p++)
        n += (size_t)snprintf(out + n, BUS_SUBJECT_MAX + 1 - n, "%02x", (unsigned char)*p);
}

/* The other way round. False: it is none. */
static bool owners_read_key(const char *text, struct owner *out)
{
    const char *dot = strchr(text, '.');
    size_t digits = dot ? strlen(dot + 1) : 0;
    if (!dot || dot == text || (size_t)(dot - text) >= sizeof out->key || digits % 2 ||
        digits / 2 >= sizeof out->name || strspn(dot + 1, "0123456789abcdef") != digits)
        return false;
    snprintf(out->key, sizeof out->key, "%.*s", (int)(dot - text), text);
    for (size_t i = 0; i < digits / 2; i++) {
        char byte[3] = { dot[1 + 2 * i], dot[2 + 2 * i], '\0' };
        out->name[i] = (char)strtoul(byte, NULL, 16);
    }
    out->name[digits / 2] = '\0';
    return text_is_name(out->name);
}

void owners_read_node(const char *value, char out[NODE_NAME_SIZE])
{
    size_t len = strcspn(value, " ");
    snprintf(out, NODE_NAME_SIZE, "%.*s", (int)(len < NODE_NAME_SIZE ? len : 0), value);
}

static void owner_read_value(struct owner *o, const char *value)
{
    const char *space = strchr(value, ' ');
    owners_read_node(value, o->node);
    snprintf(o->commit, sizeof o->commit, "%s", space ? space + 1 : "");
}

static void owner_write(
    struct owner *o, const char *node, const char *commit, bus_done_fn *done, void *arg)
{
    char key[BUS_SUBJECT_MAX + 1], value[NODE_NAME_SIZE + DROSTE_COMMIT_SIZE];
    owners_key(o->key, o->name, key);
    snprintf(value, sizeof value, "%s %s", node, commit);
    bus_update(o->all->bus, owners_bucket, key, o->revision, value, strlen(value), done, arg);
}

/* ---- what is known ---- */

static struct owner *owners_look(const struct owners *all, const char *key, const char *name)
{
    for (struct owner *o = all ? all->first : NULL; o; o = o->next)
        if (strcmp(o->name, name) == 0 && strcmp(o->key, key) == 0)
            return o;
    return NULL;
}

const struct owner *owners_find(const struct server *s, const char *key, const char *name)
{
    return owners_look(s->owners, key, name);
}

bool owners_are_known(const struct server *s)
{
    return s->owners->is_known;
}

const char *owner_node(const struct owner *o)
{
    return o->node;
}

static bool owner_has_own_name(const struct owner *o)
{
    return strcmp(o->node, o->all->s->options->node) == 0;
}

/* Looked up each time: a process that was stopped may answer a request before its timers run. */
static bool owners_have_lease(const struct owners *all)
{
    return clock_ns() - registry_proven_ns(all->s->nodes) < OWNER_LEASE_MS * 1000000ull;
}

bool owner_is_own(const struct server *s, const struct owner *o)
{
    bool has_lease = !o->commit[0] || (owners_have_lease(s->owners) && !o->is_parked);
    return owner_has_own_name(o) && has_lease;
}

/* ---- directories ---- */

enum owner_place {
    PLACE_SERVED, /* ROOT/NAME */
    PLACE_PARKED, /* ROOT.lost/NAME: until the lease is back */
    PLACE_LOST,   /* ROOT.lost/NAME-TIME: another node has the volume */
};

/* Free it. NULL without memory. */
static char *owner_path(const struct owner *o, enum owner_place place)
{
    cleanup_free char *root = sandbox_volume_root_of(o->all->s, o->key);
    if (!root)
        return NULL;
    if (place == PLACE_LOST)
        return text_printf("%s.lost/%s-%lld", root, o->name, (long long)clock_wall_ms());
    return text_printf("%s%s/%s", root, place == PLACE_PARKED ? ".lost" : "", o->name);
}

static bool owner_is_at(const struct owner *o, enum owner_place place)
{
    cleanup_free char *path = owner_path(o, place);
    return path && access(path, F_OK) == 0;
}

/* False: there was nothing to move, or it could not be. */
static bool owner_move(const struct owner *o, enum owner_place from, enum owner_place to)
{
    cleanup_free char *old = owner_path(o, from), *new = owner_path(o, to);
    char *slash = new ? strrchr(new, '/') : NULL;
    if (!old || !slash || access(old, F_OK) < 0)
        return false;
    *slash = '\0';
    bool is_there = mkdir(new, 0700) == 0 || errno == EEXIST;
    *slash = '/';
    bool is_moved = is_there && rename(old, new) == 0;
    if (is_moved)
        log_event(o->all->s, LOG_WARNING, "the volume '%s' of the node '%s' was moved to %.200s",
            o->name, o->node, new);
    else
        log_event(o->all->s, LOG_ERROR, "moving the volume '%s' to %.200s: %s", o->name, new,
            strerror(errno));
    return is_moved;
}

static void owner_lose(struct owner *o)
{
    owner_move(o, o->is_parked ? PLACE_PARKED : PLACE_SERVED, PLACE_LOST);
    o->is_parked = false;
}

/* ---- the watch ---- */

static void owners_remove(struct owners *all, struct owner *o)
{
    struct owner **at = &all->first;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    bus_forget(all->bus, o);
    free(o);
}

static void owner_on_given_up(void *arg, const struct bus_answer *a)
{
    struct owner *o = arg;
    o->is_changing = false;
}

/* A volume of this node whose directory is not there: an earlier process has parked it, or the disk
 * was lost, so that any node, or this one, may open the last commit. */
static void owner_miss(struct owner *o)
{
    o->is_parked = owner_is_at(o, PLACE_PARKED);
    o->is_changing = !o->is_parked;
    if (o->is_changing)
        owner_write(o, unowned, o->commit, owner_on_given_up, o);
}

static void owner_settle(struct owner *o)
{
    if (o->is_changing)
        return;
    if (!owner_has_own_name(o))
        owner_lose(o);
    else if (o->commit[0] && !o->is_parked && !owner_is_at(o, PLACE_SERVED))
        owner_miss(o);
}

void owners_note(struct server *s, const char *key, const char *value, uint64_t revision)
{
    struct owners *all = s->owners;
    struct owner read = { .all = all };
    if (!owners_read_key(key, &read))
        return;
    struct owner *o = owners_look(all, read.key, read.name);
    if (!o && (o = calloc(1, sizeof *o))) {
        *o = read;
        o->next = all->first;
        all->first = o;
    }
    if (!o || o->revision >= revision)
        return;
    o->revision = revision;
    owner_read_value(o, value);
    owner_settle(o);
}

static void owners_on_entry(void *arg, const struct bus_entry *entry)
{
    struct owners *all = arg;
    struct owner read;
    if (!entry->key) {
        all->is_known = true;
    } else if (entry->data) {
        owners_note(all->s, entry->key, entry->data, entry->revision);
    } else if (owners_read_key(entry->key, &read)) {
        struct owner *o = owners_look(all, read.key, read.name);
        if (o && !o->is_changing)
            owners_remove(all, o);
        else if (o)
            owner_read_value(o, unowned);
    }
}

/* ---- the lease ---- */

static void owner_on_renewed(void *arg, const struct bus_answer *a)
{
    struct owner *o = arg;
    o->is_changing = false;
    if (a->result != BUS_OK)
        return; /* the watch says whose it is, or the next sweep tries again */
    o->revision = a->sequence > o->revision ? a->sequence : o->revision;
    owner_move(o, PLACE_PARKED, PLACE_SERVED);
    o->is_parked = false;
}

static void owner_sweep(struct owner *o, bool has_lease)
{
    bool is_own = o->commit[0] && owner_has_own_name(o) && !o->is_changing;
    if (is_own && !has_lease && !o->is_parked) {
        o->is_parked = owner_move(o, PLACE_SERVED, PLACE_PARKED);
    } else if (is_own && has_lease && o->is_parked) {
        o->is_changing = true;
        owner_write(o, o->node, o->commit, owner_on_renewed, o);
    }
}

void owners_sweep(struct server *s)
{
    struct owners *all = s->owners;
    bool has_lease = all && owners_have_lease(all);
    for (struct owner *o = all ? all->first : NULL; o; o = o->next)
        owner_sweep(o, has_lease);
}

/* ---- taking one over ---- */

struct owner_taking {
    struct work w;
    struct owner *o;
    char *root, name[SERVE_NAME_SIZE], commit[DROSTE_COMMIT_SIZE];
    const char *share;
    uint64_t revision; /* upon which it is written */
    int rc;
    droste_error err;
};

/* What is there was left by an attempt that did not end. */
static void owner_open_commit(struct work *w)
{
    struct owner_taking *t = (struct owner_taking *)w;
    droste *d = NULL;
    t->rc = droste_new(&d, &t->err);
    if (t->rc == 0)
        t->rc = droste_set(d, "volume-root", t->root, &t->err);
    if (t->rc == 0 && sandbox_volume_exists(t->root, t->name))
        t->rc = droste_volume_remove(d, t->name, &t->err);
    if (t->rc == 0)
        t->rc = droste_volume_create_from(d, t->name, t->share, t->commit, &t->err);
    droste_free(d);
}

static void owner_on_taken(void *arg, const struct bus_answer *a)
{
    struct owner *o = arg;
    o->is_changing = false;
    if (a->result != BUS_OK) { /* or it is not known: the watch says it */
        owner_settle(o);
        return;
    }
    o->revision = a->sequence > o->revision ? a->sequence : o->revision;
    snprintf(o->node, sizeof o->node, "%s", o->all->s->options->node);
    log_event(o->all->s, LOG_WARNING, "the volume '%s' is on this node now, as of its commit %.16s",
        o->name, o->commit);
}

static void owner_opened(struct work *w)
{
    struct owner_taking *t = (struct owner_taking *)w;
    struct owner *o = t->o;
    if (w->server->closing) {
        t->rc = -1;
    } else if (t->rc < 0) {
        log_event(w->server, LOG_ERROR, "%s", t->err.text);
        o->is_changing = false;
    } else if (o->revision != t->revision) {
        o->is_changing = false; /* its node is back, or another one has it */
        owner_settle(o);
    } else {
        owner_write(o, w->server->options->node, o->commit, owner_on_taken, o);
    }
    free(t->root);
    free(t);
}

bool owners_take(struct server *s, const struct owner *const_o)
{
    struct owner *o = owners_look(s->owners, const_o->key, const_o->name);
    bool is_free =
        strcmp(o->node, unowned) == 0 || registry_is_silent(s->nodes, o->node, OWNER_SILENCE_MS);
    if (o->is_changing)
        return true;
    if (!s->options->share || !o->commit[0] || !owners_have_lease(s->owners) || !is_free)
        return false;
    struct owner_taking *t = calloc(1, sizeof *t);
    if (!t)
        return false;
    *t = (struct owner_taking){ .w = { .server = s, .run = owner_open_commit, .end = owner_opened },
        .o = o,
        .root = sandbox_volume_root_of(s, o->key),
        .share = s->options->share,
        .revision = o->revision };
    memcpy(t->name, o->name, sizeof t->name);
    memcpy(t->commit, o->commit, sizeof t->commit);
    if (!t->root) {
        free(t);
        return false;
    }
    o->is_changing = true;
    work_start(&t->w);
    return true;
}

/* ---- commits ---- */

bool owners_commit(struct server *s, const char *key, const char *name, const char *commit,
    bus_done_fn *done, void *arg)
{
    struct owner *o = owners_look(s->owners, key, name);
    bool may = o && !o->is_changing && owner_is_own(s, o);
    if (may)
        owner_write(o, s->options->node, commit, done, arg);
    return may;
}

/* ---- open and close ---- */

int owners_open(struct server *s, struct error *err)
{
    if (!s->nodes)
        return 0;
    struct owners *all = calloc(1, sizeof *all);
    if (!all)
        return error_memory(err);
    *all = (struct owners){ .s = s, .bus = registry_bus(s->nodes) };
    s->owners = all;
    return bus_watch(all->bus, owners_bucket, ">", owners_on_entry, all, err);
}

void owners_close(struct server *s)
{
    struct owners *all = s->owners;
    if (!all)
        return;
    bus_forget(all->bus, all);
    while (all->first)
        owners_remove(all, all->first);
    free(steal(&s->owners));
}
