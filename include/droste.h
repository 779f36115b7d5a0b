/* droste.h: the public interface of libdroste.
 *
 * A `droste` holds the settings, one event loop, and the zygotes from which sandboxes are cloned.
 * Settings are words (`droste_set(d, "isolation", "full", &err)`), the same as in the command line
 * and the configuration file; `droste_option_at` lists them. A blocking call runs the loop until its
 * answer is there. A `droste` and all that comes from it belong to one thread at a time;
 * droste_interrupt alone may be called from anywhere, a signal handler included.
 *
 * A function that can fail returns 0, or a negative number with *err filled in (err may be NULL).
 * The library never prints, exits, or installs a signal handler.
 */
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

/* Stable codes of errors; their words come from droste_error_name. */
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
    /* Which limit it was: "budget_calls"… DROSTE_ERROR_BUDGET is one without a code. */
    DROSTE_ERROR_BUDGET_CALLS = 30,
    DROSTE_ERROR_BUDGET_TOOL_CALLS = 31,
    DROSTE_ERROR_BUDGET_TOKENS = 32,
    DROSTE_ERROR_BUDGET_COST = 33,
    DROSTE_ERROR_BUDGET_TIME = 34,
    DROSTE_ERROR_BUDGET_TURNS = 35,
    DROSTE_ERROR_BUDGET_ERRORS = 36,
    DROSTE_ERROR_BUDGET_RECORD = 37,
};

/* The size of an error's text. A text that is longer is cut, and ends with "…". */
#define DROSTE_ERROR_SIZE 2048

typedef struct droste_error {
    int code;
    int sys;                      /* errno, or 0 */
    char text[DROSTE_ERROR_SIZE]; /* one line: what was tried, on what, and what to do */
} droste_error;

DROSTE_API const char *droste_version(void);
/* "argument", "model_rate"… */
DROSTE_API const char *droste_error_name(int code);

/* ---- settings ---- */

typedef struct droste droste;

/* With every setting at its default. */
DROSTE_API int droste_new(droste **out, droste_error *err);
/* Ends all sandboxes that are left. NULL is fine. */
DROSTE_API void droste_free(droste *d);

/* Sets one option; lists are given one value at a time, "" empties them. ERROR_ARGUMENT says what
 * the option takes. */
DROSTE_API int droste_set(droste *d, const char *option, const char *value, droste_error *err);
/* What an option that is a text is now ("env", "python"…), until it is set again; NULL: it has no value,
 * is a secret, or is no text. */
DROSTE_API const char *droste_get(droste *d, const char *option);
/* The environment (OPENAI_API_KEY, OPENAI_BASE_URL, DROSTE_MODEL, …), then the file over it; NULL:
 * config.ini in the user's configuration directory, which may be absent. */
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

/* The variables of the process's environment that environments read beside those of options (DOCKER_HOST,
 * DAYTONA_API_KEY…), with spaces between, an environment at a time; NULL after the last. They are read
 * when a session opens. */
DROSTE_API const char *droste_environment_variables_at(size_t index);

/* The options in the order of the documentation; NULL after the last. */
DROSTE_API const droste_option *droste_option_at(size_t index);

/* ---- hosts with a loop of their own ---- */

/* A descriptor that becomes readable when there is something to do, for poll, epoll or another loop; the
 * droste's, and the same each time. Negative: an error. */
DROSTE_API int droste_fd(droste *d, droste_error *err);
/* Does what is to be done, and does not wait. Call it when the descriptor is readable, and once after
 * anything else that was called, before the descriptor is waited for again. Returns as droste_turn. */
DROSTE_API int droste_dispatch(droste *d, droste_error *err);
/* Has a function that waits for at most some time (droste_turn, droste_session_wait) return at once, as
 * if its time were up. Safe in other threads. */
DROSTE_API void droste_wake(droste *d);
/* In the child of a fork, for each droste of the parent: closes the descriptors that would keep the
 * parent's sandboxes. Nothing else may be called with it then, and its memory stays. */
