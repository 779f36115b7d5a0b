/* droste.h: the public interface of libdroste.
 *
 * A `droste` object holds the settings, one event loop, and the zygotes from which sandboxes are
 * cloned. Settings have the names of the command line and the configuration file (`droste_set(d,
 * "isolation", "full", &err)`); `droste_option_at` lists them. Blocking calls run the loop until
 * their answer arrives. One thread at a time may use a `droste` object and everything created
 * from it, except where a function says otherwise.
 *
 * A function that can fail returns 0 on success, or a negative number with *err filled in (err
 * may be NULL). Texts are UTF-8. The library never prints, exits, or installs a signal handler.
 *
 *   droste.h               settings, the loop, models and tools, results, sessions, runs
 *   droste/base.h          errors
 *   droste/record.h        the record of runs
 *   droste/approval.h      approvals of calls
 *   droste/network.h       decisions about requests to the network
 *   droste/template.h      templates, from which sessions start
 *   droste/volume.h        volumes
 *   droste/environment.h   environments: which there are, what works here, and those of a program
 *   droste/files.h         the files of a session's sandbox
 *   droste/commands.h      programs in it
 *   droste/batch.h         many tasks from a file
 *   droste/forward.h       requests that go to a model's provider as they are
 *
 * This header includes the others. */
#ifndef DROSTE_H
#define DROSTE_H

#include <stddef.h>
#include <stdint.h>

#include "droste/approval.h"
#include "droste/base.h"
#include "droste/batch.h"
#include "droste/commands.h"
#include "droste/environment.h"
#include "droste/files.h"
#include "droste/forward.h"
#include "droste/network.h"
#include "droste/record.h"
#include "droste/image.h"
#include "droste/packages.h"
#include "droste/template.h"
#include "droste/volume.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- settings ---- */

/* Creates an object with default settings. */
DROSTE_API int droste_new(droste **out, droste_error *err);
/* Ends all remaining sandboxes and frees the object. NULL is allowed. */
DROSTE_API void droste_free(droste *d);

/* Sets one option. Options that take several values get one per call; "" removes them.
 * ERROR_ARGUMENT explains the accepted values. */
DROSTE_API int droste_set(droste *d, const char *option, const char *value, droste_error *err);
/* Gives the value of a secret to the option "secret" (docs/network.md), for NAME without a source.
 * It stays in the memory of this object. A later value is for sessions that open later. */
DROSTE_API int droste_secret(
    droste *d, const char *name, const char *value, size_t len, droste_error *err);
/* The value of a text option ("env", "python"…), of one that takes several the last, or of a switch
 * that was set, valid until it is set again. NULL: it has no value, is a secret, or is a number. */
DROSTE_API const char *droste_get(droste *d, const char *option);
/* The value of an option that is a number, if it was set. False: it was not, or is not a number. */
DROSTE_API int droste_get_number(droste *d, const char *option, double *value);
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
    int local; /* names something of this machine, so that no client of a server may set it */
} droste_option;

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
/* Calls `fn` every so many milliseconds while a function waits on the object: for clocks on a
 * screen. It must not wait. NULL ends that. */
typedef void droste_tick_fn(void *arg);
DROSTE_API int droste_every(
    droste *d, unsigned milliseconds, droste_tick_fn *fn, void *arg, droste_error *err);
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

/* ---- limits per minute that processes share ---- */

typedef struct droste_rate_amount {
    int64_t requests, tokens;
} droste_rate_amount;

/* What may be used, or was, until this second of the clock by which those who share it count. */
typedef struct droste_rate_slice {
    int64_t second;
    droste_rate_amount amount;
} droste_rate_slice;

/* What "requests-per-minute" and "tokens-per-minute" allow for a model. */
typedef struct droste_rate_ask {
    uint64_t ticket;
    const char *model; /* with its host: the same in all processes */
    /* of a limit 0: none; most 0: nothing is asked for, this only has changes */
    droste_rate_amount limit, least, most;
    const droste_rate_slice *changes; /* what was used of earlier slices, less what was granted */
    size_t change_count;
} droste_rate_ask;

/* Asks for a slice, which is used within three seconds from now. What it points to is valid during
 * the call. Answer later, by droste_rate_grant. */
