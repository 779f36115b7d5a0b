/* bench/crowd.c: what an honest session feels of attackers beside it, in one host process.
 *
 *     crowd [--attackers N] [--seconds S] [--only ATTACK]
 *
 * One session runs small cells all the time, first alone, then beside N sandboxes that attack
 * (tests/attack/crowd.c has the attacks), then alone again. An attacker whose sandbox is ended gets
 * another at once. The figures to quote are the ratios of the same run, and what the host held
 * before and after. Each answer is checked.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/attack/crowd.h"
#include "base/cleanup.h"
#include "base/clock.h"

enum { SAMPLES_MAX = 1000000, WARM_UP = 200 };

struct series {
    double *times; /* microseconds */
    size_t count;
};

struct honest {
    struct loop *loop;
    struct session *session;
    struct cell_result last;
    uint64_t cells;
    bool done;
};

static void cell_done(void *arg, struct cell_result *result)
{
    struct honest *h = arg;
    cell_result_free(&h->last);
    h->last = *result;
    h->done = true;
}

static int one_cell(struct honest *h, struct error *err)
{
    static const char code[] = "n += 1; SUBMIT(n=n)";
    struct session_cell cell = { .code = code, .len = sizeof code - 1, .execute_timeout = 0 };
    char expected[40];
    h->done = false;
    int rc = session_exec(h->session, &cell, cell_done, h, err);
    if (rc == 0)
        rc = loop_wait_soon(h->loop, &h->done, session_is_ready(h->session), -1, err);
    if (rc < 0)
        return rc;
    snprintf(expected, sizeof expected, "{\"n\": %" PRIu64 "}", ++h->cells);
    const char *submit = submission_json(h->last.submit, NULL);
    if (!submit || strcmp(submit, expected) != 0)
        return error_set(err, ERROR_LOST, "cell %" PRIu64 " of the honest session gave %.80s",
            h->cells, submit ? submit : "nothing");
    return 0;
}

static int open_honest(struct honest *h, struct environment *env, struct error *err)
{
    static const struct session_events none = { 0 };
    static const char code[] = "n = 0";
    struct session_cell cell = { .code = code, .len = sizeof code - 1, .execute_timeout = 0 };
    struct session_options options;
    session_options_init(&options);
    options.spec.isolation = ISOLATION_FULL;
    int rc = session_open(env, &options, &none, h, &h->session, err);
    h->done = false;
    if (rc == 0)
        rc = session_exec(h->session, &cell, cell_done, h, err);
    if (rc == 0)
        rc = loop_run_until(h->loop, &h->done, err);
    for (int i = 0; rc == 0 && i < WARM_UP; i++)
        rc = one_cell(h, err);
    return rc;
}

/* Cells one after the other for some seconds. */
static int measure(struct honest *h, double seconds, struct series *s, struct error *err)
{
    uint64_t begin = clock_ns();
    int rc = 0;
    while (rc == 0 && clock_seconds_since(begin) < seconds && s->count < SAMPLES_MAX) {
        uint64_t start = clock_ns();
        rc = one_cell(h, err);
        s->times[s->count++] = clock_seconds_since(start) * 1e6;
    }
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct series *s, double p)
{
    return s->count ? s->times[(size_t)((double)(s->count - 1) * p)] : 0;
}

static void tell_series(const char *name, struct series *s, const struct series *quiet)
{
    qsort(s->times, s->count, sizeof *s->times, by_value);
    double p50 = percentile(s, 0.5), p99 = percentile(s, 0.99);
    printf("%-34s p50 %9.1f µs  p99 %9.1f  max %9.1f  n %6zu", name, p50, p99, percentile(s, 1),
        s->count);
    printf("  ×%.2f ×%.2f of quiet\n", p50 / percentile(quiet, 0.5), p99 / percentile(quiet, 0.99));
}

