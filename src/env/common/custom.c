/* env/common/custom.c: translates between a session's frames and the embedding program's functions.
 *
 *   session ── frames ──► inbox ── from the loop ──► the program's functions
 *   session ◄── frames, output ── custom_result, custom_call, custom_output ── the program
 *
 * The program's functions run from the loop, never from within a call of the session, so they may
 * answer at once. Anything that the session sends in response goes to the inbox again.
 */
#include "env/common/custom.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "wire/frame.h"

struct custom {
    struct environment_base base;
    struct environment_ops ops; /* a copy, with this environment's name */
    const droste_custom_environment *custom_ops;
    void *arg;
};

struct droste_custom_sandbox {
    struct custom *env;
    struct sandbox_events events;
    void *arg;
    void *own;
    bool opened; /* the program's `open` has run */
    struct frame_decoder decoder;
    struct buf inbox;    /* sent by the session, not decoded yet */
    struct timer *step;  /* decodes the inbox */
    uint64_t operation;  /* the running one; 0: none */
    bool ending, ended;  /* `ended` is due; it was called */
    struct error reason; /* of the end; ERROR_NONE: the session knows it */
};

static struct droste_custom_sandbox *custom_of(struct sandbox *s)
{
    return (struct droste_custom_sandbox *)(void *)s;
}

/* ---- frames to the session ---- */

static int custom_send_frame(struct droste_custom_sandbox *s, uint8_t type, uint64_t id,
    const char *head, size_t head_len, const struct iovec *parts, size_t count, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    cleanup_buf struct buf blob = { 0 }, all = { 0 };
    cleanup_free size_t *lengths = calloc(count + 1, sizeof *lengths);
    if (!lengths)
        return error_memory(err);
    for (size_t i = 0; i < count; i++)
        lengths[i] = parts[i].iov_len;
    if (parts)
        frame_parts_begin(&blob, lengths, count);
    for (size_t i = 0; i < count; i++)
        buf_append(&blob, parts[i].iov_base, parts[i].iov_len);
    struct frame frame = { .type = type, .id = id, .head_len = head_len, .blob_len = blob.len };
    frame_write_header(header, &frame);
    buf_append(&all, header, sizeof header);
    buf_append(&all, head, head_len);
    buf_append(&all, buf_text(&blob), blob.len);
    if (buf_failed(&blob) || buf_failed(&all))
        return error_memory(err);
    s->events.bytes(s->arg, all.data, all.len);
    return 0;
}

static bool custom_is_over(const struct droste_custom_sandbox *s)
{
    return s->ending || s->ended;
}

void custom_output(struct droste_custom_sandbox *s, int stream, const char *data, size_t len)
{
    if (!custom_is_over(s) && len > 0)
        s->events.output(s->arg, stream == 2 ? 2 : 1, data, len);
}

static int read_object(const char *json, size_t len, const struct json_limits *limits,
    struct json_object **out, struct error *err)
{
    struct error why = { 0 };
    if (json_parse(json, len, limits, out, &why) < 0)
        return error_set(err, ERROR_ARGUMENT,
            "the custom environment sent an invalid result or call: %s", why.text);
    return json_object_is_type(*out, json_type_object)
               ? 0
               : error_set(err, ERROR_ARGUMENT,
                     "the custom environment sent a result or call that is not a JSON object");
}

int custom_result(struct droste_custom_sandbox *s, uint64_t operation, const char *json, size_t len,
    const char *submit, size_t submit_len, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    struct iovec part = { (void *)(uintptr_t)submit, submit_len };
    size_t head_len = 0;
    if (custom_is_over(s))
        return 0;
    if (operation == 0 || operation != s->operation)
        return error_set(err, ERROR_ARGUMENT, "environment '%.40s': operation %llu is not active",
            s->env->ops.name, (unsigned long long)operation);
    int rc = read_object(json, len, &json_limits_small, &head, err);
    if (rc < 0)
        return rc;
    if (submit && !json_put(head, "submitted", json_object_new_int(0)))
        return error_memory(err);
    const char *text = json_text(head, &head_len);
    if (!text)
        return error_memory(err);
    s->operation = 0;
    return custom_send_frame(
        s, FRAME_RESULT, operation, text, head_len, submit ? &part : NULL, submit != NULL, err);
}

