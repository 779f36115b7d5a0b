/* droste.h: the public interface of libdroste.
 *
 * A `droste` object holds the settings, one event loop, and the zygotes from which sandboxes are
 * cloned. Settings have the names of the command line and the configuration file (`droste_set(d,
 * "isolation", "full", &err)`); `droste_option_at` lists them. Blocking calls run the loop until
 * their answer arrives. One thread at a time may use a `droste` object and everything created
 * from it, except where a function says otherwise.
 *
 * A function that can fail returns 0 on success, or a negative number with *err filled in (err
 * may be NULL). Texts are UTF-8. The library never prints, exits, or installs a signal handler. */
#ifndef DROSTE_H
#define DROSTE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DROSTE_API __attribute__((visibility("default")))
#else
#define DROSTE_API
#endif

/* Stable codes of errors; droste_error_name has their names. */
enum {
    DROSTE_ERROR_NONE = 0,
    DROSTE_ERROR_ARGUMENT = 1,
    DROSTE_ERROR_CONFIG = 2,
    DROSTE_ERROR_NOT_FOUND = 3,
    DROSTE_ERROR_PERMISSION = 4,
    DROSTE_ERROR_UNSUPPORTED = 5,
    DROSTE_ERROR_ENVIRONMENT = 6,
    DROSTE_ERROR_LOST = 7,
    DROSTE_ERROR_PROTOCOL = 8,
    DROSTE_ERROR_TIMEOUT = 9,
    DROSTE_ERROR_BUDGET = 10,
    DROSTE_ERROR_CANCELLED = 11,
    DROSTE_ERROR_IO = 12,
    DROSTE_ERROR_MEMORY = 13,
    DROSTE_ERROR_STORE = 14,
    DROSTE_ERROR_MODEL = 20,
    DROSTE_ERROR_MODEL_AUTH = 21,
    DROSTE_ERROR_MODEL_UNKNOWN = 22,
    DROSTE_ERROR_MODEL_RATE = 23,
    DROSTE_ERROR_MODEL_SERVER = 24,
    DROSTE_ERROR_MODEL_CONNECT = 25,
    DROSTE_ERROR_MODEL_STALL = 26,
    DROSTE_ERROR_MODEL_CUT = 27,
    DROSTE_ERROR_MODEL_REPLY = 28,
    DROSTE_ERROR_MODEL_REPLAY = 29,
    /* The limit that was reached: "budget_calls"…. DROSTE_ERROR_BUDGET is one without a code. */
    DROSTE_ERROR_BUDGET_CALLS = 30,
    DROSTE_ERROR_BUDGET_TOOL_CALLS = 31,
    DROSTE_ERROR_BUDGET_TOKENS = 32,
    DROSTE_ERROR_BUDGET_COST = 33,
    DROSTE_ERROR_BUDGET_TIME = 34,
    DROSTE_ERROR_BUDGET_TURNS = 35,
    DROSTE_ERROR_BUDGET_ERRORS = 36,
    DROSTE_ERROR_BUDGET_RECORD = 37,
};

/* The size of an error's text in bytes. A longer text is shortened and ends with "…". */
#define DROSTE_ERROR_SIZE 2048

typedef struct droste_error {
    int code;
    int sys;                      /* errno, or 0 */
    char text[DROSTE_ERROR_SIZE]; /* one line: what was tried, on what, and what to do */
} droste_error;

DROSTE_API const char *droste_version(void);
/* The name of a code: "argument", "model_rate"…. */
DROSTE_API const char *droste_error_name(int code);

/* ---- settings ---- */

typedef struct droste droste;

/* Creates an object with default settings. */
DROSTE_API int droste_new(droste **out, droste_error *err);
/* Ends all remaining sandboxes and frees the object. NULL is allowed. */
DROSTE_API void droste_free(droste *d);

/* Sets one option. Options that take several values get one per call; "" removes them.
 * ERROR_ARGUMENT explains the accepted values. */
DROSTE_API int droste_set(droste *d, const char *option, const char *value, droste_error *err);
/* The value of a text option ("env", "python"…), valid until it is set again. NULL: it has no
 * value, is a secret, or is not a text. */
DROSTE_API const char *droste_get(droste *d, const char *option);
/* A time as settings have it ("90", "1.5h", "30d") in seconds. False: the text is none. */
DROSTE_API int droste_parse_seconds(const char *text, double *seconds);
/* Reads environment variables (OPENAI_API_KEY, DROSTE_MODEL…), then a configuration file, which
 * takes precedence. NULL: config.ini in the user's configuration directory, which need not
 * exist. */
DROSTE_API int droste_configure(droste *d, const char *path, droste_error *err);

typedef struct droste_option {
    const char *name;
    const char *value;       /* what kind of value: "SECONDS", "PATH"…; "" for a switch */
    const char *fallback;    /* the default as text; "" where there is none */
    const char *environment; /* the variable that sets it, or NULL */
    const char *help;        /* one sentence */
    int secret;              /* not to be given on a command line */
    int task;                /* a task of a batch may have its own */
} droste_option;

/* The variables that environments read besides those of options (DOCKER_HOST, DAYTONA_API_KEY…),
 * separated by spaces, one environment per index; NULL after the last. They are read when a
 * session opens. */
DROSTE_API const char *droste_environment_variables_at(size_t index);

/* The options in the order of the documentation; NULL after the last. */
DROSTE_API const droste_option *droste_option_at(size_t index);

/* ---- prompts ---- */

/* The texts that Droste gives to models, in their order; NULL after the last. `name` and `about`,
 * one line each, may be NULL. The setting system-prompt replaces "system". In a text, `{name}` is a
 * placeholder; "model-NAME" is added for models whose names contain NAME. */
DROSTE_API const char *droste_prompt_at(size_t index, const char **name, const char **about);

/* ---- hosts with a loop of their own ---- */

/* A descriptor that becomes readable when there is work to do, for poll, epoll or another event
 * loop. It belongs to the object and does not change. Negative: an error. */
DROSTE_API int droste_fd(droste *d, droste_error *err);
/* Does the pending work without waiting. Call it when the descriptor is readable, and once after
 * any other call, before waiting for the descriptor again. Returns as droste_turn. */
