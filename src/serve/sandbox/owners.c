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
#include "base/os/file.h"
#include "base/text.h"
#include "serve/http/nodes.h"
#include "serve/http/work.h"
#include "serve/log.h"
#include "serve/sandbox/commits.h"
#include "serve/sandbox/volume.h"

/* A volume's last commit is copied again after so long if that failed. */
enum { COPY_AGAIN_SECONDS = 10 };
enum { CHUNKS_SWEEP_SECONDS = 600 };

static const char owners_bucket[] = "droste-volumes", unowned[] = "-";

struct owner {
    char key[KEY_ID_SIZE], name[SERVE_NAME_SIZE];
    char node[NODE_NAME_SIZE], commit[DROSTE_COMMIT_SIZE];
    uint64_t revision;
    bool is_parked;   /* its directory is moved away until the lease is back */
    bool is_changing; /* this node opens it, renews its lease, or removes its key */
    bool is_gone;     /* its directory was removed, or is about to be, and then its key is */
    void (*released)(void *arg); /* when its key has been removed, or was not; may be NULL */
    void *released_arg;
    bool is_copying;
    char copied[DROSTE_COMMIT_SIZE]; /* what the node `copy` has, too */
    unsigned copy;
    uint64_t copy_failed_ns;
    struct owners *all;
    struct owner *next;
};

