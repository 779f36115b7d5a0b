/* serve/sandbox/commits.c: see commits.h.
 *
 * A transfer alternates between a thread, which writes a chunk and finds the next one that is
 * missing, and the loop, which asks for it. At most one chunk and the list are in memory.
 */
#include "serve/sandbox/commits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/chunk.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/http/nodes.h"
#include "serve/http/upstream.h"
#include "serve/http/work.h"
#include "serve/log.h"
#include "serve/sandbox/owners.h"

/* Transfers at once that other nodes ask for, and bytes of one: a volume has at most 10 GiB. */
enum { TRANSFERS_MOST = 16 };
static const uint64_t transfer_bytes_most = (uint64_t)16 << 30;

struct commit_transfer {
    struct work w;
    struct commit_transfers *all; /* NULL: they are closed, and the work in the thread is the end */
    char *store;
    char commit[HASH_TEXT_SIZE];
    unsigned order; /* the hash that orders the nodes */
    unsigned node;  /* that is asked; 0: none yet */
    uint64_t score; /* of the last one, below which the next ones are */
    struct upstream *u;
    bool is_copy;     /* another node gets it; the rest is for a fetch */
    unsigned *copied; /* of a copy: the node that has it */
    bool is_checked, is_working, is_refused;
    char wanted[HASH_TEXT_SIZE]; /* the chunk that is missing; "": none is */
    struct buf list, chunk;
    size_t at; /* in the list */
    uint64_t bytes;
    struct error err;
    int rc;
    commit_done_fn *done;
    void *arg;
    struct commit_transfer *next;
};

/* ---- the beginning and the end ---- */

static struct commit_transfer *transfer_new(
    struct commit_transfers *all, const char *commit, commit_done_fn *done, void *arg)
{
    struct commit_transfer *t = calloc(1, sizeof *t);
    if (!t || !(t->store = strdup(all->store))) {
        free(t);
        return NULL;
    }
    t->all = all;
    t->w.server = all->server;
    snprintf(t->commit, sizeof t->commit, "%s", commit);
    t->done = done;
    t->arg = arg;
    t->next = all->first;
    all->first = t;
    return t;
}

static void transfer_free(struct commit_transfer *t)
{
    buf_free(&t->list);
    buf_free(&t->chunk);
    free(t->store);
    free(t);
}

static void transfer_end(struct commit_transfer *t, const struct error *err)
{
    struct commit_transfer **at = &t->all->first;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    t->done(t->arg, err);
    transfer_free(t);
}

void commit_transfers_close(struct commit_transfers *all)
{
    struct error err;
    error_set(&err, ERROR_CANCELLED, "the server is stopping");
    while (all->first) {
        struct commit_transfer *t = all->first;
        all->first = t->next;
        if (t->u)
            upstream_drop(t->u);
        t->done(t->arg, &err);
        t->all = NULL;
        if (!t->is_working)
            transfer_free(t);
    }
}

/* ---- which node ---- */

static bool transfer_may_ask(const struct commit_transfer *t, const struct node *node)
{
    return !node->is_lost && node->address[0] && !(t->is_copy && node->is_draining) &&
           node->number != registry_own(t->w.server->nodes);
}

bool commit_has_peers(const struct server *s)
{
    const struct commit_transfer copy = { .w.server = (struct server *)s, .is_copy = true };
    const struct node *node;
    for (size_t i = 0; (node = nodes_peer_at(s, i)); i++)
        if (transfer_may_ask(&copy, node))
            return true;
    return false;
}

/* The next node in the order of the transfer (rendezvous hashing); 0: all were asked. */
static unsigned transfer_next(struct commit_transfer *t)
{
    const struct node *node;
    uint64_t best = 0;
    for (size_t i = 0; (node = nodes_peer_at(t->w.server, i)); i++) {
        uint64_t hash = (t->order ^ node->number) * UINT64_C(0x9e3779b97f4a7c15);
        uint64_t score = (hash & ~UINT64_C(0xffff)) | node->number;
        if (transfer_may_ask(t, node) && score < t->score && score > best)
            best = score;
    }
    t->score = best;
    return (unsigned)(best & 0xffff);
}

