/* serve/mcp/stream.c: messages as answers and as server-sent events, which can be resumed.
 *
 * A request whose first message is its answer gets that as JSON. If something comes before, it gets
 * events. Those of a session have ids, STREAM-NUMBER, and are kept: until the stream is done and
 * some time has passed, or younger ones need the room.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/rpc.h"
#include "serve/mcp/mcp.h"
#include "serve/http/upstream.h"

/* Of a session: events of streams that are done, for how long, and streams without a request. */
enum { KEPT_BYTES = 1 << 20, KEPT_SECONDS = 60, LISTENERS_MAX = 16 };
/* Silence after which a comment tells whether the client is there. */
enum { SILENCE_SECONDS = 15 };

/* ---- the life of a stream ---- */

void mcp_stream_free(struct mcp_stream *st)
{
    struct mcp_http *h = st->session;
    if (h) {
        struct mcp_stream **at = &h->streams;
        while (*at != st)
            at = &(*at)->next;
        *at = st->next;
        if (st->is_done)
            h->bytes -= st->bytes;
    }
    while (st->events) {
        struct mcp_event *e = st->events;
        st->events = e->next;
        free(e);
    }
    free(st);
}

/* The client has closed its connection. Up to 2025-11-25 that is not a cancellation: the work goes
 * on, and its messages can be fetched if the client knows an id. */
static void stream_on_gone(struct request *r)
{
    struct mcp_stream *st = r->state;
    if (st && !st->session)
        mcp_cancel(st->user->peer, st);
}

static void stream_on_free(struct request *r)
{
    struct mcp_stream *st = r->state;
    if (!st)
        return;
    st->r = NULL;
    st->moved_ns = clock_ns();
    if (!st->session) {
        mcp_cancel(st->user->peer, st); /* if it was not answered */
        mcp_stream_free(st);
        return;
    }
    st->session->used_ns = clock_ns();
    if (!st->is_sse && st->is_done)
        mcp_stream_free(st);
}

static void stream_connect(struct mcp_stream *st, struct request *r)
{
    st->r = r;
    r->state = st;
    r->on_gone = stream_on_gone;
    r->on_free = stream_on_free;
}

struct mcp_stream *mcp_stream_new(
    struct request *r, struct mcp_service *service, struct mcp_http *h, struct mcp_user *user)
{
    struct mcp_stream *st = request_alloc(r, sizeof *st);
    if (!st)
        return NULL;
    st->service = service;
    st->session = h;
    st->user = user;
    st->events_end = &st->events;
    if (h) {
        st->number = ++h->stream_count;
        st->next = h->streams;
        h->streams = st;
    }
    stream_connect(st, r);
    return st;
}

bool mcp_http_may_listen(const struct mcp_http *h)
{
    size_t listeners = 0;
    for (const struct mcp_stream *st = h->streams; st; st = st->next)
        listeners += st->is_listening;
    return listeners < LISTENERS_MAX;
}

static void stream_put_headers(const struct mcp_stream *st)
{
    request_header(st->r, "X-Accel-Buffering", "no");
    if (st->r->client->is_relay && st->r->about[0])
        request_header(st->r, RELAY_ABOUT, st->r->about);
}

void mcp_stream_begin(struct mcp_stream *st)
{
    if (st->is_sse || !st->r)
        return;
    st->is_sse = true;
    st->moved_ns = clock_ns();
    request_stream(st->r, "text/event-stream");
    stream_put_headers(st);
    /* From 2025-11-25 on, an empty event tells the client where to resume. */
    if (st->session && strcmp(mcp_version(st->session->peer), "2025-11-25") == 0) {
        char text[64];
        snprintf(text, sizeof text, "id: %u-0\nretry: 1000\ndata: \n\n", st->number);
        request_push(st->r, text, strlen(text));
    }
}

static void stream_send_rest(struct mcp_stream *st)
{
    for (const struct mcp_event *e = st->events; e; e = e->next)
        if (e->number > st->sent) {
            request_push(st->r, e->text, e->len);
            st->sent = e->number;
        }
    st->moved_ns = clock_ns();
    if (st->is_done)
        request_end(st->r);
}

void mcp_stream_attach(struct mcp_stream *st, struct request *r, unsigned after)
{
    if (st->r) { /* of whose end the server does not know yet */
        struct request *old = st->r;
        old->state = NULL;
        old->on_gone = NULL;
        st->r = NULL;
        request_end(old);
    }
    stream_connect(st, r);
    st->is_sse = true;
    st->sent = after;
    request_stream(r, "text/event-stream");
    stream_put_headers(st);
    stream_send_rest(st);
}

/* ---- keeping ---- */

