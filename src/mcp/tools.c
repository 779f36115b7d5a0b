/* mcp/tools.c: the table of tools. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/run.h"
#include "mcp/session.h"

#define TEXT "{\"type\": \"string\"}"
#define SESSION                                                                                    \
    "\"session\": {\"type\": \"string\", \"description\": \"The session's name (main).\"}"
#define OBJECT(required, properties)                                                               \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [" required             \
    "], \"properties\": {" properties "}}"
#define GIVES(required, properties)                                                                \
    "{\"type\": \"object\", \"required\": [" required "], \"properties\": {" properties "}}"
#define PATH                                                                                       \
    "\"path\": {\"type\": \"string\", \"description\": \"In the sandbox; relative paths begin "    \
    "where cells run.\"}"

/* What a tool does to the world, for clients that ask before each call. */
#define READS   "{\"readOnlyHint\": true, \"openWorldHint\": false}"
#define CHANGES "{\"readOnlyHint\": false, \"destructiveHint\": false, \"openWorldHint\": false}"
#define ENDS    "{\"readOnlyHint\": false, \"destructiveHint\": true, \"openWorldHint\": false}"

static const struct mcp_tool {
    const char *name, *title, *description, *input, *output, *hints;
    void (*run)(struct mcp_call *c);
} tools[] = {
    { "run_python", "Run Python",
        "Runs a cell of Python in a sandbox and returns what it printed, the value of the last "
        "expression, and figures as images. Variables, imports and functions persist between "
        "calls with the same `session`; other names are separate sandboxes. Files in the working "
        "directory and /tmp persist, too. Large data stays in variables: print only what you need.",
        OBJECT("\"code\"",
            "\"code\": " TEXT ", " SESSION ", \"timeout_seconds\": {\"type\": \"number\", "
            "\"exclusiveMinimum\": 0, \"description\": \"Then the cell is interrupted; the "
            "variables stay.\"}"),
        GIVES("\"session\", \"status\", \"stdout\", \"stderr\", \"result\", \"error\"",
            "\"session\": " TEXT ", \"status\": {\"enum\": [\"ok\", \"submitted\", \"error\", "
            "\"timeout\", \"killed\", \"lost\"]}, \"stdout\": " TEXT ", \"stderr\": " TEXT
            ", \"result\": {\"type\": [\"string\", \"null\"], \"description\": \"repr() of the "
            "last expression\"}, \"error\": {\"type\": [\"object\", \"null\"]}, \"variables\": "
            "{\"type\": \"array\", \"items\": {\"type\": \"object\"}}"),
        CHANGES, mcp_tool_python_run },
    { "load_context", "Load a context",
        "Loads a file or directory of this machine, of up to gigabytes, into a variable of a "
        "session without passing it through the conversation: text as str, JSON as its value, "
        "lines of JSON as a list, a directory as a dict from path to text. Look at it with "
        "run_python.",
        OBJECT("\"path\"",
            "\"path\": {\"type\": \"string\", \"description\": \"On this machine, below a path "
            "that the operator allows.\"}, \"name\": {\"type\": \"string\", \"description\": "
            "\"The variable (context).\"}, \"type\": {\"enum\": [\"auto\", \"text\", \"bytes\", "
            "\"json\", \"jsonl\"]}, " SESSION),
        GIVES("\"session\", \"name\", \"type\", \"length\"",
            "\"session\": " TEXT ", \"name\": " TEXT ", \"type\": " TEXT
            ", \"length\": {\"type\": \"integer\"}, \"notice\": " TEXT),
        CHANGES, mcp_tool_context_load },
    { "ask", "Ask about long contexts",
        "Answers a question about files of this machine that are too long to read: a recursive "
        "language model writes code that searches them, and asks sub-models about parts. Takes "
        "seconds to minutes and costs model tokens; the answer says how many.",
        OBJECT("\"question\"",
            "\"question\": {\"type\": \"string\", \"minLength\": 1}, \"contexts\": {\"type\": "
            "\"array\", \"maxItems\": 64, \"items\": " TEXT
            ", \"description\": \"Paths of files and directories.\"}"),
        GIVES("\"status\", \"answer\"",
            "\"run\": {\"type\": [\"string\", \"null\"]}, \"status\": " TEXT
            ", \"answer\": {}, \"iterations\": {\"type\": \"integer\"}, \"usage\": {\"type\": "
            "\"object\"}, \"error\": {\"type\": [\"object\", \"null\"]}"),
        "{\"readOnlyHint\": true, \"openWorldHint\": true}", mcp_tool_ask },
    { "fork_session", "Fork a session",
        "Copies a session with all its variables under a new name, cheaply, so that something can "
        "be tried without changing the first one.",
        OBJECT("\"name\"",
            "\"name\": {\"type\": \"string\", \"description\": \"Of the copy.\"}, " SESSION),
        GIVES("\"session\"", "\"session\": " TEXT), CHANGES, mcp_tool_session_fork },
    { "list_sessions", "List sessions", "Lists the Python sessions and whether they execute.",
        OBJECT("", ""),
        GIVES("\"sessions\"", "\"sessions\": {\"type\": \"array\", \"items\": {\"type\": "
                              "\"object\"}}"),
        READS, mcp_tool_sessions_list },
    { "interrupt_session", "Interrupt a cell",
        "Interrupts the cell that a session executes, as Ctrl-C does. Its variables stay.",
        OBJECT("", SESSION), GIVES("\"session\"", "\"session\": " TEXT), CHANGES,
        mcp_tool_session_interrupt },
    { "close_session", "Close a session", "Ends a session: its variables and files are lost.",
        OBJECT("", SESSION), GIVES("\"session\"", "\"session\": " TEXT), ENDS,
        mcp_tool_session_close },
    { "read_file", "Read a file", "Reads a file of a session's sandbox, at most 1 MiB at once.",
        OBJECT("\"path\"",
            PATH ", " SESSION ", \"offset\": {\"type\": \"integer\", \"minimum\": 0}, \"length\": "
                 "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 1048576}"),
        GIVES("\"bytes\", \"encoding\"",
            "\"offset\": {\"type\": \"integer\"}, \"bytes\": {\"type\": \"integer\"}, "
            "\"encoding\": {\"enum\": [\"utf-8\", \"base64\"]}"),
        READS, mcp_tool_file_read },
    { "write_file", "Write a file",
        "Writes a file of a session's sandbox, from `text` or from `base64`.",
        OBJECT("\"path\"", PATH ", " SESSION ", \"text\": " TEXT ", \"base64\": " TEXT),
        GIVES("\"bytes\"", "\"bytes\": {\"type\": \"integer\"}"), ENDS, mcp_tool_file_write },
    { "list_files", "List files", "Lists a directory of a session's sandbox.",
        OBJECT("", PATH ", " SESSION ", \"depth\": {\"type\": \"integer\", \"minimum\": 1, "
                        "\"maximum\": 100}"),
        GIVES("\"entries\", \"more\"",
            "\"entries\": {\"type\": \"array\", \"items\": {\"type\": \"object\"}}, \"more\": "
            "{\"type\": \"boolean\"}"),
        READS, mcp_tool_files_list },
};