/* ---- asking ---- */

static void transfer_ask(struct commit_transfer *t, bool is_new);

static void transfer_on_field(void *arg, const char *name, const char *value)
{
}

static void transfer_on_event(void *arg)
{
}

static void transfer_on_data(void *arg, const char *data, size_t len)
{
    struct commit_transfer *t = arg;
    t->is_refused |= t->chunk.len + len > CHUNK_MOST;
    if (t->is_refused)
        shutdown(t->u->fd, SHUT_RDWR); /* the loop sees it */
    else
        buf_append(&t->chunk, data, len);
}

static void transfer_on_end(void *arg, bool is_whole)
{
    struct commit_transfer *t = arg;
    unsigned status = t->u->status;
    bool is_sound = is_whole && !t->is_refused && !buf_failed(&t->chunk);
    t->u = NULL;
    if (t->is_copy && is_sound && status == 204) {
        *t->copied = t->node;
        transfer_end(t, NULL);
    } else if (!t->is_copy && is_sound && status == 200 && t->chunk.len > 0) {
        t->is_working = true;
        work_start(&t->w);
    } else {
        transfer_ask(t, false);
    }
}

static bool transfer_send(struct commit_transfer *t)
{
    struct server *s = t->w.server;
    char target[160];
    if (t->is_copy)
        snprintf(
            target, sizeof target, "/v1/commits/%s?from=%u", t->commit, registry_own(s->nodes));
    else
        snprintf(target, sizeof target, "/v1/chunks/%s", t->wanted);
    struct upstream *u = nodes_ask(s, t->node, t->is_copy ? "PUT" : "GET", target);
    if (!u)
        return false;
    buf_clear(&t->chunk);
    t->is_refused = false;
    t->u = u;
    u->arg = t;
    u->on_field = transfer_on_field;
    u->on_head = u->on_sent = transfer_on_event;
    u->on_data = transfer_on_data;
    u->on_end = transfer_on_end;
    return true;
}

/* Asks the node that has answered last for what is new, and then one after the other. */
static void transfer_ask(struct commit_transfer *t, bool is_new)
{
    struct error err;
    if (is_new)
        t->score = UINT64_MAX;
    if (!is_new || !t->node)
        t->node = transfer_next(t);
    while (t->node && !transfer_send(t))
        t->node = transfer_next(t);
    if (t->node)
        return;
    if (t->is_copy)
        error_set(&err, ERROR_NOT_FOUND, "no other node could store the commit %.16s", t->commit);
    else
        error_set(&err, ERROR_NOT_FOUND,
            "no node that answers has the chunk %.16s… of the commit "
            "%.16s",
            t->wanted, t->commit);
    transfer_end(t, &err);
}

/* ---- fetching ---- */

static bool transfer_has(
    const struct commit_transfer *t, const struct chunk_store *store, const char *name)
{
    cleanup_buf struct buf chunk = { 0 };
    return chunk_is_there(store, name) &&
           (!t->is_checked || chunk_get(store, name, &chunk, NULL) == 0);
}

/* Finds the next chunk that is missing. */
static int transfer_look(struct commit_transfer *t, const struct chunk_store *store)
{
    if (t->list.len == 0) {
        snprintf(t->wanted, sizeof t->wanted, "%s", t->commit);
        int rc = chunk_is_there(store, t->commit) ? chunk_get(store, t->commit, &t->list, &t->err)
                                                  : -(int)ERROR_NOT_FOUND;
        if (rc < 0)
            buf_clear(&t->list);
        if (rc == -(int)ERROR_NOT_FOUND || rc == -(int)ERROR_PROTOCOL)
            return 0;
        if (rc < 0)
            return rc;
    }
    while (chunk_list_next(&t->list, &t->at, t->wanted))
        if (!transfer_has(t, store, t->wanted))
            return 0;
    t->wanted[0] = '\0';
    return 0;
}

