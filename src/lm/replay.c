/* lm/replay.c: answers from a recording (docs/replay.md).
 *
 * lm_open reads the file once, line by line, and keeps what answers need, without the messages. A
 * call is matched to a line when it starts, so that calls take lines in the order of lm_start,
 * whatever the delays. Keyed lines precede scripted ones. A recording may hold several models; a
 * call that names none may take any of them.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/json/json.h"
#include "base/line_reader.h"
#include "base/os/file.h"
#include "base/text.h"
#include "lm/client.h"
#include "lm/record.h"

struct reply_line {
    char key[HASH_TEXT_SIZE]; /* "": written by hand */
    size_t model;             /* index into replay's models */
    unsigned depth;
    bool repeat, used;
    char *contains; /* must occur in the last message; NULL: any */
    char *content, *finish;
    size_t len;
    bool has_usage;
    struct lm_usage usage;
    struct error error;
    uint64_t delay_ms;
};

struct replay {
    struct loop *loop;
    char *path;
    struct reply_line *lines;
    size_t count, room;
    struct list models;
};

/* A call's state. */
struct answer {
    struct lm_call *call;
    const struct reply_line *line; /* NULL: none matches, and `error` says so */
    struct error error;
    struct timer *delay;
};

static bool last_message_contains(const struct lm_request *request, const char *needle)
{
    const struct lm_message *last = &request->messages[request->message_count - 1];
    size_t n = strlen(needle);
    if (last->part_count == 0)
        return memmem(last->text, last->len, needle, n) != NULL;
    for (size_t i = 0; i < last->part_count; i++)
        if (last->parts[i].kind == LM_PART_TEXT &&
            memmem(last->parts[i].data, last->parts[i].len, needle, n))
            return true;
    return false;
}

/* An unused line with the key, or, below the root, a used one: a guest's loop may repeat a
 * request, but a root that does so has left the recording's path. */
static struct reply_line *find_key(struct replay *r, size_t model, const char *key, unsigned depth)
{
    struct reply_line *again = NULL;
    for (size_t i = 0; i < r->count; i++) {
        struct reply_line *l = &r->lines[i];
        if (l->model != model || l->depth != depth || strcmp(l->key, key) != 0)
            continue;
        if (!l->used)
            return l;
        if (depth > 0 && !again)
            again = l;
    }
    return again;
}

static struct reply_line *find_scripted(struct replay *r, const struct lm_request *request)
{
    for (size_t i = 0; i < r->count; i++) {
        struct reply_line *l = &r->lines[i];
        if (l->key[0] || l->depth != request->depth || (l->used && !l->repeat))
            continue;
        if (!l->contains || last_message_contains(request, l->contains))
            return l;
    }
    return NULL;
}

static int find_recorded(
    struct replay *r, struct lm_call *call, struct reply_line **out, struct error *err)
{
    char key[HASH_TEXT_SIZE];
    bool served = false;
    for (size_t m = 0; call->model && m < r->models.count; m++)
        served = served || strcmp(r->models.items[m], call->model) == 0;
    for (size_t m = 0; m < r->models.count && !*out; m++) {
        if (served && strcmp(r->models.items[m], call->model) != 0)
            continue;
        int rc = record_key(call, r->models.items[m], key, err);
        if (rc < 0)
            return rc;
        *out = find_key(r, m, key, call->request.depth);
    }
    return 0;
}

static void say_no_line_fits(
    const struct replay *r, const struct lm_request *request, struct error *err)
{
    size_t used = 0, of = 0;
    for (size_t i = 0; i < r->count; i++) {
        of += r->lines[i].depth == request->depth;
        used += r->lines[i].depth == request->depth && r->lines[i].used;
    }
    error_set(err, ERROR_MODEL_REPLAY,
        "%.90s has no answer for this call at depth %u (%zu of the %zu lines for that depth are "
        "used): record the run again with --record, or add a line",
        r->path, request->depth, used, of);
}

static void replay_release(struct lm_call *call)
{
    struct answer *a = call->own;
    if (a)
        timer_free(a->delay);
    free(a);
}

static void answer_now(void *arg)
{
    struct answer *a = arg;
    const struct reply_line *l = a->line;
    struct lm_outcome outcome = { .error = l ? l->error : a->error };
    if (l && l->error.code == ERROR_NONE) {
        outcome.text = l->content;
        outcome.len = l->len;
        outcome.finish = l->finish;
    }
    if (l)
        outcome.usage = l->has_usage ? l->usage : lm_usage_estimate(a->call, l->len);
    lm_attempt_done(a->call, &outcome);
}

static int replay_prepare(struct lm_call *call, const struct lm_request *request, struct error *err)
{
    struct replay *r = call->client;
    struct reply_line *line = NULL;
    struct answer *a = calloc(1, sizeof *a);
    call->own = a;
    if (!a || !(a->delay = timer_new(r->loop, answer_now, a)))
        return error_memory(err);
    a->call = call;
    int rc = find_recorded(r, call, &line, err);
    if (rc < 0)
        return rc;
    if (!line)
        line = find_scripted(r, request);
    if (line)
        line->used = true;
    else
        say_no_line_fits(r, request, &a->error);
    a->line = line;
    return 0;
}

static void replay_attempt(struct lm_call *call)
{
    struct answer *a = call->own;
    timer_start(a->delay, a->line ? a->line->delay_ms : 0, 0);
}

static struct lm_usage replay_abort(struct lm_call *call)
{
    struct answer *a = call->own;
    timer_stop(a->delay);
    return lm_usage_estimate(call, 0);
}

static bool take_model(struct replay *r, struct reply_line *l, const char *model)
{
    for (l->model = 0; l->model < r->models.count; l->model++)
        if (strcmp(r->models.items[l->model], model) == 0)
            return true;
    return list_add(&r->models, model, NULL) == 0;
}