typedef void droste_rate_fn(void *arg, const droste_rate_ask *ask);
/* From now on, these limits are shared with other processes; NULL: no more. */
DROSTE_API void droste_on_rate(droste *d, droste_rate_fn *fn, void *arg);
/* granted NULL: nothing is left; ask again after so long. */
DROSTE_API void droste_rate_grant(
    droste *d, uint64_t ticket, const droste_rate_slice *granted, int64_t wait_ms);
/* The model of a call: `opened` as in the settings ("callback:NAME"); `model` as named by the
 * code (llm_query(…, model="…")), otherwise NAME. Valid as long as the messages. */
DROSTE_API const char *droste_call_opened(const droste_call *call);
DROSTE_API const char *droste_call_model(const droste_call *call);
DROSTE_API void droste_answer(droste_call *call, const char *text, size_t len);
DROSTE_API void droste_refuse(droste_call *call, const char *why);

/* ---- a selector of candidates ---- */

/* A candidate of a turn (docs/fork.md). */
typedef struct droste_candidate {
    unsigned number; /* from 1 */
    const char *reply;
    size_t reply_len;
    const char *output; /* what its code printed, as the model would see it */
    size_t output_len;
    const char *answer; /* JSON; NULL: it submits none */
    int failed;         /* its last cell ended with an error */
} droste_candidate;

/* The selector "callback", or "callback:NAME" with any name: chooses one of the candidates that
 * have a reply. The function calls droste_choose or droste_choose_none once for each choice, at
 * once or later, in the loop's thread, also if the run has ended meanwhile. The candidates are
 * valid until then. A run records what is chosen, and is resumed with that. */
typedef struct droste_choice droste_choice;
typedef void droste_select_fn(
    void *arg, const droste_candidate *all, size_t count, droste_choice *choice);
DROSTE_API void droste_set_select(droste *d, droste_select_fn *fn, void *arg);
/* The selector as in the settings, such as "callback:NAME". */
DROSTE_API const char *droste_choice_opened(const droste_choice *choice);
/* A number that is not one of them ends the run with an error. */
DROSTE_API void droste_choose(droste_choice *choice, unsigned number);
/* Ends the run with this error. */
DROSTE_API void droste_choose_none(droste_choice *choice, const char *why);

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
/* The same with the value in the encoding of docs/values.md, which the guest takes instead; the
 * JSON identifies it for a resumed run. */
DROSTE_API int droste_tool_data_values(droste *d, const char *name, const char *json, size_t len,
    const void *values, size_t values_len, droste_error *err);
/* Adds Python source that runs in the sandbox before the first cell. Its documented functions
 * become tools there. `name` appears in tracebacks. */
DROSTE_API int droste_tool_source(
    droste *d, const char *name, const char *code, size_t len, droste_error *err);
/* Removes all additions for sessions and runs that begin afterwards. */
DROSTE_API void droste_tools_clear(droste *d);
/* Answers a call with a JSON value. This and droste_tool_fail free the call. */
DROSTE_API void droste_tool_answer(droste_tool_call *call, const char *json, size_t len);
/* The same with the value in the encoding of docs/values.md, which the guest takes instead; the
 * record has the JSON. */
DROSTE_API void droste_tool_answer_values(
    droste_tool_call *call, const char *json, size_t len, const char *values, size_t values_len);
/* The arguments that JSON does not keep as they are, in the same encoding; valid until the tool's
 * function returns. NULL without such arguments, or if the cell ran without DROSTE_VALUES. */
DROSTE_API const char *droste_tool_values(const droste_tool_call *call, size_t *len);
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

/* ---- results ---- */

typedef struct droste_result droste_result;

/* Of a cell: "ok", "submitted", "error", "timeout", "killed", "lost". Of a run: "answered",
 * "exhausted", "budget", "timeout", "cancelled", "error", "interrupted" (suspended). */