static void transfer_run(struct work *w)
{
    struct commit_transfer *t = (struct commit_transfer *)w;
    cleanup_chunk_store struct chunk_store store = { .directory = -1 };
    t->rc = chunk_store_open(t->store, &store, &t->err);
    if (t->rc == 0 && t->chunk.len > 0)
        t->rc = chunk_put_named(&store, t->wanted, buf_text(&t->chunk), t->chunk.len, &t->err);
    t->bytes += t->chunk.len;
    buf_clear(&t->chunk);
    if (t->rc == 0)
        t->rc = transfer_look(t, &store);
    if (t->rc == 0 && t->bytes > transfer_bytes_most)
        t->rc = error_set(&t->err, ERROR_ARGUMENT, "the commit %.16s is too large", t->commit);
}

static void transfer_worked(struct work *w)
{
    struct commit_transfer *t = (struct commit_transfer *)w;
    t->is_working = false;
    if (!t->all) {
        transfer_free(t);
    } else if (t->rc == -(int)ERROR_PROTOCOL) {
        log_event(w->server, LOG_ERROR, "a chunk of another node is broken: %s", t->err.text);
        transfer_ask(t, false);
    } else if (t->rc < 0 || !t->wanted[0]) {
        transfer_end(t, t->rc < 0 ? &t->err : NULL);
    } else {
        transfer_ask(t, true);
    }
}

void commit_fetch(struct commit_transfers *all, const char *commit, unsigned node, bool is_checked,
    commit_done_fn *done, void *arg)
{
    struct error err;
    struct commit_transfer *t =
        chunk_name_is_ok(commit) ? transfer_new(all, commit, done, arg) : NULL;
    if (!t) {
        error_set(&err, ERROR_PROTOCOL, "'%.64s' cannot be fetched", commit);
        done(arg, &err);
        return;
    }
    t->node = node;
    t->is_checked = is_checked;
    t->order = hash_word(HASH_WORD, commit);
    t->w.run = transfer_run;
    t->w.end = transfer_worked;
    t->is_working = true;
    work_start(&t->w);
}

void commit_copy(struct commit_transfers *all, const char *commit, const char *word, unsigned *node,
    commit_done_fn *done, void *arg)
{
    struct commit_transfer *t = transfer_new(all, commit, done, arg);
    struct error err;
    if (!t) {
        error_memory(&err);
        done(arg, &err);
        return;
    }
    t->is_copy = true;
    t->copied = node;
    t->order = hash_word(HASH_WORD, word);
    transfer_ask(t, true);
}

/* ---- sweeping ---- */

/* Twice the time that a commit may take until it is in its key. */
enum { CHUNK_GRACE_SECONDS = 2 * OWNER_COMMIT_SECONDS };

struct commit_sweep {
    struct work w;
    char *store;
    struct list commits;
    uint64_t listed_ns;
    size_t removed;
    struct error err;
    int rc;
    void (*done)(struct server *s);
};

static void sweep_run(struct work *w)
{
    struct commit_sweep *sweep = (struct commit_sweep *)w;
    cleanup_chunk_store struct chunk_store store = { .directory = -1 };
    sweep->rc = chunk_store_open(sweep->store, &store, &sweep->err);
    if (sweep->rc == 0)
        sweep->rc = chunk_sweep(&store, &sweep->commits, sweep->listed_ns, CHUNK_GRACE_SECONDS,
            &sweep->removed, &sweep->err);
}

static void sweep_end(struct work *w)
{
    struct commit_sweep *sweep = (struct commit_sweep *)w;
    if (sweep->rc < 0)
        log_event(w->server, LOG_ERROR, "removing old chunks: %s", sweep->err.text);
    else if (sweep->removed > 0)
        log_event(w->server, LOG_INFO, "removed %zu chunks that no commit has", sweep->removed);
    if (!w->server->closing)
        sweep->done(w->server);
    list_clear(&sweep->commits);
    free(sweep->store);
    free(sweep);
}

