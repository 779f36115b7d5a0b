/* session/internal.h: the state of a session, and the functions that its files share. Each file
 * uses only those above it here.
 */
#pragma once

#include <sys/queue.h>

#include "session/capture.h"
#include "session/session.h"

enum { SESSION_BLOB_MAX = 256 << 20 }; /* of one message from the guest */

/* What a fork inherits. */
struct session_settings {
    struct session_limits limits;
    double execute_timeout_cap, grace;
    double stall_limit;         /* seconds */
    size_t results_limit;       /* bytes of a cell's rich results */
    size_t result_size;         /* of one of them */
    struct schema *answer;      /* type of submissions; NULL: any */
    bool keeps;                 /* a checkpoint before each cell */
    uint64_t checkpoint_memory; /* bytes of all checkpoints; 0: as much as the sandbox */
};

struct session {
    struct environment *env;
    const struct environment_ops *ops;
    struct sandbox *sandbox;
    struct session_events events;
    void *arg;
    struct session_settings settings;

    bool ready, dead;
    bool late;          /* its sandbox starts some time after the session opens */
    struct error death; /* the reason, once dead */
    char killed[64];    /* the host's reason to end it, or "" */
    struct sandbox_exit how;
    struct frame_decoder decoder;

    /* the current operation */
    uint64_t operation; /* its id, 0: none */
    bool is_cell;
    bool is_numbered; /* a cell without a name */
    bool settling;    /* ended; `settled` is reported when the volume is here */
    struct cell_result settled;
    unsigned forks_asked;            /* by this operation, and not answered yet */
    bool fork_failed;                /* one of them was refused: */
    struct cell_result fork_failure; /* the first refusal */
    session_finished_fn *finished;   /* called at the end of session_finish; or NULL */
    void *finished_arg;
    uint64_t last_id;
    uint64_t started_ns;
    double limit; /* seconds of this operation, 0: none */
    unsigned interrupts_sent;
    bool deadline_passed;
    bool is_parked;   /* a checkpoint that is asked to fork */
    bool collects;    /* the cell's rich results are wanted */
    bool takes_whole; /* an exception may come whole, as parts */
    struct bundles results;
    bool describes_tools; /* what the cell submits is the guest's list of tools, no answer */
    unsigned calls;
    session_done_fn *done;
    void *done_arg;
    struct capture out, err;

    struct json_object *variables;
    uint64_t *open_calls;
    size_t open_count, open_cap;
    struct timer *deadline, *lifetime, *partial;
    bool partial_running;
    uint64_t partial_bytes;  /* received since the timer started */
    bool held;               /* flow.c */
    struct service *service; /* service.c; NULL until it is used */
    char *directory;         /* in which cells start; NULL: the sandbox's default */
    char *variables_head;    /* of a process beside it: "env":{…}; NULL: none */
    struct timer *stall;
    /* the length of all pauses when these timers were started */
    uint64_t deadline_paused_ns, partial_paused_ns, stall_paused_ns;
    /* session_hold: how many hold it, since when, the guest's processor time then and at the last
     * look, the time of earlier holds, and what the deadline has been given of all */
    unsigned holds;
    uint64_t hold_since_ns, hold_busy_ns, hold_seen_ns, hold_seen_busy_ns, held_ns,
        deadline_held_ns;
    uint64_t last_cell;    /* the last cell that ended, as tracebacks number them; 0: none */
    uint64_t life_ends_ns; /* 0: without a limit */
    bool life_over;        /* it was ended for that */
    struct checkpoints *checkpoints; /* checkpoints.c; NULL until there was one */

    /* call_forks.c */
    LIST_HEAD(, session) call_forks; /* forks for calls of this session, closed with it */
    LIST_ENTRY(session) call_fork;   /* of `origin`, if there is one */
    struct session *origin;
    struct timer *retired; /* closes a fork for a call; NULL: another session */
};