DROSTE_API const char *droste_result_status(const droste_result *r);
/* All of it as one JSON object, as `droste exec --json` and `droste run --json` print it; NULL
 * without memory. Of a cell, `killed` says what ended the sandbox: "timeout", "interrupt",
 * "protocol", a limit ("memory", "cpu time", "file size"), "signal 11 SIGSEGV", "exit 3"; null
 * if nothing did. `rolled_back` is droste_result_rolled_back, or null. `resources` has
 * `memory_peak` (bytes) and `cpu_seconds` since the sandbox's start, null where they are not known,
 * and `limits`, by setting: {"memory": {"value": 4294967296, "by": "cgroup"}, …}; `by` is what
 * enforces it: cgroup (the sandbox as a whole), rlimit (each process), mount or host. */
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
/* The submitted fields that JSON does not keep as they are, in the encoding of docs/values.md;
 * NULL without such fields, or without DROSTE_VALUES or `values` of a request: then they are those
 * of the answer. Checked for well-formedness only. */
DROSTE_API const char *droste_result_values(const droste_result *r, size_t *len);
DROSTE_API const char *droste_result_echo(const droste_result *r);
/* The rich results of a cell that was started with DROSTE_RESULTS (docs/rich-results.md), in the
 * order in which it showed them: bundles, each of which is one value in several media types. */
typedef struct droste_media {
    const char *type; /* "image/png" */
    const char *form; /* "text" (UTF-8), "json" (valid, in UTF-8), or "bytes" */
    const void *data; /* valid as long as the result; without a terminating NUL */
    size_t len;       /* bytes */
} droste_media;
DROSTE_API size_t droste_result_bundles(const droste_result *r);
/* The items of a bundle by index, from 0; false (0) after the last. */
DROSTE_API int droste_result_media(
    const droste_result *r, size_t bundle, size_t index, droste_media *media);
/* A file that a run has saved, as the setting "artifacts" says. Valid as long as the result. */
typedef struct droste_artifact {
    const char *name;   /* in the sandbox: UTF-8 without control characters */
    const char *path;   /* on this machine */
    const char *sha256; /* in hexadecimal */
    uint64_t size;
} droste_artifact;
/* By index, from 0; false (0) after the last. */
DROSTE_API int droste_result_artifact(const droste_result *r, size_t index, droste_artifact *out);
/* Why files that match were not saved; the code is DROSTE_ERROR_NONE if all were. Returns their
 * number as far as it is known. */
DROSTE_API size_t droste_result_artifacts_error(const droste_result *r, droste_error *err);
/* Rich results that an event or a callback tells of. */
typedef struct droste_bundles droste_bundles;
DROSTE_API size_t droste_bundles_count(const droste_bundles *bundles);
DROSTE_API const droste_bundles *droste_result_shown(const droste_result *r);
/* As droste_result_media. */
DROSTE_API int droste_bundles_media(
    const droste_bundles *bundles, size_t bundle, size_t index, droste_media *media);
DROSTE_API const char *droste_bundles_metadata(const droste_bundles *bundles, size_t bundle);
/* The display_id that the code gave a bundle; NULL: none. */
DROSTE_API const char *droste_bundles_display_id(const droste_bundles *bundles, size_t bundle);
/* True if the bundle updates the result of its display_id, of this cell or an earlier one. */
DROSTE_API int droste_bundles_is_update(const droste_bundles *bundles, size_t bundle);
/* True if it is the value of the last expression. */
DROSTE_API int droste_bundles_is_main(const droste_bundles *bundles, size_t bundle);
/* The bundle that is the value of the last expression; -1 if there is none. */
DROSTE_API long droste_result_main(const droste_result *r);
/* What the value said about the bundle, as a JSON object; NULL if nothing. */
DROSTE_API const char *droste_result_metadata(const droste_result *r, size_t bundle);
DROSTE_API const char *droste_result_traceback(const droste_result *r);
/* str() of the exception that ended a cell. */
DROSTE_API const char *droste_result_message(const droste_result *r);
/* The exit status, 0 to 255, of a script that had run a cell whose code called sys.exit() or
 * exit(); -1 for all other cells. The session continues. */
DROSTE_API int droste_result_exit_status(const droste_result *r);
/* True if the session can continue after this cell. */
DROSTE_API int droste_result_alive(const droste_result *r);
/* With the setting `checkpoint` = "auto", the number of the cell to whose end the session was
 * rolled back because this one was killed; 0: to before the first cell; -1: it was not rolled
 * back. */
DROSTE_API long long droste_result_rolled_back(const droste_result *r);
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

