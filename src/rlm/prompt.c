/* rlm/prompt.c: fills the placeholders of the texts in rlm/prompts/, and writes what a model gets
 * in each turn.
 */
#include "rlm/prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* ---- templates ---- */

static const struct prompt_value *find_value(
    const struct prompt_value *values, const char *name, size_t len)
{
    for (; values->name; values++)
        if (strlen(values->name) == len && strncmp(values->name, name, len) == 0)
            return values;
    return NULL;
}

/* The placeholder `{name}` at `at`, which has a '{'; NULL: it is none of these. */
static const struct prompt_value *placeholder_at(const struct prompt_value *values, const char *at)
{
    size_t len = strcspn(at + 1, "{}\n");
    return at[1 + len] == '}' ? find_value(values, at + 1, len) : NULL;
}

void prompt_fill(struct buf *out, const char *text, const struct prompt_value *values)
{
    for (const char *at = text; *at;) {
        const struct prompt_value *value = *at == '{' ? placeholder_at(values, at) : NULL;
        size_t len = value ? strlen(value->name) + 2 : strcspn(at + 1, "{") + 1;
        bool alone = value && (at == text || (at > text + 1 && at[-1] == '\n' && at[-2] == '\n')) &&
                     at[len] == '\n';
        if (value)
            buf_puts(out, value->text);
        else
            buf_append(out, at, len);
        at += len;
        if (alone && !value->text[0])
            at += strspn(at, "\n");
    }
}

bool prompt_has(const char *text, const char *name)
{
    const struct prompt_value one[] = { { name, "" }, { 0 } };
    for (; (text = strchr(text, '{')); text++)
        if (placeholder_at(one, text))
            return true;
    return false;
}

const char *prompt_for_model(const char *model)
{
    static const char family[] = "model-";
    const size_t skipped = sizeof family - 1;
    const struct prompt_text *best = NULL;
    for (size_t i = 0; model && i < PROMPT_COUNT; i++) {
        const struct prompt_text *p = &prompt_texts[i];
        if (strncmp(p->name, family, skipped) == 0 && strcasestr(model, p->name + skipped) &&
            (!best || strlen(p->name) > strlen(best->name)))
            best = p;
    }
    return best ? best->text : "";
}

/* ---- the question ---- */

/* 12345678 as 12,345,678. */
static void prompt_put_number(struct buf *out, int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++) {
        buf_putc(out, digits[i]);
        if (digits[i] != '-' && i + 1 < len && (len - i - 1) % 3 == 0)
            buf_putc(out, ',');
    }
}

static const struct {
    const char *type, *unit;
} units[] = {
    { "str", "characters" },
    { "bytes", "bytes" },
    { "list", "items" },
    { "dict", "keys" },
};

void prompt_describe_context(struct buf *out, struct json_object *variable)
{
    const char *type = json_get_string(variable, "type", "value");
    int64_t length = json_get_int(variable, "length", -1);
    int64_t characters = json_get_int(variable, "characters", -1);
    const char *unit = "items";
    buf_printf(out, "a %.40s", type);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].type, type) == 0)
            unit = units[i].unit;
    if (length >= 0) {
        buf_puts(out, " of ");
        prompt_put_number(out, length);
        buf_printf(out, " %s", unit);
    }
    if (characters >= 0) {
        buf_puts(out, " whose values have ");
        prompt_put_number(out, characters);
        buf_puts(out, " characters in all");
    }
}

static void put_samples(struct buf *out, struct json_object *variable)
{
    struct json_object *keys = json_get_typed(variable, "keys", json_type_array);
    const char *preview = json_get_string(variable, "preview", NULL);
    size_t count = json_length(keys);
    if (preview)
        buf_printf(out, "It begins with %.400s\n", preview);
    for (size_t i = 0; i < count && i < 5; i++)
        buf_printf(out, "%s%.200s", i ? ", " : "Its first keys: ",
            json_object_to_json_string(json_object_array_get_idx(keys, i)));
    buf_puts(out, count ? "\n" : "");
    const char *item = json_get_string(variable, "item", NULL);
    if (item)
        buf_printf(out, "Its first item is a %.80s\n", item);
}

/* `context`, also `mail`, is a str of 5 characters, from mail.txt. */
static void prompt_put_context(struct buf *out, const struct context *c, size_t index, bool several,
    struct json_object *variable)
{
    struct context_names names;
    context_names(c, index, &names);
    size_t first =
        several && index == 0; /* the numbered name before `context`, as for the others */
    buf_printf(out, "%s`%s`", several ? "- " : "", names.names[first]);
    if (first)
        buf_puts(out, ", also `context`");
    if (c->name)
        buf_printf(out, ", also `%s`,", c->name);
    else if (first)
        buf_putc(out, ',');
    buf_puts(out, " is ");
    prompt_describe_context(out, variable);
    buf_printf(out, ", from %.200s.\n", c->source);
    put_samples(out, variable);
}

