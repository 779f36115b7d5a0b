/* mcp/prompts.c: prompts that a user of a client picks. */
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "mcp/session.h"

static const struct prompt {
    const char *name, *title, *description, *arguments;
    const char *text; /* {path} and {question} are replaced */
} prompts[] = {
    { "explore", "Explore a large file",
        "Load a file or directory and answer a question by looking at it with code.",
        "[{\"name\": \"path\", \"description\": \"A path of this machine.\", \"required\": true}, "
        "{\"name\": \"question\", \"description\": \"What you want to know.\", \"required\": true}]",
        "Load {path} with load_context into a session. Do not read it whole. Use run_python to look "
        "at its type, length and beginning, then search, slice or compute what the question needs, "
        "printing little. Check the result a second way before you answer.\n\nQuestion: "
        "{question}" },
    { "answer", "Answer from long documents",
        "Let a recursive language model answer a question about long files.",
        "[{\"name\": \"path\", \"description\": \"A path of this machine.\", \"required\": true}, "
        "{\"name\": \"question\", \"description\": \"What you want to know.\", \"required\": true}]",
        "Call `ask` with the context {path} and this question. Give its answer, and what it cost.\n"
        "\nQuestion: {question}" },
};

void mcp_prompts_list(struct mcp_call *c)
{
    struct json_object *list = json_object_new_array(), *o = json_object_new_object();
    bool ok = list && o;
    for (size_t i = 0; ok && i < array_length(prompts); i++) {
        const struct prompt *p = &prompts[i];
        struct json_object *item = json_object_new_object(), *arguments = NULL;
        ok = item && json_put_text(item, "name", p->name) &&
             json_put_text(item, "title", p->title) &&
             json_put_text(item, "description", p->description) &&
             json_parse(p->arguments, strlen(p->arguments), &json_limits_small, &arguments, NULL) ==
                 0 &&
             json_put(item, "arguments", arguments) && json_object_array_add(list, item) == 0;
    }
    const struct mcp_extension *more = c->peer->mcp->server->extension;
    if (ok && more)
        ok = mcp_list_append(list, more->prompts);
    if (!ok || !json_put(o, "prompts", list)) {
        json_object_put(o);
        o = NULL;
    }
    mcp_call_answer(c, o);
}

/* The text with the arguments in it. */
static void prompt_write(struct buf *out, const struct prompt *p, struct json_object *arguments)
{
    for (const char *at = p->text; *at;) {
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        if (!end) {
            buf_putc(out, *at++);
            continue;
        }
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)(end - at - 1), at + 1);
        buf_puts(out, json_get_string(arguments, name, ""));
        at = end + 1;
    }
}

void mcp_prompts_get(struct mcp_call *c)
{
    const char *name = json_get_string(c->params, "name", "");
    struct json_object *arguments = json_get_typed(c->params, "arguments", json_type_object);
    const struct prompt *p = NULL;
    for (size_t i = 0; i < array_length(prompts); i++)
        if (strcmp(prompts[i].name, name) == 0)
            p = &prompts[i];
    const struct mcp_extension *more = c->peer->mcp->server->extension;
    if (!p && more && more->prompt && more->prompt(c, name))
        return;
    if (!p) {
        mcp_call_fail(c, RPC_PARAMS, "there is no prompt '%s'", name);
        return;
    }
    if (!json_get_string(arguments, "path", NULL) ||
        !json_get_string(arguments, "question", NULL)) {
        mcp_call_fail(
            c, RPC_PARAMS, "the prompt %s needs the arguments `path` and `question`", name);
        return;
    }
    cleanup_buf struct buf text = { 0 };
    prompt_write(&text, p, arguments);
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    struct json_object *message = json_object_new_object(), *content = json_object_new_object();
    bool ok = o && list && message && content && !buf_failed(&text) &&
              json_put_text(content, "type", "text") &&
              json_put_string(content, "text", text.data, text.len) &&
              json_put_text(message, "role", "user");
    if (!ok) {
        json_object_put(content);
        json_object_put(message);
        json_object_put(list);
        json_object_put(o);
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return;
    }
    json_put(message, "content", content);
    json_object_array_add(list, message);
    json_put_text(o, "description", p->description);
    json_put(o, "messages", list);
    mcp_call_answer(c, o);
}
