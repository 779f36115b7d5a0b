/* session/service.c: the process beside the guest.
 *
 *   none ── a request ──► open ── an end, a violation, or silence ──► ended ── a request ──► open
 *
 * The guest has the same user and may stop or kill it: that fails the open requests, and the next
 * one starts another. Handles of an earlier service are refused.
 */
#include "session/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session/internal.h"

enum {
    HEAD_MAX = 4096,
    ANSWER_MAX = 6 << 20, /* bytes of an answer; a listing has up to 4 MiB and one entry */
    OPEN_REQUESTS = 1024,
    UNREAD_MAX = 64 << 20, /* bytes that wait for the service */
};

TAILQ_HEAD(request_list, service_request);

struct service {
    struct session *session;
    struct sandbox *sandbox; /* NULL: none */
    struct frame_decoder decoder;
    struct request_list open;
    size_t count;
    uint64_t last_id;
    uint64_t generation; /* of the handles, in their upper half */
    struct timer *over, *silence;
    uint64_t paused_ns;                  /* the length of all pauses when `silence` was started */
    const struct service_request *timed; /* for which `silence` runs: the oldest with a limit */
    struct error why;                    /* of the end */
};

/* ---- an answer ---- */

static void service_await(struct service *v)
{
    const struct service_request *r;
    TAILQ_FOREACH(r, &v->open, link)
    if (r->answer_ms > 0)
        break;
    if (r == v->timed)
        return;
    v->timed = r;
    timer_stop(v->silence);
    session_paused_since(v->session, &v->paused_ns);
    if (r)
        timer_start(v->silence, r->answer_ms, 0);
}

static int service_on_frame(void *arg, const struct frame *frame, struct error *err)
{
    struct service *v = arg;
    struct service_request *r;
    cleanup_json struct json_object *head = NULL;
    if (frame->type == FRAME_READY || v->why.code != ERROR_NONE)
        return 0;
    int rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    if (rc == 0 && !json_object_is_type(head, json_type_object))
        rc = error_set(err, ERROR_PROTOCOL, "the head of an answer is not an object");
    if (rc < 0)
        return rc;
    TAILQ_FOREACH(r, &v->open, link)
    if (r->id == frame->id)
        break;
    if (!r || r->ops->answers != frame->type)
        return error_set(err, ERROR_PROTOCOL, "an answer to no request");
    TAILQ_REMOVE(&v->open, r, link);
    v->count--;
    service_await(v);
    if ((rc = r->ops->take(r, head, frame, err)) == 0)
        return 0;
    TAILQ_INSERT_HEAD(&v->open, r, link);
    v->count++;
    return rc;
}

/* ---- its end ---- */

/* Ends the service from the loop: events of its sandbox may be under way. */
static void service_fail(struct service *v, const struct error *why)
{
    if (v->why.code != ERROR_NONE)
        return;
    v->why = *why;
    timer_start(v->over, 0, 0);
}

static void service_end(void *arg)
{
    struct service *v = arg;
    const struct error why = v->why;
    struct request_list failed;
    struct service_request *r;
    v->session->ops->close(steal(&v->sandbox));
    frame_decoder_free(&v->decoder);
    timer_stop(v->over);
    timer_stop(v->silence);
    TAILQ_INIT(&failed);
    TAILQ_CONCAT(&failed, &v->open, link);
    v->count = 0;
    v->timed = NULL;
    v->why = (struct error){ 0 };
    while ((r = TAILQ_FIRST(&failed))) {
        TAILQ_REMOVE(&failed, r, link);
        r->ops->fail(r, &why);
    }
}

static void service_silent(void *arg)
{
    struct service *v = arg;
    struct error why = { 0 };
    uint64_t paused_ms = session_paused_since(v->session, &v->paused_ns);
    if (paused_ms > 0) {
        timer_start(v->silence, paused_ms, 0);
        return;
    }
    error_set(
        &why, ERROR_TIMEOUT, "the sandbox did not answer a request for a file or command in time");
    service_fail(v, &why);
}

static bool service_bytes(void *arg, const char *data, size_t len)
{
    struct service *v = arg;
    struct error why = { 0 };
    if (v->why.code != ERROR_NONE)
        return true;
    if (frame_feed(&v->decoder, data, len, service_on_frame, v, &why) < 0) {
        error_wrap(
            &why, "the process that serves files and commands broke the protocol and was ended");
        service_fail(v, &why);
        return true;
    }
    return frame_is_partial(&v->decoder);
}

static void service_output(void *arg, int stream, const char *data, size_t len)
{
}

static void service_ended(void *arg, const struct sandbox_exit *how)
{
    struct error why = how->error;
    if (why.code == ERROR_NONE)
        error_set(&why, ERROR_LOST,
            "the process that serves the sandbox's files and commands was ended; try again");
    service_fail(arg, &why);
}

void session_service_end(struct session *s, const struct error *why)
{
    if (!s->service || !s->service->sandbox)
        return;
    if (s->service->why.code == ERROR_NONE)
        s->service->why = *why;
    service_end(s->service);
}