static void take_outcome(struct reply_line *l, struct json_object *o)
{
    struct json_object *usage = json_get_typed(o, "usage", json_type_object);
    struct json_object *error = json_get_typed(o, "error", json_type_object);
    if (usage) {
        l->has_usage = true;
        l->usage.input_tokens = json_get_int(usage, "input_tokens", 0);
        l->usage.output_tokens = json_get_int(usage, "output_tokens", 0);
        l->usage.estimated = json_get_bool(usage, "estimated", false);
        l->usage.cached_tokens = json_get_int(usage, "cached_tokens", 0);
    }
    if (error)
        error_set(&l->error, error_code_named(json_get_string(error, "code", "model"), ERROR_MODEL),
            "%s", json_get_string(error, "message", ""));
}

/* The error in the line, or NULL. */
static const char *check_line(struct json_object *o)
{
    static const struct {
        const char *key;
        enum json_type type;
        const char *wrong;
    } members[] = {
        { "v", json_type_int, "'v' is not a number" },
        { "key", json_type_string, "'key' is not a string" },
        { "depth", json_type_int, "'depth' is not a whole number" },
        { "content", json_type_string, "'content' is not a string" },
        { "contains", json_type_string, "'contains' is not a string" },
        { "repeat", json_type_boolean, "'repeat' must be true or false" },
        { "delay_ms", json_type_int, "'delay_ms' is not a whole number" },
    };
    if (!json_object_is_type(o, json_type_object))
        return "it is not a JSON object";
    for (size_t i = 0; i < array_length(members); i++) {
        struct json_object *v = NULL;
        if (json_object_object_get_ex(o, members[i].key, &v) &&
            !json_object_is_type(v, members[i].type))
            return members[i].wrong;
    }
    if (json_get_int(o, "v", RECORD_VERSION) != RECORD_VERSION)
        return "its version is not 1";
    if (strlen(json_get_string(o, "key", "")) >= HASH_TEXT_SIZE)
        return "its 'key' is too long";
    if (json_get_int(o, "depth", 0) < 0 || json_get_int(o, "delay_ms", 0) < 0)
        return "it has a negative number";
    if (json_get_int(o, "depth", 0) > UINT32_MAX)
        return "its 'depth' is too large";
    if (!json_get_string(o, "content", NULL) && !json_get_typed(o, "error", json_type_object))
        return "it has neither 'content' nor 'error'";
    return NULL;
}

static bool fill_line(struct replay *r, struct reply_line *l, struct json_object *o)
{
    struct json_object *content = NULL;
    const char *contains = json_get_string(o, "contains", NULL);
    json_object_object_get_ex(o, "content", &content);
    snprintf(l->key, sizeof l->key, "%s", json_get_string(o, "key", ""));
    l->depth = (unsigned)json_get_int(o, "depth", 0);
    l->repeat = json_get_bool(o, "repeat", false);
    l->delay_ms = (uint64_t)json_get_int(o, "delay_ms", 0);
    l->len = content ? (size_t)json_object_get_string_len(content) : 0;
    l->content = text_copy(content ? json_object_get_string(content) : "", l->len);
    l->finish = strdup(json_get_string(o, "finish", "stop"));
    l->contains = contains ? strdup(contains) : NULL;
    take_outcome(l, o);
    if (!take_model(r, l, json_get_string(o, "model", "")))
        return false;
    return l->content && l->finish && (!contains || l->contains);
}

static int replay_add_line(void *arg, const struct line *line, struct error *err)
{
    struct replay *r = arg;
    cleanup_json struct json_object *o = NULL;
    struct error why = { 0 };
    const char *wrong = why.text;
    if (line_is_blank(line))
        return 0;
    if (json_parse(line->text, line->len, &json_limits_large, &o, &why) == 0)
        wrong = check_line(o);
    if (wrong)
        return error_set(err, ERROR_ARGUMENT, "the recording %.90s, line %zu: %.100s", r->path,
            line->number, wrong);
    if (!array_room(r->lines, r->count, &r->room))
        return error_memory(err);
    struct reply_line *l = &r->lines[r->count++];
    *l = (struct reply_line){ 0 };
    return fill_line(r, l, o) ? 0 : error_memory(err);
}

static void replay_close(void *client)
{
    struct replay *r = client;
    for (size_t i = 0; i < r->count; i++) {
        free(r->lines[i].contains);
        free(r->lines[i].content);
        free(r->lines[i].finish);
    }
    list_clear(&r->models);
    free(r->lines);
    free(r->path);
    free(r);
}

static void replay_describe(const void *client, struct buf *out)
{
    buf_puts(out, "a recording");
}

static int replay_fill(struct replay *r, struct error *err)
{
    cleanup_fd int fd = file_open(r->path, O_RDONLY, FILE_OR_NULL, "the recording", err);
    if (fd < 0)
        return fd;
    char name[140];
    snprintf(name, sizeof name, "the recording %.100s", r->path);
    return line_reader_read(fd, name, replay_add_line, r, err);
}

static int replay_open(struct loop *loop, const struct lm_options *options, const char *model,
    void **client, struct error *err)
{
    struct replay *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    r->loop = loop;
    r->path = strdup(model);
    int rc = r->path ? replay_fill(r, err) : error_memory(err);
    if (rc < 0) {
        replay_close(r);
        return rc;
    }
    *client = r;
    return 0;
}

const struct lm_client_ops lm_replay = {
    .needs_body = true,
    .open = replay_open,
    .close = replay_close,
    .describe = replay_describe,
    .prepare = replay_prepare,
    .release = replay_release,
    .attempt = replay_attempt,
    .abort = replay_abort,
};