DROSTE_API void droste_forked(droste *d);

/* Interrupts what is under way, as Ctrl-C does: a cell (its session goes on), runs (they end as
 * cancelled), or a batch (its runs are put aside). Safe in signal handlers and from other threads. */
DROSTE_API void droste_interrupt(droste *d);

/* ---- models of the embedding program ---- */

/* A piece of a message that is not one text. */
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

/* Answers a call of the model "callback", or "callback:NAME" with any name: calls droste_answer or droste_refuse for it once, now or
 * later, from the loop's thread. The messages are valid until then, or until droste_free. */
typedef struct droste_call droste_call;
typedef void droste_model_fn(
    void *arg, const droste_message *messages, size_t count, droste_call *call);
DROSTE_API void droste_set_model(droste *d, droste_model_fn *fn, void *arg);
/* Of a call: the model as the settings have it ("callback:NAME"), and the one that the code names
 * (llm_query(…, model="…")), which otherwise is NAME. Valid as long as the messages. */
DROSTE_API const char *droste_call_opened(const droste_call *call);
DROSTE_API const char *droste_call_model(const droste_call *call);
DROSTE_API void droste_answer(droste_call *call, const char *text, size_t len);
DROSTE_API void droste_refuse(droste_call *call, const char *why);

/* ---- tools of the embedding program ---- */

/* A call of a tool: `json` is an object, the arguments by name, valid during this call. They come from
 * code that a model wrote: fitted to the schema, where there is one, and otherwise not to be trusted.
 * Call droste_tool_answer or droste_tool_fail for it once, now or later, from the loop's thread, also
 * where nobody waits any more. Several calls may be under way. */
typedef struct droste_tool_call droste_tool_call;
typedef void droste_tool_fn(void *arg, droste_tool_call *call, const char *json, size_t len);
/* From now on, sessions and runs that begin have a function of this name. It takes the properties of
 * `parameters`, a JSON schema of an object, the required ones first; with NULL it takes any arguments,
 * those without a name under "args". `description` (may be NULL) is its docstring, and what models are
 * told. ERROR_ARGUMENT for a name that is no identifier, reserved or taken, and for a schema that is
 * none. All texts are copied. */
DROSTE_API int droste_tool_add(droste *d, const char *name, const char *description,
    const char *parameters, droste_tool_fn *fn, void *arg, droste_error *err);
/* A JSON value, which the code gets as a variable. */
DROSTE_API int droste_tool_data(
    droste *d, const char *name, const char *json, size_t len, droste_error *err);
/* Python that runs in the sandbox before the first cell: its documented functions are tools there.
 * `name` is for tracebacks. */
DROSTE_API int droste_tool_source(
    droste *d, const char *name, const char *code, size_t len, droste_error *err);
/* Sessions and runs that begin from now on have none of what was added up to here. */
DROSTE_API void droste_tools_clear(droste *d);
/* A JSON value. The call is gone after this, and after droste_tool_fail. */
DROSTE_API void droste_tool_answer(droste_tool_call *call, const char *json, size_t len);
/* The code gets an exception: `type` is the name of one of Python's ("ValueError"); any other one is a
 * ToolError whose message begins with it. */
DROSTE_API void droste_tool_fail(droste_tool_call *call, const char *type, const char *message);
/* The same two from any other thread than the loop's, which does it soon; the texts are copied. Not once droste_free
 * has begun. ERROR_MEMORY leaves the call as it was. */
DROSTE_API int droste_tool_post_answer(
    droste *d, droste_tool_call *call, const char *json, size_t len, droste_error *err);
DROSTE_API int droste_tool_post_failure(
    droste *d, droste_tool_call *call, const char *type, const char *message, droste_error *err);
/* True once nobody waits for the answer any more: the cell was stopped, the time was up. */
DROSTE_API int droste_tool_is_cancelled(const droste_tool_call *call);
/* Told of that when it happens; it may answer or fail the call. */
typedef void droste_tool_cancel_fn(void *arg, droste_tool_call *call);
DROSTE_API void droste_tool_on_cancel(droste_tool_call *call, droste_tool_cancel_fn *fn, void *arg);

