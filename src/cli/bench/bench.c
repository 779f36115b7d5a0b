/* cli/bench/bench.c: droste bench: measures a start, a cell, a model call and a run on this
 * machine.
 *
 * Each measurement alternates with its baselines in the same run, so that a change in the machine's
 * load affects both: a bare os.fork() of the same interpreter with the same modules, a fresh
 * interpreter, and bubblewrap with a fresh interpreter. Quote ratios of medians; single times from
 * a shared machine mean little.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/suggest.h"
#include "cli/bench/measure.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double bench_percentile(const struct series *s, double p)
{
    return s->count ? s->times[(size_t)((double)(s->count - 1) * p)] : 0;
}

/* ---- the baselines ---- */

static void fresh_interpreters(struct series *s, char *python, unsigned n)
{
    char isolated[] = "-I", command[] = "-c", code[] = "x = 1 + 1";
    char *argv[] = { python, isolated, command, code, NULL };
    for (unsigned i = 0; i < n; i++) {
        uint64_t start = clock_ns();
        if (bench_run_program(argv, NULL) == 0)
            bench_add(s, bench_elapsed_us(start));
    }
}

static void bench_bubblewraps(struct series *s, char *python, unsigned n)
{
    static char words[][24] = { "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc",
        "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent", "-I", "-c", "x = 1 + 1" };
    char *argv[18];
    size_t argc = 0;
    for (size_t i = 0; i < 12; i++)
        argv[argc++] = words[i];
    argv[argc++] = python;
    for (size_t i = 12; i < array_length(words); i++)
        argv[argc++] = words[i];
    argv[argc] = NULL;
    for (unsigned i = 0; i < n && !s->skipped; i++) {
        uint64_t start = clock_ns();
        if (bench_run_program(argv, NULL) == 0)
            bench_add(s, bench_elapsed_us(start));
        else
            s->skipped = "bwrap is not installed or does not work here";
    }
}

/* A cell from the shell: this program and an interpreter, each from start to end, in turns. */
static int bench_shell(droste *d, struct series *s, unsigned n, droste_error *err)
{
    char self[] = "/proc/self/exe", exec[] = "exec", option[] = "--python", command[] = "-c",
         code[] = "1", isolated[] = "-I";
    const char *path = droste_python(d, err);
    if (!path)
        return -err->code;
    cleanup_free char *python = strdup(path);
    char *ours[] = { self, exec, option, python, command, code, NULL };
    char *bare[] = { python, isolated, command, code, NULL };
    for (unsigned i = 0; i < n; i++) {
        uint64_t start = clock_ns();
        if (bench_run_program(bare, NULL) == 0)
            bench_add(&s[0], bench_elapsed_us(start));
        start = clock_ns();
        if (bench_run_program(ours, NULL) == 0)
            bench_add(&s[1], bench_elapsed_us(start));
        else
            s[1].skipped = "droste exec failed; see droste doctor";
    }
    return 0;
}

/* ---- droste ---- */

static int one_start(droste *d, struct series *s, droste_error *err)
{
    static const char code[] = "x = 1 + 1";
    droste_session *session = NULL;
    droste_result *r = NULL;
    uint64_t start = clock_ns();
    int rc = droste_session_open(d, &session, err);
    if (rc == 0)
        rc = droste_session_exec(session, code, sizeof code - 1, 0, &r, err);
    if (rc == 0)
        bench_add(s, bench_elapsed_us(start));
    droste_result_free(r);
    droste_session_close(session);
    return rc;
}

/* While a session sleeps for a moment, the loop refills the pool. */
static int let_it_fill(droste *d, droste_error *err)
{
    static const char code[] = "import time; time.sleep(0.01)";
    droste_session *session = NULL;
    droste_result *r = NULL;
    int rc = droste_session_open(d, &session, err);
    if (rc == 0)
        rc = droste_session_exec(session, code, sizeof code - 1, 0, &r, err);
    droste_result_free(r);
    droste_session_close(session);
    return rc;
}

/* --python: of the sandboxes and of their baselines. --sessions: of density and serve; 0: each has
 * its own number. */
static const char *chosen_python;
static bool chosen_quick;

/* In the order of the series. */
static const struct {
    const char *isolation, *pool;
} starts[] = { { "full", "0" }, { "light", "0" }, { "landlock", "0" }, { "process", "0" },
    { "full", "1" } };