DROSTE_API int droste_dispatch(droste *d, droste_error *err);
/* Makes a function that waits with a timeout (droste_turn, droste_session_wait) return at once,
 * as if the timeout had passed. Any thread may call it. */
DROSTE_API void droste_wake(droste *d);
/* Call this in the child after a fork, for each object of the parent. It closes the descriptors
 * that would keep the parent's sandboxes alive. The child must not use the object otherwise; its
 * memory is not freed. */
DROSTE_API void droste_forked(droste *d);

/* Interrupts the current work, as Ctrl-C does: a cell (its session continues), runs (they end as
 * "cancelled"), or a batch (its runs are suspended). Signal handlers and any thread may call it. */
DROSTE_API void droste_interrupt(droste *d);

/* ---- models of the embedding program ---- */

/* A part of a message that is not a single text. */
enum { DROSTE_PART_TEXT, DROSTE_PART_IMAGE, DROSTE_PART_DOCUMENT };
typedef struct droste_part {
    int kind;
    const char *media_type; /* "image/png", "application/pdf"; NULL of a text */
    const char *data;
    size_t len;
} droste_part;

typedef struct droste_message {
    const char *role;
    const char *text; /* "" where there are parts */
    size_t len;
    const droste_part *parts;
    size_t part_count;
} droste_message;

/* A call of the model "callback", or "callback:NAME" with any name. The function calls
 * droste_answer or droste_refuse once for each call, at once or later, in the loop's thread. The
 * messages are valid until then, or until droste_free. */
typedef struct droste_call droste_call;
typedef void droste_model_fn(
    void *arg, const droste_message *messages, size_t count, droste_call *call);
DROSTE_API void droste_set_model(droste *d, droste_model_fn *fn, void *arg);
/* The model of a call: `opened` as in the settings ("callback:NAME"); `model` as named by the
 * code (llm_query(…, model="…")), otherwise NAME. Valid as long as the messages. */
DROSTE_API const char *droste_call_opened(const droste_call *call);
DROSTE_API const char *droste_call_model(const droste_call *call);
DROSTE_API void droste_answer(droste_call *call, const char *text, size_t len);
DROSTE_API void droste_refuse(droste_call *call, const char *why);

/* ---- tools of the embedding program ---- */

/* A call of a tool. `json` is an object with the arguments by name, valid during the function.
 * They come from model-written code: they fit the schema if there is one, and are otherwise
 * untrusted. The function calls droste_tool_answer or droste_tool_fail once for each call, at
 * once or later, in the loop's thread, even if the caller has gone. Several calls may be open. */
typedef struct droste_tool_call droste_tool_call;
typedef void droste_tool_fn(void *arg, droste_tool_call *call, const char *json, size_t len);
/* Adds a function for sessions and runs that begin afterwards. Its parameters are the properties
 * of `parameters`, a JSON schema of an object, required ones first. NULL: any arguments,
 * positional ones under "args". `description` (may be NULL) is its docstring, which models see.
 * ERROR_ARGUMENT if the name is not an identifier, is reserved or in use, or if the schema is
 * invalid. Texts are copied. */
DROSTE_API int droste_tool_add(droste *d, const char *name, const char *description,
    const char *parameters, droste_tool_fn *fn, void *arg, droste_error *err);
/* Adds a JSON value as a variable. */
DROSTE_API int droste_tool_data(
    droste *d, const char *name, const char *json, size_t len, droste_error *err);
/* Adds Python source that runs in the sandbox before the first cell. Its documented functions
 * become tools there. `name` appears in tracebacks. */
DROSTE_API int droste_tool_source(
    droste *d, const char *name, const char *code, size_t len, droste_error *err);
/* Removes all additions for sessions and runs that begin afterwards. */
DROSTE_API void droste_tools_clear(droste *d);
/* Answers a call with a JSON value. This and droste_tool_fail free the call. */
DROSTE_API void droste_tool_answer(droste_tool_call *call, const char *json, size_t len);
/* Fails a call with an exception. `type` is the name of one of Python's ("ValueError"); any other
 * name becomes a ToolError whose message begins with it. */
DROSTE_API void droste_tool_fail(droste_tool_call *call, const char *type, const char *message);
/* The same two functions for other threads than the loop's, which answers soon. Texts are copied.
 * Not allowed once droste_free has begun. After ERROR_MEMORY the call is unchanged. */
DROSTE_API int droste_tool_post_answer(
    droste *d, droste_tool_call *call, const char *json, size_t len, droste_error *err);
DROSTE_API int droste_tool_post_failure(
    droste *d, droste_tool_call *call, const char *type, const char *message, droste_error *err);
/* True if the caller no longer waits: its cell was stopped, or its time was up. */
DROSTE_API int droste_tool_is_cancelled(const droste_tool_call *call);
/* Called when that happens. It may answer or fail the call. */
typedef void droste_tool_cancel_fn(void *arg, droste_tool_call *call);
DROSTE_API void droste_tool_on_cancel(droste_tool_call *call, droste_tool_cancel_fn *fn, void *arg);

/* ---- environments of the embedding program ---- */

/* A sandbox of such an environment, as the library knows it: valid from `open` until `close`. */
typedef struct droste_custom_sandbox droste_custom_sandbox;

/* The program only executes the code. The library does everything else, as in every environment:
 * turns, model calls, budgets, deadlines, child runs (in sandboxes of the same environment), events
 * and the record. The program provides isolation and process limits: settings that request them,
 * tools and rules are refused by name. Such code has no SUBMIT; the model writes FINAL(the answer)
 * in its reply.
 *
 * The loop calls the functions, one operation of a sandbox at a time. They must not wait, and may
 * call the functions below. Texts are valid during the call, and have no terminating NUL where a
 * length is given. `own` is the value that `open` set. */