/* ---- environments of the embedding program ---- */

/* A sandbox of such an environment, as the library knows it: valid from `open` until `close`. */
typedef struct droste_custom_sandbox droste_custom_sandbox;

/* The program executes the code itself, wherever it likes, and does nothing else: turns, model calls, budgets,
 * deadlines, child runs (which get sandboxes of the same environment), events and the record are the library's, as in
 * every environment. Isolation and limits of processes are the program's own affair: settings that ask for them, tools
 * and rules are refused by name. Such code has no SUBMIT; the model says FINAL(the answer) in its reply.
 *
 * The functions are called from the loop, one operation of a sandbox at a time. They must not wait; they may call the
 * functions below. Texts are valid during the call and end without a NUL where a length is given. `own` is what
 * `open` has set. */
typedef struct droste_custom_environment {
    size_t size; /* sizeof(droste_custom_environment) */
    const char *
        about; /* for the model: the functions that the code has, a Markdown list; may be NULL. Copied */
    /* A session begins. Negative: the program cannot. */
    int (*open)(void *arg, droste_custom_sandbox *s, void **own);
    /* Binds a value: "context", "context_1"…; `kind` as in droste_session_set. droste_custom_result ends it, and may
     * describe the value: {"status": "ok", "variable": {"name", "type", "length", "preview"}}. */
    void (*set)(void *own, uint64_t operation, const char *name, const char *kind, const void *data,
        size_t len);
    /* Executes a cell; droste_custom_result ends it. An empty one only asks whether the sandbox is there. The loop's own
     * cell FINAL_VAR("name") asks for the value of that variable as `submit`. */
    void (*execute)(void *own, uint64_t operation, const char *code, size_t len);
    /* The time of the operation is up, or it is cancelled: one that does not end soon is given up with its sandbox. */
    void (*interrupt)(void *own, uint64_t operation);
    /* The answer to droste_custom_call: {"replies": [str, …], "errors": {"0": {"code", "message"}}}, in the order of
     * the prompts (of rlm_query each is JSON), or {"error": {"code", "message"}} of the whole call. */
    void (*reply)(void *own, uint64_t call, const char *json, size_t len);
    /* The sandbox is gone, whatever it was doing: nothing may be told of it any more. */
    void (*close)(void *own);
} droste_custom_environment;

/* From now on the setting "env" may be this name, which is none of Droste's own and has no ':'. The table is
 * copied. ERROR_ARGUMENT. */
DROSTE_API int droste_custom_add(droste *d, const char *name,
    const droste_custom_environment *environment, void *arg, droste_error *err);

/* What the program tells of a sandbox, in the loop's thread. Output of the operation under way; 1 or 2. */
DROSTE_API void droste_custom_output(
    droste_custom_sandbox *s, int stream, const char *data, size_t len);
/* Ends the operation. `json` is an object of at most 2 MiB: `status` ("ok", "error" or "interrupted"), of an error
 * `error` ({"type", "message", "traceback"}), and `variables`, a list of {"name", "type", "length", "preview"}. What the
 * code submitted is `submit`, an object as JSON; NULL: nothing. */
DROSTE_API int droste_custom_result(droste_custom_sandbox *s, uint64_t operation, const char *json,
    size_t len, const char *submit, size_t submit_len, droste_error *err);
/* A call of the code, with a number that no other open one has: {"name": "llm_query", "prompts": […], "model": str}. A
 * prompt is a text, or a list of {"role", "content"}. "rlm_query" starts child runs; it may have `contexts` (texts),
 * their `kinds` ("text", "json") and for each prompt the index of its context in `of`, or -1. It is reserved in the run's
 * budget and recorded, as a call of any guest. */
DROSTE_API int droste_custom_call(
    droste_custom_sandbox *s, uint64_t call, const char *json, size_t len, droste_error *err);
