/* session/submission.c: stores submissions. Copies the outline, as most are small and have no
 * texts; the texts stay in the memory of the frame, or in the memory file that it came in.
 */
#include "session/submission.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "wire/values.h"

struct text {
    const char *data;
    size_t len;
    size_t hole; /* offset in the outline */
};

struct submission {
    unsigned owners; /* besides the first */
    char *outline;
    size_t outline_len;
    struct text *texts;
    size_t count;
    const char *values;
    size_t values_len;
    /* one of both holds the texts and the values */
    char *memory;
    struct sealed mapped;
    char *json; /* assembled on first use */
    size_t json_len;
};

static void cleanup_submission(struct submission **s)
{
    submission_free(*s);
}

void submission_free(struct submission *s)
{
    if (!s || s->owners-- > 0)
        return;
    free(s->outline);
    free(s->texts);
    free(s->memory);
    sealed_unmap(&s->mapped);
    free(s->json);
    free(s);
}

struct submission *submission_hold(struct submission *s)
{
    if (s)
        s->owners++;
    return s;
}

static int take_texts(
    struct submission *s, size_t count, struct frame_parts *parts, struct error *err)
{
    s->texts = calloc(count + 1, sizeof *s->texts);
    if (!s->texts)
        return error_memory(err);
    for (; s->count < count; s->count++) {
        struct text *text = &s->texts[s->count];
        frame_parts_next(parts, &text->data, &text->len);
        if (!text_is_utf8(text->data, text->len, NULL))
            return error_set(err, ERROR_PROTOCOL, "a text in a result is not UTF-8");
    }
    return 0;
}

/* Returns the length of the complete JSON. */
static size_t whole_length(const struct submission *s)
{
    size_t len = s->outline_len;
    for (size_t i = 0; i < s->count; i++)
        len += json_string_length(s->texts[i].data, s->texts[i].len);
    return len;
}

/* Quoting makes a text at most six times as long, which usually suffices as an estimate. */
static bool is_too_large(const struct submission *s)
{
    size_t len = s->outline_len, most = json_limits_large.bytes;
    for (size_t i = 0; i < s->count; i++)
        len += 6 * s->texts[i].len;
    return len > most && whole_length(s) > most;
}

static int check_outline(struct submission *s, struct error *err)
{
    struct error why = { 0 };
    size_t count = 0;
    cleanup_free size_t *holes = calloc(s->count + 1, sizeof *holes);
    if (!holes)
        return error_memory(err);
    int rc = s->count == 0 ? json_check(s->outline, s->outline_len, &json_limits_large, &why)
                           : json_check_outline(s->outline, s->outline_len, &json_limits_large,
                                 holes, s->count, &count, &why);
    if (rc < 0)
        return error_set(err, ERROR_ARGUMENT, "%s", why.text);
    if (count != s->count)
        return error_set(
            err, ERROR_PROTOCOL, "a result with %zu texts and places for %zu", s->count, count);
    if (s->outline[0] != '{')
        return error_set(err, ERROR_ARGUMENT, "SUBMIT needs an object");
    for (size_t i = 0; i < count; i++)
        s->texts[i].hole = holes[i];
    if (is_too_large(s))
        return error_set(err, ERROR_ARGUMENT, "the submitted value is larger than %zu MiB as JSON",
            json_limits_large.bytes >> 20);
    return 0;
}

/* The parts of a container follow each other, so together they are one. */
static int take_values(struct submission *s, struct json_object *head,
    const struct frame_parts *parts, struct error *err)
{
    int64_t first = json_get_int(head, "values", -1), pieces = json_get_int(head, "pieces", 0);
    int64_t count = (int64_t)parts->count;
    if (first < 0)
        return 0;
    if (first >= count || pieces < 1 || pieces > count - first)
        return error_set(err, ERROR_PROTOCOL, "a result names a part that is not there");
    struct frame_parts at = *parts;
    const char *data = NULL;
    size_t len = 0;
    for (int64_t i = 0; i < first + pieces; i++) {
        frame_parts_next(&at, &data, &len);
        if (i == first)
            s->values = data;
        s->values_len += i >= first ? len : 0;
    }
    return values_check(s->values, s->values_len, err);
}

static void submission_take_memory(struct submission *s, const struct frame *frame)
{
    if (frame->mapped && frame->mapped->data) {
        s->mapped = *frame->mapped;
        *frame->mapped = (struct sealed){ 0 };
    } else {
        s->memory = buf_steal(frame->body);
    }
}

int submission_read(struct json_object *head, const struct frame_parts *parts,
    const struct frame *frame, struct submission **out, struct error *err)
{
    int64_t first = json_get_int(head, "submitted", -1), texts = json_get_int(head, "texts", 0);
    int64_t count = (int64_t)parts->count;
    struct frame_parts at = *parts;
    const char *outline = NULL;
    size_t len = 0;
    *out = NULL;
    if (first < 0)
        return 0;
    if (first >= count || texts < 0 || texts >= count - first)
        return error_set(err, ERROR_PROTOCOL, "a result refers to a part that does not exist");
    for (int64_t i = 0; i <= first; i++)
        frame_parts_next(&at, &outline, &len);
    __attribute__((cleanup(cleanup_submission))) struct submission *s = calloc(1, sizeof *s);
    if (!s || !(s->outline = text_copy(outline, len)))
        return error_memory(err);
    s->outline_len = len;
    int rc = take_texts(s, (size_t)texts, &at, err);
    if (rc == 0)
        rc = check_outline(s, err);
    if (rc == 0)
        rc = take_values(s, head, parts, err);
    if (rc < 0)
        return rc;
    if (s->count > 0 || s->values)
        submission_take_memory(s, frame);
    *out = steal(&s);
    return 0;
}

static int put_together(struct submission *s)
{
    struct buf json = { 0 };
    size_t at = 0;
    buf_reserve(&json, whole_length(s));
    for (size_t i = 0; i < s->count; i++) {
        const struct text *text = &s->texts[i];
        buf_append(&json, s->outline + at, text->hole - at);
        json_append_string(&json, text->data, text->len);
        at = text->hole + strlen(JSON_HOLE);
    }
    buf_append(&json, s->outline + at, s->outline_len - at);
    s->json_len = json.len;
    s->json = buf_steal(&json);
    return s->json ? 0 : -1;
}

const char *submission_json(struct submission *s, size_t *len)
{
    if (len)
        *len = 0;
    if (!s || (s->count > 0 && !s->json && put_together(s) < 0))
        return NULL;
    if (len)
        *len = s->json ? s->json_len : s->outline_len;
    return s->json ? s->json : s->outline;
}

const char *submission_outline(const struct submission *s, size_t *len)
{
    if (len)
        *len = s ? s->outline_len : 0;
    return s ? s->outline : NULL;
}

const char *submission_text(const struct submission *s, size_t index, size_t *len)
{
    bool known = s && index < s->count;
    if (len)
        *len = known ? s->texts[index].len : 0;
    return known ? s->texts[index].data : NULL;
}

const char *submission_values(const struct submission *s, size_t *len)
{
    if (len)
        *len = s ? s->values_len : 0;
    return s ? s->values : NULL;
}