typedef struct droste_custom_environment {
    size_t size;       /* sizeof(droste_custom_environment) */
    const char *about; /* the functions of the code, in Markdown for the model; copied; or NULL */
    /* Opens a sandbox for a session. Negative: the program cannot. */
    int (*open)(void *arg, droste_custom_sandbox *s, void **own);
    /* Binds a value: "context", "context_1"…; `kind` as in droste_session_set.
     * droste_custom_result ends it, and may describe the value: {"status": "ok", "variable":
     * {"name", "type", "length", "preview"}}. */
    void (*set)(void *own, uint64_t operation, const char *name, const char *kind, const void *data,
        size_t len);
    /* Executes a cell; droste_custom_result ends it. An empty cell checks that the sandbox
     * exists. The cell FINAL_VAR("name") requests that variable's value as `submit`. */
    void (*execute)(void *own, uint64_t operation, const char *code, size_t len);
    /* The operation's time is up, or it is cancelled. If it does not end soon, it is abandoned
     * with its sandbox. */
    void (*interrupt)(void *own, uint64_t operation);
    /* The answer to droste_custom_call: {"replies": [str, …], "errors": {"0": {"code",
     * "message"}}}, in the order of the prompts (of rlm_query each is JSON), or {"error":
     * {"code", "message"}} of the whole call. */
    void (*reply)(void *own, uint64_t call, const char *json, size_t len);
    /* The sandbox has ended. The program must not use it any more. */
    void (*close)(void *own);
} droste_custom_environment;

/* Allows this name as the setting "env". It must not be one of Droste's environments or contain
 * ':'. The table is copied. ERROR_ARGUMENT. */
DROSTE_API int droste_custom_add(droste *d, const char *name,
    const droste_custom_environment *environment, void *arg, droste_error *err);

/* Reports output of the current operation of a sandbox, in the loop's thread. `stream` is 1 or
 * 2. */
DROSTE_API void droste_custom_output(
    droste_custom_sandbox *s, int stream, const char *data, size_t len);
/* Ends the operation. `json` is an object of at most 2 MiB with `status` ("ok", "error" or
 * "interrupted"), for an error `error` ({"type", "message", "traceback"}), and `variables`, a
 * list of {"name", "type", "length", "preview"}. `submit` is the submission, a JSON object; NULL:
 * none. */
DROSTE_API int droste_custom_result(droste_custom_sandbox *s, uint64_t operation, const char *json,
    size_t len, const char *submit, size_t submit_len, droste_error *err);
/* Makes a call of the code, with a number that no other open call has: {"name": "llm_query",
 * "prompts": […], "model": str}. A prompt is a text, or a list of {"role", "content"}.
 * "rlm_query" starts child runs; it may have `contexts` (texts), their `kinds` ("text", "json"),
 * and in `of` the index of each prompt's context, or -1. The call is reserved in the run's budget
 * and recorded like any guest's. */
DROSTE_API int droste_custom_call(
    droste_custom_sandbox *s, uint64_t call, const char *json, size_t len, droste_error *err);
/* The code no longer waits for the call. */
DROSTE_API void droste_custom_cancel(droste_custom_sandbox *s, uint64_t call);
/* Reports that the sandbox has failed, which ends its run. `close` follows. */
DROSTE_API void droste_custom_end(droste_custom_sandbox *s, const char *why);

/* ---- results ---- */

typedef struct droste_result droste_result;

/* Of a cell: "ok", "submitted", "error", "timeout", "killed", "lost". Of a run: "answered",
 * "exhausted", "budget", "timeout", "cancelled", "error", "interrupted" (suspended). */
DROSTE_API const char *droste_result_status(const droste_result *r);
/* All of it as one JSON object, as `droste exec --json` and `droste run --json` print it; NULL
 * without memory. Of a cell, `killed` says what ended the sandbox: "timeout", "interrupt",
 * "protocol", a limit ("memory", "cpu time", "file size"), "signal 11 SIGSEGV", "exit 3"; null
 * if nothing did. `resources` has `memory_peak` (bytes) and `cpu_seconds` since the sandbox's
 * start, null where they are not known, and `limits`, by setting: {"memory": {"value":
 * 4294967296, "by": "cgroup"}, …}; `by` is what enforces it: cgroup (the sandbox as a whole),
 * rlimit (each process), mount or host. */
DROSTE_API const char *droste_result_json(const droste_result *r, size_t *len);
/* The parts of a cell's result; NULL (or 0) if absent. `submit` is a JSON object; also NULL
 * without memory. */
DROSTE_API const char *droste_result_stdout(const droste_result *r, size_t *len);
DROSTE_API const char *droste_result_stderr(const droste_result *r, size_t *len);
DROSTE_API const char *droste_result_submit(const droste_result *r, size_t *len);
/* The submission without its long texts, and the texts by index, as UTF-8 without a terminating
 * NUL, so that megabytes need not be escaped and parsed. In the outline, `NaN`, which is not
 * JSON, stands for each text in order. droste_result_text returns NULL after the last. An outline
 * without long texts equals `submit`. */
DROSTE_API const char *droste_result_outline(const droste_result *r, size_t *len);
DROSTE_API const char *droste_result_text(const droste_result *r, size_t index, size_t *len);
DROSTE_API const char *droste_result_echo(const droste_result *r);
DROSTE_API const char *droste_result_traceback(const droste_result *r);
/* str() of the exception that ended a cell. */
DROSTE_API const char *droste_result_message(const droste_result *r);
/* The exit status, 0 to 255, of a script that had run a cell whose code called sys.exit() or
 * exit(); -1 for all other cells. The session continues. */
DROSTE_API int droste_result_exit_status(const droste_result *r);
/* True if the session can continue after this cell. */
DROSTE_API int droste_result_alive(const droste_result *r);
/* A run's answer as JSON; NULL if there is none. */
DROSTE_API const char *droste_result_answer(const droste_result *r, size_t *len);
/* Why a cell was killed or lost, or why a run has no complete answer; code 0 otherwise. */
DROSTE_API void droste_result_error(const droste_result *r, droste_error *err);
/* False for a run that did not begin: droste_result_error says why, and the record does not
 * contain it. */
DROSTE_API int droste_result_began(const droste_result *r);
DROSTE_API double droste_result_seconds(const droste_result *r);
DROSTE_API void droste_result_free(droste_result *r);

/* ---- sessions ---- */