/* The code waits for it no longer. */
DROSTE_API void droste_custom_cancel(droste_custom_sandbox *s, uint64_t call);
/* The sandbox has failed, and with it its run; `close` follows. */
DROSTE_API void droste_custom_end(droste_custom_sandbox *s, const char *why);

/* ---- results ---- */

typedef struct droste_result droste_result;

/* "ok", "submitted", "error", "timeout", "killed", "lost" of a cell; "answered", "exhausted",
 * "budget", "timeout", "cancelled", "error", "interrupted" (put aside) of a run. */
DROSTE_API const char *droste_result_status(const droste_result *r);
/* All of it as one JSON object, as `droste exec --json` and `droste run --json` print it; NULL without
 * memory. Of a cell,
 * `killed` says what ended the sandbox: "timeout", "interrupt", "protocol", a limit ("memory", "cpu
 * time", "file size"), "signal 11 SIGSEGV", "exit 3"; null if nothing did. `resources` has
 * `memory_peak` (bytes) and `cpu_seconds` since the sandbox's start, null where they are not known, and
 * `limits`, by setting: {"memory": {"value": 4294967296, "by": "cgroup"}, …}; `by` is what enforces
 * it: cgroup (the sandbox as a whole), rlimit (each process), mount or host. */
DROSTE_API const char *droste_result_json(const droste_result *r, size_t *len);
/* A cell's parts; NULL (or 0) where there is none. `submit` is a JSON object; NULL also without memory. */
DROSTE_API const char *droste_result_stdout(const droste_result *r, size_t *len);
DROSTE_API const char *droste_result_stderr(const droste_result *r, size_t *len);
DROSTE_API const char *droste_result_submit(const droste_result *r, size_t *len);
/* The same without its long texts, and these as they are, UTF-8 without a NUL behind them: a `submit` of
 * megabytes need not be quoted to be read again. In the outline `NaN`, which JSON does not have, stands for the texts,
 * in their order; after the last one, droste_result_text is NULL. An outline without any is `submit`. */
DROSTE_API const char *droste_result_outline(const droste_result *r, size_t *len);
DROSTE_API const char *droste_result_text(const droste_result *r, size_t index, size_t *len);
DROSTE_API const char *droste_result_echo(const droste_result *r);
DROSTE_API const char *droste_result_traceback(const droste_result *r);
/* str() of the exception that ended a cell. */
DROSTE_API const char *droste_result_message(const droste_result *r);
/* Of a cell whose code called sys.exit() or exit(): the status with which a script's process would have
 * ended, 0 to 255. Of all others -1. The session goes on. */
DROSTE_API int droste_result_exit_status(const droste_result *r);
/* True if the session can go on after this cell. */
DROSTE_API int droste_result_alive(const droste_result *r);
/* A run's answer as JSON, and why there is none or not a whole one. */
DROSTE_API const char *droste_result_answer(const droste_result *r, size_t *len);
/* Why: of a cell that was killed or lost, of a run without an answer; code 0 where all is well. */
DROSTE_API void droste_result_error(const droste_result *r, droste_error *err);
/* False of a run that did not begin: droste_result_error says why, and the record has nothing of it. */
DROSTE_API int droste_result_began(const droste_result *r);
DROSTE_API double droste_result_seconds(const droste_result *r);
DROSTE_API void droste_result_free(droste_result *r);

/* ---- sessions ---- */

typedef struct droste_session droste_session;

/* A REPL in a sandbox, by the settings as they are now. Runs `setup-code` first, and waits for it
 * where there is some; if it fails, the session does not open. */
DROSTE_API int droste_session_open(droste *d, droste_session **out, droste_error *err);
/* Ends the session in good order, before it is closed. Where its volume is the provider's (`env` is
 * modal), this waits until what was written to it is durable there, so that the next session sees it;
 * elsewhere there is nothing to wait for. An operation under way is dropped, and none can begin
 * afterwards. Negative: the volume may lack what was written. droste_interrupt ends the wait. */
DROSTE_API int droste_session_finish(droste_session *s, droste_error *err);
/* Frees it. A session that was not finished is ended too, and waited for, for some seconds at most;
 * failures are told as news only (droste_on_notice). */
