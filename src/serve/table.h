/* serve/table.h: the figures that the workers of a server share, in one piece of shared memory.
 *
 * Counters and histograms are each written by one worker, with relaxed atomic additions, and read
 * by all: a reader may see one a moment before another, but never a torn or a lost one. What is
 * limited (sandboxes and starts of a key, sandboxes of the server) is changed under a lock that
 * survives the death of its holder (a robust mutex), so that a limit is never exceeded. Sandboxes
 * are counted by worker, and when a worker has died its counts are cleared.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "serve/access/keys.h"

enum { TABLE_WORKERS = 64, TABLE_ACCOUNTS = KEYS_MOST + 1, TABLE_BUCKETS = 16 };
enum { TABLE_ATTENDED = 1024 };

enum table_counter {
    COUNT_REQUESTS_2XX,
    COUNT_REQUESTS_4XX,
    COUNT_REQUESTS_5XX,
    COUNT_CREATED,
    COUNT_FORKED,
    COUNT_ENDED,
    COUNT_CELLS,
    COUNT_RUNS,
    COUNT_RECEIVED,
    COUNT_SENT,
    COUNT_RELAYED,
    COUNT_REFUSED_KEY,
    COUNT_REFUSED_SCOPE,
    COUNT_REFUSED_RATE,
    COUNT_REFUSED_SANDBOXES,
    COUNT_REFUSED_CAPACITY,
    COUNT_REFUSED_COST,
    COUNT_REFUSED_HEAD,
    COUNT_REFUSED_SITE,
    TABLE_COUNTERS
};

enum table_gauge {
    GAUGE_CONNECTIONS,
    GAUGE_EXECUTING,
    GAUGE_RUNS,
    GAUGE_WAITING,
    GAUGE_QUEUED,
    TABLE_GAUGES
};

enum table_histogram { TIME_REQUEST, TIME_CREATE, TIME_CELL, TIME_LOOP, TABLE_HISTOGRAMS };

struct table_histogram_row {
    _Atomic uint64_t buckets[TABLE_BUCKETS]; /* not cumulative */
    _Atomic uint64_t sum_ns;
};

struct table_worker {
    _Atomic int pid;             /* 0: it does not run */
    _Atomic bool is_ready;       /* it accepts connections */
    _Atomic uint32_t generation; /* how often it was started */
    _Atomic uint32_t sandboxes;
    _Atomic uint64_t next_start; /* the lowest of its requests that wait, plus one; 0: none */
    _Atomic uint64_t counters[TABLE_COUNTERS], gauges[TABLE_GAUGES];
    struct table_histogram_row times[TABLE_HISTOGRAMS];
};

struct table_account {
    char id[KEY_ID_SIZE];
    _Atomic uint32_t sandboxes[TABLE_WORKERS];
    _Atomic uint64_t created, refused;
    _Atomic uint64_t input_tokens, output_tokens; /* of models that answered it */
    _Atomic uint64_t cost_nanodollars;
    _Atomic int64_t day;                  /* of UTC since 1970, of the next; 0: not known yet */
    _Atomic uint64_t day_nanodollars;     /* what models have cost it on this day */
    _Atomic uint64_t held[TABLE_WORKERS]; /* what its runs may still cost, in nanodollars */
    _Atomic uint64_t next_start;          /* see admission.c */
    double starts; /* that are saved up; a second's worth at most, and one at least */
    uint64_t starts_ns;
};

/* When a client of one worker was last seen to wait for a run of another (runs.h). Two runs with
 * the same row take turns in it, which is often enough. */
struct table_attended_row {
    _Atomic uint64_t run, seen_ns; /* a hash of its id */
};

struct table {
    pthread_mutex_t lock;
    unsigned workers;
    _Atomic uint64_t virtual_start; /* see admission.c */
    struct table_worker worker[TABLE_WORKERS];
    struct table_account accounts[TABLE_ACCOUNTS];
    struct table_attended_row attended[TABLE_ATTENDED];
};

/* A new table in shared memory; *fd (may be NULL) is a descriptor of it that children inherit. */
int table_new(unsigned workers, struct table **out, int *fd, struct error *err);
int table_map(int fd, struct table **out, struct error *err);
void table_close(struct table *t);

/* The account's index; its row is made at first. -1: there are too many keys. */
int table_account(struct table *t, const char *id);

enum table_answer { TABLE_RESERVED, TABLE_RATE, TABLE_SANDBOXES, TABLE_FULL };
/* Counts one more sandbox of a worker, if the limits (0: none) allow it. A start is used up only if
 * it does. *wait_seconds: after TABLE_RATE, until the next start. */
enum table_answer table_reserve(struct table *t, unsigned worker, int account,
    const struct key_limits *limits, size_t most, uint64_t now_ns, double *wait_seconds);
void table_release(struct table *t, unsigned worker, int account);
/* After a worker's death. */
void table_forget(struct table *t, unsigned worker);

/* Sums over workers. */
uint64_t table_sandboxes(const struct table *t);
uint64_t table_account_sandboxes(const struct table *t, int account);

/* Adds what calls of models have used to the figures of a key; a negative cost is not known. */
void table_use(struct table_account *a, int64_t input_tokens, int64_t output_tokens, double cost);
/* The same, and to what counts for the limit of its day. */
void table_spend(struct table_account *a, int64_t input_tokens, int64_t output_tokens, double cost);

/* What its runs may still cost, in nanodollars. */
uint64_t table_held(const struct table_account *a);
/* Dollars of its day, with what is held. */
double table_spent(const struct table_account *a);
/* Its day is another one now, on which `cost` dollars were spent already. */
void table_begin_day(struct table *t, struct table_account *a, int64_t day, double cost);
/* Adds to, or with a negative cost takes from, what the runs of a worker may still cost. */
void table_hold(struct table_account *a, unsigned worker, double cost);

void table_attend(struct table *t, const char *run, uint64_t now_ns);
/* 0: not since its row was used for another. */
uint64_t table_attended(const struct table *t, const char *run);

static inline void table_count(struct table_worker *w, enum table_counter which, uint64_t n)
{
    atomic_fetch_add_explicit(&w->counters[which], n, memory_order_relaxed);
}
void table_time(struct table_worker *w, enum table_histogram which, uint64_t ns);
/* The upper bound of a bucket in seconds; the last has none. */
double table_bound(size_t bucket);