enum { STARTS = sizeof starts / sizeof starts[0], THREADS = 64 };

static int bench_one_kind(droste *d, size_t kind, struct series *s, unsigned n, droste_error *err)
{
    struct series warm_up = { 0 };
    bool filled = strcmp(starts[kind].pool, "0") != 0;
    int rc = droste_set(d, "isolation", starts[kind].isolation, err);
    if (rc == 0)
        rc = droste_set(d, "pool", starts[kind].pool, err);
    for (unsigned i = 0; rc == 0 && i < 2; i++)
        rc = one_start(d, &warm_up, err);
    free(warm_up.times);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        if (filled)
            rc = let_it_fill(d, err);
        if (rc == 0)
            rc = one_start(d, s, err);
    }
    return rc;
}

static int bench_start(droste *d, struct series *s, unsigned n, droste_error *err)
{
    const char *path = droste_python(d, err);
    if (!path)
        return -err->code;
    cleanup_free char *python = strdup(path);
    /* An error is that there are none, or the first start has it, too. */
    (void)!droste_packages_build(d, 0, &bench_site, err);
    for (unsigned round = 0; round < bench_rounds; round++) {
        for (size_t kind = 0; kind < STARTS; kind++) {
            int rc = s[kind].skipped ? 0 : bench_one_kind(d, kind, &s[kind], n / bench_rounds, err);
            if (rc == -DROSTE_ERROR_UNSUPPORTED)
                s[kind].skipped = "this isolation level does not work here; see droste doctor";
            else if (rc < 0)
                return rc;
        }
        bench_bare_forks(&s[STARTS], python, bench_preload, n / bench_rounds);
        fresh_interpreters(&s[STARTS + 1], python, n / bench_rounds / 4 + 1);
        bench_bubblewraps(&s[STARTS + 2], python, n / bench_rounds / 4 + 1);
    }
    return 0;
}

static int bench_exec(droste *d, struct series *s, unsigned n, droste_error *err)
{
    droste_session *session = NULL;
    int rc = droste_session_open(d, &session, err);
    for (unsigned i = 0; rc == 0 && i < n + 50; i++) {
        droste_result *r = NULL;
        uint64_t start = clock_ns();
        rc = droste_session_exec(session, "", 0, 0, &r, err);
        if (rc == 0 && i >= 50)
            bench_add(s, bench_elapsed_us(start));
        droste_result_free(r);
    }
    droste_session_close(session);
    return rc;
}

static void answer_at_once(
    void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    const char *text = arg;
    droste_answer(call, text, strlen(text));
}

/* Starts threads one after the other, as a pool or a loop does; each makes one call. */
static int bench_new_threads(
    droste_session *session, unsigned n, struct series *s, droste_error *err)
{
    char code[512];
    snprintf(code, sizeof code,
        "import threading, time\nout = []\n"
        "def ask():\n"
        "    t = time.perf_counter()\n"
        "    llm_query('2+2?')\n"
        "    out.append((time.perf_counter() - t) * 1e6)\n"
        "for i in range(%u):\n"
        "    threads = [threading.Thread(target=ask) for i in range(%u)]\n"
        "    for t in threads: t.start()\n"
        "    for t in threads: t.join()\n"
        "SUBMIT(out)",
        n / THREADS, THREADS);
    return bench_time_cell(session, code, 5 * THREADS, s, err);
}

/* Threads that call `what` at the same moment, repeatedly. */
static int bench_threads(
    droste_session *session, const char *what, unsigned n, struct series *s, droste_error *err)
{
    char code[640];
    snprintf(code, sizeof code,
        "import _thread, queue, threading, time\nout = []\nstart = threading.Barrier(%u)\n"
        "box = queue.SimpleQueue()\n"
        "def hand_over():\n    lock = _thread.allocate_lock()\n    lock.acquire()\n"
        "    box.put(lock)\n    lock.acquire()\n"
        "def serve():\n    for lock in iter(box.get, None): lock.release()\n"
        "def ask():\n    for i in range(%u):\n        start.wait()\n"
        "        t = time.perf_counter()\n        %s\n"
        "        out.append((time.perf_counter() - t) * 1e6)\n"
        "_thread.start_new_thread(serve, ())\n"
        "threads = [threading.Thread(target=ask) for i in range(%u)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\nbox.put(None)\nSUBMIT(out)",
        THREADS, n / THREADS, what, THREADS);
    return bench_time_cell(session, code, 5 * THREADS, s, err);
}