DROSTE_API void droste_session_close(droste_session *s);

enum { DROSTE_ECHO = 1 }; /* give the repr of a last expression */

/* Runs a cell and waits for it. An error return means that it did not run; what the code did is in
 * the result. */
DROSTE_API int droste_session_exec(droste_session *s, const char *code, size_t len, int flags,
    droste_result **out, droste_error *err);

/* ---- the same without waiting ---- */

/* Opens a session, which may still have something to do before its first operation (its volume, its workspace,
 * `setup-code`, tools that are source): wait for that as for an operation; where it fails, so does the session. `settings` are over those of the droste, for this session: a name, its value, …,
 * NULL; may be NULL itself. After an error there is no session. */
DROSTE_API int droste_session_start(
    droste *d, const char *const *settings, droste_session **out, droste_error *err);
/* Starts a cell. One operation at a time: ERROR_ARGUMENT until the end of the last one was taken, by
 * droste_session_wait or the function of droste_session_on_done. `timeout` is in seconds; 0: none;
 * negative: as the settings say. */
DROSTE_API int droste_session_exec_start(
    droste_session *s, const char *code, size_t len, int flags, double timeout, droste_error *err);
/* Starts as droste_session_set; the data is the caller's again. */
DROSTE_API int droste_session_set_start(droste_session *s, const char *name, const char *kind,
    const void *data, size_t len, droste_error *err);
/* Starts as droste_session_finish. 1: its end is told or waited for as that of other operations. 0:
 * there is nothing to wait for. */
DROSTE_API int droste_session_finish_start(droste_session *s);
/* Waits for the end of what was started, for at most so many milliseconds (negative: as long as it takes).
 * 1: it is still under way. 0: it ended well, or nothing was under way; *out is the result of a cell,
 * else NULL. Negative: it failed. */
DROSTE_API int droste_session_wait(
    droste_session *s, int milliseconds, droste_result **out, droste_error *err);
/* Who is told of the ends of operations that nobody waits for; NULL: nobody. The result is the receiver's;
 * `err` is NULL where it ended well. Called from within functions that wait and from droste_dispatch; it
 * may start operations and close sessions, and may not wait. */
typedef void droste_session_done_fn(
    void *arg, droste_session *s, droste_result *result, const droste_error *err);
DROSTE_API void droste_session_on_done(droste_session *s, droste_session_done_fn *fn, void *arg);
/* As droste_interrupt, of this session alone, in the loop's thread. */
DROSTE_API void droste_session_interrupt(droste_session *s);
/* False once its sandbox is gone. */
DROSTE_API int droste_session_is_alive(const droste_session *s);

/* From the next operation on, this session has one tool more (as droste_tool_add), or one less. Tools that
 * are source stay. Its name may be that of one of the guest's own functions (llm_query), which it replaces until
 * it is removed. ERROR_NOT_FOUND where there is none of that name to be removed. */
DROSTE_API int droste_session_tool_add(droste_session *s, const char *name, const char *description,
    const char *parameters, droste_tool_fn *fn, void *arg, droste_error *err);
DROSTE_API int droste_session_tool_remove(droste_session *s, const char *name, droste_error *err);
/* From the next operation on, what is submitted must fit this JSON schema (docs/answers.md); NULL: any. */
DROSTE_API int droste_session_expect(droste_session *s, const char *schema, droste_error *err);

/* Binds a variable. `kind` is "text", "bytes", "auto", "json" or "jsonl". */
DROSTE_API int droste_session_set(droste_session *s, const char *name, const char *kind,
    const void *data, size_t len, droste_error *err);
/* Binds a file, a directory ({path: text}), or with "-" standard input. `kind` may be NULL: as the
 * setting "context-type" says. */
DROSTE_API int droste_session_load(
    droste_session *s, const char *name, const char *kind, const char *path, droste_error *err);
/* What a person should know of the last load, in a line (files of a directory that are not in it);
 * NULL: nothing. Valid until the next one. */