static void tell_host(const char *name, const struct crowd_host *h)
{
    printf("%-34s %u descriptors, %u threads, %u children, %u processes, %u mounts, heap %zu KiB, "
           "in memory %zu "
           "KiB\n",
        name, h->descriptors, h->threads, h->children, h->processes, h->mounts, h->heap >> 10,
        h->rss >> 10);
}

static void tell_crowd(const struct crowd *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct attacker *a = &c->attackers[i];
        bool first = i == 0 || a->attack == crowd_attack_at(i);
        unsigned cells = 0, sandboxes = 0, n = 0;
        for (size_t k = i; first && k < c->count; k++) {
            if (c->attackers[k].attack != a->attack)
                continue;
            n++;
            cells += c->attackers[k].cells;
            sandboxes += c->attackers[k].sandboxes;
        }
        if (n > 0)
            printf("    %-30s %3u attackers, %6u sandboxes, %6u cells ended; the last: %s %s %s\n",
                a->attack->name, n, sandboxes, cells, cell_status_name(a->last.status),
                a->last.killed, a->last.error.type ? a->last.error.type : "");
    }
    printf("    %-30s %" PRIu64 "\n", "calls refused by the model", c->calls);
}

static struct session_options attackers_options(void)
{
    struct session_options options;
    session_options_init(&options);
    options.spec.isolation = ISOLATION_FULL;
    options.spec.limits.memory = 256 << 20;
    options.spec.limits.processes = 32;
    options.spec.limits.tmp_size = 16 << 20;
    options.execute_timeout = 10;
    options.grace = 1;
    return options;
}

static int bench(size_t count, double seconds, const char *only, struct error *err)
{
    struct loop *loop = NULL;
    struct environment *env = NULL;
    struct honest h = { 0 };
    struct crowd crowd = { 0 };
    struct crowd_host before, during, after;
    struct series quiet = { 0 }, attacked = { 0 }, again = { 0 };
    struct session_options options = attackers_options();
    struct series *all[] = { &quiet, &attacked, &again };
    int rc = loop_open(&loop, err);
    h.loop = loop;
    for (size_t i = 0; rc == 0 && i < array_length(all); i++) {
        all[i]->times = calloc(SAMPLES_MAX, sizeof *all[i]->times);
        rc = all[i]->times ? 0 : error_memory(err);
    }
    if (rc == 0)
        rc = environment_open("local", loop, NULL, &env, err);
    if (rc == 0)
        rc = open_honest(&h, env, err);
    if (rc == 0)
        rc = measure(&h, seconds / 4, &quiet, err);
    crowd_look(&before);
    if (rc == 0)
        rc = crowd_open(&crowd, loop, env, &options, count, only, true, err);
    while (rc == 0 && !crowd_stands(&crowd))
        rc = one_cell(&h, err);
    if (rc == 0)
        rc = measure(&h, seconds, &attacked, err);
    crowd_look(&during);
    if (rc == 0) {
        tell_series("alone", &quiet, &quiet);
        tell_series("beside attackers", &attacked, &quiet);
        tell_crowd(&crowd);
    }
    crowd_close(&crowd);
    if (rc == 0)
        rc = measure(&h, seconds / 4, &again, err);
    crowd_look(&after);
    if (rc == 0) {
        tell_series("alone again", &again, &quiet);
        tell_host("the host before", &before);
        tell_host("the host beside attackers", &during);
        tell_host("the host after", &after);
    }
    free(quiet.times);
    free(attacked.times);
    free(again.times);
    session_close(h.session);
    cell_result_free(&h.last);
    environment_close(env);
    loop_close(loop);
    return rc;
}

int main(int argc, char **argv)
{
    size_t count = 200;
    double seconds = 20;
    const char *only = NULL;
    struct error err = { 0 };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--attackers") == 0)
            count = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
    }
    if (bench(count, seconds, only, &err) == 0)
        return 0;
    fprintf(stderr, "crowd: %s\n", err.text);
    return 1;
}
