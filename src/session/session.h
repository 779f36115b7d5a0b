/* session/session.h: a REPL in a sandbox: cells go in, results come out, variables persist.
 *
 * A session runs one operation (a cell or a variable) at a time. The guest may call the host at any
 * time, and replies may come in any order. The host decides about deadlines, limits and the type of
 * answers; it never trusts the guest's statements about them.
 *
 * No callback may close the session that it is called for.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/json/schema.h"
#include "env/common/environment.h"
#include "session/bundles.h"
#include "session/submission.h"
#include "wire/frame.h"

enum cell_status {
    CELL_OK,
    CELL_SUBMITTED, /* SUBMIT, FINAL or answer["ready"] */
    CELL_ERROR,     /* the code raised */
    CELL_TIMEOUT,   /* the deadline passed; see `alive` */
    CELL_KILLED,    /* the sandbox was ended; see `killed` */
    CELL_LOST,      /* the sandbox is gone; the cell's outcome is unknown */
};

/* "ok", "submitted", … */
const char *cell_status_name(enum cell_status status);

struct cell_error {
    char *type; /* NULL: none */
    char *message;
    char *traceback;
    bool exits;      /* a SystemExit, from sys.exit() or exit() … */
    int exit_status; /* … with this exit status, 0 to 255 */
};

struct cell_result {
    enum cell_status status;
    bool alive;                          /* the session can continue with its variables */
    struct buf out, err;                 /* UTF-8, with a line in place of omitted bytes */
    uint64_t out_left_out, err_left_out; /* bytes */
    struct submission *submit;           /* submission.h; NULL: nothing */
    char *echo;                          /* repr of the last expression, or NULL */
    struct bundles results;              /* rich results; empty unless the cell asked for them */
    struct cell_error error;
    char killed[64];         /* "timeout", "memory", "signal 11", "exit 3", "protocol"…, or "" */
    struct error reason;     /* for KILLED and LOST: the reason, in one line */
    bool rolled_back;        /* the session goes on from the state before this cell: that … */
    uint64_t rolled_back_to; /* … which this cell left; 0: before the first cell */
    struct json_object *variables; /* array of {name, type, length, preview}; may be NULL */
    struct json_object *variable;  /* of session_set: the new variable */
    double seconds;
    unsigned calls;             /* calls that the guest made in this cell */
    struct sandbox_usage usage; /* usage of the sandbox since its start */
};

void cell_result_free(struct cell_result *result);
#define CELL_ROLLED_BACK "rolled back to "
/* "rolled back to cell 7", for a result that was. */
void cell_rolled_back_text(const struct cell_result *result, char *out, size_t size);

/* A call of the guest. The head and parts are well-formed but otherwise unchecked, and valid
 * only during the callback. */
struct session_call {
    uint64_t id;
    struct json_object *head;
    struct frame_parts parts;
};

struct session;

struct session_events {
    void (*call)(void *arg, struct session *s, const struct session_call *call);
    /* A call needs no answer any more: the session died, or the code gave up. */
    void (*call_dropped)(void *arg, struct session *s, uint64_t id);
    /* Output as it arrives, for live display; may be NULL. */
    void (*output)(void *arg, struct session *s, int stream, const char *data, size_t len);
    /* A rich result of the current cell was added or replaced: results->latest. May be NULL. */
    void (*display)(void *arg, struct session *s, const struct bundles *results);
    /* A request to the network begins or has ended; false: it may not go on. May be NULL. */
    bool (*request)(void *arg, struct session *s, const struct egress_request *request);
    /* One needs an approval, see egress_events. May be NULL. */
    bool (*approve)(void *arg, struct session *s, struct droste_network_request *request);
};

/* Limits of a session: of its sandbox, and those that the host enforces. */
struct session_limits {
    struct jail_limits sandbox;
    double timeout, execute_timeout;
    size_t output;
};

/* A value that the guest's namespace has from the start. */
struct session_datum {
    const char *name, *data;
    size_t len;
    bool typed; /* a container (wire/values.h) instead of JSON */
};

/* Python source that defines tools. Rules identify it by the prefix "<tools" of its name. */
struct session_source {
    const char *name, *code;
    size_t len;
};