/* The parts of a call: prompts, then contexts. A prompt that is a list of messages is JSON, and is
 * marked as such in the head. */
struct call_parts {
    struct iovec *at;
    size_t count;
    struct json_object *messages;
};

static int add_texts(struct call_parts *parts, struct json_object *list, struct error *err)
{
    for (size_t i = 0; i < json_length(list); i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        bool is_text = json_object_is_type(one, json_type_string);
        size_t len = 0;
        const char *text = is_text ? json_object_get_string(one) : json_text(one, &len);
        if (!text)
            return error_memory(err);
        if (is_text)
            len = (size_t)json_object_get_string_len(one);
        else if (json_object_array_add(
                     parts->messages, json_object_new_int64((int64_t)parts->count)) != 0)
            return error_memory(err);
        parts->at[parts->count++] = (struct iovec){ (void *)(uintptr_t)text, len };
    }
    return 0;
}

int custom_call(
    struct droste_custom_sandbox *s, uint64_t call, const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    size_t head_len = 0;
    if (custom_is_over(s))
        return 0;
    int rc = read_object(json, len, &json_limits_large, &head, err);
    if (rc < 0)
        return rc;
    struct json_object *prompts = json_get_typed(head, "prompts", json_type_array);
    struct json_object *contexts = json_get_typed(head, "contexts", json_type_array);
    if (!prompts)
        return error_set(err, ERROR_ARGUMENT, "the custom environment sent a call without prompts");
    size_t most = json_length(prompts) + json_length(contexts);
    cleanup_free struct iovec *room = calloc(most + 1, sizeof *room);
    cleanup_json struct json_object *messages = json_object_new_array();
    struct call_parts parts = { .at = room, .messages = messages };
    if (!room || !messages)
        return error_memory(err);
    rc = add_texts(&parts, prompts, err);
    if (rc == 0)
        rc = add_texts(&parts, contexts, err);
    /* The parts point into these; keep them until they are sent. */
    cleanup_json struct json_object *kept = json_object_get(prompts),
                                    *also = json_object_get(contexts);
    json_object_object_del(head, "prompts");
    json_object_object_del(head, "contexts");
    if (rc == 0 && json_length(messages) > 0 &&
        !json_put(head, "messages", json_object_get(messages)))
        rc = error_memory(err);
    const char *text = rc == 0 ? json_text(head, &head_len) : NULL;
    if (rc == 0 && !text)
        rc = error_memory(err);
    return rc < 0
               ? rc
               : custom_send_frame(s, FRAME_CALL, call, text, head_len, parts.at, parts.count, err);
}

void custom_cancel(struct droste_custom_sandbox *s, uint64_t call)
{
    if (!custom_is_over(s))
        custom_send_frame(s, FRAME_CANCEL, call, "", 0, NULL, 0, NULL);
}

/* ---- the end of a sandbox ---- */

static void end_soon(struct droste_custom_sandbox *s)
{
    s->ending = true;
    timer_start(s->step, 0, 0);
}

void custom_end(struct droste_custom_sandbox *s, const char *why)
{
    if (custom_is_over(s))
        return;
    error_set(&s->reason, ERROR_ENVIRONMENT, "environment '%.40s': %.180s", s->env->ops.name, why);
    end_soon(s);
}

/* ---- frames to the program ---- */

static int custom_on_hello(
    struct droste_custom_sandbox *s, const struct frame *frame, struct error *err)
{
    static const char ready[] = "{}";
    int rc = custom_send_frame(s, FRAME_READY, 0, ready, sizeof ready - 1, NULL, 0, err);
    if (rc == 0 && s->env->custom_ops->open(s->env->arg, s, &s->own) < 0)
        rc = error_set(err, ERROR_ENVIRONMENT,
            "environment '%.40s': the program did not open a sandbox", s->env->ops.name);
    s->opened = rc == 0;
    return rc;
}