enum {
    DROSTE_ECHO = 1,    /* give the repr of a last expression */
    DROSTE_RESULTS = 2, /* collect rich results, with DROSTE_ECHO also of a last expression */
    DROSTE_PRINT = 4,   /* let display() print its values' text, as it does without rich results */
    DROSTE_VALUES = 8,  /* give droste_result_values of what is submitted */
    DROSTE_ONLY_VALUES = 16, /* with DROSTE_VALUES: the submission needs no JSON */
    /* cut an exception's message and traceback only beyond result-size, not at 20,000 and 60,000
     * characters */
    DROSTE_WHOLE_ERRORS = 32,
};

/* Runs a cell and waits for it. An error return means that it did not run; the result describes
 * what the code did. */
DROSTE_API int droste_session_exec(droste_session *s, const char *code, size_t len, int flags,
    droste_result **out, droste_error *err);

/* Makes the next cell a script, as in `python FILE ARGUMENTS`: `argv` (ends with NULL) becomes
 * sys.argv, and `file` (NULL: none) __file__ and its name in tracebacks; its directory comes first
 * in sys.path, except under rules. ERROR_ARGUMENT if they are not UTF-8. An environment of the
 * program's own is given the code alone. */
DROSTE_API int droste_session_script(
    droste_session *s, const char *file, const char *const *argv, droste_error *err);

/* Calls of models that code makes from now on are part of this span, which their requests name in
 * the field `traceparent` (W3C Trace Context). NULL: of none; so is what is no such field. */
DROSTE_API void droste_session_trace(droste_session *s, const char *traceparent);

/* Forks the session: *out is a second one with copies of all variables, cheaply, because memory is
 * shared until one of them writes to it. Either can be closed first. A fork has its own output,
 * deadlines and random seeds; its calls count against the same budget; files, processes and
 * sandbox are shared with the first session (docs/fork.md). ERROR_ARGUMENT while threads or asyncio
 * tasks run in the sandbox, since a copy would lack them; ERROR_UNSUPPORTED where the environment
 * cannot fork. */
DROSTE_API int droste_session_fork(droste_session *s, droste_session **out, droste_error *err);

/* Checkpoints: kept states of the session, to continue from. Each costs a fork, and memory only for
 * what changes afterwards. They belong to the session, form a tree, and end with it.
 * ERROR_ARGUMENT if there are 1024, or if they hold more memory than `checkpoint-memory`; otherwise
 * errors as for a fork. With the setting `checkpoint` = "auto", the session also keeps the state
 * before each cell until that ends; if the cell is killed, the session continues from there, and
 * droste_result_rolled_back tells. */
typedef struct droste_checkpoint {
    unsigned id;     /* from 1 */
    unsigned parent; /* the one that the session had made or gone back to before; 0: none */
    uint64_t cell;   /* the number, as in tracebacks, of the last cell before it; 0: none */
    uint64_t memory; /* bytes; pages that are shared count in proportion; 0: not known */
    int current;     /* 1: the session made it, or went back to it, last */
} droste_checkpoint;
DROSTE_API int droste_session_checkpoint(droste_session *s, unsigned *id, droste_error *err);
/* The session, even if it is lost, continues from the checkpoint, which stays. Variables are as
 * they were; files are not changed. */
DROSTE_API int droste_session_rollback(droste_session *s, unsigned id, droste_error *err);
/* As droste_session_fork, from the checkpoint. */
DROSTE_API int droste_session_at(
    droste_session *s, unsigned id, droste_session **out, droste_error *err);
/* Fills `out` with up to `most`, in order of their ids; returns how many there are. */
DROSTE_API size_t droste_session_checkpoints(
    const droste_session *s, droste_checkpoint *out, size_t most);
DROSTE_API int droste_session_forget(droste_session *s, unsigned id, droste_error *err);

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
/* Starts what droste_session_fork does. *out exists at once and accepts operations. If the end of
 * this operation is an error, *out is dead and only to be closed. Further forks may be started
 * before the operation ends, up to 64 in all: it ends after the last of them, and an error stands
 * for all. */
DROSTE_API int droste_session_fork_start(
    droste_session *s, droste_session **out, droste_error *err);
/* Start what the functions of these names do. *id is set at once, and valid if the operation
 * succeeds. */
DROSTE_API int droste_session_checkpoint_start(droste_session *s, unsigned *id, droste_error *err);
DROSTE_API int droste_session_rollback_start(droste_session *s, unsigned id, droste_error *err);
DROSTE_API int droste_session_at_start(
    droste_session *s, unsigned id, droste_session **out, droste_error *err);