typedef struct droste_session droste_session;

/* Opens a Python session in a sandbox with the current settings. Runs `setup-code` first, if
 * there is some, and waits for it; if it fails, the session does not open. */
DROSTE_API int droste_session_open(droste *d, droste_session **out, droste_error *err);

/* As droste_session_open, for code of the program's own beside the user's: without rules, setup
 * code, tools, types of answers, volume and workspace. */
DROSTE_API int droste_session_open_plain(droste *d, droste_session **out, droste_error *err);
/* Copies of a repository and of files, as "repo-url" and "context-path" say, for a session that
 * is opened later. *out is NULL where they name none. droste_interrupt ends the wait. */
typedef struct droste_workspace droste_workspace;
DROSTE_API int droste_workspace_stage(droste *d, droste_workspace **out, droste_error *err);
/* The repository's commit, and its directory in the workspace; NULL: there is no repository. */
DROSTE_API const char *droste_workspace_commit(const droste_workspace *w);
DROSTE_API const char *droste_workspace_repo(const droste_workspace *w);
/* NULL is fine. Sessions that have it keep it. */
DROSTE_API void droste_workspace_free(droste_workspace *w);
/* As droste_session_open, with this workspace; NULL: as the settings say. */
DROSTE_API int droste_session_open_in(
    droste *d, const droste_workspace *w, droste_session **out, droste_error *err);
/* Ends the session before it is closed. If a provider keeps its volume (`env` is modal), this
 * waits until written data is durable there, so that the next session sees it; otherwise it does
 * not wait. A current operation is dropped, and none can begin afterwards. Negative: the volume
 * may lack written data. droste_interrupt ends the wait. */
DROSTE_API int droste_session_finish(droste_session *s, droste_error *err);
/* Frees the session. One that was not finished is ended, waiting for some seconds at most;
 * failures are reported only through droste_on_notice. */
DROSTE_API void droste_session_close(droste_session *s);

enum { DROSTE_ECHO = 1 }; /* give the repr of a last expression */

/* Runs a cell and waits for it. An error return means that it did not run; the result describes
 * what the code did. */
DROSTE_API int droste_session_exec(droste_session *s, const char *code, size_t len, int flags,
    droste_result **out, droste_error *err);

/* ---- the same without waiting ---- */

/* Opens a session without waiting. It may still have to prepare its volume, workspace,
 * `setup-code` or tools before its first operation: wait for that as for an operation; if it
 * fails, so does the session. `settings` override the object's settings for this session: a name,
 * its value, …, NULL; may be NULL. After an error there is no session. */
DROSTE_API int droste_session_start(
    droste *d, const char *const *settings, droste_session **out, droste_error *err);
/* Starts a cell. There is one operation at a time: ERROR_ARGUMENT until droste_session_wait or
 * the function of droste_session_on_done has taken the end of the last one. `timeout` is in
 * seconds; 0: none; negative: as in the settings. */
DROSTE_API int droste_session_exec_start(
    droste_session *s, const char *code, size_t len, int flags, double timeout, droste_error *err);
/* Starts what droste_session_set does. The data is copied. */
DROSTE_API int droste_session_set_start(droste_session *s, const char *name, const char *kind,
    const void *data, size_t len, droste_error *err);
/* Starts what droste_session_finish does. 1: wait for its end as for other operations. 0: there
 * is nothing to wait for. */
DROSTE_API int droste_session_finish_start(droste_session *s);
/* Waits for the end of the current operation, for at most `milliseconds` (negative: without a
 * limit). 1: it is not finished. 0: it succeeded, or there was none; *out is the result of a
 * cell, else NULL. Negative: it failed. */
DROSTE_API int droste_session_wait(
    droste_session *s, int milliseconds, droste_result **out, droste_error *err);
/* Receives the ends of operations for which no function waits, and owns the result. `err` is NULL
 * after success. Called from functions that wait and from droste_dispatch. It may start
 * operations and close sessions, and must not wait. NULL removes it. */
typedef void droste_session_done_fn(
    void *arg, droste_session *s, droste_result *result, const droste_error *err);
DROSTE_API void droste_session_on_done(droste_session *s, droste_session_done_fn *fn, void *arg);
/* Like droste_interrupt for this session only, in the loop's thread. */
DROSTE_API void droste_session_interrupt(droste_session *s);
/* False after its sandbox has ended. */
DROSTE_API int droste_session_is_alive(const droste_session *s);

/* Adds a tool (as droste_tool_add) to this session, or removes one, from the next operation on.
 * Tools that are source cannot be removed. The name may be that of a guest function (llm_query),
 * which it replaces until it is removed. ERROR_NOT_FOUND if there is no such tool to remove. */
DROSTE_API int droste_session_tool_add(droste_session *s, const char *name, const char *description,
    const char *parameters, droste_tool_fn *fn, void *arg, droste_error *err);
DROSTE_API int droste_session_tool_remove(droste_session *s, const char *name, droste_error *err);
/* From the next operation on, submissions must fit this JSON schema (docs/answers.md); NULL:
 * any. */
DROSTE_API int droste_session_expect(droste_session *s, const char *schema, droste_error *err);

/* Binds a variable. `kind` is "text", "bytes", "auto", "json" or "jsonl". */
DROSTE_API int droste_session_set(droste_session *s, const char *name, const char *kind,
    const void *data, size_t len, droste_error *err);
/* Binds a file, a directory ({path: text}), or "-", standard input. `kind` may be NULL: as in the
 * setting "context-type". */
DROSTE_API int droste_session_load(
    droste_session *s, const char *name, const char *kind, const char *path, droste_error *err);
/* A remark on the last load for the user, in one line (files that were left out); NULL: none.
 * Valid until the next load. */
DROSTE_API const char *droste_session_notice(const droste_session *s);

/* Receives progress messages while a session starts, one line each, such as an image that is
 * being fetched. NULL removes it. */
typedef void droste_notice_fn(void *arg, const char *text);
DROSTE_API void droste_on_notice(droste *d, droste_notice_fn *fn, void *arg);