void commit_sweep(
    struct server *s, const char *store, struct list *commits, void (*done)(struct server *s))
{
    struct commit_sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep || !(sweep->store = strdup(store))) {
        free(sweep);
        list_clear(commits);
        done(s);
        return;
    }
    sweep->w = (struct work){ .server = s, .run = sweep_run, .end = sweep_end };
    sweep->commits = *commits;
    sweep->listed_ns = clock_ns();
    sweep->done = done;
    *commits = (struct list){ 0 };
    work_start(&sweep->w);
}

/* ---- for other nodes ---- */

/* NULL: the request was refused. */
static struct commit_transfers *commit_transfers_of(struct request *r)
{
    struct commit_transfers *all = owners_transfers(r->server);
    if (!r->server->nodes || !r->client->is_relay)
        request_refuse(r, 401, "ticket", "only other nodes may ask for that");
    else if (!all)
        request_refuse(r, 501, "unsupported", "this node keeps no commits of its own");
    else if (!chunk_name_is_ok(r->name))
        request_refuse(r, 400, "argument", "that is not the name of a chunk");
    else
        return all;
    return NULL;
}

static void handle_chunk(struct request *r)
{
    struct commit_transfers *all = commit_transfers_of(r);
    cleanup_chunk_store struct chunk_store store = { .directory = -1 };
    droste_error err = { 0 };
    struct stat st;
    if (!all)
        return;
    cleanup_fd int fd = -1;
    if (chunk_store_open(all->store, &store, &err) == 0)
        fd = chunk_open(&store, r->name, &err);
    if (fd < 0)
        request_fail(r, &err);
    else if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > CHUNK_MOST)
        request_refuse(r, 404, "not_found", "that is not a chunk");
    else
        request_reply_fd(r, "application/octet-stream", steal_fd(&fd), (uint64_t)st.st_size);
}

struct commit_put {
    struct request *r; /* NULL: it has ended */
};

static void commit_put_on_gone(struct request *r)
{
    struct commit_put *put = r->state;
    put->r = NULL;
    r->state = NULL;
}

static void commit_put_done(void *arg, const struct error *err)
{
    struct commit_put *put = arg;
    struct request *r = put->r;
    free(put);
    if (!r)
        return;
    r->state = NULL;
    r->on_gone = NULL;
    if (err)
        request_refuse(r, 507, "not_stored", "%s", err->text);
    else
        request_reply(r, 204, NULL, "", 0);
}

static void handle_commit_put(struct request *r)
{
    struct commit_transfers *all = commit_transfers_of(r);
    const char *from = all ? request_parameter(r, "from") : NULL;
    const unsigned long node = from ? strtoul(from, NULL, 10) : 0;
    size_t count = 0;
    if (!all)
        return;
    for (const struct commit_transfer *t = all->first; t; t = t->next)
        count++;
    if (count >= TRANSFERS_MOST) {
        request_refuse(r, 503, "busy", "this node gets enough commits at once; ask another one");
        return;
    }
    struct commit_put *put = request_alloc(r, sizeof *put);
    if (!put)
        return;
    put->r = r;
    r->state = put;
    r->on_gone = commit_put_on_gone;
    bool is_node = node <= UINT16_MAX && registry_node(r->server->nodes, (unsigned)node);
    commit_fetch(all, r->name, is_node ? (unsigned)node : 0, false, commit_put_done, put);
}

static const struct route commit_rows[] = {
    { "GET", "/v1/chunks/{name}", BODY_NONE, NULL, NULL, 200, "application/octet-stream", NULL,
        "a chunk of a commit", handle_chunk, SCOPE_NONE },
    { "PUT", "/v1/commits/{name}", BODY_NONE, NULL, NULL, 204, NULL, NULL, "get a commit",
        handle_commit_put, SCOPE_NONE },
};

const struct routes commit_routes = { .rows = commit_rows, .count = array_length(commit_rows) };