/* Timed by the guest's own clock, call by call. The last series never leaves the guest: it is a
 * lower bound for the calls of threads. */
static int bench_llm(droste *d, struct series *s, unsigned n, droste_error *err)
{
    static char reply[] = "4";
    char alone[256];
    droste_session *session = NULL;
    snprintf(alone, sizeof alone,
        "import time\nout = []\nfor i in range(%u):\n    t = time.perf_counter()\n"
        "    llm_query('2+2?')\n    out.append((time.perf_counter() - t) * 1e6)\nSUBMIT(out)",
        n + 50);
    droste_set_model(d, answer_at_once, reply);
    int rc = droste_set(d, "model", "callback", err);
    if (rc == 0)
        rc = droste_set(d, "max-llm-calls", "1000000", err);
    if (rc == 0)
        rc = droste_session_open(d, &session, err);
    if (rc == 0)
        rc = bench_time_cell(session, alone, 50, &s[0], err);
    /* New threads: four times as many, as one that the machine holds up is 64 calls. */
    for (unsigned round = 0; rc == 0 && round < bench_rounds; round++) {
        rc = bench_new_threads(session, 4 * n / bench_rounds, &s[1], err);
        if (rc == 0)
            rc = bench_threads(session, "llm_query('2+2?')", n / bench_rounds, &s[2], err);
        if (rc == 0)
            rc = bench_threads(session, "hand_over()", n / bench_rounds, &s[3], err);
    }
    droste_session_close(session);
    return rc;
}