/* Starts what droste_session_set does. The data is copied. */
DROSTE_API int droste_session_set_start(droste_session *s, const char *name, const char *kind,
    const void *data, size_t len, droste_error *err);
/* The same of data in pieces, which follow each other. */
typedef struct droste_piece {
    const void *data;
    size_t len;
} droste_piece;
DROSTE_API int droste_session_set_pieces_start(droste_session *s, const char *name,
    const char *kind, const droste_piece *pieces, size_t count, droste_error *err);
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
/* Stops all processes of the session's sandbox, also of its forks and commands, or lets them go on
 * (`on` = 0). They keep their memory. Operations and requests wait, and their limits of time do not
 * pass; the session's own does. ERROR_ARGUMENT while a process is starting there; ERROR_TIMEOUT if
 * they did not stop; ERROR_UNSUPPORTED where the environment cannot: local sandboxes can. */
DROSTE_API int droste_session_pause(droste_session *s, int on, droste_error *err);
/* What all processes of the session's sandbox use now, with those of its forks and commands. */
typedef struct droste_usage {
    double cpu_seconds;   /* of processors, so far */
    uint64_t memory;      /* bytes, with the files; memory that processes share counts for each */
    uint64_t files;       /* bytes of the files in its /tmp and private root directory */
    uint64_t files_limit; /* 0: it has none of its own */
} droste_usage;
/* ERROR_UNSUPPORTED where that is not known: of live local sandboxes it is, soon after their
 * start. */
DROSTE_API int droste_session_usage(const droste_session *s, droste_usage *out, droste_error *err);
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

/* Binds a variable. `kind` is "text", "bytes", "auto", "json", "jsonl", or "values": the encoding
 * of docs/values.md. */
DROSTE_API int droste_session_set(droste_session *s, const char *name, const char *kind,
    const void *data, size_t len, droste_error *err);
/* Binds a file, a directory ({path: text}), or "-", standard input. `kind` may be NULL: as in the
 * setting "context-type". */
DROSTE_API int droste_session_load(
    droste_session *s, const char *name, const char *kind, const char *path, droste_error *err);
/* Starts what droste_session_load does: the file is read at once, and bound without waiting. */
DROSTE_API int droste_session_load_start(
    droste_session *s, const char *name, const char *kind, const char *path, droste_error *err);
/* A remark on the last load for the user, in one line (files that were left out); NULL: none.
 * Valid until the next load. */
DROSTE_API const char *droste_session_notice(const droste_session *s);

/* Receives progress messages while a session starts, one line each, such as an image that is
 * being fetched. An empty one says that this is over. NULL removes the function. */
typedef void droste_notice_fn(void *arg, const char *text);
DROSTE_API void droste_on_notice(droste *d, droste_notice_fn *fn, void *arg);

/* Receives live output of cells. `stream` is 1 or 2. NULL removes it. */
typedef void droste_output_fn(void *arg, int stream, const char *data, size_t len);
DROSTE_API void droste_session_on_output(droste_session *s, droste_output_fn *fn, void *arg);
/* Receives rich results of cells as they are shown: `result` is the bundle that is new, or that
 * replaces an earlier one. No results: clear_output() removed them. NULL removes the function. */