/* For the stream that was done last. */
static void http_make_room(struct mcp_http *h, const struct mcp_stream *last)
{
    while (h->bytes > KEPT_BYTES) {
        struct mcp_stream *oldest = NULL;
        for (struct mcp_stream *st = h->streams; st; st = st->next)
            if (st->is_done && !st->r && st != last)
                oldest = st;
        if (!oldest)
            return;
        mcp_stream_free(oldest);
    }
}

static void stream_keep(struct mcp_stream *st, const char *json, size_t len)
{
    char head[64];
    int n = snprintf(head, sizeof head, "id: %u-%u\ndata: ", st->number, st->last + 1);
    struct mcp_event *e = malloc(sizeof *e + (size_t)n + len + 2);
    if (!e)
        return;
    memcpy(e->text, head, (size_t)n);
    memcpy(e->text + n, json, len);
    memcpy(e->text + n + len, "\n\n", 2);
    e->len = (size_t)n + len + 2;
    e->number = ++st->last;
    e->next = NULL;
    *st->events_end = e;
    st->events_end = &e->next;
    st->bytes += e->len;
}

static void stream_send_event(struct mcp_stream *st, const struct mcp_message *m)
{
    cleanup_buf struct buf text = { 0 };
    bool is_kept = st->session && !m->may_be_lost;
    if (m->may_be_lost && (!st->r || request_unread(st->r) > SERVE_UNREAD_MAX))
        return;
    if (is_kept)
        stream_keep(st, m->json, m->len);
    if (st->r)
        mcp_stream_begin(st);
    if (m->is_answer && st->session) {
        st->is_done = true;
        st->session->bytes += st->bytes;
    }
    if (st->r && is_kept) {
        stream_send_rest(st);
    } else if (st->r) {
        buf_puts(&text, "data: ");
        buf_append(&text, m->json, m->len);
        buf_puts(&text, "\n\n");
        request_push(st->r, buf_text(&text), text.len);
        st->moved_ns = clock_ns();
        if (m->is_answer)
            request_end(st->r);
    } else {
        st->moved_ns = clock_ns();
    }
    if (m->is_answer && st->session)
        http_make_room(st->session, st);
}

/* ---- what src/mcp sends ---- */

static unsigned message_status(const struct mcp_message *m)
{
    if (!m->is_refusal)
        return 200;
    return m->code == RPC_METHOD ? m->is_stateless ? 404 : 200 : 400;
}

static void stream_answer(struct mcp_stream *st, const struct mcp_message *m)
{
    struct request *r = st->r;
    st->is_done = true;
    request_reply(r, message_status(m), "application/json", m->json, m->len);
    if (st->session && !m->code && mcp_version(st->session->peer)[0])
        request_header(r, "Mcp-Session-Id", st->session->id);
    if (r->client->is_relay && r->about[0])
        request_header(r, RELAY_ABOUT, r->about);
}

/* The newest stream for messages of no request; one that waits for its client if there is none. */
static struct mcp_stream *http_listener(struct mcp_http *h)
{
    struct mcp_stream *found = NULL;
    for (struct mcp_stream *st = h->streams; st; st = st->next)
        if (st->is_listening && (!found || (!found->r && st->r)))
            found = st;
    if (found)
        return found;
    if (!(found = calloc(1, sizeof *found)))
        return NULL;
    found->service = h->service;
    found->session = h;
    found->is_listening = found->is_sse = true;
    found->events_end = &found->events;
    found->number = ++h->stream_count;
    found->next = h->streams;
    h->streams = found;
    return found;
}

void mcp_stream_on_message(void *arg, const struct mcp_message *m)
{
    struct mcp_http *h = arg;
    struct mcp_stream *st = m->stream;
    if (!st && h)
        st = http_listener(h);
    if (!st)
        return;
    if (m->is_answer && !st->is_sse && st->r) {
        stream_answer(st, m);
        return;
    }
    if (!st->is_sse && !st->r) { /* its client has gone before it knew an id */
        if (m->is_answer)
            mcp_stream_free(st);
        return;
    }
    if (st->is_listening && st->bytes > KEPT_BYTES)
        return; /* nothing has come for them */
    stream_send_event(st, m);
}

/* ---- now and then ---- */

void mcp_stream_keep_alive(struct mcp_stream *st, uint64_t now_ns)
{
    if (!st->r || !st->is_sse || now_ns < st->moved_ns + SILENCE_SECONDS * 1000000000ull)
        return;
    st->moved_ns = now_ns;
    request_push(st->r, ":\n\n", 3);
}

void mcp_streams_sweep(struct mcp_http *h, uint64_t now_ns)
{
    struct mcp_stream *next;
    for (struct mcp_stream *st = h->streams; st; st = next) {
        next = st->next;
        bool is_old = now_ns > st->moved_ns + KEPT_SECONDS * 1000000000ull;
        if (!st->r && is_old && (st->is_done || (st->is_listening && !st->events)))
            mcp_stream_free(st);
        else
            mcp_stream_keep_alive(st, now_ns);
    }
}