static void put_contexts(
    struct buf *out, const struct contexts *contexts, struct json_object *variables)
{
    size_t count = contexts ? contexts->count : 0;
    if (count == 0)
        buf_printf(out, "%s\n", prompt_text(PROMPT_QUESTION_NO_CONTEXT));
    if (count > 1)
        buf_printf(out, "There are %zu contexts:\n", count);
    for (size_t i = 0; i < count; i++)
        prompt_put_context(
            out, contexts->items[i], i, count > 1, json_object_array_get_idx(variables, i));
}

void prompt_question(struct buf *out, const char *question, const struct contexts *contexts,
    struct json_object *variables, unsigned turns)
{
    cleanup_buf struct buf described = { 0 };
    char count[16], all[32];
    put_contexts(&described, contexts, variables);
    snprintf(count, sizeof count, "%u", turns);
    snprintf(all, sizeof all, "%u turn%s", turns, text_plural(turns));
    PROMPT_FILL(out, PROMPT_QUESTION, { "question", question },
        { "contexts", buf_text(&described) }, { "turns", all }, { "count", count });
    out->failed |= described.failed;
}

/* Text of at most about `max` bytes: the beginning and the end where it is longer. */
static void put_shortened(struct buf *out, const char *text, size_t len, size_t max)
{
    if (len <= max) {
        buf_append(out, text, len);
        return;
    }
    size_t head = text_utf8_floor(text, len, max / 2);
    size_t tail = len - max / 2;
    while (tail < len && ((unsigned char)text[tail] & 0xC0) == 0x80)
        tail++;
    buf_append(out, text, head);
    buf_printf(out, "\n... [%zu bytes left out; print less] ...\n", tail - head);
    buf_append(out, text + tail, len - tail);
}

void prompt_summary(struct buf *out, const char *summary, size_t len, bool history)
{
    PROMPT_FILL(out, PROMPT_SUMMARY, { "history", history ? prompt_text(PROMPT_HISTORY) : "" });
    buf_puts(out, "\n\n");
    buf_append(out, summary, len);
}

void prompt_shortened(struct buf *out, const char *text, size_t len, size_t max, bool history)
{
    PROMPT_FILL(out, PROMPT_SHORTENED, { "history", history ? prompt_text(PROMPT_HISTORY) : "" });
    buf_putc(out, '\n');
    put_shortened(out, text, len, max);
}

static void put_section(
    struct buf *out, const char *title, const char *text, size_t len, size_t max)
{
    if (len == 0)
        return;
    buf_puts(out, title);
    put_shortened(out, text, len, max);
    if (out->data[out->len - 1] != '\n')
        buf_putc(out, '\n');
}

static void prompt_put_variables(struct buf *out, struct json_object *variables)
{
    size_t count = json_length(variables);
    for (size_t i = 0; i < count && i < 100; i++) {
        struct json_object *v = json_object_array_get_idx(variables, i);
        int64_t length = json_get_int(v, "length", -1);
        buf_printf(out, "%s%.80s (%.40s", i ? ", " : "Variables: ", json_get_string(v, "name", "?"),
            json_get_string(v, "type", "?"));
        if (length >= 0)
            buf_printf(out, ", %lld", (long long)length);
        buf_putc(out, ')');
    }
    buf_puts(out, count ? "\n" : "");
}

static void put_session_end(struct buf *out, enum prompt_name name, const char *why)
{
    PROMPT_FILL(out, name, { "why", why });
    buf_putc(out, '\n');
}

void prompt_result(struct buf *out, const struct cell_result *r, unsigned index, size_t max_chars)
{
    const char *failure = r->error.traceback ? r->error.traceback : r->error.message;
    buf_printf(out, "Output of block %u:\n", index);
    put_section(out, "", buf_text(&r->out), r->out.len, max_chars);
    put_section(out, "Standard error:\n", buf_text(&r->err), r->err.len, max_chars / 2);
    if (r->status == CELL_TIMEOUT && r->alive && r->error.message)
        buf_printf(out, "TimeoutError: %s\n", r->error.message);
    if (failure)
        put_section(out, "Error:\n", failure, strlen(failure), max_chars / 2);
    if (!r->alive)
        put_session_end(out, PROMPT_SESSION_ENDED, r->reason.text);
    else if (r->rolled_back)
        put_session_end(out, PROMPT_SESSION_ROLLED_BACK, r->reason.text);
    else if (r->out.len == 0 && r->err.len == 0 && !failure)
        prompt_put_point(out, PROMPT_NO_OUTPUT);
    if (r->alive)
        prompt_put_variables(out, r->variables);
}