static int on_set(struct droste_custom_sandbox *s, const struct frame *frame, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    int rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    struct json_object *names = json_get_typed(head, "names", json_type_array);
    /* All names refer to the same value; `context` is the first. */
    const char *name = rc == 0 ? json_object_get_string(json_object_array_get_idx(names, 0)) : NULL;
    if (rc < 0 || !name)
        return rc;
    s->operation = frame->id;
    s->env->custom_ops->set(s->own, frame->id, name, json_get_string(head, "kind", "auto"),
        frame->blob, frame->blob_len);
    return 0;
}

static int on_exec(struct droste_custom_sandbox *s, const struct frame *frame, struct error *err)
{
    s->operation = frame->id;
    s->env->custom_ops->execute(s->own, frame->id, frame->blob, frame->blob_len);
    return 0;
}

static int on_interrupt(
    struct droste_custom_sandbox *s, const struct frame *frame, struct error *err)
{
    if (s->operation == frame->id)
        s->env->custom_ops->interrupt(s->own, frame->id);
    return 0;
}

/* Either {"error": …} for the whole call, or {"errors": {"0": …}, "replies": […]}. */
static int custom_on_reply(
    struct droste_custom_sandbox *s, const struct frame *frame, struct error *err)
{
    struct frame_parts parts = { 0 };
    cleanup_buf struct buf json = { 0 };
    const char *data;
    size_t len, i = 0;
    int rc = frame->blob_len > 0
                 ? frame_parts_open(frame->blob, frame->blob_len, SIZE_MAX, &parts, err)
                 : 0;
    if (rc < 0)
        return rc;
    /* an object with members, without its closing brace */
    if (frame->head_len > 2)
        buf_append(&json, frame->head, frame->head_len - 1);
    buf_puts(&json, frame->head_len > 2 ? ",\"replies\":[" : "{\"replies\":[");
    while (frame_parts_next(&parts, &data, &len)) {
        buf_puts(&json, i++ ? "," : "");
        json_append_string(&json, data, len);
    }
    buf_puts(&json, "]}");
    if (buf_failed(&json))
        return error_memory(err);
    s->env->custom_ops->reply(s->own, frame->id, json.data, json.len);
    return 0;
}

static int on_nothing(struct droste_custom_sandbox *s, const struct frame *frame, struct error *err)
{
    return 0;
}

static const struct {
    uint8_t type;
    int (*handle)(struct droste_custom_sandbox *s, const struct frame *frame, struct error *err);
} handlers[] = {
    { FRAME_HELLO, custom_on_hello },
    { FRAME_SET, on_set },
    { FRAME_EXEC, on_exec },
    { FRAME_REPLY, custom_on_reply },
    { FRAME_INTERRUPT, on_interrupt },
    { FRAME_OFFER, on_nothing }, /* the answer's type, which the session checks itself */
    { FRAME_CLOSE, on_nothing },
};

/* The session is trusted code: no limits. */
static const struct frame_rule rules[] = {
    { FRAME_HELLO, SIZE_MAX, SIZE_MAX },
    { FRAME_SET, SIZE_MAX, SIZE_MAX },
    { FRAME_EXEC, SIZE_MAX, SIZE_MAX },
    { FRAME_REPLY, SIZE_MAX, SIZE_MAX },
    { FRAME_INTERRUPT, SIZE_MAX, SIZE_MAX },
    { FRAME_OFFER, SIZE_MAX, SIZE_MAX },
    { FRAME_CLOSE, SIZE_MAX, SIZE_MAX },
};

static int custom_on_frame(void *arg, const struct frame *frame, struct error *err)
{
    struct droste_custom_sandbox *s = arg;
    for (size_t i = 0; i < array_length(handlers) && !custom_is_over(s); i++)
        if (handlers[i].type == frame->type)
            return handlers[i].handle(s, frame, err);
    return 0;
}

