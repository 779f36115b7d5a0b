/* serve/native/routes.c: the routes of the native interface, with the schemas of what they take and
 * answer. */
#include <string.h>

#include "base/cleanup.h"
#include "serve/native/approvals.h"
#include "serve/native/batches.h"
#include "serve/native/contexts.h"
#include "serve/native/runs.h"
#include "serve/native/templates.h"
#include "serve/native/volumes.h"
#include "serve/native/native.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/calls.h"

#define SANDBOX                                                                                                              \
    "{\"type\": \"object\", \"required\": [\"id\", \"state\"], \"properties\": {"                                            \
    "\"id\": {\"type\": \"string\"}, \"state\": {\"enum\": [\"idle\", \"executing\"]}, "                                     \
    "\"alive\": {\"type\": \"boolean\"}, \"created_ms\": {\"type\": \"integer\"}, \"age_seconds\": {\"type\": \"number\"}, " \
    "\"unused_seconds\": {\"type\": \"number\"}, \"life_seconds\": {\"type\": \"number\"}, "                                 \
    "\"idle_seconds\": {\"type\": \"number\"}, \"isolation\": {\"type\": \"string\"}, "                                      \
    "\"metadata\": {\"type\": \"object\"}}}"

#define RULE "{\"type\": \"string\", \"minLength\": 1, \"pattern\": \"^[^\\\\x00]*$\"}"
#define CREATE                                                                                     \
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {"                    \
    "\"life_seconds\": {\"type\": \"number\", \"minimum\": 0.1}, "                                 \
    "\"idle_seconds\": {\"type\": \"number\", \"minimum\": 0.1}, "                                 \
    "\"options\": {\"type\": \"object\"}, \"allow_net\": {\"type\": \"array\", "                   \
    "\"maxItems\": 1000, \"items\": " RULE "}, "                                                   \
    "\"metadata\": {\"type\": \"object\", \"maxProperties\": 64, "                                 \
    "\"additionalProperties\": {\"type\": \"string\", \"maxLength\": 1024}}}}"

#define BOOLEAN "{\"type\": \"boolean\"}"
#define EXECUTE                                                                                    \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"code\"], "           \
    "\"properties\": {\"code\": {\"type\": \"string\"}, "                                          \
    "\"timeout_seconds\": {\"type\": \"number\", \"minimum\": 0}, \"stream\": " BOOLEAN            \
    ", \"echo\": " BOOLEAN ", \"results\": " BOOLEAN ", \"print\": " BOOLEAN                       \
    ", \"values\": " BOOLEAN ", \"only_values\": " BOOLEAN ", \"displays\": " BOOLEAN "}}"

#define RESULT                                                                                     \
    "{\"type\": \"object\", \"required\": [\"status\"], \"properties\": {"                         \
    "\"status\": {\"enum\": [\"ok\", \"submitted\", \"error\", \"timeout\", \"killed\", "          \
    "\"lost\"]}}}"

#define ENTRY                                                                                                           \
    "{\"type\": \"object\", \"properties\": {\"name\": "                                                                \
    "{\"type\": \"string\"}, \"kind\": {\"enum\": [\"file\", \"directory\", \"link\", "                                 \
    "\"other\"]}, \"size\": {\"type\": \"integer\"}, \"mode\": {\"type\": \"integer\"}, "                               \
    "\"modified_ms\": {\"type\": \"integer\"}, \"modified_ns\": {\"type\": \"integer\"}, "                              \
    "\"st_mode\": {\"type\": \"integer\"}, \"target_st_mode\": {\"type\": \"integer\"}, "                               \
    "\"uid\": {\"type\": \"integer\"}, \"gid\": {\"type\": \"integer\"}, \"user\": {\"type\": \"string\"}, \"group\": " \
    "{\"type\": \"string\"}, \"target\": {\"type\": \"string\"}, \"target_kind\": {\"enum\": "                          \
    "[\"file\", \"directory\", \"link\", \"other\", \"none\"]}}}"

#define ENTRIES                                                                                    \
    "{\"type\": \"object\", \"properties\": {\"more\": {\"type\": \"boolean\"}, \"entries\": "     \
    "{\"type\": \"array\", \"items\": " ENTRY "}}}"

#define SIZE                                                                                       \
    "\"required\": [\"columns\", \"rows\"], \"additionalProperties\": false, \"properties\": {"    \
    "\"columns\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 10000}, "                   \
    "\"rows\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 10000}}"

/* Words without a NUL: they become arguments and variables of a program. */
#define WORD "{\"type\": \"string\", \"maxLength\": 100000, \"pattern\": \"^[^\\\\x00]*$\"}"
#define NAME                                                                                       \
    "{\"type\": \"string\", \"minLength\": 1, \"maxLength\": 64, \"pattern\": "                    \
    "\"^[A-Za-z0-9_.-]+$\"}"

/* Of Python; its keywords are refused, too. */
#define IDENTIFIER "{\"type\": \"string\", \"pattern\": \"^[A-Za-z_][A-Za-z0-9_]{0,63}$\"}"

/* It is a component of a path. */
#define TAG                                                                                        \
    "{\"type\": \"string\", \"minLength\": 1, \"maxLength\": 64, \"pattern\": \"^[ -.0-~]+$\"}"

#define COMMAND                                                                                    \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"command\"], "        \
    "\"properties\": {\"command\": {\"anyOf\": [" WORD ", {\"type\": \"array\", \"minItems\": 1, " \
    "\"maxItems\": 10000, \"items\": " WORD "}]}, \"cwd\": " WORD ", \"env\": {\"type\": "         \
    "\"object\", \"maxProperties\": 1000, \"propertyNames\": {\"pattern\": \"^[^=\\\\x00]+$\"}, "  \
    "\"additionalProperties\": " WORD "}, \"user\": " NAME ", \"tag\": " TAG ", \"stdin\": "       \
    "{\"type\": \"boolean\"}, \"merge\": {\"type\": \"boolean\"}, \"drain\": {\"type\": "          \
    "\"boolean\"}, \"stream\": {\"type\": \"boolean\"}, \"timeout_seconds\": {\"type\": "          \
    "\"number\", \"exclusiveMinimum\": 0, \"maximum\": 1000000}, \"terminal\": {\"type\": "        \
    "\"object\", " SIZE "}}}"

#define COMMANDS                                                                                   \
    "{\"type\": \"object\", \"properties\": {\"commands\": {\"type\": \"array\", \"items\": {"     \
    "\"type\": \"object\", \"required\": [\"pid\", \"argv\", \"running\"], \"properties\": {"      \
    "\"pid\": {\"type\": \"integer\"}, \"tag\": {\"type\": \"string\"}, \"exit_code\": "           \
    "{\"type\": \"integer\"}}}}}}"

#define SIGNAL                                                                                     \
    "{\"type\": \"object\", \"required\": [\"signal\"], \"additionalProperties\": false, "         \
    "\"properties\": {\"signal\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 64}, "      \
    "\"group\": {\"type\": \"boolean\"}}}"

#define RUN                                                                                        \
    "{\"type\": \"object\", \"required\": [\"run\", \"status\"], \"properties\": {\"run\": "       \
    "{\"type\": \"string\"}, \"status\": {\"enum\": [\"running\", \"answered\", \"exhausted\", "   \
    "\"budget\", \"timeout\", \"cancelled\", \"error\", \"interrupted\"]}}}"

#define ASK                                                                                        \
    "{\"type\": \"object\", \"not\": {\"required\": [\"context\", \"context_file\"]}, "            \
    "\"additionalProperties\": false, \"required\": [\"question\"], "                              \
    "\"properties\": {\"question\": {\"type\": \"string\", \"minLength\": 1, \"pattern\": "        \
    "\"^[^\\\\x00]*$\"}, \"context\": {}, \"context_file\": "                                      \
    "{\"type\": \"string\"}, \"options\": {\"type\": \"object\"}}}"

#define QUEUE                                                                                         \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"question\"], "          \
    "\"properties\": {\"question\": {\"type\": \"string\", \"minLength\": 1, \"pattern\": "           \
    "\"^[^\\\\x00]*$\"}, \"context\": {}, \"options\": {\"type\": \"object\"}, \"id\": "              \
    "{\"type\": \"string\"}, \"priority\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 2}, " \
    "\"version\": {\"type\": \"integer\", \"minimum\": 0, "                                           \
    "\"maximum\": 999999999999999999}}}"

#define QUEUED                                                                                       \
    "{\"type\": \"object\", \"required\": [\"id\", \"state\"], \"properties\": {\"id\": "            \
    "{\"type\": \"string\"}, \"state\": {\"enum\": [\"queued\", \"known\", \"running\", \"ended\", " \
    "\"dead\"]}, \"run\": {\"type\": \"object\", \"properties\": {\"reason\": {\"enum\": "           \
    "[\"stale\"]}}}, \"reason\": {\"type\": \"string\"}}}"

#define CLUSTER                                                                                     \
    "{\"type\": \"object\", \"required\": [\"nodes\", \"queued\"], \"properties\": "                \
    "{\"queued\": {\"type\": \"integer\"}, \"nodes\": {\"type\": \"array\", \"items\": {\"type\": " \
    "\"object\", \"required\": [\"name\", \"state\"], \"properties\": {\"name\": {\"type\": "       \
    "\"string\"}, \"state\": {\"enum\": [\"up\", \"draining\", \"silent\", \"lost\"]}}}}}}"

#define APPROVAL                                                                                   \
    "{\"type\": \"object\", \"required\": [\"id\", \"run\", \"tool\", \"decision\"], "             \
    "\"properties\": {\"id\": {\"type\": \"integer\"}, \"run\": {\"type\": \"string\"}, "          \
    "\"tool\": {\"type\": \"string\"}, \"decision\": {\"enum\": [\"approved\", \"denied\", "       \
    "null]}}}"

#define DECISION                                                                                   \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"decision\"], "       \
    "\"properties\": {\"decision\": {\"enum\": [\"approve\", \"deny\"]}, \"reason\": "             \
    "{\"type\": \"string\", \"maxLength\": 1000, \"pattern\": \"^[^\\\\x00]*$\"}}}"

#define RUNS_QUERY                                                                                 \
    "\"limit\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 1000}, \"before\": "          \
    "{\"type\": \"integer\", \"minimum\": 0}, \"status\": {\"type\": \"string\"}, \"model\": "     \
    "{\"type\": \"string\"}"

/* Limits of all tasks together, and how they run. */
#define BATCH_LIMITS                                                                               \
    "\"concurrency\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 10000}, "               \
    "\"max_calls\": {\"type\": \"integer\", \"minimum\": 1}, \"max_tokens\": {\"type\": "          \
    "\"integer\", \"minimum\": 1}, \"max_cost\": {\"type\": \"number\", \"exclusiveMinimum\": "    \
    "0}, \"timeout_seconds\": {\"type\": \"number\", \"exclusiveMinimum\": 0, \"maximum\": "       \
    "1000000000}, \"again\": " BOOLEAN

#define BATCH_CREATE                                                                               \
    "{\"type\": \"object\", \"additionalProperties\": false, \"oneOf\": [{\"required\": "          \
    "[\"tasks\"]}, {\"required\": [\"tasks_file\"]}], \"properties\": {\"tasks\": {\"type\": "     \
    "\"array\", \"minItems\": 1, \"items\": {\"type\": \"object\"}}, \"tasks_file\": "             \
    "{\"type\": \"string\"}, \"options\": {\"type\": \"object\"}, \"grader\": {\"type\": "         \
    "\"string\"}, " BATCH_LIMITS "}}"

#define BATCH_RESUME                                                                               \
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {" BATCH_LIMITS "}}"

