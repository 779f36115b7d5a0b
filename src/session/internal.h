/* session/internal.h: what the files of a session share: its state, and who does what with it. */
#ifndef DROSTE_SESSION_INTERNAL_H
#define DROSTE_SESSION_INTERNAL_H

#include "session/capture.h"
#include "session/session.h"

struct session {
    struct environment *env;
    const struct environment_ops *ops;
    struct sandbox *sandbox;
    struct session_events events;
    void *arg;
    struct session_limits limits;
    double execute_timeout_cap, grace;
    struct schema *answer; /* NULL: any */

    bool ready, dead;
    struct error death; /* why, once dead */
    char killed[64];    /* by what the host ended it, "" if it did not */
    struct sandbox_exit how;
    struct frame_decoder decoder;

    /* the operation under way */
    uint64_t operation; /* its id, 0: none */
    bool is_cell;
    bool
        settling; /* it has ended, and `settled` is its result, which is told when its volume is here */
    struct cell_result settled;
    session_finished_fn *finished; /* who waits for the end of session_finish; NULL: nobody */
    void *finished_arg;
    uint64_t last_id;
    uint64_t started_ns;
    double limit;   /* seconds of this operation, 0: none */
    unsigned rings; /* how often it was interrupted */
    bool deadline_passed;
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
    uint64_t partial_bytes; /* that came since its timer began */
    bool held;              /* flow.c */
    double stall_limit;     /* seconds */
    struct timer *stall;
};

/* session.c */
/* Hands the result over; the session is idle (or dead) before the receiver hears of it. */
void session_deliver(struct session *s, struct cell_result *r);
/* Tells who waits for the end of session_finish, if anybody does. */
void session_tell_finished(struct session *s, const struct error *why);
/* The host ends the sandbox; that it has ended is told later, and this why. */
void session_end_sandbox(struct session *s, const char *killed, const struct error *why);

/* send.c: frames to the guest. */
int session_send(struct session *s, uint8_t type, uint64_t id, const char *head, size_t head_len,
    const struct session_part *blob, size_t blob_parts, struct error *err);
/* The blob is in a sealed memfd, which is taken. */
int session_send_memfd(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, int fd, size_t len, struct error *err);
/* Sends a blob the way that suits its size: in the stream, or in a memfd. */
int session_send_blob(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, const struct session_part *blob, size_t parts, struct error *err);

/* receive.c: frames from the guest. */
void session_receive_begin(struct session *s);
/* As sandbox_events has it: true while a frame is incomplete. */
bool session_receive(void *session, const char *data, size_t len);
void session_partial_too_long(void *session); /* the timer's */
void session_watch_partial(struct session *s);
/* What was kept while the session was held. */
void session_receive_more(struct session *s);

/* flow.c: what waits for a guest that does not read. */
/* ERROR_BUDGET: so much waits that no reply of this length may be added. */
int session_flow_check(const struct session *s, size_t len, struct error *err);
/* After each reply. */
void session_flow_sent(struct session *s);
/* As sandbox_events has it. */
void session_room(void *session);
void session_stalled(void *session); /* the timer's */

/* calls.c: the calls of the guest that wait for their answers. */
int session_call_open(struct session *s, uint64_t id, struct error *err);
/* False if it is not open. */
bool session_call_close(struct session *s, uint64_t id);
/* Nobody waits for any of them any more. */
void session_calls_drop(struct session *s);

/* result.c: the result of the operation under way, of a RESULT and what the host knows. ERROR_PROTOCOL
 * where it is none; then there is nothing to free. */
int result_read(
    struct session *s, const struct frame *frame, struct cell_result *out, struct error *err);

/* death.c: s->death and s->killed say why the sandbox is gone, if they do not yet. */
void session_explain_death(struct session *s);

/* deadline.c: the time of the operation under way begins: where a start takes its time, once its guest is there. */
void session_deadline_begin(struct session *s);
/* The timers'. */
void session_deadline_reached(void *session);
void session_lifetime_over(void *session);

#endif