typedef void droste_display_fn(void *arg, const droste_bundles *results, size_t result);
DROSTE_API void droste_session_on_display(droste_session *s, droste_display_fn *fn, void *arg);

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
    const char *kind; /* "started", "context", "turn", "delta", "reply", "cell", "output",
                         "display", "result", "calls", "notice", "approval", "retry"; with
                         `all_events` see there */
    const char *text; /* the run's id, a piece of the reply, the code, the output, why a cell failed
                         (of "result": its traceback), why an attempt failed (of "retry")… */
    size_t len;
    unsigned turn, turns;
    int stream;           /* of "output" */
    const char *status;   /* of "result": the cell's; of "retry": the error's name; of "approval":
                             NULL, "approved", "denied", or "unannounced": the webhook was not told,
                             and the text says why */
    double seconds;       /* of "result": the cell's; of "retry": until the next attempt */
    unsigned pending;     /* calls under way, but for the root model's own */
    int64_t calls;        /* ended so far, of guests and of the loop */
    int64_t input_tokens; /* of them */
    int64_t output_tokens;
    /* With `all_events`: */
    unsigned run, depth; /* whose it is: 0 the root's, else that of the child with this number */
    uint64_t call;     /* of "call" and "called": which of that run; of "child" and "child_end": the
                            child's number */
    const char *model; /* of these: the one asked; NULL: the one of its depth */
    /* Of "result": the cell's rich results; of "display": those so far, none after clear_output().
     * Valid during the call. */
    const droste_bundles *results;
    size_t result; /* of "display": the bundle that is new, or replaced */
    /* Of all events: */
    double cost;                /* dollars for the ended calls; negative: a price is not known */
    unsigned attempt, attempts; /* of "retry": the next attempt of the call, and the last one */
    /* Of "approval": a call that waits, or no longer. Valid during the call. */
    const struct droste_approval *approval;
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
/* Keeps the record of a run also elsewhere, so that it can continue on another machine. */
typedef struct droste_log {
    /* Takes a unit of the run's record; the memory is valid during the call. Keep it behind the
     * earlier ones, and then, in a later call, say so by droste_log_kept: the next unit comes only
     * then. What costs something (calls of models and tools) waits until all that was recorded
     * before it is kept, and so does the report of the run's end. */
    void (*append)(void *arg, droste_running *run, const void *data, size_t len);
    void *arg;
} droste_log;

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
    /* Not 0: child runs have events, too, "retry" comes for the calls of code (`call`), and there
     * are these: "request" (the messages that the
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
    /* Not 0: tools get typed arguments (droste_tool_values), and droste_result_values has the types
     * of the answer. */
    int values;
    /* Of a new run: its id (letters, digits, '.', '_', '-'), which no other has; NULL: any */
    const char *id;
    const char *account; /* for the record: the client of a server that asks; NULL: none */
    /* NULL: none. With `resume`, the run must be one that droste_record_import has made, and its
     * units follow those of the import. It needs a record. */
    const droste_log *log;
    struct droste_shared_budget *budget; /* of the batch whose task it is, which sets this; NULL */
    /* Further contexts themselves, behind `data` and before those of paths; they are copied. */
    const droste_value *parts;
    size_t part_count;
} droste_request;

/* Starts a run with the current settings; any number may run at once. The request is copied. An
 * error return means that it did not begin, and `done` is not called. `out` may be NULL. */
DROSTE_API int droste_start(
    droste *d, const droste_request *request, droste_running **out, droste_error *err);
/* The same, but waits for the end, as droste_run, droste_chat_ask or, without a question,
 * droste_resume. `done` is not called. */
DROSTE_API int droste_ask(
    droste *d, const droste_request *request, droste_result **out, droste_error *err);
/* Ends a run as "cancelled"; `done` follows. */
DROSTE_API void droste_cancel(droste_running *run);
/* Ends a run as "interrupted": its record is as if this process had died, and resuming it repeats
 * no paid call. */
DROSTE_API void droste_suspend(droste_running *run);
/* The unit that `append` was given is kept. */
DROSTE_API void droste_log_kept(droste_running *run);
/* Another process has the run, or it is not known whether this one still has: it ends as by
 * droste_suspend, and `why` (a copy) is its error. Nothing more is appended or paid for. */
DROSTE_API void droste_log_lost(droste_running *run, const droste_error *why);
/* Makes the run of the units of its log, in their order, in the record of the settings, as an
 * interrupted run; one that is there already is replaced. Without units (`len` 0) it is only
 * removed: another process goes on with it. ERROR_STORE: they are of a version of Droste with
 * another form of the record, or it cannot be written; ERROR_PROTOCOL: they are damaged. */
DROSTE_API int droste_record_import(
    droste *d, const char *run, const void *data, size_t len, droste_error *err);
/* Whether droste_record_import can read units of this version, with the same errors. Changes
 * nothing: for a program that must decide whether to take a run. */
DROSTE_API int droste_record_import_check(
    const char *run, const void *data, size_t len, droste_error *err);
/* Waits for an event for at most `milliseconds` (negative: without a limit while a run is active)
 * and handles it. Returns the number of active runs, or a negative number with *err filled in. */
DROSTE_API int droste_turn(droste *d, int milliseconds, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