#define BATCH                                                                                      \
    "{\"type\": \"object\", \"required\": [\"batch\", \"status\"], \"properties\": {"              \
    "\"batch\": {\"type\": \"string\"}, \"status\": {\"enum\": [\"running\", \"ended\", "          \
    "\"stopped\", \"interrupted\"]}, \"tasks\": {\"type\": \"integer\"}, \"running\": "            \
    "{\"type\": \"integer\"}, \"left\": {\"type\": \"integer\"}}}"

#define TOOLS                                                                                      \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"tools\"], "          \
    "\"properties\": {\"tools\": {\"type\": \"array\", \"maxItems\": 1000, \"items\": "            \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"name\"], "           \
    "\"properties\": {\"name\": " IDENTIFIER ", \"description\": " TEXT ", \"parameters\": "       \
    "{\"type\": \"object\"}}}}}}"

#define EXPECT                                                                                     \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"schema\"], "         \
    "\"properties\": {\"schema\": {\"type\": [\"object\", \"null\"]}}}"

#define CALL_ANSWER                                                                                \
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {\"value\": {}, "     \
    "\"values\": {\"type\": \"string\"}, \"text\": {\"type\": \"string\"}, \"error\": "            \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"message\"], "        \
    "\"properties\": {\"type\": " TEXT ", \"message\": {\"type\": \"string\"}}}}}"

#define CHECKPOINT                                                                                 \
    "{\"type\": \"object\", \"required\": [\"id\"], \"properties\": {\"id\": "                     \
    "{\"type\": \"integer\"}, \"parent\": {\"type\": \"integer\"}, \"cell\": {\"type\": "          \
    "\"integer\"}, \"memory\": {\"type\": \"integer\"}, \"current\": " BOOLEAN "}}"

#define VOLUME                                                                                     \
    "{\"type\": \"object\", \"required\": [\"name\"], \"properties\": {\"name\": "                 \
    "{\"type\": \"string\"}, \"size\": {\"type\": \"integer\"}, \"files\": {\"type\": "            \
    "\"integer\"}, \"size_limit\": {\"type\": \"integer\"}, \"files_limit\": {\"type\": "          \
    "\"integer\"}}}"

#define VOLUME_NAME                                                                                \
    "{\"type\": \"string\", \"minLength\": 1, \"maxLength\": 64, \"pattern\": "                    \
    "\"^[A-Za-z0-9_][A-Za-z0-9_.-]*$\"}"

#define VOLUME_CREATE                                                                              \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"name\"], "           \
    "\"properties\": {\"name\": " VOLUME_NAME ", \"size_limit\": {\"type\": \"integer\", "         \
    "\"minimum\": 4096}, \"files_limit\": {\"type\": \"integer\", \"minimum\": 32}}}"

#define VOLUME_LIMIT                                                                               \
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {\"size_limit\": "    \
    "{\"type\": \"integer\", \"minimum\": 4096}, \"files_limit\": {\"type\": \"integer\", "        \
    "\"minimum\": 32}}}"

#define SNAPSHOT_QUERY "\"snapshot\": " VOLUME_NAME
#define SNAPSHOT                                                                                   \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"snapshot\"], "       \
    "\"properties\": {" SNAPSHOT_QUERY "}}"
#define COPIED "{\"type\": \"object\", \"properties\": {\"bytes\": {\"type\": \"integer\"}}}"

#define TEMPLATE_NAME                                                                              \
    "\"name\": {\"type\": \"string\", \"maxLength\": 64, \"pattern\": \"^[ -~]*$\"}"

#define TEMPLATE                                                                                   \
    "{\"type\": \"object\", \"required\": [\"id\", \"name\"], \"properties\": {\"id\": "           \
    "{\"type\": \"string\"}, \"name\": {\"type\": \"string\"}, \"created_ms\": {\"type\": "        \
    "\"integer\"}}}"

#define TEMPLATE_SAVE                                                                              \
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {" TEMPLATE_NAME "}}"

#define TEMPLATE_CREATE                                                                            \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"cells\"], "          \
    "\"properties\": {" TEMPLATE_NAME ", \"cells\": {\"type\": \"array\", \"maxItems\": 1000, "    \
    "\"items\": {\"type\": \"string\"}}, \"options\": {\"type\": \"object\"}}}"

#define CONTEXT                                                                                    \
    "{\"type\": \"object\", \"required\": [\"id\", \"name\", \"size\"], \"properties\": {"         \
    "\"id\": {\"type\": \"string\"}, \"name\": {\"type\": \"string\"}, \"size\": {\"type\": "      \
    "\"integer\"}, \"created_ms\": {\"type\": \"integer\"}}}"

#define CONTEXT_NAME "\"name\": {\"type\": \"string\", \"maxLength\": 255}"
#define BATCH_RESULTS                                                                              \
    "\"offset\": {\"type\": \"integer\", \"minimum\": 0}, \"follow\": {\"enum\": [\"yes\", \"no\"]}"
#define FORMAT "\"format\": {\"enum\": [\"jsonl\", \"html\", \"otlp\"]}"
#define TEXT   "{\"type\": \"string\", \"pattern\": \"^[^\\\\x00]*$\"}"
#define PID    "{\"type\": \"object\", \"properties\": {\"pid\": {\"type\": \"integer\"}}}"
#define TO     ", \"to\": {\"type\": \"string\"}"
/* What is more than the most counts as that. */
#define DEPTH     ", \"depth\": {\"type\": \"integer\", \"minimum\": 1}"
#define LIMIT     ", \"limit\": {\"type\": \"integer\", \"minimum\": 1}"
#define MODE      ", \"mode\": {\"enum\": [\"replace\", \"append\", \"create\"]}"
#define FOLLOW    ", \"follow\": {\"enum\": [\"yes\", \"no\"]}"
#define PARENTS   ", \"parents\": {\"enum\": [\"yes\", \"no\"]}"
#define KIND      "\"kind\": {\"enum\": [\"auto\", \"text\", \"bytes\", \"json\", \"jsonl\"]}"
#define EOF_QUERY "\"eof\": {\"enum\": [\"yes\", \"no\"]}"

#define PATH     "\"path\": {\"type\": \"string\", \"minLength\": 1, \"pattern\": \"^[^\\u0000]*$\"}"
#define STATUS   "{\"type\": \"object\", \"properties\": {\"status\": {\"type\": \"string\"}}}"
#define JSON     "application/json"
#define ANY_JSON "{}"

/* The first message of a terminal; later ones have only the size. */
#define TERMINAL                                                                                   \
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"columns\", "         \
    "\"rows\"], \"properties\": {\"columns\": {\"type\": \"integer\", \"minimum\": 1, "            \
    "\"maximum\": 10000}, \"rows\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 10000}, " \
    "\"attach\": " TAG ", \"command\": {\"anyOf\": [" WORD ", {\"type\": \"array\", "              \
    "\"minItems\": 1, \"maxItems\": 10000, \"items\": " WORD "}]}, \"cwd\": " WORD ", \"env\": "   \
    "{\"type\": \"object\", \"maxProperties\": 1000, \"propertyNames\": {\"pattern\": "            \
    "\"^[^=\\\\x00]+$\"}, \"additionalProperties\": " WORD "}, \"user\": " NAME ", \"tag\": " TAG  \
    "}}"

static void handle_openapi(struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    serve_openapi(&out);
    request_reply(r, 200, JSON, buf_text(&out), out.len);
}

static void handle_health(struct request *r)
{
    static const char text[] = "{\"status\": \"ok\"}";
    request_reply(r, 200, JSON, text, sizeof text - 1);
}

static void handle_ready(struct request *r)
{
    static const char text[] = "{\"status\": \"ready\"}";
    if (r->server->draining)
        request_refuse(r, 503, "draining", "the server is stopping; use another one");
    else
        request_reply(r, 200, JSON, text, sizeof text - 1);
}

static const struct route native_rows[] = {
    { "GET", "/health", BODY_NONE, NULL, NULL, 200, JSON, STATUS, "the server answers",
        handle_health, SCOPE_NONE },
    { "GET", "/ready", BODY_NONE, NULL, NULL, 200, JSON, STATUS,
        "it takes new work; 503 while it drains", handle_ready, SCOPE_NONE },
    { "GET", "/openapi.json", BODY_NONE, NULL, NULL, 200, JSON, "{\"type\": \"object\"}",
        "this document", handle_openapi, SCOPE_NONE },
    { "GET", "/metrics", BODY_NONE, NULL, NULL, 200, "text/plain", NULL,
        "figures in Prometheus' format", handle_metrics, SCOPE_METRICS },
    { "POST", "/v1/sandboxes", BODY_JSON, CREATE, NULL, 201, JSON, SANDBOX,
        "create a sandbox; the server's limits are the defaults and the most", handle_create, 0,
        true },
    { "GET", "/v1/sandboxes", BODY_NONE, NULL, NULL, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"sandboxes\": {\"type\": \"array\", \"items\": " SANDBOX
        "}}}",
        "list the sandboxes, newest first", handle_list },
    { "GET", "/v1/sandboxes/{id}", BODY_NONE, NULL, NULL, 200, JSON, SANDBOX, "describe a sandbox",
        handle_get },
    { "DELETE", "/v1/sandboxes/{id}", BODY_NONE, NULL, NULL, 204, NULL, NULL, "end a sandbox",
        handle_close },
    { "POST", "/v1/sandboxes/{id}/execute", BODY_JSON, EXECUTE, NULL, 200, JSON, RESULT,
        "run a cell; with stream, the answer is a stream of server-sent events: 'output', 'lost' "
        "and 'result'",
        handle_execute, .streams = 200 },
    { "POST", "/v1/sandboxes/{id}/interrupt", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "interrupt the cell that runs; the sandbox keeps its variables", handle_interrupt },
    { "POST", "/v1/sandboxes/{id}/fork", BODY_NONE, NULL, NULL, 201, JSON, SANDBOX,
        "copy a sandbox with all variables", handle_fork, 0, true },
    { "PUT", "/v1/sandboxes/{id}/answer-schema", BODY_JSON, EXPECT, NULL, 204, NULL, NULL,
        "from the next cell on, what code submits must fit this JSON schema; null: anything",
        handle_expect },
    { "PUT", "/v1/sandboxes/{id}/tools", BODY_JSON, TOOLS, NULL, 204, NULL, NULL,
        "set the functions of the client that code may call: events 'call' of its cells' streams",
        handle_tools },
    { "POST", "/v1/sandboxes/{id}/calls/{name}", BODY_JSON, CALL_ANSWER, NULL, 204, NULL, NULL,
        "answer a call, named by its number: of a tool with its value or an error, of a model "
        "with its text or an error",
        handle_call_answer },
    { "POST", "/v1/sandboxes/{id}/checkpoints", BODY_NONE, NULL, NULL, 201, JSON, CHECKPOINT,
        "keep the present state", handle_checkpoint_create },
    { "GET", "/v1/sandboxes/{id}/checkpoints", BODY_NONE, NULL, NULL, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"checkpoints\": {\"type\": \"array\", "
        "\"items\": " CHECKPOINT "}}}",
        "list the kept states", handle_checkpoint_list },
    { "DELETE", "/v1/sandboxes/{id}/checkpoints/{name}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "drop a kept state", handle_checkpoint_remove },
    { "POST", "/v1/sandboxes/{id}/checkpoints/{name}/rollback", BODY_NONE, NULL, NULL, 204, NULL,
        NULL, "go on from a kept state, also when the session is lost", handle_rollback },
    { "POST", "/v1/sandboxes/{id}/checkpoints/{name}/fork", BODY_NONE, NULL, NULL, 201, JSON,
        SANDBOX, "create a sandbox that goes on from a kept state", handle_checkpoint_fork, 0,
        true },
    { "GET", "/v1/sandboxes/{id}/variables/{name}", BODY_NONE, NULL, NULL, 200, JSON, ANY_JSON,
        "the value of a variable, as JSON", handle_variable_get },
    { "PUT", "/v1/sandboxes/{id}/variables/{name}", BODY_BYTES, NULL, KIND, 204, NULL, NULL,
        "bind a variable: application/json, text/plain, application/octet-stream, or "
        "application/vnd.droste.values; `kind` says how to take the bytes of a file",
        handle_variable_set, .body_max = SERVE_VALUE_MAX },
    { "GET", "/v1/sandboxes/{id}/files", BODY_NONE, NULL, PATH, 200, "application/octet-stream",
        NULL, "read a file, or with Range a part of it (206)", handle_file_read },
    { "PUT", "/v1/sandboxes/{id}/files", BODY_STREAM, NULL, PATH MODE, 204, NULL, NULL,
        "write a file of any size", handle_file_write },
    { "DELETE", "/v1/sandboxes/{id}/files", BODY_NONE, NULL, PATH, 204, NULL, NULL,
        "remove a file, or an empty directory", handle_file_remove },
    { "GET", "/v1/sandboxes/{id}/files/entry", BODY_NONE, NULL, PATH FOLLOW, 200, JSON, ENTRY,
        "describe a file, a directory or a link, or with follow what that leads to",
        handle_file_describe },
    { "GET", "/v1/sandboxes/{id}/files/glob", BODY_NONE, NULL, PATH LIMIT, 200, JSON, ENTRIES,
        "list the regular files that match a pattern; ** stands for any directories",
        handle_file_glob },
    { "POST", "/v1/sandboxes/{id}/files/move", BODY_NONE, NULL, PATH TO, 204, NULL, NULL,
        "move a file or directory; it replaces a file that has the new name", handle_file_move },
    { "GET", "/v1/sandboxes/{id}/directory", BODY_NONE, NULL, PATH DEPTH LIMIT, 200, JSON, ENTRIES,
        "list a directory, and with depth those in it", handle_file_list },
    { "PUT", "/v1/sandboxes/{id}/directory", BODY_NONE, NULL, PATH PARENTS, 204, NULL, NULL,
        "create a directory, with its parents, unless it exists", handle_directory_create },
    { "DELETE", "/v1/sandboxes/{id}/directory", BODY_NONE, NULL, PATH, 204, NULL, NULL,
        "remove a directory with all that is in it", handle_directory_remove },
    { "POST", "/v1/sandboxes/{id}/commands", BODY_JSON, COMMAND, NULL, 201, JSON, PID,
        "start a command beside the cells; with stream, the answer (200) is a stream of "
        "server-sent events: 'start', 'output' (base64) and 'end'; otherwise its output is dropped "
        "until it is read",
        handle_command_start, .streams = 200 },
    { "GET", "/v1/sandboxes/{id}/commands", BODY_NONE, NULL, NULL, 200, JSON, COMMANDS,
        "list the commands that run, and those of the last 30 seconds", handle_command_list },
    { "GET", "/v1/sandboxes/{id}/commands/{name}/output", BODY_NONE, NULL, NULL, 200,
        "text/event-stream", NULL,
        "follow a command, named by its pid or tag, from now on: events as of its start",
        handle_command_output },
    { "POST", "/v1/sandboxes/{id}/commands/{name}/stdin", BODY_BYTES, NULL, EOF_QUERY, 204, NULL,
        NULL, "write to a command's input, and end it with eof=yes; answered when it is written",
        handle_command_input },
    { "POST", "/v1/sandboxes/{id}/commands/{name}/signal", BODY_JSON, SIGNAL, NULL, 204, NULL, NULL,
        "signal a command's process group, or with group=false the process alone",
        handle_command_signal },
    { "POST", "/v1/sandboxes/{id}/commands/{name}/terminal", BODY_JSON,
        "{\"type\": \"object\", " SIZE "}", NULL, 204, NULL, NULL,
        "set the size of a command's terminal", handle_command_resize },
    { "GET", "/v1/sandboxes/{id}/terminal", BODY_NONE, TERMINAL, NULL, 101, NULL, NULL,
        "a WebSocket to a terminal of its own or of a command: docs/serve.md has the messages",
        handle_terminal, SCOPE_SANDBOXES },
    { "POST", "/v1/runs", BODY_JSON, ASK, NULL, 201, JSON, RUN,
        "start a run of a model; answered when it is in the record", handle_run_create, SCOPE_RUNS,
        true },
    { "GET", "/v1/runs", BODY_NONE, NULL, RUNS_QUERY, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"runs\": {\"type\": \"array\", \"items\": " RUN
        "}, \"next\": {\"type\": [\"integer\", \"null\"]}}}",
        "list the runs, newest first; `next` is `before` of the next page", handle_run_list,
        SCOPE_RUNS | SCOPE_READ },
    { "GET", "/v1/runs/{id}", BODY_NONE, NULL, NULL, 200, JSON, RUN, "describe a run",
        handle_run_get, SCOPE_RUNS | SCOPE_READ, .of_run = true },
    { "DELETE", "/v1/runs/{id}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a run that has ended from the record, with its children", handle_run_delete,
        SCOPE_RUNS, .of_run = true },
    { "GET", "/v1/runs/{id}/events", BODY_NONE, NULL, NULL, 200, "text/event-stream", NULL,
        "follow a run: server-sent events with the lines of its export, from its beginning, or "
        "after Last-Event-ID",
        handle_run_events, SCOPE_RUNS | SCOPE_READ, .of_run = true },
    { "GET", "/v1/runs/{id}/export", BODY_NONE, NULL, FORMAT, 200, "*/*", NULL,
        "export a run with its children: each step as a line of JSON, a page (html), or traces of "
        "OpenTelemetry (otlp)",
        handle_run_export, SCOPE_RUNS | SCOPE_READ, .of_run = true },
    { "POST", "/v1/runs/{id}/cancel", BODY_NONE, NULL, NULL, 204, NULL, NULL, "cancel a run",
        handle_run_cancel, SCOPE_RUNS, .of_run = true },
    { "POST", "/v1/runs/{id}/resume", BODY_NONE, NULL, NULL, 200, JSON, RUN,
        "go on with an interrupted run; no answered call is repeated", handle_run_resume,
        SCOPE_RUNS, .of_run = true },
    { "POST", "/v1/batches", BODY_JSON, BATCH_CREATE, NULL, 201, JSON, BATCH,
        "run many tasks, each a run, and grade their answers; answered when all were checked",
        handle_batch_create, SCOPE_RUNS, true },
    { "GET", "/v1/batches", BODY_NONE, NULL, NULL, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"batches\": {\"type\": \"array\", \"items\": " BATCH
        "}}}",
        "list the batches", handle_batch_list, SCOPE_RUNS | SCOPE_READ },
    { "GET", "/v1/batches/{id}", BODY_NONE, NULL, NULL, 200, JSON, BATCH,
        "describe a batch: its tasks by outcome, and their usage", handle_batch_get,
        SCOPE_RUNS | SCOPE_READ, .of_run = true },
    { "GET", "/v1/batches/{id}/results", BODY_NONE, NULL, BATCH_RESULTS, 200, "application/jsonl",
        NULL,
        "the results, a line of JSON each, from a byte `offset` on; with follow=yes, until the "
        "batch ends",
        handle_batch_results, SCOPE_RUNS | SCOPE_READ, .of_run = true },
    { "POST", "/v1/batches/{id}/cancel", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "begin no more tasks and suspend the runs; the batch can be resumed", handle_batch_cancel,
        SCOPE_RUNS, .of_run = true },
    { "POST", "/v1/batches/{id}/resume", BODY_JSON, BATCH_RESUME, NULL, 200, JSON, BATCH,
        "go on with a batch that is not active, with other limits; no answered call is repeated",
        handle_batch_resume, SCOPE_RUNS, .of_run = true },
    { "DELETE", "/v1/batches/{id}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a batch that is not active, with its results; its runs stay", handle_batch_delete,
        SCOPE_RUNS, .of_run = true },
    { "GET", "/v1/cluster", BODY_NONE, NULL, NULL, 200, JSON, CLUSTER,
        "the nodes of the cluster, and what they have; no nodes without --join", handle_cluster },
    { "POST", "/v1/queue", BODY_JSON, QUEUE, NULL, 202, JSON, QUEUED,
        "queue a run for any node of the cluster; the same id queues it once", handle_queue_put,
        SCOPE_RUNS },
    { "GET", "/v1/queue/{name}", BODY_NONE, NULL,
        "\"wait\": {\"type\": \"number\", \"minimum\": 0, \"maximum\": 60}", 200, JSON, QUEUED,
        "the state of a queued run, and what it has come to; waits for that", handle_queue_get,
        SCOPE_RUNS | SCOPE_READ },
    { "DELETE", "/v1/queue", BODY_NONE, NULL,
        "\"before_version\": {\"type\": \"integer\", \"minimum\": 0}", 204, NULL, NULL,
        "cancel the key's runs of a version below this one, those that wait and those to come",
        handle_queue_drop, SCOPE_RUNS },
    { "DELETE", "/v1/queue/{name}", BODY_NONE, NULL, NULL, 204, NULL, NULL, "cancel a queued run",
        handle_queue_cancel, SCOPE_RUNS },
    { "POST", "/v1/sandboxes/{id}/template", BODY_JSON, TEMPLATE_SAVE, NULL, 201, JSON, TEMPLATE,
        "make a template of the present state; the sandbox goes on", handle_template_save, 0,
        true },
    { "POST", "/v1/templates", BODY_JSON, TEMPLATE_CREATE, NULL, 201, JSON, TEMPLATE,
        "make a template of cells, which are executed in a sandbox with these options",
        handle_template_create, 0, true },
    { "GET", "/v1/templates", BODY_NONE, NULL, NULL, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"templates\": {\"type\": \"array\", \"items\": " TEMPLATE
        "}}}",
        "list the templates", handle_template_list },
    { "GET", "/v1/templates/{id}", BODY_NONE, NULL, NULL, 200, JSON, TEMPLATE,
        "describe a template", handle_template_get },
    { "DELETE", "/v1/templates/{id}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a template; sandboxes that have started from it go on", handle_template_delete },
    { "POST", "/v1/templates/{id}/sandboxes", BODY_JSON, CREATE, NULL, 201, JSON, SANDBOX,
        "create a sandbox that starts from a template", handle_template_start, 0, true },
    { "POST", "/v1/contexts", BODY_STREAM, NULL, CONTEXT_NAME, 201, JSON, CONTEXT,
        "store a context of any size, which runs may name as `context_file`", handle_context_create,
        SCOPE_RUNS, true },
    { "GET", "/v1/contexts", BODY_NONE, NULL, NULL, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"contexts\": {\"type\": \"array\", \"items\": " CONTEXT
        "}}}",
        "list the stored contexts", handle_context_list, SCOPE_RUNS | SCOPE_READ },
    { "GET", "/v1/contexts/{id}", BODY_NONE, NULL, NULL, 200, JSON, CONTEXT,
        "describe a stored context", handle_context_get, SCOPE_RUNS | SCOPE_READ },
    { "DELETE", "/v1/contexts/{id}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a stored context", handle_context_delete, SCOPE_RUNS },
    { "POST", "/v1/volumes", BODY_JSON, VOLUME_CREATE, NULL, 201, JSON, VOLUME,
        "create a volume, which outlives sandboxes; the server's limits are the defaults and the "
        "most",
        handle_volume_create, 0, true },
    { "GET", "/v1/volumes", BODY_NONE, NULL, NULL, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"volumes\": {\"type\": \"array\", \"items\": " VOLUME
        "}}}",
        "list the names of the volumes", handle_volume_list },
    { "GET", "/v1/volumes/{name}", BODY_NONE, NULL, NULL, 200, JSON, VOLUME,
        "describe a volume: its size, and its limits", handle_volume_get },
    { "PATCH", "/v1/volumes/{name}", BODY_JSON, VOLUME_LIMIT, NULL, 200, JSON, VOLUME,
        "set the limits of a volume, up to the server's", handle_volume_limit },
    { "DELETE", "/v1/volumes/{name}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a volume with all that is in it; not while a sandbox uses it (409)",
        handle_volume_delete },
    { "GET", "/v1/volumes/{name}/snapshots", BODY_NONE, NULL, NULL, 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"snapshots\": {\"type\": \"array\"}}}",
        "list the snapshots of a volume, with their sizes", handle_snapshot_list },
    { "POST", "/v1/volumes/{name}/snapshots", BODY_JSON, SNAPSHOT, NULL, 200, JSON, COPIED,
        "copy a volume to a new snapshot; not while a sandbox uses it (409)",
        handle_snapshot_create },
    { "DELETE", "/v1/volumes/{name}/snapshots", BODY_NONE, NULL, SNAPSHOT_QUERY, 204, NULL, NULL,
        "remove a snapshot; not while a sandbox uses the volume (409)", handle_snapshot_remove },
    { "POST", "/v1/volumes/{name}/restore", BODY_JSON, SNAPSHOT, NULL, 200, JSON, COPIED,
        "replace the contents of a volume by those of a snapshot; not while a sandbox uses it (409)",
        handle_snapshot_restore },
    { "GET", "/v1/volumes/{name}/files", BODY_NONE, NULL, PATH, 200, "application/octet-stream",
        NULL, "read a file of a volume", handle_volume_read },
    { "PUT", "/v1/volumes/{name}/files", BODY_STREAM, NULL, PATH, 204, NULL, NULL,
        "write a file of any size, with its directories; it replaces one when it is whole",
        handle_volume_write },
    { "DELETE", "/v1/volumes/{name}/files", BODY_NONE, NULL, PATH, 204, NULL, NULL,
        "remove a file, or a directory with all that is in it", handle_volume_remove },
    { "GET", "/v1/volumes/{name}/directory", BODY_NONE, NULL, PATH DEPTH LIMIT, 200, JSON, ENTRIES,
        "list a directory, and with depth those in it", handle_volume_directory },
    { "GET", "/v1/approvals", BODY_NONE, NULL, "\"run\": {\"type\": \"string\"}", 200, JSON,
        "{\"type\": \"object\", \"properties\": {\"approvals\": {\"type\": \"array\", "
        "\"items\": " APPROVAL "}}}",
        "list the calls that wait for an approval, the oldest first: of a run and its children, or "
        "of all",
        handle_approval_list, SCOPE_APPROVALS | SCOPE_RUNS | SCOPE_READ },
    { "GET", "/v1/approvals/{name}", BODY_NONE, NULL, NULL, 200, JSON, APPROVAL,
        "describe one, decided or not", handle_approval_get,
        SCOPE_APPROVALS | SCOPE_RUNS | SCOPE_READ },
    { "POST", "/v1/approvals/{name}", BODY_JSON, DECISION, NULL, 200, JSON, APPROVAL,
        "approve or deny a call, once (409)", handle_approval_decide, SCOPE_APPROVALS },
};

static const char *native_name_schema(const char *path)
{
    static const struct {
        const char *before, *schema;
    } kinds[] = {
        { "/v1/sandboxes/{id}/checkpoints/",
            "{\"type\": \"string\", \"pattern\": \"^[1-9][0-9]{0,8}$\"}" },
        { "/v1/sandboxes/{id}/variables/", IDENTIFIER },
        { "/v1/sandboxes/{id}/commands/", TAG },
        { "/v1/volumes/", VOLUME_NAME },
    };
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strncmp(kinds[i].before, path, strlen(kinds[i].before)) == 0)
            return kinds[i].schema;
    return "{\"type\": \"string\"}";
}

const struct routes native_routes = { .rows = native_rows,
    .count = array_length(native_rows),
    .name_schema = native_name_schema,
    .is_documented = true };