/* Receives live output of cells. `stream` is 1 or 2. NULL removes it. */
typedef void droste_output_fn(void *arg, int stream, const char *data, size_t len);
DROSTE_API void droste_session_on_output(droste_session *s, droste_output_fn *fn, void *arg);

/* The isolation level: "full", "process"…. */
DROSTE_API const char *droste_session_isolation(const droste_session *s);
/* What was done to make its sandbox, step by step, as text for people; NULL without memory. Valid
 * until the next call, or until it is closed. */
DROSTE_API const char *droste_session_plan(droste_session *s, size_t *len);
/* Where its guest sees its workspace; NULL: it has none. */
DROSTE_API const char *droste_session_workspace(const droste_session *s);
/* The provider's name of the sandbox, or a container's id; NULL if it has none, as locally. Valid
 * until the session is closed. */
DROSTE_API const char *droste_session_sandbox(const droste_session *s);

/* ---- runs ---- */

typedef struct droste_event {
    const char *kind; /* "started", "context", "turn", "delta", "reply", "cell", "output", "result",
                         "calls", "notice"; with `all_events` see there */
    const char *text; /* the run's id, a piece of the reply, the code, the output, why a cell failed
                         (of "result": its traceback)… */
    size_t len;
    unsigned turn, turns;
    int stream;           /* of "output" */
    const char *status;   /* of "result": the cell's */
    double seconds;       /* of "result": the cell's */
    unsigned pending;     /* calls under way, but for the root model's own */
    int64_t calls;        /* ended so far, of guests and of the loop */
    int64_t input_tokens; /* of them */
    int64_t output_tokens;
    /* With `all_events`: */
    unsigned run, depth; /* whose it is: 0 the root's, else that of the child with this number */
    uint64_t call;     /* of "call" and "called": which of that run; of "child" and "child_end": the
                            child's number */
    const char *model; /* of these: the one asked; NULL: the one of its depth */
} droste_event;
/* May cancel the run that it is told about, which ends after the function returns (with its
 * answer, if it has one by then). Must not wait. */
typedef void droste_event_fn(void *arg, const droste_event *event);

/* Adds a context to runs that begin afterwards, after the one given to droste_run: a path as in
 * droste_session_load, or NAME=PATH. If a file of the whole text exists, it is that file. The
 * guest has them as `context_0` (and `context`), `context_1`…, and under their names, which must
 * be identifiers and none of Droste's. They are read when the run begins. ERROR_ARGUMENT. */
DROSTE_API int droste_context_add(droste *d, const char *context, droste_error *err);
/* How many were added, and whether one of them is standard input. */
DROSTE_API size_t droste_context_count(const droste *d);
DROSTE_API int droste_context_reads_input(const droste *d);
/* Removes all added contexts. */
DROSTE_API void droste_context_clear(droste *d);
/* Binds the added contexts in a session, under the names that they have in a run.
 * droste_session_notice then covers all of them. */
DROSTE_API int droste_session_load_contexts(droste_session *s, droste_error *err);

/* Answers a question about a context (PATH or NAME=PATH; NULL: only added ones) and waits. An
 * error return means that the run could not begin; a run without an answer is a result. */
DROSTE_API int droste_run(droste *d, const char *question, const char *context, droste_event_fn *fn,
    void *arg, droste_result **out, droste_error *err);

/* Resumes a run of the record whose process is gone. `run` is its id or a prefix of it. Settings,
 * question and context come from the record; keys and the record's location from this object.
 * Recorded steps are replayed, no answered call is repeated, and calls that were in flight are
 * made again with the same idempotency keys; then the run continues. An error return means that
 * it could not begin. A replay that deviates from the record ends in a result whose error names
 * the place; the run stays `interrupted`. */
DROSTE_API int droste_resume(droste *d, const char *run, droste_event_fn *fn, void *arg,
    droste_result **out, droste_error *err);

/* ---- conversations ---- */

/* Several questions in one session: variables persist between them. Each question is a run of the
 * record with turns and a budget of its own, and names the one before. */
typedef struct droste_chat droste_chat;

DROSTE_API int droste_chat_open(droste *d, droste_chat **out, droste_error *err);
/* Continues from a recorded run that has ended (its id, or a prefix of it). Its cells, and those
 * of earlier questions, run again and are answered from the record without asking a model. Its
 * settings apply unless others are set now. Contexts are read again and must be unchanged. */
DROSTE_API int droste_chat_continue(
    droste *d, const char *run, droste_chat **out, droste_error *err);
/* Like droste_run. The model sees the conversation before the question, and its code has the
 * questions and answers as `history`. The first question's context is `context`; later ones are
 * `context_1`, `context_2`…. The session's settings (isolation, tools, limits) are those of the
 * first question. If the sandbox is gone, a new one is opened with the contexts, and the model is
 * told that its variables are lost. */
DROSTE_API int droste_chat_ask(droste_chat *c, const char *question, const char *context,
    droste_event_fn *fn, void *arg, droste_result **out, droste_error *err);
/* Ends its session as droste_session_finish does. The conversation can then only be closed. */
DROSTE_API int droste_chat_finish(droste_chat *c, droste_error *err);
/* Frees it; call this before droste_free. NULL is allowed. */
DROSTE_API void droste_chat_close(droste_chat *c);

/* ---- many runs at once ---- */

/* A run that was started without waiting. It is freed once its `done` was called. Slow
 * preparations (contexts, a repository, a volume) happen meanwhile; if one fails, the result is
 * of a run that did not begin (droste_result_began). */
typedef struct droste_running droste_running;
/* Receives and owns the result; NULL: there was no memory for one. Called from droste_turn (or
 * another function that waits), never from droste_start or droste_cancel. It may start and cancel
 * runs, and must not wait. */
typedef void droste_done_fn(void *arg, droste_result *result);

