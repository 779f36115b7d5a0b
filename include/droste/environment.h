/* droste/environment.h: environments: which there are, what works here, and those of a program. */
#ifndef DROSTE_ENVIRONMENT_H
#define DROSTE_ENVIRONMENT_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- which environments there are ---- */

/* The names of the environments, in the order of the documentation; NULL after the last. *about
 * (may be NULL) becomes a line about their sandboxes. */
DROSTE_API const char *droste_environment_at(size_t index, const char **about);
/* The variables that an environment reads besides those of options (DOCKER_HOST, DAYTONA_API_KEY…),
 * separated by spaces, by index; NULL after the last. They are read when a session opens. */
DROSTE_API const char *droste_environment_variables_at(size_t index);

typedef struct droste_feature {
    const char *name;     /* "network policy" */
    const char *settings; /* the settings that request it, separated by spaces; "": none */
    int supported;
    const char *text; /* how, or why not; NULL: no remark */
} droste_feature;
typedef void droste_feature_fn(void *arg, const droste_feature *feature);
/* Lists what an environment supports and what not. NULL: that of the setting "env". A bridge
 * (bridge:PATH) is opened for that. */
DROSTE_API int droste_environment_features(
    droste *d, const char *name, droste_feature_fn *fn, void *arg, droste_error *err);
/* Removes the sandboxes that killed hosts of this machine have left in the environment of the
 * setting "env" (if unset: docker). *removed is their number, also after an error; -1: none was
 * tried. ERROR_UNSUPPORTED if sandboxes of the environment always end with their hosts. */
DROSTE_API int droste_environment_collect(droste *d, int *removed, droste_error *err);

/* ---- what works here ---- */

/* The path of the interpreter that the setting "python" names; NULL with *err. Valid until the
 * next call. */
DROSTE_API const char *droste_python(droste *d, droste_error *err);

/* Checks the settings of a session as far as possible without opening one: the repository's URL
 * and commit, and the environment, which is opened. */
DROSTE_API int droste_check(droste *d, droste_error *err);

/* A finding about this machine, the settings, or the files that Droste keeps. */
typedef struct droste_finding {
    const char *name;  /* "kernel", "full", "model"… */
    const char *state; /* "ok"; "missing": it does not work; "note": a remark */
    const char *text;
    size_t len;
    const char *cure; /* what to do; NULL: nothing */
} droste_finding;
typedef void droste_finding_fn(void *arg, const droste_finding *finding);
/* Tries sandboxes at all isolation levels and checks the settings. Calls no model and uses no
 * network. True if sandboxes work at isolation "auto". */
DROSTE_API int droste_diagnose(droste *d, droste_finding_fn *fn, void *arg);

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

#ifdef __cplusplus
}
#endif

#endif
