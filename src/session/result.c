/* session/result.c: the result of a cell, of what the guest says of it and what the host knows.
 *
 * The guest says what was printed last, raised and submitted; the host decides the status: whether what
 * was submitted is an answer, and whether the cell was over its deadline.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session/answer.h"
#include "session/internal.h"

enum { PARTS_MAX = 16 };

static const char *const status_names[] = { "ok", "submitted", "error", "timeout", "killed",
    "lost" };

const char *cell_status_name(enum cell_status status)
{
    return status_names[status];
}

void cell_result_free(struct cell_result *r)
{
    buf_free(&r->out);
    buf_free(&r->err);
    free(r->submit);
    free(r->echo);
    free(r->error.type);
    free(r->error.message);
    free(r->error.traceback);
    json_object_put(r->variables);
    json_object_put(r->variable);
    *r = (struct cell_result){ 0 };
}

static char *copy_member(struct json_object *o, const char *key)
{
    const char *text = json_get_string(o, key, NULL);
    return text ? strdup(text) : NULL;
}

static void take_error(struct json_object *head, struct cell_error *error)
{
    struct json_object *e = json_get_typed(head, "error", json_type_object);
    if (!e)
        return;
    error->type = copy_member(e, "type");
    error->message = copy_member(e, "message");
    error->traceback = copy_member(e, "traceback");
}

static void set_cell_error(struct cell_error *error, const char *type, const char *message)
{
    free(error->type);
    free(error->message);
    error->type = strdup(type);
    error->message = strdup(message);
}

/* The part with the index that the head gives under `key`, copied. */
static char *take_part(struct json_object *head, const char *key, const struct frame *frame,
    size_t *len, struct error *err)
{
    struct frame_parts parts;
    const char *data;
    int64_t index = json_get_int(head, key, -1);
    if (index < 0 || frame_parts_open(frame->blob, frame->blob_len, PARTS_MAX, &parts, err) < 0)
        return NULL;
    for (int64_t i = 0; frame_parts_next(&parts, &data, len); i++)
        if (i == index)
            return text_copy(data, *len);
    return NULL;
}

/* A part as text: the guest sends UTF-8, but a guest may send anything. */
static char *take_text(struct json_object *head, const char *key, const struct frame *frame)
{
    cleanup_buf struct buf text = { 0 };
    size_t len = 0;
    cleanup_free char *part = take_part(head, key, frame, &len, NULL);
    if (!part)
        return NULL;
    text_append_utf8(&text, part, len);
    return buf_steal(&text);
}

/* What was submitted must be an object of strict JSON, and of the type that was asked for; else it is
 * the cell's error. */
static void take_submit(
    struct session *s, struct json_object *head, const struct frame *frame, struct cell_result *r)
{
    struct error why = { 0 };
    char text[sizeof why.text + 80];
    r->submit = take_part(head, "submitted", frame, &r->submit_len, NULL);
    if (!r->submit)
        return;
    int rc = json_check(r->submit, r->submit_len, &json_limits_large, &why);
    bool object = rc == 0 && r->submit[0] == '{';
    if (object && s->answer)
        rc = answer_check(s->answer, r->submit, r->submit_len, &why);
    if (object && rc == 0) {
        r->status = CELL_SUBMITTED;
        return;
    }
    free(steal(&r->submit));
    r->status = CELL_ERROR;
    if (object) {
        snprintf(text, sizeof text, "the answer was not taken, it does not fit its schema: %s",
            why.text);
        set_cell_error(&r->error, "AnswerError", text);
        free(r->error.traceback);
        r->error.traceback = strdup(text);
        return;
    }
    set_cell_error(&r->error, "ValueError", rc < 0 ? why.text : "SUBMIT takes an object");
}

/* The status that the host gives, from what the guest says and what the host did. */
static void judge(struct session *s, struct json_object *head, struct cell_result *r)
{
    const char *status = json_get_string(head, "status", "");
    r->status = strcmp(status, "ok") == 0 ? CELL_OK : CELL_ERROR;
    if (!s->deadline_passed)
        return;
    char text[160];
    snprintf(text, sizeof text,
        "the cell ran longer than %g s and was interrupted; its variables are kept", s->limit);
    set_cell_error(&r->error, "TimeoutError", text);
    r->status = CELL_TIMEOUT;
}

static bool is_known_status(const char *status)
{
    static const char *const known[] = { "ok", "error", "interrupted" };
    for (size_t i = 0; status && i < array_length(known); i++)
        if (strcmp(status, known[i]) == 0)
            return true;
    return false;
}

/* A result says a known status, and the parts that it names are there. */
static int check_result(struct json_object *head, const struct frame *frame, struct error *err)
{
    struct frame_parts parts = { 0 };
    if (!json_object_is_type(head, json_type_object) ||
        !is_known_status(json_get_string(head, "status", NULL)))
        return error_set(err, ERROR_PROTOCOL, "a result without a known status");
    if (frame->blob_len > 0 &&
        frame_parts_open(frame->blob, frame->blob_len, PARTS_MAX, &parts, err) < 0)
        return -1;
    int64_t count = (int64_t)parts.count;
    if (json_get_int(head, "submitted", -1) >= count || json_get_int(head, "echo", -1) >= count)
        return error_set(err, ERROR_PROTOCOL, "a result names a part that is not there");
    return 0;
}

int result_read(
    struct session *s, const struct frame *frame, struct cell_result *out, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    int rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    if (rc == 0)
        rc = check_result(head, frame, err);
    if (rc < 0)
        return rc;
    *out = (struct cell_result){ 0 };
    take_error(head, &out->error);
    judge(s, head, out);
    take_submit(s, head, frame, out);
    out->echo = take_text(head, "echo", frame);
    struct json_object *variables = json_get_typed(head, "variables", json_type_array);
    if (variables) {
        json_object_put(s->variables);
        s->variables = json_object_get(variables);
    }
    struct json_object *variable = json_get_typed(head, "variable", json_type_object);
    out->variable = variable ? json_object_get(variable) : NULL;
    return 0;
}
