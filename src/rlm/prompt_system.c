/* rlm/prompt_system.c: the system prompt, filled with what a session has. */
#include <stdio.h>

#include "base/text.h"
#include "rlm/prompt.h"

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
    prompt_put_point(out, PROMPT_SESSION_CALLS);
    if (s->children)
        prompt_put_point(out, PROMPT_SESSION_CHILDREN);
    prompt_put_point(out, PROMPT_SESSION_BUFFERS);
    prompt_helpers(out, s);
    if (s->images)
        prompt_put_point(out, PROMPT_SESSION_IMAGES);
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
    prompt_put_point(out, s->several ? PROMPT_SESSION_CONTEXTS : PROMPT_SESSION_CONTEXT);
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
