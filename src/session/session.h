/* session/session.h: a REPL over a sandbox: cells go in, results come out, variables stay.
 *
 * One operation at a time (a cell or a variable); calls of the guest may come at any time and be
 * answered in any order. Deadlines, limits and the meaning of an answer are decided here, on the
 * host's side; what the guest says of them is only ever taken as its own opinion of itself.
 *
 * None of the callbacks may close the session they are about.
 */
#ifndef DROSTE_SESSION_SESSION_H
#define DROSTE_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/json/schema.h"
#include "env/common/environment.h"
#include "session/submission.h"
#include "wire/frame.h"

enum cell_status {
    CELL_OK,
    CELL_SUBMITTED, /* SUBMIT, FINAL or answer["ready"] */
    CELL_ERROR,     /* the code raised */
    CELL_TIMEOUT,   /* the deadline passed; `alive` says whether the state was kept */
    CELL_KILLED,    /* the sandbox was ended; `killed` says by what */
    CELL_LOST,      /* the sandbox is gone and nothing is known of the cell */
};

/* "ok", "submitted", … */
const char *cell_status_name(enum cell_status status);

struct cell_error {
    char *type; /* NULL: none */
    char *message;
    char *traceback;
    bool exits;      /* it is a SystemExit, from sys.exit() or exit() … */
    int exit_status; /* … with which a process would have ended with this status, 0 to 255 */
};

struct cell_result {
    enum cell_status status;
    bool alive;          /* the session can go on, with its variables */
    struct buf out, err; /* UTF-8, with a line in the middle where bytes were left out */
    uint64_t out_left_out, err_left_out; /* bytes */
    struct submission *submit;           /* submission.h; NULL: nothing */
    char *echo;                          /* repr of the last expression, or NULL */
    struct cell_error error;
    char killed[64];     /* "timeout", "memory", "signal 11", "exit 3", "protocol"…, or "" */
    struct error reason; /* for KILLED and LOST: what is known, in a line */
    struct json_object *variables; /* array of {name, type, length, preview}; may be NULL */
    struct json_object *variable;  /* of session_set: what it became */
    double seconds;
    unsigned calls;             /* that the guest made meanwhile */
    struct sandbox_usage usage; /* of the sandbox since its start */
};

void cell_result_free(struct cell_result *result);

/* A call of the guest. The head and the parts are checked to be well-formed, not to make sense;
 * they are valid during the callback. */
struct session_call {
    uint64_t id;
    struct json_object *head;
    struct frame_parts parts;
};

struct session;

struct session_events {
    void (*call)(void *arg, struct session *s, const struct session_call *call);
    /* Nobody waits for the answer to this call any more: the session died, or its code gave up. */
    void (*call_dropped)(void *arg, struct session *s, uint64_t id);
    /* Output as it comes, for a live display; may be NULL. */
    void (*output)(void *arg, struct session *s, int stream, const char *data, size_t len);
};

/* The limits of a session: of its sandbox, and those that the host keeps itself. */
struct session_limits {
    struct jail_limits sandbox;
    double timeout, execute_timeout;
    size_t output;
};

/* A value that the guest's namespace has from the start: JSON. */
struct session_datum {
    const char *name, *json;
    size_t len;
};

/* Python that defines tools. Rules know it by how its name begins: "<tools". */
struct session_source {
    const char *name, *code;
    size_t len;
};

struct session_options {
    struct sandbox_spec spec;
    double timeout;             /* seconds that the session may live; 0: no limit */
    double execute_timeout;     /* seconds of a cell, after which it is interrupted; 0: no limit */
    double execute_timeout_cap; /* what no cell's execute_timeout may exceed; 0: no cap */
    double grace;               /* seconds from the interrupt to the kill */
    double
        stall; /* seconds for which a guest may leave all answers unread, where many wait; 0: for ever */
    size_t output_limit;          /* bytes of each stream of a cell that are kept */
    struct schema *answer;        /* what is submitted must have this type (answer.h); NULL: any */
    const struct list *variables; /* NAME=VALUE, of the environment of its processes; NULL: none */
    bool no_helpers;              /* without guest/python's texts.py and files.py */
    bool literal_grep;           /* grep takes its pattern as plain text, in any case, by default */
    const struct list *restored; /* names that are the host's again after each cell; NULL: none */
    bool rules; /* guest/python/rules.py over the user's Python; a convenience, not the wall */
    const char *const *allow_imports; /* module names, and absolute directories of modules */
    size_t allow_import_count;
    bool no_standard_imports; /* with rules: those of allow_imports alone */
    const char *tools; /* of the host, as HELLO tells them: a JSON array of {name, description,
                          parameters}; NULL: none */
    /* Code to run and values to bind before the first cell, by whoever opens (prepare.h). */
    const char *setup; /* NULL: none */
    bool setup_each;   /* before every later cell, too */
    const struct session_datum *data;
    size_t datum_count;
    const struct session_source *sources;
    size_t source_count;
};

