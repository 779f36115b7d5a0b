/* serve/table.c: see table.h. */
#include "serve/table.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"

int table_map(int fd, struct table **out, struct error *err)
{
    void *at = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return error_set_errno(err, ERROR_MEMORY, "mapping the workers' table");
    *out = at;
    return 0;
}

int table_new(unsigned workers, struct table **out, int *fd, struct error *err)
{
    pthread_mutexattr_t attributes;
    cleanup_fd int memory = file_memfd("droste-serve", err);
    if (memory < 0)
        return -1;
    if (ftruncate(memory, sizeof **out) < 0)
        return error_set_errno(err, ERROR_MEMORY, "making the workers' table");
    if (table_map(memory, out, err) < 0)
        return -1;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&(*out)->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    (*out)->workers = workers;
    if (fd)
        *fd = steal_fd(&memory);
    return 0;
}

void table_close(struct table *t)
{
    if (t)
        munmap(t, sizeof *t);
}

/* What a dead holder was changing is at most one count too many, which ends with its worker. */
static void table_lock(struct table *t)
{
    if (pthread_mutex_lock(&t->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&t->lock);
}

int table_account(struct table *t, const char *id)
{
    int found = -1;
    table_lock(t);
    for (int i = 0; i < TABLE_ACCOUNTS && found < 0; i++) {
        struct table_account *a = &t->accounts[i];
        if (!a->id[0])
            memcpy(a->id, id, strnlen(id, KEY_ID_SIZE - 1) + 1);
        if (strcmp(a->id, id) == 0)
            found = i;
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* ---- limits ---- */

uint64_t table_sandboxes(const struct table *t)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < t->workers; i++)
        sum += t->worker[i].sandboxes;
    return sum;
}

uint64_t table_account_sandboxes(const struct table *t, int account)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < t->workers; i++)
        sum += t->accounts[account].sandboxes[i];
    return sum;
}

/* Saves up starts at the key's rate: a second's worth, and one at least. */
static double table_starts(struct table_account *a, double rate, uint64_t now_ns)
{
    double most = rate > 1 ? rate : 1;
    double since = a->starts_ns ? (double)(now_ns - a->starts_ns) / 1e9 : most / rate;
    a->starts = fmin(most, a->starts + since * rate);
    a->starts_ns = now_ns;
    return a->starts;
}

static enum table_answer table_check(struct table *t, int account, const struct key_limits *limits,
    size_t most, uint64_t now_ns, double *wait_seconds)
{
    struct table_account *a = &t->accounts[account];
    if (limits->sandboxes > 0 && table_account_sandboxes(t, account) >= (uint64_t)limits->sandboxes)
        return TABLE_SANDBOXES;
    if (limits->starts > 0 && table_starts(a, limits->starts, now_ns) < 1) {
        *wait_seconds = (1 - a->starts) / limits->starts;
        return TABLE_RATE;
    }
    if (table_sandboxes(t) >= most)
        return TABLE_FULL;
    a->starts -= limits->starts > 0;
    return TABLE_RESERVED;
}

enum table_answer table_reserve(struct table *t, unsigned worker, int account,
    const struct key_limits *limits, size_t most, uint64_t now_ns, double *wait_seconds)
{
    table_lock(t);
    enum table_answer answer = table_check(t, account, limits, most, now_ns, wait_seconds);
    if (answer == TABLE_RESERVED) {
        t->worker[worker].sandboxes++;
        t->accounts[account].sandboxes[worker]++;
    }
    pthread_mutex_unlock(&t->lock);
    return answer;
}

void table_release(struct table *t, unsigned worker, int account)
{
    table_lock(t);
    t->worker[worker].sandboxes--;
    t->accounts[account].sandboxes[worker]--;
    pthread_mutex_unlock(&t->lock);
}

void table_forget(struct table *t, unsigned worker)
{
    table_lock(t);
    t->worker[worker].sandboxes = 0;
    t->worker[worker].next_start = 0;
    for (int i = 0; i < TABLE_ACCOUNTS; i++) {
        t->accounts[i].sandboxes[worker] = 0;
        t->accounts[i].held[worker] = 0;
    }
    for (int i = 0; i < TABLE_GAUGES; i++)
        t->worker[worker].gauges[i] = 0;
    pthread_mutex_unlock(&t->lock);
}

/* ---- times ---- */

static const double table_bounds[TABLE_BUCKETS - 1] = { 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01,
    0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300 };

double table_bound(size_t bucket)
{
    return bucket < TABLE_BUCKETS - 1 ? table_bounds[bucket] : INFINITY;
}

void table_time(struct table_worker *w, enum table_histogram which, uint64_t ns)
{
    size_t i = 0;
    while (i < TABLE_BUCKETS - 1 && (double)ns > table_bounds[i] * 1e9)
        i++;
    atomic_fetch_add_explicit(&w->times[which].buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->times[which].sum_ns, ns, memory_order_relaxed);
}

void table_use(struct table_account *a, int64_t input_tokens, int64_t output_tokens, double cost)
{
    atomic_fetch_add_explicit(&a->input_tokens, (uint64_t)input_tokens, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->output_tokens, (uint64_t)output_tokens, memory_order_relaxed);
    if (cost > 0)
        atomic_fetch_add_explicit(
            &a->cost_nanodollars, (uint64_t)(cost * 1e9), memory_order_relaxed);
}

void table_spend(struct table_account *a, int64_t input_tokens, int64_t output_tokens, double cost)
{
    table_use(a, input_tokens, output_tokens, cost);
    if (cost > 0)
        atomic_fetch_add_explicit(
            &a->day_nanodollars, (uint64_t)(cost * 1e9), memory_order_relaxed);
}

uint64_t table_held(const struct table_account *a)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < TABLE_WORKERS; i++)
        sum += a->held[i];
    return sum;
}

double table_spent(const struct table_account *a)
{
    return (double)(a->day_nanodollars + table_held(a)) / 1e9;
}

void table_begin_day(struct table *t, struct table_account *a, int64_t day, double cost)
{
    pthread_mutex_lock(&t->lock);
    if (a->day != day) {
        a->day_nanodollars = (uint64_t)(cost * 1e9);
        a->day = day;
    }
    pthread_mutex_unlock(&t->lock);
}

void table_hold(struct table_account *a, unsigned worker, double cost)
{
    uint64_t amount = (uint64_t)(fabs(cost) * 1e9);
    a->held[worker] += cost > 0 ? amount : -amount;
}

/* FNV-1a. */
static uint64_t table_hash(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

void table_attend(struct table *t, const char *run, uint64_t now_ns)
{
    uint64_t hash = table_hash(run);
    struct table_attended_row *row = &t->attended[hash % TABLE_ATTENDED];
    row->run = hash;
    row->seen_ns = now_ns;
}

uint64_t table_attended(const struct table *t, const char *run)
{
    uint64_t hash = table_hash(run);
    const struct table_attended_row *row = &t->attended[hash % TABLE_ATTENDED];
    return row->run == hash ? row->seen_ns : 0;
}