struct owners {
    struct server *s;
    struct bus *bus;
    struct owner *first;
    bool is_known, is_copying, is_sweeping;
    uint64_t swept_ns; /* the chunks; 0: not yet */
    char *own_store;   /* NULL: commits are in the shared directory, or nowhere */
    struct commit_transfers transfers;
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

const char *owners_store(const struct server *s)
{
    const struct owners *all = s->owners;
    return !all ? NULL : s->options->share ? s->options->share : all->own_store;
}

struct commit_transfers *owners_transfers(const struct server *s)
{
    return s->owners && s->owners->own_store ? &s->owners->transfers : NULL;
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

const char *owner_commit(const struct owner *o)
{
    return o->commit;
}

int owners_list_committed(const struct server *s, struct list *out)
{
    int rc = 0;
    for (struct owner *o = s->owners->first; o && rc == 0; o = o->next)
        if (o->commit[0] && owner_is_own(s, o))
            rc = list_take(out, text_printf("%s %s", o->key, o->name), NULL);
    return rc;
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

static void owner_end_release(struct owner *o)
{
    void (*released)(void *arg) = o->released;
    o->released = NULL;
    if (released)
        released(o->released_arg);
}

static void owners_remove(struct owners *all, struct owner *o)
{
    struct owner **at = &all->first;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    bus_forget(all->bus, o);
    owner_end_release(o);
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

static bool owner_is_missing(const struct owner *o)
{
    return owner_has_own_name(o) && o->commit[0] && !o->is_parked && !owner_is_at(o, PLACE_SERVED);
}

static void owner_settle(struct owner *o)
{
    if (o->is_changing || o->is_gone)
        return;
    if (!owner_has_own_name(o))
        owner_lose(o);
    else if (owner_is_missing(o))
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
    o->is_gone = false;
    owner_read_value(o, value);
    owner_settle(o);
}

/* A volume that was removed while this node had lost it: what it still has is not served. One that
 * was made afterwards is another volume; its lock is as old as it is. */
static void owner_bury(struct owner *o, int64_t removed_ms)
{
    cleanup_free char *path = owner_path(o, o->is_parked ? PLACE_PARKED : PLACE_SERVED);
    cleanup_free char *lock = path ? text_printf("%s/lock", path) : NULL;
    struct stat st;
    if (!lock || lstat(lock, &st) < 0)
        return;
    if ((int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000 < removed_ms)
        owner_lose(o);
}

static void owners_on_removed(struct owners *all, const struct bus_entry *entry)
{
    struct owner read = { .all = all };
    if (!owners_read_key(entry->key, &read))
        return;
    struct owner *o = owners_look(all, read.key, read.name);
    if (!o) {
        read.is_parked = owner_is_at(&read, PLACE_PARKED);
        owner_bury(&read, entry->written_ms);
    } else if (entry->revision > o->revision && o->is_changing) {
        o->revision = entry->revision;
        owner_read_value(o, unowned);
    } else if (entry->revision > o->revision) {
        if (!o->is_gone)
            owner_bury(o, entry->written_ms);
        owners_remove(all, o);
    }
}

static void owners_on_entry(void *arg, const struct bus_entry *entry)
{
    struct owners *all = arg;
    if (!entry->key)
        all->is_known = true;
    else if (entry->data)
        owners_note(all->s, entry->key, entry->data, entry->revision);
    else
        owners_on_removed(all, entry);
}

/* ---- removal ---- */

static void owner_on_deleted(void *arg, const struct bus_answer *a)
{
    struct owner *o = arg;
    o->is_changing = false;
    owner_end_release(o);
    if (a->result == BUS_CONFLICT)
        o->is_gone = false; /* the watch says whose it is */
    else if (a->result == BUS_OK && o->is_gone)
        owners_remove(o->all, o);
}

static void owner_delete(struct owner *o)
{
    char key[BUS_SUBJECT_MAX + 1];
    owners_key(o->key, o->name, key);
    o->is_changing = true;
    bus_delete(o->all->bus, owners_bucket, key, o->revision, owner_on_deleted, o);
}

static struct owner *owners_look_key(const struct owners *all, const char *key)
{
    struct owner read;
    return owners_read_key(key, &read) ? owners_look(all, read.key, read.name) : NULL;
}

void owners_set_gone(struct server *s, const char *key, bool is_gone)
{
    struct owner *o = owners_look_key(s->owners, key);
    if (o && owner_has_own_name(o))
        o->is_gone = is_gone;
}

void owners_release(struct server *s, const char *key, void (*done)(void *arg), void *arg)
{
    struct owner *o = owners_look_key(s->owners, key);
    owners_set_gone(s, key, true);
    if (o && o->is_gone && !o->is_changing) {
        o->released = done;
        o->released_arg = arg;
        owner_delete(o);
    } else if (done) {
        done(arg);
    }
}

/* ---- the lease ---- */

static void owner_on_renewed(void *arg, const struct bus_answer *a)
{
    struct owner *o = arg;
    o->is_changing = false;
    if (a->result != BUS_OK) { /* the watch says whose it is, or the next sweep tries again */
        owner_settle(o);
        return;
    }
    o->revision = a->sequence > o->revision ? a->sequence : o->revision;
    owner_move(o, PLACE_PARKED, PLACE_SERVED);
    o->is_parked = false;
}

/* ---- copies ---- */

/* What another node is to have, too. The volume may change its node meanwhile, or be removed. */
struct owner_copying {
    struct owners *all;
    char key[KEY_ID_SIZE], name[SERVE_NAME_SIZE], commit[DROSTE_COMMIT_SIZE];
    unsigned node;
    uint64_t began_ns;
    bus_done_fn *done; /* of a new commit; NULL: it is the one in the key */
    void *arg;
};

static void owner_on_committed(void *arg, const struct bus_answer *a)
{
    struct owner_copying *c = arg;
    struct owner *o = owners_look(c->all, c->key, c->name);
    if (o && a->result == BUS_OK && a->sequence > o->revision) {
        o->revision = a->sequence;
        memcpy(o->commit, c->commit, sizeof o->commit);
    }
    c->done(c->arg, a);
    free(c);
}

/* The commit becomes the volume's by its key. Chunks that no key has are not kept for longer. */
static void owner_on_commit_copied(
    struct owner_copying *c, struct owner *o, const struct error *err)
{
    bool is_late = clock_seconds_since(c->began_ns) > OWNER_COMMIT_SECONDS;
    bool may = o && !o->is_changing && !o->is_gone && owner_is_own(c->all->s, o);
    if (!err && !is_late && may) {
        owner_write(o, o->node, c->commit, owner_on_committed, c);
        return;
    }
    c->done(c->arg, &(struct bus_answer){ .result = err || is_late ? BUS_REFUSED : BUS_CONFLICT,
                        .why = err       ? err->text
                               : is_late ? "it took too long"
                                         : "another node has the volume" });
    free(c);
}

static void owner_on_copied(void *arg, const struct error *err)
{
    struct owner_copying *c = arg;
    struct owner *o = owners_look(c->all, c->key, c->name);
    c->all->is_copying &= c->done != NULL;
    if (err && !c->all->s->closing)
        log_event(c->all->s, LOG_WARNING, "copying the volume '%s': %s", c->name, err->text);
    if (o) {
        o->is_copying = false;
        o->copy_failed_ns = err ? clock_ns() : 0;
    }
    if (o && !err) {
        o->copy = c->node;
        memcpy(o->copied, c->commit, sizeof o->copied);
    }
    if (c->done)
        owner_on_commit_copied(c, o, err);
    else
        free(c);
}

/* NULL without memory. */
static struct owner_copying *owner_copying_new(struct owner *o, const char *commit)
{
    struct owner_copying *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->all = o->all;
    memcpy(c->key, o->key, sizeof c->key);
    memcpy(c->name, o->name, sizeof c->name);
    snprintf(c->commit, sizeof c->commit, "%s", commit);
    o->is_copying = true;
    return c;
}

/* Where nodes share no directory, one other node has the last commit, too. */
static void owner_keep_copy(struct owner *o)
{
    struct owners *all = o->all;
    const struct node *node = o->copy ? registry_node(all->s->nodes, o->copy) : NULL;
    bool is_there = node && !node->is_lost && strcmp(o->copied, o->commit) == 0;
    bool rests = o->copy_failed_ns && clock_seconds_since(o->copy_failed_ns) < COPY_AGAIN_SECONDS;
    if (!all->own_store || is_there || rests || o->is_copying || all->is_copying ||
        !commit_has_peers(all->s))
        return;
    struct owner_copying *c = owner_copying_new(o, o->commit);
    if (!c)
        return;
    all->is_copying = true;
    commit_copy(&all->transfers, c->commit, c->name, &c->node, owner_on_copied, c);
}

void owners_commit(struct server *s, const char *key, const char *name, const char *commit,
    uint64_t began_ns, bus_done_fn *done, void *arg)
{
    struct owners *all = s->owners;
    struct owner *o = owners_look(all, key, name);
    struct owner_copying *c = o ? owner_copying_new(o, commit) : NULL;
    if (!c) {
        done(arg, &(struct bus_answer){ .result = BUS_CONFLICT, .why = "another node has it" });
        return;
    }
    c->began_ns = began_ns;
    c->done = done;
    c->arg = arg;
    if (all->own_store && commit_has_peers(s))
        commit_copy(&all->transfers, c->commit, c->name, &c->node, owner_on_copied, c);
    else
        owner_on_copied(c, NULL);
}

static void owner_sweep(struct owner *o, bool has_lease)
{
    bool is_own = o->commit[0] && owner_has_own_name(o) && !o->is_changing && !o->is_gone;
    if (o->is_gone && has_lease && !o->is_changing && !owner_is_at(o, PLACE_SERVED)) {
        owner_delete(o); /* NATS was away when the volume was removed */
    } else if (is_own && !has_lease && !o->is_parked) {
        o->is_parked = owner_move(o, PLACE_SERVED, PLACE_PARKED);
    } else if (is_own && has_lease && o->is_parked) {
        o->is_changing = true;
        owner_write(o, o->node, o->commit, owner_on_renewed, o);
    } else if (is_own && has_lease && owner_is_missing(o)) {
        owner_miss(o);
    } else if (is_own && has_lease) {
        owner_keep_copy(o);
    }
}

/* ---- old chunks ---- */

/* Of a directory that is shared, one node is enough. */
static bool owners_may_sweep_chunks(const struct owners *all)
{
    const struct node *node;
    const struct server *s = all->s;
    for (size_t i = 0; s->options->share && (node = nodes_peer_at(s, i)); i++)
        if (!node->is_lost && node->number < registry_own(s->nodes))
            return false;
    return owners_store(s) && all->is_known && !all->is_sweeping && !s->draining;
}

static void owners_on_swept(struct server *s)
{
    s->owners->is_sweeping = false;
}

/* Without any commit, the bucket was rather lost than all volumes removed: nothing is. */
static void owners_sweep_chunks(struct owners *all)
{
    struct list commits = { 0 };
    bool is_due = !all->swept_ns || clock_seconds_since(all->swept_ns) > CHUNKS_SWEEP_SECONDS;
    if (!is_due || !owners_may_sweep_chunks(all))
        return;
    int rc = 0;
    for (struct owner *o = all->first; o && rc == 0; o = o->next)
        if (o->commit[0])
            rc = list_add(&commits, o->commit, NULL);
    all->swept_ns = clock_ns();
    all->is_sweeping = rc == 0 && commits.count > 0;
    if (all->is_sweeping)
        commit_sweep(all->s, owners_store(all->s), &commits, owners_on_swept);
    list_clear(&commits);
}

void owners_sweep(struct server *s)
{
    struct owners *all = s->owners;
    bool has_lease = all && owners_have_lease(all);
    for (struct owner *o = all ? all->first : NULL; o; o = o->next)
        owner_sweep(o, has_lease);
    if (has_lease)
        owners_sweep_chunks(all);
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
    t->rc = sandbox_volume_droste(t->root, &d, &t->err);
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

static void owner_taking_free(struct owner_taking *t)
{
    free(t->root);
    free(t);
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
    owner_taking_free(t);
}

static void owner_on_fetched(void *arg, const struct error *err)
{
    struct owner_taking *t = arg;
    if (!err) {
        work_start(&t->w);
        return;
    }
    log_event(t->w.server, LOG_ERROR, "opening the volume '%s': %s", t->name, err->text);
    t->o->is_changing = false;
    owner_taking_free(t);
}

bool owners_take(struct server *s, const struct owner *const_o)
{
    struct owner *o = owners_look(s->owners, const_o->key, const_o->name);
    const char *store = owners_store(s);
    bool is_free =
        strcmp(o->node, unowned) == 0 || registry_is_silent(s->nodes, o->node, OWNER_SILENCE_MS);
    if (o->is_changing)
        return true;
    if (!store || !o->commit[0] || !owners_have_lease(s->owners) || !is_free)
        return false;
    struct owner_taking *t = calloc(1, sizeof *t);
    if (!t)
        return false;
    *t = (struct owner_taking){ .w = { .server = s, .run = owner_open_commit, .end = owner_opened },
        .o = o,
        .root = sandbox_volume_root_of(s, o->key),
        .share = store,
        .revision = o->revision };
    memcpy(t->name, o->name, sizeof t->name);
    memcpy(t->commit, o->commit, sizeof t->commit);
    if (!t->root) {
        free(t);
        return false;
    }
    o->is_changing = true;
    if (s->options->share)
        work_start(&t->w);
    else
        commit_fetch(&s->owners->transfers, t->commit, 0, true, owner_on_fetched, t);
    return true;
}

/* ---- open and close ---- */

/* Beside the volumes, for those of all keys. */
static int owners_make_store(struct owners *all, struct error *err)
{
    struct server *s = all->s;
    const char *root = s->options->share || droste_volumes_are_remote(s->d)
                           ? NULL
                           : droste_volume_root(s->d, NULL);
    if (!root)
        return 0;
    all->own_store = text_printf("%s.chunks", root);
    all->transfers = (struct commit_transfers){ .server = s, .store = all->own_store };
    return all->own_store ? file_make_directories(all->own_store, err) : error_memory(err);
}

int owners_open(struct server *s, struct error *err)
{
    struct owners *all = calloc(1, sizeof *all);
    if (!all)
        return error_memory(err);
    *all = (struct owners){ .s = s, .bus = registry_bus(s->nodes) };
    s->owners = all;
    int rc = owners_make_store(all, err);
    if (rc < 0)
        return rc;
    return bus_watch(all->bus, owners_bucket, ">", owners_on_entry, all, err);
}

void owners_close(struct server *s)
{
    struct owners *all = s->owners;
    if (!all)
        return;
    bus_forget(all->bus, all);
    commit_transfers_close(&all->transfers);
    while (all->first)
        owners_remove(all, all->first);
}

void owners_free(struct server *s)
{
    if (s->owners)
        free(s->owners->own_store);
    free(steal(&s->owners));
}