struct session_options {
    struct sandbox_spec spec;
    double timeout;                   /* lifetime of the session in seconds; 0: no limit */
    double execute_timeout;           /* seconds until a cell is interrupted; 0: no limit */
    double execute_timeout_cap;       /* upper bound of execute_timeout; 0: none */
    double grace;                     /* seconds from the interrupt to the kill */
    double stall;                     /* seconds without reading any pending reply; 0: no limit */
    size_t results_limit;             /* bytes of a cell's rich results; at most BUNDLES_BYTES */
    size_t result_size;               /* bytes of one rich result */
    size_t output_limit;              /* bytes to keep of each output stream of a cell */
    bool checkpoint_each;             /* keep the state before each cell, for when it is killed */
    uint64_t checkpoint_memory;       /* bytes of all checkpoints; 0: as much as the sandbox */
    struct schema *answer;            /* type of submissions (answer.h); NULL: any */
    const struct list *variables;     /* NAME=VALUE for its processes; NULL: none */
    bool no_helpers;                  /* omit the helpers of guest/python/helpers */
    bool literal_grep;                /* grep() takes plain text by default, ignoring case */
    const struct list *restored;      /* names to restore after each cell; NULL: none */
    bool rules;                       /* use guest/python/rules.py; not a security boundary */
    const char *const *allow_imports; /* module names and absolute directories */
    size_t allow_import_count;
    bool no_standard_imports; /* with rules: only those of allow_imports */
    const char *tools;        /* JSON array of host tools for HELLO; NULL: none */
    /* Code to run and values to bind before the first cell (prepare.h). */
    const char *setup; /* NULL: none */
    bool setup_each;   /* also run before every later cell */
    const struct session_datum *data;
    size_t datum_count;
    const struct session_source *sources;
    size_t source_count;
    const char *packages;       /* directory of packages for sys.path; NULL: none */
    const struct list *imports; /* modules to import first, without a template; NULL: none */
    struct template *template;  /* to continue from (template.h); NULL: none */
};

/* Sets defaults; spec.isolation becomes ISOLATION_AUTO. */
void session_options_init(struct session_options *options);
/* ERROR_ARGUMENT if the cap forbids this cell timeout (0: none). */
int session_check_timeout(double seconds, double cap, struct error *err);

/* Replaces the receiver of events. */
void session_hand_over(struct session *s, void *arg);

/* Starts a sandbox; the first operation may follow immediately. */
int session_open(struct environment *env, const struct session_options *options,
    const struct session_events *events, void *arg, struct session **out, struct error *err);
void session_close(struct session *s);

/* Called once when the work of `session_finish` is done (ERROR_NONE) or has failed. */
typedef void session_finished_fn(void *arg, const struct error *why);
/* Ends the session gracefully: drops the current operation and writes a provider's volume back.
 * Returns true if that takes time: `done` is called later, exactly once, unless the session is
 * closed first; no other operation is allowed meanwhile. Returns false if there is nothing to
 * wait for. */
bool session_finish(struct session *s, session_finished_fn *done, void *arg);

/* The receiver owns the result (cell_result_free). */
typedef void session_done_fn(void *arg, struct cell_result *result);

struct session_cell {
    const char *code; /* UTF-8 */
    size_t len;
    const char *name;   /* as tracebacks show it; NULL: "<cell N>" */
    const char *script; /* JSON: {"file": its name (optional), "argv": […]}; NULL: no script */
    bool echo;          /* give the repr of a last expression */
    bool results;       /* collect rich results; otherwise display() prints a text */
    bool prints;        /* with `results`: display() prints the text, too */
    bool whole_errors;  /* cut an exception's texts only beyond the size of a result */
    bool tools;         /* its functions become tools; it submits what the guest has of them */
    unsigned values;    /* typed values (wire/values.h) up to this version; 0: only JSON */
    bool only_values;   /* a submission needs no JSON */
    bool each;          /* once it has run, it runs again before each cell without a name */
    bool item;          /* in a fork for a call: no code, but one item of that call */
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
    VALUE_TYPED, /* a container (wire/values.h) */
    VALUE_FILES, /* {path: text}; guest/python/core/variables.py, decode_files, has the format */
};

/* Changes tools from the next operation on. A JSON object with `tools`, as in session_options,
 * and `gone`, an array of names to remove; both are optional. */
int session_offer(struct session *s, const char *json, size_t len, struct error *err);
/* Sets the type of submissions from the next operation on; NULL: any. */
int session_expect(struct session *s, struct schema *answer, struct error *err);

/* Binds one value to the names: `data`, or, if fd is not -1, the first `len` bytes of a sealed
 * memfd, which this takes. */
int session_set(struct session *s, const char *const *names, size_t name_count,
    enum value_kind kind, const void *data, size_t len, int fd, session_done_fn *done, void *arg,
    struct error *err);

/* Forks the session between two operations: *out has copies of all variables, and its own output,
 * deadlines, random seeds and calls, which go to `events` with `events_arg`. It belongs to the same
 * sandbox: files, processes, user and network are shared (docs/fork.md). Operations on it may
 * follow at once. `done` comes later with CELL_OK, or with CELL_ERROR if the guest refused, because
 * threads or asyncio tasks would be lost; then *out is dead. ERROR_UNSUPPORTED if the environment
 * cannot fork; otherwise as for session_exec.
 *
 * Further forks may be asked for before `done` comes, with the same `done` and `arg`. The guest
 * makes them one after the other, and `done` comes once, after the last one, with the first
 * refusal. */