static void custom_look(void *arg)
{
    struct droste_custom_sandbox *s = arg;
    struct error err = { 0 };
    cleanup_buf struct buf came = s->inbox;
    s->inbox = (struct buf){ 0 };
    /* the program may answer at once while the loop is blocked in poll */
    loop_wake(s->env->base.loop);
    if (!custom_is_over(s) &&
        frame_feed(&s->decoder, came.data, came.len, custom_on_frame, s, &err) < 0) {
        s->reason = err;
        s->ending = true;
    }
    if (!s->ending || s->ended)
        return;
    struct sandbox_exit how = { .error = s->reason };
    s->ended = true;
    s->events.ended(s->arg, &how);
}

/* ---- the interface of environments ---- */

static void custom_close(struct sandbox *sandbox)
{
    struct droste_custom_sandbox *s = sandbox ? custom_of(sandbox) : NULL;
    if (!s)
        return;
    if (s->opened)
        s->env->custom_ops->close(s->own);
    timer_free(s->step);
    frame_decoder_free(&s->decoder);
    buf_free(&s->inbox);
    free(s);
}

static int custom_start(struct environment *env, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    struct custom *c = (struct custom *)(void *)env;
    struct droste_custom_sandbox *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    *s = (struct droste_custom_sandbox){ .env = c, .events = *events, .arg = arg };
    s->decoder.rules = rules;
    s->decoder.rule_count = array_length(rules);
    s->step = timer_new(c->base.loop, custom_look, s);
    if (!s->step) {
        free(s);
        return error_memory(err);
    }
    *out = (struct sandbox *)(void *)s;
    return 0;
}

static int custom_send(
    struct sandbox *sandbox, const struct iovec *iov, int count, int fd_given, struct error *err)
{
    struct droste_custom_sandbox *s = custom_of(sandbox);
    cleanup_fd int fd = fd_given;
    if (custom_is_over(s))
        return 0;
    for (int i = 0; i < count; i++)
        buf_append(&s->inbox, iov[i].iov_base, iov[i].iov_len);
    if (buf_failed(&s->inbox))
        return error_memory(err);
    timer_start(s->step, 0, 0);
    return 0;
}

static void custom_kill(struct sandbox *sandbox)
{
    struct droste_custom_sandbox *s = custom_of(sandbox);
    if (!custom_is_over(s))
        end_soon(s);
}

static void custom_nothing(struct sandbox *s)
{
}

static enum isolation custom_isolation(const struct sandbox *s)
{
    return ISOLATION_CUSTOM;
}

static void custom_usage(const struct sandbox *s, struct sandbox_usage *out)
{
    *out = (struct sandbox_usage){ 0 };
}

static const char *custom_about(const struct environment *env)
{
    const char *about = ((const struct custom *)(const void *)env)->custom_ops->about;
    return about ? about : "";
}

static void custom_free(struct environment *env)
{
    free(env);
}

static const struct feature_state custom_features[FEATURE_COUNT];

static const struct environment_ops custom_environment = {
    .traits = TRAIT_LATE,
    .features = custom_features,
    .open = custom_start,
    .send = custom_send,
    .begin_operation = custom_nothing,
    .interrupt = custom_nothing, /* the INTERRUPT frame does it, in order */
    .kill = custom_kill,
    .drain = custom_nothing,
    .isolation = custom_isolation,
    .usage = custom_usage,
    .about = custom_about,
    .close = custom_close,
    .free = custom_free,
};

int custom_open(struct loop *loop, const char *name, const droste_custom_environment *ops,
    void *arg, struct environment **out, struct error *err)
{
    struct custom *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    *c = (struct custom){ .ops = custom_environment, .custom_ops = ops, .arg = arg };
    c->ops.name = name;
    c->base = (struct environment_base){ .ops = &c->ops, .loop = loop };
    *out = (struct environment *)(void *)c;
    return 0;
}