/* A run to start. Unused members are zero or NULL. */
typedef struct droste_request {
    const char *question;
    const char *context; /* a path, as in droste_session_load; NULL: none, or `data` */
    const void *data;    /* the context itself, `len` bytes; it is copied */
    size_t len;
    const char *kind; /* of either, as in droste_session_set; NULL: as "context-type" says */
    const char *const
        *contexts; /* more of them behind it, each PATH or NAME=PATH, then NULL; may be NULL */
    const char *const *settings; /* over those of the droste: a name, its value, …, NULL */
    const char *batch, *task;    /* for the record: which task of what this run is; both or none */
    /* A run of the record to go on with, by its id, as in droste_resume. With a question: only
     * if it was asked the same, with the same context and settings; else ERROR_ARGUMENT. */
    const char *resume;
    droste_event_fn *event; /* may be NULL */
    droste_done_fn *done;
    void *arg; /* of both */
    /* Not 0: child runs have events, too, and there are these: "request" (the messages that the
     * model is told now and was not told before, as JSON; all of them behind a summary), "call"
     * and "called" (code asks a model: the prompt; the answer, or why there is none, with
     * `status` "ok" or an error's name), "child" and "child_end" (a child run: its prompt; its
     * answer as JSON, or why there is none, with a run's `status`). The text of "result" is then
     * a JSON object with the cell's submit, stdout, stderr, error and variables, as
     * droste_result_json has them. `seconds` and the three counts of an end are of that call or
     * child alone. */
    int all_events;
    /* The conversation whose next question this is, as droste_chat_ask; NULL: none. One question
     * at a time, and the conversation outlives it. */
    struct droste_chat *chat;
} droste_request;

/* Starts a run with the current settings; any number may run at once. The request is copied. An
 * error return means that it did not begin, and `done` is not called. `out` may be NULL. */
DROSTE_API int droste_start(
    droste *d, const droste_request *request, droste_running **out, droste_error *err);
/* Ends a run as "cancelled"; `done` follows. */
DROSTE_API void droste_cancel(droste_running *run);
/* Ends a run as "interrupted": its record is as if this process had died, and resuming it repeats
 * no paid call. */
DROSTE_API void droste_suspend(droste_running *run);
/* Waits for an event for at most `milliseconds` (negative: without a limit while a run is active)
 * and handles it. Returns the number of active runs, or a negative number with *err filled in. */
DROSTE_API int droste_turn(droste *d, int milliseconds, droste_error *err);

/* ---- what there is, and what works here ---- */

/* The names of the environments, in the order of the documentation; NULL after the last. *about,
 * where it is not NULL, becomes what their sandboxes are. */
DROSTE_API const char *droste_environment_at(size_t index, const char **about);

typedef struct droste_feature {
    const char *name;     /* "network policy" */
    const char *settings; /* those that ask for it, with spaces between; "": none does */
    int supported;
    const char *text; /* how, or why not; NULL: there is no more to say */
} droste_feature;
typedef void droste_feature_fn(void *arg, const droste_feature *feature);
/* What an environment can do and what not; NULL: that of the setting "env". One of the user's
 * (bridge:PATH) is opened for that. */
DROSTE_API int droste_environment_features(
    droste *d, const char *name, droste_feature_fn *fn, void *arg, droste_error *err);
/* Removes sandboxes of hosts of this machine that are gone from the environment of the setting
 * "env", or where that is not set, from docker. *removed is their number, after an error too;
 * -1: it was not tried. ERROR_UNSUPPORTED where nothing is ever left. */
DROSTE_API int droste_environment_collect(droste *d, int *removed, droste_error *err);

/* The interpreter that the setting "python" names, as a path; NULL with *err. Valid until the
 * next call. */
DROSTE_API const char *droste_python(droste *d, droste_error *err);

/* Checks the settings of a session as far as that is possible without one: the repository's URL
 * and commit, and the environment, which is opened. */
DROSTE_API int droste_check(droste *d, droste_error *err);

/* What was found out about this machine, the settings, and what lasts. */
typedef struct droste_finding {
    const char *name;  /* "kernel", "full", "model"… */
    const char *state; /* "ok"; "missing": it does not work; "note": worth knowing */
    const char *text;
    size_t len;
    const char *cure; /* what to do; NULL: nothing */
} droste_finding;
typedef void droste_finding_fn(void *arg, const droste_finding *finding);
/* Tries sandboxes of all isolations and looks at the settings; calls no model, and uses no
 * network. True if sandboxes at isolation "auto" work. */
DROSTE_API int droste_diagnose(droste *d, droste_finding_fn *fn, void *arg);

/* ---- the record ---- */

/* The file of the record, which need not exist; "none": it is turned off. NULL with *err. Valid
 * until the next call. */
DROSTE_API const char *droste_record_path(droste *d, droste_error *err);

/* What was done, run by run and step by step (docs/record.md), also by other processes. */
typedef struct droste_record droste_record;
/* *out is NULL where there is no record yet: none is made. ERROR_CONFIG where it is turned off. The
 * settings are those of now. */
DROSTE_API int droste_record_open(droste *d, droste_record **out, droste_error *err);
/* NULL is fine. */
DROSTE_API void droste_record_close(droste_record *record);

enum { DROSTE_RUN_ID_SIZE = 65 }; /* with the zero at its end */

/* Any bytes. `data` and `hash` NULL: there is no value, which is not the same as an empty one.
 * `data` is followed by a zero that `len` does not count. */
typedef struct droste_value {
    const void *data;
    size_t len;
    const char *hash; /* of a value that was left in the file (`lazy`); see droste_record_read */
} droste_value;

/* Texts may be NULL where that is said. Times are milliseconds since 1970; ended_ms is 0 before
 * the end, and what only the end says is zero or NULL then. */
typedef struct droste_record_run {
    const char *id, *parent;  /* NULL: a root */
    int64_t parent_cell;      /* in which it was asked for; 0: none */
    const char *previous;     /* the run that asked the question before; NULL: none */
    const char *batch, *task; /* both or none */
    int64_t depth;            /* 0 of a root */
    const char *model, *environment;
    const char *isolation; /* NULL: not known */
    const char *version;   /* of Droste */
    droste_value question;
    droste_value context, limits, tools; /* JSON */
    int64_t started_ms, ended_ms;
    const char *status;  /* as of a result; or "running", "interrupted" */
    const char *error;   /* NULL: none */
    droste_value answer; /* JSON */
    int64_t iterations;
    int64_t calls, input_tokens, output_tokens; /* those of children included */
    double cost;                                /* US dollars; negative: not known */
    double seconds;
} droste_record_run;