DROSTE_API const char *droste_session_notice(const droste_session *s);

/* What takes its time before a session can start, a line each: an image is fetched ("docker"). NULL stops
 * it. */
typedef void droste_notice_fn(void *arg, const char *text);
DROSTE_API void droste_on_notice(droste *d, droste_notice_fn *fn, void *arg);

/* Live output of cells: `stream` is 1 or 2. NULL stops it. */
typedef void droste_output_fn(void *arg, int stream, const char *data, size_t len);
DROSTE_API void droste_session_on_output(droste_session *s, droste_output_fn *fn, void *arg);

/* "full", "process"… */
DROSTE_API const char *droste_session_isolation(const droste_session *s);
/* What the provider calls the sandbox, or a container's id; NULL where it has no name, as locally. Valid until the session is
 * closed. */
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
/* It may end the run that it is told of, which then ends when it has come back (with its answer, if it has
 * that by then); it may not wait. */
typedef void droste_event_fn(void *arg, const droste_event *event);

/* Adds a context to those of the runs that begin from now on, behind the one that droste_run is given: a
 * path as in droste_session_load, or NAME=PATH; an existing file is that file, whatever is in its name.
 * The guest has them as `context_0` (and `context`), `context_1`…, and under their names, which are
 * names that Python can have and none of Droste's own. ERROR_ARGUMENT. They are read when the run begins. */
DROSTE_API int droste_context_add(droste *d, const char *context, droste_error *err);
/* Takes back all that were added. */
DROSTE_API void droste_context_clear(droste *d);
/* Binds the contexts that were added to the droste in a session, under the names that they have in a
 * run. droste_session_notice is then about all of them. */
DROSTE_API int droste_session_load_contexts(droste_session *s, droste_error *err);

/* Answers a question about a context (PATH or NAME=PATH as above; NULL: only those that were added) and
 * waits for the answer. An error return means that the run could not begin; a run that ended without an answer
 * is a result. */
DROSTE_API int droste_run(droste *d, const char *question, const char *context, droste_event_fn *fn,
    void *arg, droste_result **out, droste_error *err);

/* Goes on with a run of the record whose process is gone: `run` is its id or the beginning of it. Its
 * settings, question and context are those of the record; keys are this droste's, and where its record
 * is. What was recorded is replayed, no call whose answer is there is made again, and calls that were
 * under way are made once more, with the same idempotency keys; then it goes on. An error return means
 * that it could not begin. A replay that leaves the path of the record ends in a result with an error
 * that says where; such a run stays `interrupted`. */
DROSTE_API int droste_resume(droste *d, const char *run, droste_event_fn *fn, void *arg,
    droste_result **out, droste_error *err);

/* ---- conversations ---- */

/* Several questions over one session: variables stay from question to question. Each question is a
 * run of the record, with turns and a budget of its own, that names the one before. */
typedef struct droste_chat droste_chat;

DROSTE_API int droste_chat_open(droste *d, droste_chat **out, droste_error *err);
/* Goes on from a run of the record that has ended (its id, or the beginning of it): its cells, and
 * those of the questions before it, run again and are answered from the record, which asks nobody. Its
 * settings hold where nobody sets others now. Contexts are read again and must be what they were. */
DROSTE_API int droste_chat_continue(
    droste *d, const char *run, droste_chat **out, droste_error *err);
/* As droste_run. The model has the conversation so far before the question, and its code has the
 * questions and answers as `history`. The first question's context is `context`, those of later ones
 * are `context_1`, `context_2`… The session's own settings (isolation, tools, limits) are those of the
 * first question. Where the sandbox is gone, a new one is opened with the contexts, and the model is
 * told that its variables are not there. */
DROSTE_API int droste_chat_ask(droste_chat *c, const char *question, const char *context,
    droste_event_fn *fn, void *arg, droste_result **out, droste_error *err);
/* Ends its session as droste_session_finish does; the conversation can only be closed then. */
DROSTE_API int droste_chat_finish(droste_chat *c, droste_error *err);
/* Before the droste is freed. NULL is fine. */
DROSTE_API void droste_chat_close(droste_chat *c);