static void remove_database(const char *directory)
{
    static const char *const names[] = { "runs.db", "runs.db-wal", "runs.db-shm" };
    char path[80];
    for (size_t i = 0; i < array_length(names); i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

/* A run writes a record; this one is temporary, to leave the user's own alone. */
static int bench_run(droste *d, struct series *s, unsigned n, droste_error *err)
{
    static char reply[] = "```repl\nSUBMIT(answer=len(context))\n```";
    char directory[] = "/tmp/droste-bench-XXXXXX", database[64];
    bool made = mkdtemp(directory) != NULL;
    snprintf(database, sizeof database, "%s/runs.db", directory);
    int rc = droste_set(d, "database", made ? database : "none", err);
    if (rc == 0)
        rc = droste_set(d, "model", "callback", err);
    droste_set_model(d, answer_at_once, reply);
    for (unsigned i = 0; rc == 0 && i < n + 5; i++) {
        droste_result *r = NULL;
        uint64_t start = clock_ns();
        rc = droste_run(d, "How long is it?", NULL, NULL, NULL, &r, err);
        if (rc == 0 && i >= 5)
            bench_add(s, bench_elapsed_us(start));
        droste_result_free(r);
    }
    if (made)
        remove_database(directory);
    return rc;
}

/* ---- the report ---- */

static const struct bench {
    const char *name;
    unsigned samples;
    int (*run)(droste *d, struct series *s, unsigned n, droste_error *err);
    struct series series[9];
} benches[] = {
    { "start", 200, bench_start,
        { { .name = "start and first cell, full",
              .limit = "at most 2.2 bare forks, 0.3 bubblewraps" },
            { .name = "start and first cell, light", .limit = "at most 1.6 bare forks" },
            { .name = "start and first cell, landlock" },
            { .name = "start and first cell, process" },
            { .name = "start and first cell, full, one ready" },
            { .name = "bare os.fork() with the same modules" }, { .name = "fresh python3 -I -c" },
            { .name = "bubblewrap + python3 -I -c" } } },
    { "exec", 5000, bench_exec, { { .name = "empty cell", .limit = "under 80 µs" } } },
    { "shell", 60, bench_shell,
        { { .name = "python3 -I -c 1" },
            { .name = "droste exec -c 1", .limit = "at most 3 times python3" } } },
    { "llm", 5000, bench_llm,
        { { .name = "llm_query answered by a callback", .limit = "under 60 µs" },
            { .name = "llm_query of 64 threads at once", .limit = "p99 under 2 ms" },
            { .name = "llm_query of 64 threads at a barrier" },
            { .name = "64 threads at a barrier hand over a lock" } } },
    { "run", 100, bench_run,
        { { .name = "whole run with an instant model", .limit = "under 15 ms" } } },
    { "fork", 50, bench_fork,
        { { .name = "own memory of a fork", .limit = "at most 0.4 MB", .unit = "MiB" },
            { .name = "own memory after 1 + 1", .limit = "at most 1.2 MB", .unit = "MiB" },
            { .name = "own memory of os.fork() in the sandbox", .unit = "MiB" },
            { .name = "own memory of os.fork() after 1 + 1", .unit = "MiB" } } },
    { "template", 50, bench_template,
        { { .name = "os.fork() in the session, 1 + 1" },
            { .name = "start from a template, 1 + 1", .limit = "at most 1.5 bare forks" },
            { .name = "fork of the session, 1 + 1",
                .limit = "at most 1.5 bare forks + 0.5 ms, 3 ms" },
            { .name = "make a template of the session" } } },
    { "values", 20, bench_values,
        { { .name = "copy of 100 MB into new memory" },
            { .name = "memcpy of 100 MB into used memory" }, { .name = "100 MB of bytes in" },
            { .name = "100 MB of bytes out" },
            { .name = "100 MB of text in", .limit = "at most 1.5 copies + 20 ms" },
            { .name = "100 MB of text out", .limit = "at most 1.5 copies + 20 ms" } } },
    { "churn", 2000, bench_churn,
        { { .name = "start, use and close, sustained", .limit = "at most 1.33 bare forks" },
            { .name = "bare os.fork(), exit and reap" } } },
    { "density", 1000, bench_density,
        { { .name = "sessions open at once", .unit = "" },
            { .name = "open one more and run a cell" },
            { .name = "memory of a session, its share", .limit = "at most 2 MB", .unit = "MiB" },
            { .name = "memory of a session, of the machine", .unit = "MiB" },
            { .name = "close them all", .limit = "5,000 in 5 s", .unit = "s" } } },
    { "serve", 10000, bench_serve,
        { { .name = "GET /health, connection kept" },
            { .name = "cell, connection kept", .limit = "under 300 µs" },
            { .name = "create a sandbox, first cell", .limit = "under 3 ms" },
            { .name = "bare os.fork() with the same modules" },
            { .name = "requests that failed", .limit = "none", .unit = "" },
            { .name = "created a second by 64 clients", .limit = "500", .unit = "/s" },
            { .name = "ended a second by 64 clients", .unit = "/s" } } },
};

static void bench_print_text(const struct bench *b, const struct series *s)
{
    double first = bench_percentile(&s[0], 0.5);
    for (; s->name; s++) {
        if (s->skipped) {
            printf("%-8s %-40s skipped: %s\n", b->name, s->name, s->skipped);
            continue;
        }
        double p50 = bench_percentile(s, 0.5);
        if (s->unit)
            printf("%-8s %-40s     %9.2f %s", b->name, s->name, p50, s->unit);
        else
            printf("%-8s %-40s p50 %9.1f µs  p90 %9.1f  p99 %9.1f  n %zu", b->name, s->name, p50,
                bench_percentile(s, 0.9), bench_percentile(s, 0.99), s->count);
        if (b->series[1].name && p50 > 0 && !s->unit && !b->series[0].unit)
            printf("  ×%.2f of the first", p50 / first);
        printf("%s%s\n", s->limit ? "  promised: " : "", s->limit ? s->limit : "");
    }
}

static void bench_print_json(const struct bench *b, const struct series *s, bool *any)
{
    for (; s->name; s++) {
        printf("%s\n  {\"bench\":\"%s\",\"name\":\"%s\",\"unit\":\"%s\",\"n\":%zu,\"p50\":%.2f,"
               "\"p90\":%.2f,\"p99\":%.2f,\"min\":%.2f,\"limit\":%s%s%s,\"skipped\":%s%s%s}",
            *any ? "," : "", b->name, s->name, s->unit ? s->unit : "us", s->count,
            bench_percentile(s, 0.5), bench_percentile(s, 0.9), bench_percentile(s, 0.99),
            bench_percentile(s, 0), s->limit ? "\"" : "", s->limit ? s->limit : "null",
            s->limit ? "\"" : "", s->skipped ? "\"" : "", s->skipped ? s->skipped : "null",
            s->skipped ? "\"" : "");
        *any = true;
    }
}

static int run_bench(const struct bench *b, droste *d, bool json, bool *any)
{
    struct series s[array_length(benches[0].series)];
    droste_error err;
    memcpy(s, b->series, sizeof s);
    int rc = b->run(d, s, chosen_quick ? b->samples / 10 : b->samples, &err);
    for (size_t i = 0; s[i].name; i++)
        if (s[i].times)
            qsort(s[i].times, s[i].count, sizeof *s[i].times, by_value);
    if (rc == 0 && json)
        bench_print_json(b, s, any);
    else if (rc == 0)
        bench_print_text(b, s);
    for (size_t i = 0; s[i].name; i++)
        free(s[i].times);
    fflush(stdout);
    return rc < 0 ? cli_error(&err) : EXIT_FINE;
}

static const struct bench *find_bench(const char *name)
{
    for (size_t i = 0; i < array_length(benches); i++)
        if (strcmp(benches[i].name, name) == 0)
            return &benches[i];
    return NULL;
}

static int run_chosen(droste *d, const struct bench *only, bool json)
{
    bool any = false;
    int status = EXIT_FINE;
    fputs(json ? "[" : "", stdout);
    for (size_t i = 0; status == EXIT_FINE && i < array_length(benches); i++)
        if (!only || only == &benches[i])
            status = run_bench(&benches[i], d, json, &any);
    fputs(json ? "\n]\n" : "", stdout);
    return status;
}

static int cli_bench_run(const struct command *self, droste *d, int argc, char **argv)
{
    const char *which = NULL, *sessions = NULL;
    bool json = false;
    size_t count = 0;
    const struct flag flags[] = {
        { "json", NULL, "Print a JSON array of the figures.", NULL, &json },
        { "python", "PATH", "The interpreter of the sandboxes and of the baselines.",
            &chosen_python, NULL },
        { "preload", "MODULE,...", "Modules that the sandboxes and the bare forks have imported.",
            &bench_preload, NULL },
        { "quick", NULL, "Take a tenth of the samples, to see that it works.", NULL,
            &chosen_quick },
        { "sessions", "N", "density, serve: how many to open (default: 1000, 640).", &sessions,
            NULL },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, &which, 1, &count);
    struct error why = { 0 };
    if (status < 0 && which && !find_bench(which)) {
        suggest_refuse(
            "measurement", which, &benches[0].name, sizeof benches[0], array_length(benches), &why);
        status = cli_usage(self, "%s", why.text);
    }
    int64_t n = 0;
    if (status < 0 && sessions && !cli_count(sessions, 1, &n))
        status = cli_usage(self, "--sessions: '%s' is not a number from 1 on", sessions);
    bench_chosen_sessions = n < 1000000 ? (unsigned)n : 1000000;
    if (status < 0)
        status = cli_set(d, "python", chosen_python);
    if (status < 0)
        status = cli_set(d, "preload", bench_preload);
    cli_raise_descriptors();
    if (chosen_quick)
        bench_rounds = 1;
    if (status < 0)
        status = run_chosen(d, which ? find_bench(which) : NULL, json);
    return status;
}

const struct command command_bench = {
    .name = "bench",
    .synopsis = "[start | exec | shell | llm | run | fork | template | values | churn | "
                "density | serve] [--sessions N] [--quick] [--json] [--SETTING VALUE ...]",
    .summary = "measure starts, cells, model calls, runs and many sessions on this machine",
    .details =
        "Without a name, all of these. They are measured beside something that the reader knows\n"
        "(a bare fork, bubblewrap, Python's own start), so that ratios can be compared:\n"
        "\n"
        "  start     a sandbox and its first cell, at each isolation, and from a pool\n"
        "  exec      an empty cell of a session\n"
        "  shell     `droste exec -c 1` as a shell starts it\n"
        "  llm       llm_query, alone and from 64 threads\n"
        "  run       a whole run with a model that answers at once\n"
        "  fork      the memory that a fork of a session has for itself\n"
        "  template  sessions that start from a template, and forks\n"
        "  values    large values, into a sandbox and out of it\n"
        "  churn     sandboxes that start and close without a pause\n"
        "  density   many sessions at once: memory of each, and their end\n"
        "  serve     the HTTP server, with many clients\n"
        "\n"
        "Quote the medians and their ratios, measured on an otherwise idle machine.\n",
    .examples =
        "  droste bench\n  droste bench start --json\n  droste bench exec --isolation process\n"
        "  droste bench density --sessions 5000\n  droste bench serve --sessions 10000\n",
    .settings = SETTINGS_SANDBOX,
    .arguments = "start|exec|shell|llm|run|fork|template|values|churn|density|serve",
    .run = cli_bench_run,
};