typedef struct droste_record_turn {
    const char *run;
    int64_t turn; /* from 1 */
    int64_t started_ms;
} droste_record_turn;

typedef struct droste_record_call {
    int64_t id;
    const char *run;
    int64_t turn, cell, depth; /* cell 0: the loop itself asked */
    int from_loop;             /* its kind is "root" or "summary" */
    const char
        *kind; /* "root"; "summary"; "sub": of a cell; "plain": in a child run's place; "tool" */
    const char *model; /* of a tool its name */
    droste_value request;
    int64_t started_ms, ended_ms;
    const char *status;
    const char *error, *finish; /* NULL: none, not known */
    droste_value reply;
    int64_t input_tokens, output_tokens;
    int estimated; /* the provider did not say the tokens */
    double cost;
    int64_t attempts, repeated; /* of the latter by processes that resumed the run */
    double seconds;
} droste_record_call;

typedef struct droste_record_cell {
    int64_t id;
    const char *run;
    int64_t turn;
    droste_value code;
    int64_t started_ms, ended_ms;
    const char *status;
    const char *killed; /* the limit that ended the sandbox; NULL: none */
    droste_value standard_output, standard_error;
    droste_value submit, error, variables; /* JSON */
    int64_t calls;
    double seconds;
} droste_record_cell;

/* Each gets one step, valid during the call, in which only droste_record_read may be called.
 * Negative, with *err filled in, ends the reading with that error. */
typedef int droste_record_run_fn(void *arg, const droste_record_run *run, droste_error *err);
typedef struct droste_record_visitor {
    droste_record_run_fn *run; /* NULL, as each of these: not wanted */
    int (*turn)(void *arg, const droste_record_turn *turn, droste_error *err);
    int (*call)(void *arg, const droste_record_call *call, droste_error *err);
    int (*cell)(void *arg, const droste_record_cell *cell, droste_error *err);
    droste_record_run_fn *end; /* the run once more, behind its steps */
    int children;              /* its descendants too */
    int lazy;                  /* values are left in the file */
} droste_record_visitor;
/* One run as it was at one instant, in the order in which things began. */
DROSTE_API int droste_record_visit(droste_record *record, const char *run,
    const droste_record_visitor *visitor, void *arg, droste_error *err);

/* Zero or NULL: any. */
typedef struct droste_record_filter {
    const char *status;
    const char *model, *batch; /* has this in it */
    const char *task;
    int64_t limit;
} droste_record_filter;
/* Roots, the newest first. */
DROSTE_API int droste_record_list(droste_record *record, const droste_record_filter *filter,
    droste_record_run_fn *fn, void *arg, droste_error *err);
/* The one run whose id is `prefix` or begins with it. ERROR_NOT_FOUND; ERROR_ARGUMENT: several. */
DROSTE_API int droste_record_find(
    droste_record *record, const char *prefix, char id[DROSTE_RUN_ID_SIZE], droste_error *err);

/* Not 0 ends the reading. */
typedef int droste_piece_fn(void *arg, const char *data, size_t len);
/* A value of the step at hand in pieces, at most its first `max` bytes. */
DROSTE_API int droste_record_read(droste_record *record, const droste_value *value, size_t max,
    droste_piece_fn *fn, void *arg, droste_error *err);

typedef struct droste_record_freed {
    int64_t runs, values;
    int64_t value_bytes; /* as they were kept */
    int64_t interrupted; /* runs whose process was gone, ended as such */
    int64_t file_bytes;  /* by which the file shrank */
} droste_record_freed;
/* A run and its descendants; one that may still be going on is refused. */
DROSTE_API int droste_record_remove(
    droste_record *record, const char *run, droste_record_freed *freed, droste_error *err);
typedef struct droste_record_keep {
    int64_t newest;   /* so many roots stay, and */
    int64_t older_ms; /* what began less than so many milliseconds ago */
} droste_record_keep;
/* Ends the runs whose process is gone, removes the trees that are not to be kept (NULL: all are),
 * and makes the file as small as possible. *freed is filled in after an error too. */
DROSTE_API int droste_record_collect(droste_record *record, const droste_record_keep *keep,
    droste_record_freed *freed, droste_error *err);

/* The next block of code in a model's reply, from *at on, which moves behind it: *code and
 * *code_len. False: there is none. */
DROSTE_API int droste_reply_next_code(
    const char *text, size_t len, size_t *at, const char **code, size_t *code_len);

/* ---- volumes ---- */

/* A directory that outlives sandboxes (docs/volumes.md). The setting "env" says whose volumes
 * these are: of daytona and modal the provider's, which are reached through a sandbox that each
 * operation starts; of all others this machine's, below "volume-root". Paths in a volume are
 * relative, or begin with a place where guests see it. Nothing follows links. An operation does
 * all or nothing. */
typedef struct droste_volume droste_volume;

/* True where the provider keeps them: then only list, get, read and put work, and others are
 * ERROR_UNSUPPORTED. */
DROSTE_API int droste_volumes_are_remote(const droste *d);
/* The directory of this machine's volumes, which need not exist; NULL with *err. Valid until the
 * next call. */
DROSTE_API const char *droste_volume_root(droste *d, droste_error *err);
/* Names, in order. The function may call others of the volume; not 0 ends it. */
typedef int droste_name_fn(void *arg, const char *name);
DROSTE_API int droste_volume_names(droste *d, droste_name_fn *fn, void *arg, droste_error *err);
/* Makes an empty one, which may hold what "volume-size" and "volume-files" say. ERROR_ARGUMENT
 * where it exists. */
DROSTE_API int droste_volume_create(droste *d, const char *name, droste_error *err);
/* With its snapshots. ERROR_ARGUMENT while it is in use. */
DROSTE_API int droste_volume_remove(droste *d, const char *name, droste_error *err);

/* No session uses it at the same time: needed for snapshots. */
enum { DROSTE_VOLUME_ALONE = 1 };
/* ERROR_NOT_FOUND, ERROR_PERMISSION (another user's, or a link); ERROR_ARGUMENT where it is in
 * use otherwise. Of a provider's volume these come from the first operation. Close it before the
 * droste is freed. */