int mcp_tools_prepare(struct mcp *mcp, struct error *err)
{
    mcp->schemas = calloc(array_length(tools), sizeof *mcp->schemas);
    if (!mcp->schemas)
        return error_memory(err);
    for (size_t i = 0; i < array_length(tools); i++)
        if (schema_parse(tools[i].input, strlen(tools[i].input), &mcp->schemas[i], err) < 0)
            return error_wrap(err, "the tool %s", tools[i].name);
    return 0;
}

void mcp_tools_free(struct mcp *mcp)
{
    for (size_t i = 0; mcp->schemas && i < array_length(tools); i++)
        schema_drop(mcp->schemas[i]);
    free(mcp->schemas);
}

static bool put_written(struct json_object *o, const char *key, const char *json)
{
    struct json_object *value = NULL;
    return json_parse(json, strlen(json), &json_limits_small, &value, NULL) == 0 &&
           json_put(o, key, value);
}

static struct json_object *tool_describe(const struct mcp_tool *tool)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "name", tool->name) && json_put_text(o, "title", tool->title) &&
        json_put_text(o, "description", tool->description) &&
        put_written(o, "inputSchema", tool->input) &&
        put_written(o, "outputSchema", tool->output) && put_written(o, "annotations", tool->hints))
        return o;
    json_object_put(o);
    return NULL;
}

void mcp_tools_list(struct mcp_call *c)
{
    struct json_object *list = json_object_new_array(), *o = NULL;
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < array_length(tools); i++) {
        struct json_object *tool = tool_describe(&tools[i]);
        ok = tool && json_object_array_add(list, tool) == 0;
    }
    if (ok)
        o = json_object_new_object();
    if (!o || !json_put(o, "tools", list)) {
        json_object_put(o);
        o = NULL;
    }
    mcp_call_answer(c, o);
}

void mcp_tools_call(struct mcp_call *c)
{
    struct error err;
    const char *name = json_get_string(c->params, "name", NULL);
    struct json_object *arguments = NULL;
    bool has = json_object_object_get_ex(c->params, "arguments", &arguments) && arguments;
    if (!name) {
        mcp_call_fail(c, RPC_PARAMS, "tools/call needs `name`");
        return;
    }
    if (has && !json_object_is_type(arguments, json_type_object)) {
        mcp_call_fail(c, RPC_PARAMS, "`arguments` is not an object");
        return;
    }
    for (size_t i = 0; i < array_length(tools); i++) {
        if (strcmp(tools[i].name, name) != 0)
            continue;
        if (!has) {
            arguments = json_object_new_object();
            if (!arguments || !json_put(c->params, "arguments", arguments)) {
                mcp_call_fail(c, RPC_INTERNAL, "out of memory");
                return;
            }
        }
        c->arguments = arguments;
        if (schema_check(c->peer->mcp->schemas[i], arguments, &err) < 0)
            mcp_tool_fail(c, "the arguments of %s: %s", name, err.text);
        else
            tools[i].run(c);
        return;
    }
    mcp_call_fail(c, RPC_PARAMS, "there is no tool '%s'", name);
}
