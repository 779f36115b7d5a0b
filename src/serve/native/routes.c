/* serve/native/routes.c: the routes of the native interface. schemas.json has the schemas of what
 * they take and answer. */
#include <string.h>

#include "base/cleanup.h"
#include "serve/native/approvals.h"
#include "serve/native/batches.h"
#include "serve/native/contexts.h"
#include "serve/native/runs.h"
#include "serve/native/templates.h"
#include "serve/native/volumes.h"
#include "serve/native_schemas.h"
#include "serve/native/native.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/calls.h"

#define RUNS_QUERY                                                                                 \
    "\"limit\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 1000}, \"before\": "          \
    "{\"type\": \"integer\", \"minimum\": 0}, \"status\": {\"type\": \"string\"}, \"model\": "     \
    "{\"type\": \"string\"}"

#define SNAPSHOT_QUERY "\"snapshot\": " VOLUME_NAME
#define CONTEXT_NAME   "\"name\": {\"type\": \"string\", \"maxLength\": 255}"
#define BATCH_RESULTS                                                                              \
    "\"offset\": {\"type\": \"integer\", \"minimum\": 0}, \"follow\": {\"enum\": [\"yes\", \"no\"]}"
#define FORMAT "\"format\": {\"enum\": [\"jsonl\", \"html\", \"otlp\"]}"
#define TO     ", \"to\": {\"type\": \"string\"}"
/* What is more than the most counts as that. */
#define DEPTH     ", \"depth\": {\"type\": \"integer\", \"minimum\": 1}"
#define LIMIT     ", \"limit\": {\"type\": \"integer\", \"minimum\": 1}"
#define MODE      ", \"mode\": {\"enum\": [\"replace\", \"append\", \"create\"]}"
#define FOLLOW    ", \"follow\": {\"enum\": [\"yes\", \"no\"]}"
#define PARENTS   ", \"parents\": {\"enum\": [\"yes\", \"no\"]}"
#define KIND      "\"kind\": {\"enum\": [\"auto\", \"text\", \"bytes\", \"json\", \"jsonl\"]}"
#define EOF_QUERY "\"eof\": {\"enum\": [\"yes\", \"no\"]}"

#define OF_RUN   "\"run\": {\"type\": \"string\"}"
#define PATH     "\"path\": {\"type\": \"string\", \"minLength\": 1, \"pattern\": \"^[^\\u0000]*$\"}"
#define JSON     "application/json"
#define ANY_JSON "{}"

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
    { "GET", "/v1/sandboxes", BODY_NONE, NULL, NULL, 200, JSON, SANDBOXES,
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
    { "GET", "/v1/sandboxes/{id}/checkpoints", BODY_NONE, NULL, NULL, 200, JSON, CHECKPOINTS,
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
    { "POST", "/v1/sandboxes/{id}/commands/{name}/terminal", BODY_JSON, SIZE, NULL, 204, NULL, NULL,
        "set the size of a command's terminal", handle_command_resize },
    { "GET", "/v1/sandboxes/{id}/terminal", BODY_NONE, TERMINAL, NULL, 101, NULL, NULL,
        "a WebSocket to a terminal of its own or of a command: docs/serve.md has the messages",
        handle_terminal, SCOPE_SANDBOXES },
    { "POST", "/v1/runs", BODY_JSON, ASK, NULL, 201, JSON, RUN,
        "start a run of a model; answered when it is in the record", handle_run_create, SCOPE_RUNS,
        true },
    { "GET", "/v1/runs", BODY_NONE, NULL, RUNS_QUERY, 200, JSON, RUNS,
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
    { "GET", "/v1/batches", BODY_NONE, NULL, NULL, 200, JSON, BATCHES, "list the batches",
        handle_batch_list, SCOPE_RUNS | SCOPE_READ },
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
    { "GET", "/v1/templates", BODY_NONE, NULL, NULL, 200, JSON, TEMPLATES, "list the templates",
        handle_template_list },
    { "GET", "/v1/templates/{id}", BODY_NONE, NULL, NULL, 200, JSON, TEMPLATE,
        "describe a template", handle_template_get },
    { "DELETE", "/v1/templates/{id}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a template; sandboxes that have started from it go on", handle_template_delete },
    { "POST", "/v1/templates/{id}/sandboxes", BODY_JSON, CREATE, NULL, 201, JSON, SANDBOX,
        "create a sandbox that starts from a template", handle_template_start, 0, true },
    { "POST", "/v1/contexts", BODY_STREAM, NULL, CONTEXT_NAME, 201, JSON, CONTEXT,
        "store a context of any size, which runs may name as `context_file`", handle_context_create,
        SCOPE_RUNS, true },
    { "GET", "/v1/contexts", BODY_NONE, NULL, NULL, 200, JSON, CONTEXTS, "list the stored contexts",
        handle_context_list, SCOPE_RUNS | SCOPE_READ },
    { "GET", "/v1/contexts/{id}", BODY_NONE, NULL, NULL, 200, JSON, CONTEXT,
        "describe a stored context", handle_context_get, SCOPE_RUNS | SCOPE_READ },
    { "DELETE", "/v1/contexts/{id}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a stored context", handle_context_delete, SCOPE_RUNS },
    { "POST", "/v1/volumes", BODY_JSON, VOLUME_CREATE, NULL, 201, JSON, VOLUME,
        "create a volume, which outlives sandboxes; the server's limits are the defaults and the "
        "most",
        handle_volume_create, 0, true },
    { "GET", "/v1/volumes", BODY_NONE, NULL, NULL, 200, JSON, VOLUMES,
        "list the names of the volumes", handle_volume_list },
    { "GET", "/v1/volumes/{name}", BODY_NONE, NULL, NULL, 200, JSON, VOLUME,
        "describe a volume: its size, and its limits", handle_volume_get },
    { "PATCH", "/v1/volumes/{name}", BODY_JSON, VOLUME_LIMIT, NULL, 200, JSON, VOLUME,
        "set the limits of a volume, up to the server's", handle_volume_limit },
    { "DELETE", "/v1/volumes/{name}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a volume with all that is in it; not while a sandbox uses it (409)",
        handle_volume_delete },
    { "GET", "/v1/volumes/{name}/snapshots", BODY_NONE, NULL, NULL, 200, JSON, SNAPSHOTS,
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
    { "GET", "/v1/approvals", BODY_NONE, NULL, OF_RUN, 200, JSON, APPROVALS,
        "list the calls that wait for an approval, the oldest first: of a run and its children, or "
        "of all",
        handle_approval_list, SCOPE_APPROVALS | SCOPE_RUNS | SCOPE_READ },
    { "GET", "/v1/approvals/{name}", BODY_NONE, NULL, OF_RUN, 200, JSON, APPROVAL,
        "describe one, decided or not", handle_approval_get,
        SCOPE_APPROVALS | SCOPE_RUNS | SCOPE_READ },
    { "POST", "/v1/approvals/{name}", BODY_JSON, DECISION, OF_RUN, 200, JSON, APPROVAL,
        "approve or deny a call, once (409)", handle_approval_decide, SCOPE_APPROVALS },
};

static const char *native_name_schema(const char *path)
{
    static const struct {
        const char *before, *schema;
    } kinds[] = {
        { "/v1/sandboxes/{id}/checkpoints/", CHECKPOINT_ID },
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
