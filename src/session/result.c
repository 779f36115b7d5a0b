/* session/result.c: builds the result of a cell from the guest's report and the host's knowledge.
 *
 * The guest reports output, exceptions and submissions. The host decides the status: whether a
 * submission is a valid answer, and whether the cell exceeded its deadline.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session/answer.h"
#include "session/internal.h"

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
    submission_free(r->submit);
    free(r->echo);
    bundles_free(&r->results);
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

static void result_take_error(struct json_object *head, struct cell_error *error)
{
    struct json_object *e = json_get_typed(head, "error", json_type_object);
    if (!e)
        return;
    error->type = copy_member(e, "type");
    error->message = copy_member(e, "message");
    error->traceback = copy_member(e, "traceback");
    int64_t status = json_get_int(e, "exit", -1);
    error->exits = status >= 0 && status <= 255;
    error->exit_status = error->exits ? (int)status : 0;
}

static void set_cell_error(struct cell_error *error, const char *type, const char *message)
{
    free(error->type);
    free(error->message);
    error->type = strdup(type);
    error->message = strdup(message);
    error->exits = false;
}

/* Converts a part to text: honest guests send UTF-8, but a guest may send anything. */
static char *result_take_text(
    struct json_object *head, const char *key, const struct frame_parts *parts)
{
    struct buf text = { 0 };
    const char *data;
    size_t len;
    if (!frame_parts_at(parts, json_get_int(head, key, -1), &data, &len))
        return NULL;
    text_append_utf8(&text, data, len);
    return buf_steal(&text);
}

/* An exception's text that does not fit into the head. A guest cuts it at the size of a result, or
 * not below what the head may have. */
static int result_take_whole(const struct session *s, struct json_object *head,
    const struct frame_parts *parts, const char *key, char **text, struct error *err)
{
    enum { LEAST = 256 << 10 };
    size_t most = s->settings.result_size > LEAST ? s->settings.result_size : LEAST, len;
    int64_t at = json_get_int(head, key, -1);
    const char *data;
    if (at < 0)
        return 0;
    if (!s->takes_whole || !frame_parts_at(parts, at, &data, &len) || len > most)
        return error_set(err, ERROR_PROTOCOL, "a result with a wrong %s of an exception", key);
    free(*text);
    *text = result_take_text(head, key, parts);
    return *text ? 0 : error_memory(err);
}

static void refuse_answer(struct cell_result *r, const struct error *why)
{
    char text[sizeof why->text + 80];
    snprintf(text, sizeof text, "the answer was rejected because it does not match its schema: %s",
        why->text);
    set_cell_error(&r->error, "AnswerError", text);
    free(r->error.traceback);
    strcat(text, "\n"); /* Python ends tracebacks with a newline */
    r->error.traceback = strdup(text);
}

/* Checks the type, if one is set. */
static int check_answer(struct session *s, struct submission *submit, struct error *err)
{
    size_t len;
    if (!s->settings.answer || s->describes_tools)
        return 0;
    const char *json = submission_json(submit, &len);
    return json ? answer_check(s->settings.answer, json, len, err) : error_memory(err);
}

/* Checks a submission: an object of strict JSON with the session's type. Otherwise it becomes
 * the cell's error. */
static int take_submit(struct session *s, struct json_object *head, const struct frame *frame,
    const struct frame_parts *parts, struct cell_result *r, struct error *err)
{
    struct error why = { 0 };
    int rc = submission_read(head, parts, frame, &r->submit, &why);
    if (rc < 0 && rc != -(int)ERROR_ARGUMENT) {
        *err = why;
        return rc;
    }
    if (rc == 0 && !r->submit)
        return 0;
    r->status = CELL_ERROR;
    if (rc < 0) {
        set_cell_error(&r->error, "ValueError", why.text);
    } else if (check_answer(s, r->submit, &why) < 0) {
        submission_free(steal(&r->submit));
        refuse_answer(r, &why);
    } else {
        r->status = CELL_SUBMITTED;
    }
    return 0;
}

/* Determines the status from the guest's report and the host's actions. */
static void result_judge(struct session *s, struct json_object *head, struct cell_result *r)
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

/* Validates a RESULT: a known status, and indices of existing parts. */
static int check_result(struct json_object *head, const struct frame *frame,
    struct frame_parts *parts, struct error *err)
{
    *parts = (struct frame_parts){ 0 };
    if (!json_object_is_type(head, json_type_object) ||
        !is_known_status(json_get_string(head, "status", NULL)))
        return error_set(err, ERROR_PROTOCOL, "a result with an unknown status");
    int rc = frame->blob_len > 0 ? frame_parts_open(frame->blob, frame->blob_len,
                                       SUBMISSION_TEXTS_MAX + SUBMISSION_VALUES_MAX + 4, parts, err)
                                 : 0;
    if (rc == 0 && json_get_int(head, "echo", -1) >= (int64_t)parts->count)
        return error_set(err, ERROR_PROTOCOL, "a result refers to a part that does not exist");
    return rc;
}

static void take_variables(struct session *s, struct json_object *head, struct cell_result *out)
{
    struct json_object *variables = json_get_typed(head, "variables", json_type_array);
    if (variables) {
        json_object_put(s->variables);
        s->variables = json_object_get(variables);
    }
    struct json_object *variable = json_get_typed(head, "variable", json_type_object);
    out->variable = variable ? json_object_get(variable) : NULL;
}

/* The text of the last expression is shown when the cell ends, unless a frame had it. */
static int end_results(struct session *s, const char *echo, struct error *err)
{
    if (echo && s->results.clear_waits)
        session_clear_results(s);
    s->results.latest = -1;
    int rc = bundles_end(&s->results, echo, err);
    bool is_new = rc == 0 && echo && s->results.latest >= 0;
    if (is_new && s->results.items[s->results.latest].is_main)
        session_show(s);
    return rc;
}

int result_read(
    struct session *s, const struct frame *frame, struct cell_result *out, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    struct frame_parts parts;
    int rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    if (rc == 0)
        rc = check_result(head, frame, &parts, err);
    if (rc < 0)
        return rc;
    *out = (struct cell_result){ 0 };
    result_take_error(head, &out->error);
    rc = result_take_whole(s, head, &parts, "message", &out->error.message, err);
    if (rc == 0)
        rc = result_take_whole(s, head, &parts, "traceback", &out->error.traceback, err);
    result_judge(s, head, out);
    out->echo = result_take_text(head, "echo", &parts);
    if (rc == 0) /* last, because it may take ownership of the parts */
        rc = take_submit(s, head, frame, &parts, out, err);
    if (rc == 0 && s->collects)
        rc = end_results(s, out->echo, err);
    if (rc < 0)
        cell_result_free(out);
    else
        take_variables(s, head, out);
    return rc;
}