/* state.c */
/* The error of a dead session; 0 if it is alive. */
int session_check_alive(const struct session *s, struct error *err);
/* Ends the sandbox for this reason; its end is reported later. */
void session_end_sandbox(struct session *s, const char *killed, enum error_code code,
    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Reports the end of session_finish, if it was called. */
void session_tell_finished(struct session *s, const struct error *why);
/* Tells of the latest rich result, after all that the code printed before it: output comes through
 * pipes of its own, which may be read later than the result. */
void session_show(struct session *s);
/* The cell prints or shows something after clear_output(wait=True). */
void session_clear_results(struct session *s);
/* Milliseconds of pauses since `*seen_ns` was set, rounded up, for which a timer goes on; sets
 * it. */
uint64_t session_paused_since(const struct session *s, uint64_t *seen_ns);

/* send.c: frames to the guest. */
int session_send(struct session *s, uint8_t type, uint64_t id, const char *head, size_t head_len,
    const struct session_part *blob, size_t blob_parts, struct error *err);
/* Sends a blob in a sealed memfd, which this takes. */
int session_send_memfd(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, int fd, size_t len, struct error *err);
/* Sends a blob in the stream or in a memfd, depending on its size. */
int session_send_blob(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, const struct session_part *blob, size_t parts, struct error *err);

/* calls.c: calls of the guest that have no reply yet. */
int session_call_open(struct session *s, uint64_t id, struct error *err);
/* Returns false if the call is not open. */
bool session_call_close(struct session *s, uint64_t id);
/* Drops all open calls. */
void session_calls_drop(struct session *s);

/* death.c: sets s->death and s->killed to the reason why the sandbox is gone, unless set. */
void session_explain_death(struct session *s);

/* deadline.c: starts the deadline of the current operation; for a slow start, once the guest is
 * ready. */
void session_deadline_begin(struct session *s);
/* Starts that of a checkpoint that has been asked to fork, which is short. */
void session_deadline_of_checkpoint(struct session *s);
/* The lifetime of a session begins, or goes on. */
void session_begin_life(struct session *s);
void session_continue_life(struct session *s);
/* Starts the deadline of a message that is incomplete, or stops it. */
void session_watch_partial(struct session *s);
/* Timer callbacks. */
void session_deadline_reached(void *session);
void session_lifetime_over(void *session);
void session_partial_too_long(void *session);

/* service.c */
/* Ends the service with its open requests: before the end of the sandbox, or after it. */
void session_service_end(struct session *s, const struct error *why);
void session_service_free(struct session *s);

/* close.c */
/* Drops the result that waits for the volume, and refusals of forks. */
void session_drop_settled(struct session *s);

/* revive.c */
/* True if the RESULT answers the request for a checkpoint; *rc is then the error of a malformed
 * one. */
bool session_take_kept(struct session *s, const struct frame *frame, int *rc, struct error *err);
/* The operation has ended, and the sandbox is alive. */
void session_end_cell(struct session *s);
/* The sandbox has died in a cell: the session goes on from the checkpoint before it, if there is
 * one, and the result says so. */
void session_revive(struct session *s, struct cell_result *r);

/* result.c: builds the result of the current operation from a RESULT frame and the host's
 * knowledge. ERROR_PROTOCOL if the frame is malformed; then there is nothing to free. */
int result_read(
    struct session *s, const struct frame *frame, struct cell_result *out, struct error *err);

/* operation.c */
/* Begins an operation; as session_exec. */
int session_begin(struct session *s, session_done_fn *done, void *arg, struct error *err);
/* The operation could not be sent, so it never started. Returns rc. */
int session_take_back(struct session *s, int rc);
/* Reports the result; the session is idle (or dead) before the callback runs. */
void session_deliver(struct session *s, struct cell_result *r);

/* receive.c: frames from the guest. */
void session_receive_begin(struct session *s);
/* The callback of sandbox_events: returns true while a frame is incomplete. */
bool session_receive(void *session, const char *data, size_t len);
void session_take_fd(void *session, int fd);
/* Handles frames that were kept while the session was held. */
void session_receive_more(struct session *s);

/* flow.c: data that waits for a guest that does not read. */
/* The guest has read: whether a session that was held is read again. */
bool session_flow_has_room(struct session *s);
void session_stalled(void *session); /* the timer's */

/* events.c */
extern const struct sandbox_events session_handlers;

/* fork.c */
/* A session without a sandbox; NULL without memory. */
struct session *session_new(struct environment *env, const struct session_settings *settings,
    const struct session_events *events, void *arg);
/* The same, for a fork of `s`. */
struct session *session_new_fork(
    const struct session *s, const struct session_events *events, void *arg);
/* Asks the guest of `s` to become `fork`, too; `id` and `head` are those of the frame FORK. */
int session_ask_fork(struct session *s, struct session *fork, uint64_t id, const char *head,
    size_t head_len, struct error *err);
/* Starts a fork as the operation of this id. Its lifetime has not begun. */
int session_make_fork(struct session *s, uint64_t operation, const struct session_events *events,
    void *events_arg, struct session **out, struct error *err);

/* checkpoints.c */
/* Requests a checkpoint before the cell that is about to be sent, if the session keeps them. */
void session_keep_before_cell(struct session *s);