/* ---- many runs at once ---- */

/* A run that was started and not waited for. It is gone once its `done` was called. What its start needs that may
 * take long (contexts, a repository, a volume) is done meanwhile: where that fails, the result is of a run that did not
 * begin (droste_result_began). */
typedef struct droste_running droste_running;
/* The result is the receiver's. NULL: there was no memory for one. Called from within droste_turn (or
 * another function that waits), never from within droste_start or droste_cancel; it may start and
 * cancel runs, and may not wait. */
typedef void droste_done_fn(void *arg, droste_result *result);

/* What is not said is zero or NULL. */
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
    /* A run of the record to go on with, by its id, as in droste_resume. With a question: only if it
     * was asked the same, with the same context and settings; else ERROR_ARGUMENT. */
    const char *resume;
    droste_event_fn *event; /* may be NULL */
    droste_done_fn *done;
    void *arg; /* of both */
    /* Not 0: child runs have events, too, and there are these: "request" (the messages that the model is
     * told now and was not told before, as JSON; all of them behind a summary), "call" and "called" (code
     * asks a model: the prompt; the answer, or why there is none, with `status` "ok" or an error's name),
     * "child" and "child_end" (a child run: its prompt; its answer as JSON, or why there is none, with a
     * run's `status`). The text of "result" is then a JSON object with the cell's submit, stdout, stderr,
     * error and variables, as droste_result_json has them. `seconds` and the three counts of an end are of that call or child alone. */
    int all_events;
    /* The conversation whose next question this is, as droste_chat_ask; NULL: none. One question at a time, and the
     * conversation outlives it. */
    struct droste_chat *chat;
} droste_request;

/* Starts a run; any number may be under way. The settings are those of now. The request's memory is the
 * caller's again. An error return means that it did not begin, and `done` is not called; `out` may be
 * NULL. */
DROSTE_API int droste_start(
    droste *d, const droste_request *request, droste_running **out, droste_error *err);
/* Ends a run as cancelled; `done` follows. */
DROSTE_API void droste_cancel(droste_running *run);
/* Ends it as "interrupted": its record is as if this process had died, and whoever resumes it pays for
 * nothing again. */
DROSTE_API void droste_suspend(droste_running *run);
/* Waits until something happens, for at most so many milliseconds (negative: as long as it takes, if a
 * run is under way), and does what is to be done. Returns the number of runs that are under way, or a
 * negative number with *err filled in. */
DROSTE_API int droste_turn(droste *d, int milliseconds, droste_error *err);

/* ---- batches ---- */

/* Many tasks from a file, each a run, whose results are appended to another file; docs/batch.md describes
 * both. What is not said is zero or NULL. */
typedef struct droste_batch_options {
    const char *tasks;     /* the file of tasks */
    const char *results;   /* the file of results; made where it is not there */
    unsigned concurrency;  /* runs at once; 0: 8 */
    const char *grader;    /* "exact", "contains", "numeric", "numeric:0.01", "numeric:1%",
                             "program:PATH"; NULL: what the tasks say */
    double grader_timeout; /* seconds of a program; 0: 60 */
    int again;             /* ask once more what has a result without an answer */
    /* of all tasks together, those with results of earlier lives of the batch included; 0: no limit */
    int64_t max_calls;
    int64_t max_tokens;
    double max_cost; /* dollars */
    double timeout;  /* seconds of this life of the batch */
} droste_batch_options;

/* The tasks of the file by what became of them, and what was used. */
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

/* Runs a batch until every task has a result, or it stops. Then *end, which may be NULL, has its state. An
 * error return means that it could not begin or had to stop: bad tasks (before anything is paid), a
 * results file that another batch is writing, a full disk. Runs that are under way when it stops are
 * put aside; the same call goes on with them. */
DROSTE_API int droste_batch(droste *d, const droste_batch_options *options, droste_batch_fn *fn,
    void *arg, droste_batch_state *end, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