DROSTE_API int droste_volume_open(
    droste *d, const char *name, int flags, droste_volume **out, droste_error *err);
/* NULL is fine. */
DROSTE_API void droste_volume_close(droste_volume *v);
DROSTE_API const char *droste_volume_name(const droste_volume *v);
/* Where its data is on this machine; NULL: at the provider. */
DROSTE_API const char *droste_volume_path(const droste_volume *v);

typedef struct droste_volume_usage {
    uint64_t size, files;             /* bytes on disk; files of all kinds, directories too */
    uint64_t size_limit, files_limit; /* what it may hold; 0 of a snapshot */
} droste_volume_usage;
DROSTE_API int droste_volume_measure(
    const droste_volume *v, droste_volume_usage *out, droste_error *err);
/* What it may hold, in the words of the settings ("2G", "50000"); NULL: as it is. */
DROSTE_API int droste_volume_limit(
    droste_volume *v, const char *size, const char *files, droste_error *err);

typedef struct droste_volume_entry {
    const char *path; /* in the directory that is listed; any bytes but zero */
    uint32_t mode;    /* as in struct stat */
    uint64_t size;
    int64_t mtime; /* seconds since 1970 */
} droste_volume_entry;
/* Not 0 ends the listing. */
typedef int droste_volume_entry_fn(void *arg, const droste_volume_entry *entry);
/* What is in a directory, `depth` levels of it, in order; a file is listed alone. 1: there are
 * more than `most`. */
DROSTE_API int droste_volume_list(droste_volume *v, const char *path, unsigned depth, size_t most,
    droste_volume_entry_fn *fn, void *arg, droste_error *err);

/* What was copied. */
typedef struct droste_volume_count {
    uint64_t files, bytes;
    uint64_t left_out; /* links, FIFOs, sockets and devices */
} droste_volume_count;
/* A file or directory becomes `to` on this machine. A file takes the place of another one. */
DROSTE_API int droste_volume_get(droste_volume *v, const char *path, const char *to,
    droste_volume_count *count, droste_error *err);
/* Writes a file's data to a descriptor. ERROR_ARGUMENT if it is no file. */
DROSTE_API int droste_volume_read(droste_volume *v, const char *path, int out, droste_error *err);
/* An open file, pipe or directory becomes `path`, whose directories are made. A file takes the
 * place of another one; ERROR_ARGUMENT where anything else is there. */
DROSTE_API int droste_volume_put(
    droste_volume *v, int source, const char *path, droste_volume_count *count, droste_error *err);
/* A file, or a directory with all that is in it. */
DROSTE_API int droste_volume_delete(droste_volume *v, const char *path, droste_error *err);

/* Snapshots are whole copies, and no part of what a volume may hold. */
DROSTE_API int droste_volume_snapshots(
    const droste_volume *v, droste_name_fn *fn, void *arg, droste_error *err);
DROSTE_API int droste_volume_snapshot_measure(
    const droste_volume *v, const char *name, droste_volume_usage *out, droste_error *err);
/* These three need the volume alone. ERROR_ARGUMENT where there is one of this name. */
DROSTE_API int droste_volume_snapshot(
    droste_volume *v, const char *name, droste_volume_count *count, droste_error *err);
/* What the volume holds is replaced. */
DROSTE_API int droste_volume_restore(
    droste_volume *v, const char *name, droste_volume_count *count, droste_error *err);
DROSTE_API int droste_volume_snapshot_remove(droste_volume *v, const char *name, droste_error *err);

/* ---- batches ---- */

/* Many tasks from a file, each a run, whose results are appended to another file; docs/batch.md
 * describes both. Unused members are zero or NULL. */
typedef struct droste_batch_options {
    const char *tasks;     /* the file of tasks */
    const char *results;   /* the file of results; made where it is not there */
    unsigned concurrency;  /* runs at once; 0: 8 */
    const char *grader;    /* "exact", "contains", "numeric", "numeric:0.01", "numeric:1%",
                             "program:PATH"; NULL: what the tasks say */
    double grader_timeout; /* seconds of a program; 0: 60 */
    int again;             /* ask once more what has a result without an answer */
    /* of all tasks together, those with results of earlier lives of the batch included; 0: no
     * limit */
    int64_t max_calls;
    int64_t max_tokens;
    double max_cost; /* dollars */
    double timeout;  /* seconds of this life of the batch */
} droste_batch_options;

/* The number of tasks by outcome, and their usage. */
typedef struct droste_batch_state {
    size_t tasks;   /* in the file */
    size_t earlier; /* had their result before this life of the batch, and keep it */
    size_t running;
    size_t answered, exhausted, budget, timeout, cancelled,
        error;          /* have their results, by status */
    size_t resumed;     /* runs of an earlier life that this one went on with */
    size_t interrupted; /* were put aside when it stopped */
    size_t graded, passed;
    size_t ungraded; /* whose grader failed */
    double score;    /* of all graded together */
    int64_t calls, input_tokens, output_tokens;
    double cost; /* dollars; negative: the price of some call is not known */
    double seconds;
    const char
        *stopped; /* why no more tasks begin: "interrupt", "budget", "timeout", "error"; NULL:
                            they do */
    char why[DROSTE_ERROR_SIZE]; /* in words */
} droste_batch_state;

typedef struct droste_batch_event {
    const char *kind; /* "notice", "result" (a line of the results), "tick" (some time passed) */
    const char *text;
    size_t len;
    const droste_batch_state *state;
} droste_batch_event;
typedef void droste_batch_fn(void *arg, const droste_batch_event *event);

/* Runs a batch until every task has a result, or it stops. Then *end, which may be NULL, has its
 * state. An error return means that it could not begin or had to stop: invalid tasks (before
 * anything is paid), a results file in use by another batch, a full disk. Runs that are active
 * when it stops are suspended; the same call continues them. */
DROSTE_API int droste_batch(droste *d, const droste_batch_options *options, droste_batch_fn *fn,
    void *arg, droste_batch_state *end, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
