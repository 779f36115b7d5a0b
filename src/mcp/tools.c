/* mcp/tools.c: the table of tools. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/run.h"
#include "mcp/schemas.h"
#include "mcp/session.h"

/* What a tool does to the world, for clients that ask before each call. */
#define READS   "{\"readOnlyHint\": true, \"openWorldHint\": false}"
#define CHANGES "{\"readOnlyHint\": false, \"destructiveHint\": false, \"openWorldHint\": false}"
#define ENDS    "{\"readOnlyHint\": false, \"destructiveHint\": true, \"openWorldHint\": false}"

static const struct mcp_tool own_tools[] = {
    { "run_python", "Run Python",
        "Runs a cell of Python in a sandbox and returns what it printed, the value of the last "
        "expression, and figures as images. Variables, imports and functions persist between "
        "calls with the same `session`; other names are separate sandboxes. Files in the working "
        "directory and /tmp persist, too. Large data stays in variables: print only what you need.",
        RUN_PYTHON, RUN_PYTHON_RESULT, CHANGES, mcp_tool_python_run },
    { "load_context", "Load a context",
        "Loads a file or directory of this machine, of up to gigabytes, or what a URL leads to, "
        "into a variable of a session without passing it through the conversation: text as str, "
        "JSON as its value, lines of JSON as a list, a directory as a dict from path to text. Look "
        "at it with run_python.",
        LOAD_CONTEXT, LOAD_CONTEXT_RESULT,
        "{\"readOnlyHint\": false, \"destructiveHint\": false, \"openWorldHint\": true}",
        mcp_tool_context_load },
    { "ask", "Ask about long contexts",
        "Answers a question about files of this machine that are too long to read: a recursive "
        "language model writes code that searches them, and asks sub-models about parts. Takes "
        "seconds to minutes and costs model tokens; the answer says how many.",
        ASK, ASK_RESULT, "{\"readOnlyHint\": true, \"openWorldHint\": true}", mcp_tool_ask },
    { "fork_session", "Fork a session",
        "Copies a session with all its variables under a new name, cheaply, so that something can "
        "be tried without changing the first one.",
        FORK_SESSION, SESSION_RESULT, CHANGES, mcp_tool_session_fork },
    { "list_sessions", "List sessions", "Lists the Python sessions and whether they execute.",
        LIST_SESSIONS, LIST_SESSIONS_RESULT, READS, mcp_tool_sessions_list },
    { "interrupt_session", "Interrupt a cell",
        "Interrupts the cell that a session executes, as Ctrl-C does. Its variables stay.",
        OF_SESSION, SESSION_RESULT, CHANGES, mcp_tool_session_interrupt },
    { "close_session", "Close a session", "Ends a session: its variables and files are lost.",
        OF_SESSION, SESSION_RESULT, ENDS, mcp_tool_session_close },
    { "read_file", "Read a file", "Reads a file of a session's sandbox, at most 1 MiB at once.",
        READ_FILE, READ_FILE_RESULT, READS, mcp_tool_file_read },
    { "write_file", "Write a file",
        "Writes a file of a session's sandbox, from `text` or from `base64`.", WRITE_FILE,
        WRITE_FILE_RESULT, ENDS, mcp_tool_file_write },
    { "list_files", "List files", "Lists a directory of a session's sandbox.", LIST_FILES,
        LIST_FILES_RESULT, READS, mcp_tool_files_list },
};

/* By index, from 0: those of the table, then those of the extension; NULL after the last. */
static const struct mcp_tool *tool_at(const struct mcp_server *server, size_t i)
{
    const struct mcp_extension *more = server->extension;
    if (i < array_length(own_tools))
        return &own_tools[i];
    i -= array_length(own_tools);
    return more && i < more->tool_count ? &more->tools[i] : NULL;
}

static size_t tools_count(const struct mcp_server *server)
{
    return array_length(own_tools) + (server->extension ? server->extension->tool_count : 0);
}

int mcp_tools_prepare(struct mcp_server *server, struct error *err)
{
    const struct mcp_tool *tool;
    server->schemas = calloc(tools_count(server), sizeof *server->schemas);
    if (!server->schemas)
        return error_memory(err);
    for (size_t i = 0; (tool = tool_at(server, i)); i++)
        if (schema_parse(tool->input, strlen(tool->input), &server->schemas[i], err) < 0)
            return error_wrap(err, "the tool %s", tool->name);
    return 0;
}

void mcp_tools_free(struct mcp_server *server)
{
    for (size_t i = 0; server->schemas && i < tools_count(server); i++)
        schema_drop(server->schemas[i]);
    free(server->schemas);
}

static struct json_object *tool_describe(const struct mcp_tool *tool)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "name", tool->name) && json_put_text(o, "title", tool->title) &&
        json_put_text(o, "description", tool->description) &&
        mcp_put_written(o, "inputSchema", tool->input) &&
        (!tool->output || mcp_put_written(o, "outputSchema", tool->output)) &&
        (!tool->hints || mcp_put_written(o, "annotations", tool->hints)))
        return o;
    json_object_put(o);
    return NULL;
}

void mcp_tools_list(struct mcp_call *c)
{
    struct json_object *list = json_object_new_array(), *o = NULL;
    const struct mcp_tool *tool;
    bool ok = list != NULL;
    for (size_t i = 0; ok && (tool = tool_at(c->peer->mcp->server, i)); i++) {
        struct json_object *item = tool_describe(tool);
        ok = item && json_object_array_add(list, item) == 0;
    }
    if (ok)
        o = json_object_new_object();
    if (!o || !json_put(o, "tools", steal(&list))) {
        json_object_put(o);
        o = NULL;
    }
    json_object_put(list);
    mcp_call_answer(c, o);
}

static void tool_run(struct mcp_call *c, size_t i)
{
    const struct mcp_server *server = c->peer->mcp->server;
    const struct mcp_tool *tool = tool_at(server, i);
    struct json_object *arguments = NULL;
    struct error err;
    if (!json_object_object_get_ex(c->params, "arguments", &arguments) || !arguments) {
        arguments = json_object_new_object();
        if (!arguments || !json_put(c->params, "arguments", arguments)) {
            mcp_call_fail(c, RPC_INTERNAL, "out of memory");
            return;
        }
    }
    c->arguments = arguments;
    if (schema_check(server->schemas[i], arguments, &err) < 0)
        mcp_tool_fail(c, "the arguments of %s: %s", tool->name, err.text);
    else
        tool->run(c);
}

void mcp_tools_call(struct mcp_call *c)
{
    const struct mcp_tool *tool;
    const char *name = json_get_string(c->params, "name", NULL);
    struct json_object *arguments = NULL;
    if (!name) {
        mcp_call_fail(c, RPC_PARAMS, "tools/call needs `name`");
        return;
    }
    if (json_object_object_get_ex(c->params, "arguments", &arguments) && arguments &&
        !json_object_is_type(arguments, json_type_object)) {
        mcp_call_fail(c, RPC_PARAMS, "`arguments` is not an object");
        return;
    }
    for (size_t i = 0; (tool = tool_at(c->peer->mcp->server, i)); i++)
        if (strcmp(tool->name, name) == 0) {
            tool_run(c, i);
            return;
        }
    mcp_call_fail(c, RPC_PARAMS, "there is no tool '%s'", name);
}