int session_fork(struct session *s, const struct session_events *events, void *events_arg,
    session_done_fn *done, void *arg, struct session **out, struct error *err);

/* Forks the session while its guest waits for the reply to `call`, to work on one item of it. The
 * fork runs one cell, with `item` set, and is closed by session_retire, or with `s`. Its answers
 * have no type. If the guest does not fork, the fork is dead, which its cell reports. */
int session_fork_for_call(struct session *s, uint64_t call, size_t item,
    const struct session_events *events, void *events_arg, struct session **out, struct error *err);
/* Ends such a fork: its calls are dropped and its sandbox is killed at once, and it is closed soon.
 * Its cell gets no result, and `fork` must not be used any more. May be called within callbacks. */
void session_retire(struct session *fork);

/* Checkpoints: states to continue from. Each costs a fork, and memory for what changes afterwards.
 * They belong to the session and end with it. `done` comes as for session_fork. */
enum { CHECKPOINTS_MAX = 1024 };
struct checkpoint_info {
    unsigned id;
    unsigned parent; /* the one that the session had made or gone back to before; 0: none */
    uint64_t cell;   /* the last cell before it; 0: none */
    uint64_t memory; /* bytes; pages that are shared count in proportion; 0: not known */
    bool current;    /* the session made it, or went back to it, last */
};
int session_checkpoint(
    struct session *s, session_done_fn *done, void *arg, unsigned *id, struct error *err);
/* The session, which may have died, continues from the checkpoint, which stays. Calls of code that
 * still ran are dropped. */
int session_rollback(
    struct session *s, unsigned id, session_done_fn *done, void *arg, struct error *err);
/* As session_fork, from the checkpoint. */
int session_at(struct session *s, unsigned id, const struct session_events *events,
    void *events_arg, session_done_fn *done, void *arg, struct session **out, struct error *err);
/* Fills `out` with up to `most`, in order; returns how many there are. */
size_t session_checkpoints(const struct session *s, struct checkpoint_info *out, size_t most);
/* Drops one; those made after it become children of its parent. */
int session_forget(struct session *s, unsigned id, struct error *err);

/* Interrupts the current operation like Ctrl-C. Keeps the state if the guest reacts within the
 * grace period; otherwise ends the session. Reports a `session_finish` as cancelled at once,
 * while its work continues. Does nothing when idle. */
void session_interrupt(struct session *s);

/* Stops all processes of the session's sandbox, of its forks and of commands, or lets them go on.
 * Meanwhile limits of time do not pass, but for the session's own. ERROR_UNSUPPORTED where the
 * environment cannot. */
int session_pause(struct session *s, bool on, struct error *err);

/* One part of a reply or of a batch's reply. */
struct session_part {
    const char *data;
    size_t len;
};

/* Answers a call. `head` is a JSON object (borrowed) or NULL: {"error": {…}} for the whole call,
 * or {"errors": {"3": {…}}} for items. Ignores unknown ids (dropped calls). ERROR_BUDGET if the
 * guest leaves too much unread; the call stays open, and a short answer such as an error is
 * always accepted. */
int session_reply(struct session *s, uint64_t id, struct json_object *head,
    const struct session_part *parts, size_t count, struct error *err);

bool session_is_alive(const struct session *s);
/* True while the sandbox is starting, in environments that start asynchronously. */
bool session_is_late(const struct session *s);
/* Set when the guest has sent READY; valid as long as the session. */
const bool *session_is_ready(const struct session *s);
/* Builds the result of an operation on a dead session: the same as if the sandbox had died
 * during the operation. */
void session_death(const struct session *s, struct cell_result *out);
enum isolation session_isolation(const struct session *s);
/* What its sandbox uses now. False: that is not known. */
bool session_figures(const struct session *s, struct sandbox_figures *out);
/* The path of the volume in the guest; NULL: none. */
const char *session_volume(const struct session *s);
/* The path of the workspace in the guest; NULL: none. */
const char *session_workspace(const struct session *s);
/* The provider's name of the sandbox; NULL: none, or not yet known. */
const char *session_sandbox_id(const struct session *s);
/* For guests without guest/python, a description of their functions for the model, or ""; NULL
 * if the guest is guest/python. */
const char *session_about(const struct session *s);
/* Nanoseconds that the sandbox's processes ran or were ready to run; 0: unknown. */
uint64_t session_busy_ns(const struct session *s);
/* The operation waits for a decision of people (`on`), or no longer; calls may nest. Meanwhile its
 * deadline passes only by the processor time that the guest uses. The sessions from which it was
 * forked for a call wait for it. */
void session_hold(struct session *s, bool on);
/* Accounts processor time that the host spent on answers to the guest
 * (env/common/fair_reading.h). */
void session_charge(struct session *s, uint64_t ns);
const struct session_limits *session_limits_of(const struct session *s);
/* Describes how the sandbox was created, for display. */
void session_describe(const struct session *s, struct buf *out);