void session_service_free(struct session *s)
{
    struct error why = { 0 };
    if (!s->service)
        return;
    error_set(&why, ERROR_CANCELLED, "the session was closed");
    if (s->death.code == ERROR_NONE)
        s->death = why; /* a request that fails now may not be followed by another */
    session_service_end(s, &why);
    timer_free(s->service->over);
    timer_free(s->service->silence);
    free(steal(&s->service));
}

/* ---- a request ---- */

static int service_send(struct service *v, uint8_t type, uint64_t id, const struct buf *head,
    const struct iovec *blob, int count, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct iovec iov[5] = { { header, sizeof header }, { head->data, head->len } };
    struct frame frame = { .type = type, .id = id, .head_len = head->len };
    for (int i = 0; i < count; i++) {
        frame.blob_len += blob[i].iov_len;
        iov[2 + i] = blob[i];
    }
    frame_write_header(header, &frame);
    return v->session->ops->send(v->sandbox, iov, 2 + count, -1, err);
}

static int service_open(struct service *v, struct error *err)
{
    static const struct frame_rule rules[] = { { FRAME_READY, HEAD_MAX, 0 },
        { FRAME_FILED, HEAD_MAX, ANSWER_MAX }, { FRAME_COMMANDED, HEAD_MAX, ANSWER_MAX } };
    static const struct sandbox_events events = { service_bytes, service_output, service_ended };
    struct session *s = v->session;
    cleanup_buf struct buf head = { 0 };
    int rc = s->ops->open_companion(s->sandbox, &events, v, &v->sandbox, err);
    if (rc < 0)
        return rc;
    v->decoder = (struct frame_decoder){ .rules = rules, .rule_count = array_length(rules) };
    v->generation++;
    if (!s->directory && !s->variables_head)
        return 0;
    buf_printf(&head, "{%s", s->variables_head ? s->variables_head : "");
    if (s->directory) {
        buf_printf(&head, "%s\"cwd\":", s->variables_head ? "," : "");
        json_append_string(&head, s->directory, strlen(s->directory));
    }
    buf_putc(&head, '}');
    return buf_failed(&head) ? error_memory(err)
                             : service_send(v, FRAME_HELLO, 0, &head, NULL, 0, err);
}

static struct service *service_new(struct session *s)
{
    struct loop *loop = ((struct environment_base *)s->env)->loop;
    struct service *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->session = s;
    TAILQ_INIT(&v->open);
    v->over = timer_new(loop, service_end, v);
    v->silence = timer_new(loop, service_silent, v);
    if (v->over && v->silence)
        return v;
    timer_free(v->over);
    timer_free(v->silence);
    free(v);
    return NULL;
}

int service_ready(struct session *s, const char *what, struct error *err)
{
    int rc = session_check_alive(s, err);
    if (rc < 0)
        return rc;
    if (!s->ops->open_companion)
        return error_set(err, ERROR_UNSUPPORTED, "the environment '%s' gives no access to %s",
            s->ops->name, what);
    if (!s->service && !(s->service = service_new(s)))
        return error_memory(err);
    if (s->service->why.code != ERROR_NONE)
        service_end(s->service);
    return s->service->sandbox ? 0 : service_open(s->service, err);
}

int service_ask(struct session *s, struct service_request *r, const struct buf *head,
    const struct iovec *blob, int count, struct error *err)
{
    struct service *v = s->service;
    size_t unread = s->ops->unread ? s->ops->unread(v->sandbox) : 0;
    if (v->count >= OPEN_REQUESTS || unread > UNREAD_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "%zu requests for files and commands are open, and %zu bytes wait for the sandbox; wait "
            "for answers",
            v->count, unread);
    r->id = ++v->last_id;
    int rc = service_send(v, r->ops->asks, r->id, head, blob, count, err);
    if (rc < 0)
        return rc;
    TAILQ_INSERT_TAIL(&v->open, r, link);
    v->count++;
    service_await(v);
    return 0;
}

void service_quote(struct buf *out, const char *text, size_t len)
{
    enum { SHOWN = 250 };
    cleanup_buf struct buf clean = { 0 }, quoted = { 0 };
    text_append_utf8(&clean, text, len < SHOWN ? len : SHOWN);
    json_append_string(&quoted, buf_text(&clean), clean.len);
    text_append_visible_json(out, buf_text(&quoted), quoted.len);
}

bool service_number_ok(int64_t number)
{
    return number > 0 && number <= INT32_MAX;
}

uint64_t service_handle(const struct session *s, int64_t number)
{
    return (uint64_t)number | s->service->generation << 32;
}

int service_number(
    const struct session *s, uint64_t handle, const char *what, uint32_t *out, struct error *err)
{
    if (s->service && handle >> 32 == s->service->generation) {
        *out = (uint32_t)handle;
        return 0;
    }
    error_set(err, ERROR_LOST, "%s", what);
    if (err)
        err->sys = EBADF;
    return -(int)ERROR_LOST;
}

void service_each(
    struct session *s, void (*fn)(struct service_request *r, const void *arg), const void *arg)
{
    struct service_request *r;
    if (s->service)
        TAILQ_FOREACH(r, &s->service->open, link)
    fn(r, arg);
}