/* The options' defaults; spec.isolation is ISOLATION_AUTO. */
void session_options_init(struct session_options *options);
/* ERROR_ARGUMENT where a cell may not have so much time (0: any) under this cap. */
int session_check_timeout(double seconds, double cap, struct error *err);

/* From now on the events are told to another one. */
void session_hand_over(struct session *s, void *arg);

/* Starts a sandbox; the first operation may be given at once. */
int session_open(struct environment *env, const struct session_options *options,
    const struct session_events *events, void *arg, struct session **out, struct error *err);
void session_close(struct session *s);

/* Told once that what `session_finish` was called for is done (ERROR_NONE), or why it is not. */
typedef void session_finished_fn(void *arg, const struct error *why);
/* Ends the session in good order: what is under way is dropped, and what the guest wrote to a volume
 * of the provider's is made durable. True: `done` is told later, exactly once, unless the session is
 * closed first, and the session can only be closed from now on. False: there is nothing to wait for,
 * and nothing was done. */
bool session_finish(struct session *s, session_finished_fn *done, void *arg);

/* The receiver owns the result (cell_result_free). */
typedef void session_done_fn(void *arg, struct cell_result *result);

struct session_cell {
    const char *code; /* UTF-8 */
    size_t len;
    const char *name;       /* as tracebacks show it; NULL: "<cell N>" */
    bool echo;              /* give the repr of a last expression */
    bool tools;             /* its functions become tools; it submits what the guest has of them */
    bool each;              /* once it has run, it runs again before each cell without a name */
    double execute_timeout; /* seconds; negative: the session's */
};

/* Runs a cell; `done` comes later, exactly once, unless the session is closed first. ERROR_LOST if
 * the session has died, ERROR_ARGUMENT if an operation is under way or the code is not UTF-8. */
int session_exec(struct session *s, const struct session_cell *cell, session_done_fn *done,
    void *arg, struct error *err);

/* How the guest makes a value of the bytes. */
enum value_kind {
    VALUE_TEXT, /* str, from UTF-8 */
    VALUE_BYTES,
    VALUE_AUTO, /* str if it is UTF-8, else bytes */
    VALUE_JSON,
    VALUE_JSONL, /* a list, a value a line */
    VALUE_FILES, /* {path: text}; guest/python/core/variables.py, decode_files, has the format */
};

/* What the guest has from the next operation on: a JSON object with `tools`, as in session_options, and
 * `gone`, an array of names of tools that it has no longer; both may be left out. */
int session_offer(struct session *s, const char *json, size_t len, struct error *err);
/* From the next operation on, what is submitted must have this type; NULL: any. */
int session_expect(struct session *s, struct schema *answer, struct error *err);

/* Binds one value to the names. The bytes are `data`, or, if fd is not -1, the first `len` of a
 * sealed memfd, which is taken. */
int session_set(struct session *s, const char *const *names, size_t name_count,
    enum value_kind kind, const void *data, size_t len, int fd, session_done_fn *done, void *arg,
    struct error *err);

/* Interrupts the operation under way, as Ctrl-C would; the state is kept if the guest obeys within
 * the grace, else the session ends. A `session_finish` is told to be cancelled at once, while its
 * work goes on. Nothing happens while idle. */
void session_interrupt(struct session *s);

/* One part of a reply, or of a batch's reply. */
struct session_part {
    const char *data;
    size_t len;
};

/* Answers a call. `head` is a JSON object (borrowed) or NULL: {"error": {…}} for the whole call, or
 * {"errors": {"3": {…}}} for items. Unknown ids (a call that was dropped) are passed over. ERROR_BUDGET: the guest leaves
 * too much unread, and the call is still open; a short answer, as an error is, goes in any case. */
int session_reply(struct session *s, uint64_t id, struct json_object *head,
    const struct session_part *parts, size_t count, struct error *err);

bool session_is_alive(const struct session *s);
/* True while it is not known whether its sandbox could be started, in an environment where that takes its time. */
bool session_is_late(const struct session *s);
/* Set once the guest has said that it is there; lasts as long as the session. */
const bool *session_is_ready(const struct session *s);
/* What an operation gets that comes upon a session which is not alive: the result that it would have
 * if the sandbox had died under it. */
void session_death(const struct session *s, struct cell_result *out);
enum isolation session_isolation(const struct session *s);
/* Where the guest sees its volume; NULL: it has none. */
const char *session_volume(const struct session *s);
/* And its workspace. */
const char *session_workspace(const struct session *s);
/* What the provider calls its sandbox; NULL: nothing, or not yet. */
const char *session_sandbox_id(const struct session *s);
/* Where its code has nothing of guest/python: what else it has, for the model, "" for nothing. NULL: it has. */
const char *session_about(const struct session *s);
/* Nanoseconds for which the sandbox's processes were at work, or ready to be; 0: not known. */
uint64_t session_busy_ns(const struct session *s);
/* The host has spent this much processor time on answers to the guest (env/common/fair_reading.h). */
void session_charge(struct session *s, uint64_t ns);
const struct session_limits *session_limits_of(const struct session *s);
/* What was done to make its sandbox, for people. */
void session_describe(const struct session *s, struct buf *out);

#endif
