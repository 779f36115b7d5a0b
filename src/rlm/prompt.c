/* rlm/prompt.c: fills the prompts. The texts are in rlm/prompts/; here their placeholders are
 * filled with what a session has. */
#include "rlm/prompt.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
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

/* Whether the text has this placeholder. */
static bool prompt_has(const char *text, const char *name)
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

/* ---- the system prompt ---- */

/* A point of the list. */
static void put_point(struct buf *out, enum prompt_name name)
{
    buf_printf(out, "%s\n", prompt_text(name));
}

/* The fields by their names, where they are few and Python can say them. */
static void put_fields(struct buf *out, const struct schema *type)
{
    size_t count = 0;
    const char *const *names = schema_names(type, &count);
    bool sayable = count > 0 && count <= 12;
    cleanup_buf struct buf fields = { 0 };
    for (size_t i = 0; sayable && i < count; i++)
        sayable = text_is_identifier(names[i]);
    for (size_t i = 0; sayable && i < count; i++)
        buf_printf(&fields, "%s%s=value", i ? ", " : "", names[i]);
    if (sayable)
        PROMPT_FILL(out, PROMPT_SESSION_FIELDS, { "fields", buf_text(&fields) });
}

static void put_submit(struct buf *out, const struct schema *type)
{
    cleanup_buf struct buf fields = { 0 };
    if (type)
        put_fields(&fields, type);
    PROMPT_FILL(out, type ? PROMPT_SESSION_SUBMIT_TYPED : PROMPT_SESSION_SUBMIT,
        { "fields", buf_text(&fields) });
    buf_putc(out, '\n');
}

static void prompt_put_volume(
    struct buf *out, const char *volume, const struct workspace *workspace)
{
    PROMPT_FILL(out, PROMPT_SESSION_VOLUME, { "root", volume },
        { "below", workspace ? "`REPO_PATH`" : "its `workspace`" });
    buf_putc(out, '\n');
}

/* The URL may be a stranger's, but has no bytes in it that could say something else. */
static void prompt_put_workspace(struct buf *out, const struct workspace *w)
{
    const struct staged *s = workspace_staged(w);
    char commit[13], count[24];
    if (s->repo) {
        snprintf(commit, sizeof commit, "%.12s", s->commit);
        PROMPT_FILL(out, PROMPT_SESSION_REPOSITORY, { "url", s->url }, { "commit", commit });
        buf_putc(out, '\n');
    }
    if (s->paths.count > 0) {
        snprintf(count, sizeof count, "%zu", s->paths.count);
        PROMPT_FILL(out, PROMPT_SESSION_PATHS, { "count", count });
        buf_putc(out, '\n');
    }
}

/* What the code has of guest/python. */
static void put_guest(struct buf *out, const struct prompt_session *s)
{
    put_point(out, PROMPT_SESSION_CALLS);
    if (s->children)
        put_point(out, PROMPT_SESSION_CHILDREN);
    put_point(out, PROMPT_SESSION_BUFFERS);
    prompt_helpers(out, s);
    if (s->images)
        put_point(out, PROMPT_SESSION_IMAGES);
    if (s->volume)
        prompt_put_volume(out, s->volume, s->workspace);
    if (s->workspace)
        prompt_put_workspace(out, s->workspace);
    put_submit(out, s->answer);
    buf_printf(out, "\n%s", prompt_text(PROMPT_SESSION_END));
}

static void drop_last_newlines(struct buf *out)
{
    while (out->len > 0 && out->data[out->len - 1] == '\n')
        out->data[--out->len] = '\0';
}

static void put_session(struct buf *out, const struct prompt_session *s)
{
    put_point(out, s->several ? PROMPT_SESSION_CONTEXTS : PROMPT_SESSION_CONTEXT);
    if (s->about)
        buf_puts(out, s->about);
    else
        put_guest(out, s);
    drop_last_newlines(out);
}

static void put_rules(struct buf *out, const struct prompt_session *s)
{
    enum prompt_name imports =
        s->no_standard_imports ? PROMPT_SESSION_NO_IMPORTS : PROMPT_SESSION_IMPORTS;
    if (s->rules && !s->about)
        PROMPT_FILL(out, PROMPT_SESSION_RULES, { "imports", prompt_text(imports) });
}

void prompt_system(struct buf *out, const struct prompt_session *s)
{
    cleanup_buf struct buf session = { 0 }, rules = { 0 }, schema = { 0 }, task = { 0 };
    cleanup_buf struct buf tools = { 0 };
    put_session(&session, s);
    put_rules(&rules, s);
    if (s->answer)
        PROMPT_FILL(&schema, PROMPT_SESSION_SCHEMA, { "schema", schema_text(s->answer) });
    if (s->instructions && s->instructions[0])
        PROMPT_FILL(&task, PROMPT_SESSION_INSTRUCTIONS, { "instructions", s->instructions });
    if (s->prepared)
        prompt_tools(&tools, s->prepared->tools, s->prepared->data);
    const struct prompt_value values[] = {
        { "session", buf_text(&session) },
        { "model_notes", prompt_for_model(s->model) },
        { "rules", buf_text(&rules) },
        /* What the user has given for the task is in every prompt; see below. */
        { "answer_schema", buf_text(&schema) },
        { "instructions", buf_text(&task) },
        { "tools", buf_text(&tools) },
        { 0 },
    };
    const char *text = s->system && s->system[0]
                           ? s->system
                           : prompt_text(s->about ? PROMPT_SYSTEM_CUSTOM : PROMPT_SYSTEM);
    prompt_fill(out, text, values);
    drop_last_newlines(out);
    buf_putc(out, '\n');
    for (size_t i = 3; values[i].name; i++)
        if (values[i].text[0] && !prompt_has(text, values[i].name))
            buf_printf(out, "\n%s\n", values[i].text);
    out->failed |= session.failed || rules.failed || schema.failed || task.failed || tools.failed;
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

void prompt_summary(struct buf *out, const char *said, size_t len, bool history)
{
    PROMPT_FILL(out, PROMPT_SUMMARY, { "history", history ? prompt_text(PROMPT_HISTORY) : "" });
    buf_puts(out, "\n\n");
    buf_append(out, said, len);
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
        put_point(out, PROMPT_NO_OUTPUT);
    if (r->alive)
        prompt_put_variables(out, r->variables);
}
