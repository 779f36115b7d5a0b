/* serve/queue/queue.h: runs of all nodes: queued, taken, continued elsewhere, and answered once.
 *
 * Everything that is known of a run is in its log, a subject of a stream: the request, who has
 * taken it, the units of its record, its end. Each message is appended with the sequence of the one
 * before it, which the server compares. So the log has one order, and of two nodes that believe to
 * have a run only the one that has taken it last can append: the other learns at its next append
 * that it has lost the run, and that comes before each call of a model (base/hold.h), and before
 * the end. The queue only says that there is something to do; a message in it that is delivered
 * twice does no harm.
 */
#pragma once

#include "base/buf.h"
#include "cluster/bus.h"
#include "serve/http/request.h"
#include "serve/server.h"

enum {
    QUEUE_ID_MAX = 64,
    QUEUE_PRIORITIES = 3,
    QUEUE_LEASE_MS = 3000, /* a node that is silent for so long loses its runs */
    QUEUE_TICK_MS = 250,
    QUEUE_FAILURES_MAX = 3,  /* then the run is a dead letter */
    QUEUE_TAKEN_MAX = 50,    /* whatever became of the nodes that took it */
    QUEUE_PART_MAX = 900000, /* bytes of a message of a log */
};

/* ---- the log of a run (log.c) ---- */

enum queue_mark {
    MARK_REQUEST = 'Q',
    MARK_TAKEN = 'T',
    MARK_UNIT = 'U',
    MARK_CANCEL = 'C', /* any node may append it */
    MARK_FAILED = 'F', /* an attempt, and why */
    MARK_END = 'E',
    MARK_DEAD = 'D',
};

enum queue_kept {
    QUEUE_KEPT,
    QUEUE_LOST, /* another one has appended */
};

struct queue_log {
    struct run_queue *q;
    char subject[BUS_SUBJECT_MAX + 1];
    uint64_t sequence; /* of its last message that is known here; 0: it has none */
    bool is_cancelled; /* it has the mark */
    /* The append under way. */
    enum queue_mark mark;
    struct buf data;
    size_t at, part;
    uint32_t number;
    bool is_appending, waits; /* for the next attempt */
    void (*done)(void *arg, enum queue_kept kept);
    void *arg;
    struct queue_log *next; /* of the queue's that append */
};

void queue_log_init(struct queue_log *l, struct run_queue *q, const char *key, const char *id);
/* One at a time. Is tried until it is known how it ended; `done` is called from the loop. */
void queue_log_append(struct queue_log *l, enum queue_mark mark, const void *data, size_t len,
    void (*done)(void *arg, enum queue_kept kept), void *arg);
void queue_log_close(struct queue_log *l);
/* Tries again what waits. */
void queue_logs_tick(struct run_queue *q);

/* What a log says. */
struct queue_reading {
    struct buf request, units, end;
    enum queue_mark last; /* of whole entries, without cancellations; 0: none */
    uint64_t sequence;
    unsigned failures, taken; /* how often */
    bool is_cancelled;
    /* The entry that is being read. */
    struct buf part;
    char part_owner[17], part_mark;
};
void queue_reading_free(struct queue_reading *r);
void queue_reading_take(struct queue_reading *r, const struct bus_answer *a);

/* A message of a log. False: it is none. */
struct queue_head {
    enum queue_mark mark;
    char owner[17];
    uint32_t number;
    bool more; /* of the entry comes */
    const char *data;
    size_t len;
};
bool queue_head_read(const char *data, size_t len, struct queue_head *out);

/* ---- the runs of this node (run.c) ---- */

struct queue_run;
struct queue_copy;

/* Takes the message, and the place that was reserved for it. */
void queue_run_take(struct run_queue *q, struct bus_message *m);
void queue_run_cancel(struct run_queue *q, const char *what);
void queue_runs_tick(struct run_queue *q);
/* Cancels the runs of the key whose version is below this one. */
void queue_runs_drop(struct run_queue *q, const char *key, int64_t before);
bool queue_run_is_here(const struct run_queue *q, const char *key, const char *id);
/* Gives all runs back, so that other nodes go on with them. */
void queue_runs_close(struct run_queue *q);

/* ---- copies (copies.c) ---- */

/* Removes the copy of a run that leaves this node, now or later. */
void queue_copy_remove(struct run_queue *q, const char *id);
/* The run has come back. True: its copy is still there, and is the run's own again. */
bool queue_copy_is_back(struct run_queue *q, const char *id);
/* Finds those of an earlier process, once the streams are there. */
void queue_copies_find(struct run_queue *q);
void queue_copies_remove(struct run_queue *q);
void queue_copies_free(struct run_queue *q);

/* ---- what requests outside of the queue spend (spending.c) ---- */

int queue_spending_watch(struct run_queue *q, struct error *err);
/* Writes what has changed into the ledger. */
void queue_spending_tick(struct run_queue *q);
void queue_spending_free(struct run_queue *q);
/* Dollars of this day: all but what requests of this process have spent and hold. */
double queue_spent_elsewhere(const struct run_queue *q, const char *key, int64_t day);

/* ---- versions (versions.c) ---- */

/* Makes the bucket. */
void queue_versions_make(struct run_queue *q, bus_done_fn *done, void *arg);
int queue_versions_watch(struct run_queue *q, struct error *err);
/* Asks for the oldest version that the key still wants, which the answer has. */
void queue_version_ask(struct run_queue *q, const char *key, bus_done_fn *done, void *arg);
/* 0: all are wanted; negative: it is not known. */
int64_t queue_version_wanted(const struct bus_answer *a);

/* ---- the queue ---- */

struct queue_lane;
struct queue_waiter;

struct run_queue {
    struct server *s;
    struct bus *bus;
    struct ledger *ledger;
    struct queue_spending *spending; /* by key */
    bool knows_spending;             /* the ledgers were read */
    struct rates *rates;
    char owner[17]; /* this process */
    uint32_t number;
    size_t room, count; /* of runs */
    struct queue_run *runs;
    struct queue_copy *copies;    /* that could not be removed from the record yet */
    char asked[QUEUE_ID_MAX + 1]; /* the one whose log is asked for, with `is_asking` */
    struct queue_log *appending;
    struct queue_lane *lanes, *turn[QUEUE_PRIORITIES];
    void (*take)(struct run_queue *q, struct bus_message *m);           /* queue_run_take */
    void (*drop)(struct run_queue *q, const char *key, int64_t before); /* queue_runs_drop */
    struct queue_waiter *waiters;
    uv_timer_t timer;
    unsigned ticks, lane_count;
    unsigned making; /* streams */
    bool is_ready, is_fetching, is_closing, is_asking, has_copies;
    uint64_t paused_until_ns;
};

static inline bool queue_is_ready(const struct run_queue *q)
{
    return q->is_ready && q->making == 0;
}

/* open.c */
int queue_open(struct server *s, struct error *err);
void queue_close(struct server *s);

/* ---- lanes (lanes.c) ---- */

/* An entry of the bucket of lanes, with the key "PRIORITY.KEY". */
void queue_on_lane(void *queue, const struct bus_entry *entry);
/* Makes those that could not be made before. */
void queue_lanes_make_again(struct run_queue *q);
void queue_lanes_free(struct run_queue *q);
/* Fetches nothing of this key for a while. */
void queue_rest(struct run_queue *q, const char *key, int ms);
/* Something may have come, or a place is free. */
void queue_look(struct run_queue *q);
/* The same, when there may be runs in lanes that had none. */
void queue_lanes_wake(struct run_queue *q);
/* Makes the lane known to all nodes. False: it is known, and `done` is not called. */
bool queue_lane_announce(
    struct run_queue *q, unsigned priority, const char *key, bus_done_fn *done, void *arg);

/* ---- over HTTP (routes.c) ---- */

void queue_waiters_wake(struct run_queue *q, const char *what); /* NULL: all */
void handle_queue_put(struct request *r);
void handle_queue_get(struct request *r);
void handle_queue_cancel(struct request *r);
void handle_queue_drop(struct request *r); /* versions.c */

/* ---- requests (request.c) ---- */

/* Of a request; NULL: it was refused. */
struct run_queue *queue_of(struct request *r);
/* Of the log's subject: the key; the other part is the id that the client has chosen. */
const char *queue_key_of(const struct request *r);
void queue_refuse_bus(struct request *r, const struct bus_answer *a);
bool queue_id_is_ok(const char *id);
