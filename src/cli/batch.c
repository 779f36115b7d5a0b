/* cli/batch.c: droste batch: runs the tasks of a file and writes their results to another. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/terminal/screen.h"
#include "serve/native/batches.h"

enum { PLAIN_SECONDS = 30 };

/* ---- progress ---- */

struct show {
    FILE *out; /* NULL: show nothing */
    bool terminal, paints, verbose, shown;
    uint64_t said_ns;
    struct buf failure; /* the first task with an error, and its message */
};

static size_t with_result(const droste_batch_state *s)
{
    return s->answered + s->exhausted + s->budget + s->timeout + s->cancelled + s->error;
}

static void append_status(struct buf *out, const droste_batch_state *s)
{
    size_t done = with_result(s), now = done - s->earlier;
    double rate = s->seconds > 0 ? (double)now / s->seconds : 0;
    buf_printf(out, "%zu/%zu · %zu running", done, s->tasks, s->running);
    if (done > s->answered)
        buf_printf(out, " · %zu without an answer", done - s->answered);
    if (s->graded > 0)
        buf_printf(out, " · %zu of %zu passed", s->passed, s->graded);
    buf_printf(out, " · %lld call%s · %lld in, %lld out tokens", (long long)s->calls,
        text_plural(s->calls), (long long)s->input_tokens, (long long)s->output_tokens);
    if (s->cost > 0)
        buf_printf(out, " · $%.4f", s->cost);
    if (now > 0)
        buf_printf(out, " · %.3g/s, %.0f s left", rate, (double)(s->tasks - done) / rate);
}

static void batch_hide(struct show *show)
{
    if (show->shown)
        fputs("\r\x1b[K", show->out);
    show->shown = false;
}

/* On a terminal, one line that is rewritten; elsewhere, a line at intervals. */
static void batch_show_status(struct show *show, const droste_batch_state *s)
{
    cleanup_buf struct buf line = { 0 };
    uint64_t ns = clock_ns();
    uint64_t pause = show->terminal ? 100000000u : PLAIN_SECONDS * UINT64_C(1000000000);
    if (ns - show->said_ns < pause)
        return;
    show->said_ns = ns;
    append_status(&line, s);
    batch_hide(show);
    if (show->terminal) {
        cleanup_buf struct buf fits = { 0 };
        struct screen screen;
        screen_open(&screen, show->out);
        screen_fit(&screen, &fits, buf_text(&line), line.len, screen_columns(&screen) - 1);
        fprintf(show->out, show->paints ? "\x1b[2m%s\x1b[0m" : "%s", buf_text(&fits));
        screen_close(&screen);
    } else
        fprintf(show->out, "%s\n", buf_text(&line));
    show->shown = show->terminal;
    fflush(show->out);
}

static void batch_keep_failure(struct show *show, const droste_batch_event *e)
{
    cleanup_json struct json_object *line = NULL;
    if (show->failure.len > 0 || json_parse(e->text, e->len, &json_limits_large, &line, NULL) < 0)
        return;
    struct json_object *error = json_get_typed(line, "error", json_type_object);
    if (error)
        buf_printf(&show->failure, "%s: %s", json_get_string(line, "id", ""),
            json_get_string(error, "message", ""));
}

static void on_event(void *arg, const droste_batch_event *e)
{
    struct show *show = arg;
    bool notice = strcmp(e->kind, "notice") == 0;
    if (strcmp(e->kind, "result") == 0)
        batch_keep_failure(show, e);
    if (!show->out && notice)
        fprintf(stderr, "droste: note: %s\n", e->text);
    if (!show->out)
        return;
    if (notice || (show->verbose && strcmp(e->kind, "result") == 0)) {
        batch_hide(show);
        fputs(notice ? "note: " : "", show->out);
        cli_print(show->out, e->text, e->len);
        fputc('\n', show->out);
    }
    batch_show_status(show, e->state);
}

/* ---- the end ---- */

static const struct {
    const char *name;
    size_t offset;
} statuses[] = {
    { "answered", offsetof(droste_batch_state, answered) },
    { "exhausted", offsetof(droste_batch_state, exhausted) },
    { "budget", offsetof(droste_batch_state, budget) },
    { "timeout", offsetof(droste_batch_state, timeout) },
    { "cancelled", offsetof(droste_batch_state, cancelled) },
    { "error", offsetof(droste_batch_state, error) },
};

static size_t batch_count_of(const droste_batch_state *s, size_t status)
{
    return *(const size_t *)(const void *)((const char *)s + statuses[status].offset);
}

static int64_t peak_bytes(void)
{
    struct rusage used = { 0 };
    getrusage(RUSAGE_SELF, &used);
    return (int64_t)used.ru_maxrss * 1024;
}

struct batch_ending {
    const char *results, *failure;
    bool json, is_in_queue; /* the runs that have not ended go on */
};

static void batch_print_text(const droste_batch_state *s, const struct batch_ending *e)
{
    cleanup_buf struct buf out = { 0 };
    const char *between = ":";
    size_t done = with_result(s);
    double rate = s->seconds > 0 ? (double)(done - s->earlier) / s->seconds : 0;
    buf_printf(&out, "%zu task%s", s->tasks, s->tasks == 1 ? "" : "s");
    for (size_t i = 0; i < array_length(statuses); i++) {
        if (batch_count_of(s, i) == 0)
            continue;
        buf_printf(&out, "%s %zu %s", between, batch_count_of(s, i), statuses[i].name);
        between = ",";
    }
    if (done < s->tasks)
        buf_printf(&out, "%s %zu without a result", between, s->tasks - done);
    buf_putc(&out, '\n');
    if (e->failure[0])
        buf_printf(&out, "first error, of %s\n", e->failure);
    if (s->earlier > 0)
        buf_printf(&out, "%zu had their results before\n", s->earlier);
    if (s->resumed > 0)
        buf_printf(&out, "%zu interrupted run%s continued\n", s->resumed,
            s->resumed == 1 ? " was" : "s were");
    if (s->graded > 0)
        buf_printf(&out, "%zu of %zu passed (%.1f %%), mean score %.4g\n", s->passed, s->graded,
            100.0 * (double)s->passed / (double)s->graded, s->score / (double)s->graded);
    if (s->ungraded > 0)
        buf_printf(&out, "%zu could not be graded; see `grade` in %s\n", s->ungraded, e->results);
    buf_printf(&out, "%lld call%s, %lld + %lld tokens", (long long)s->calls, text_plural(s->calls),
        (long long)s->input_tokens, (long long)s->output_tokens);
    if (s->cost >= 0)
        buf_printf(&out, ", $%.4f", s->cost);
    buf_printf(&out, "\n%.2f s, %.4g tasks a second, at most %.0f MB in this process\n", s->seconds,
        rate, (double)peak_bytes() / 1e6);
    if (s->stopped)
        buf_printf(&out, "stopped: %s; %zu run%s %s. Run the same command again to continue.\n",
            s->why, s->interrupted, s->interrupted == 1 ? "" : "s",
            e->is_in_queue        ? "in the queue go on"
            : s->interrupted == 1 ? "is suspended"
                                  : "are suspended");
    screen_print_text(stdout, buf_text(&out));
}

static void batch_print_json(const droste_batch_state *s, const char *results)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    batch_put_state(&out, s);
    field_int(&out, "peak_memory", peak_bytes());
    field_string(&out, "results", results);
    field_close(&out, '}');
    puts(buf_text(&out));
}

static int batch_exit_status(const droste_batch_state *s)
{
    if (s->stopped && strcmp(s->stopped, "interrupt") == 0)
        return EXIT_INTERRUPTED;
    if (s->stopped)
        return EXIT_LIMIT;
    return s->answered == s->tasks ? EXIT_FINE : EXIT_RAISED;
}

/* ---- the command ---- */

static int batch_print(const droste_batch_state *state, const struct batch_ending *e)
{
    if (e->json)
        batch_print_json(state, e->results);
    else
        batch_print_text(state, e);
    return batch_exit_status(state);
}

/* Contexts of all tasks are files of this machine. */
static int batch_check_no_contexts(const struct list *settings, struct error *err)
{
    for (size_t i = 0; i < settings->count; i += 2)
        if (strcmp(settings->items[i], "context") == 0)
            return error_set(err, ERROR_UNSUPPORTED,
                "a server has no contexts of all tasks: name them in the tasks, or leave out "
                "--server and --cluster");
    return 0;
}

/* On a server, which has the tasks' contexts and the limits of its own. */
static int batch_run_remote(droste *d, const char *server, const droste_batch_options *o,
    const struct show *show, bool json)
{
    droste_batch_state state = { 0 };
    struct error err = { 0 };
    const struct remote_batch batch = { server, o, show->out && show->verbose };
    const struct list *settings = cli_settings();
    int rc = batch_check_no_contexts(settings, &err);
    if (rc == 0 && o->grader_timeout > 0)
        rc = error_set(&err, ERROR_UNSUPPORTED, "a server has no programs that grade");
    cli_catch_interrupts(d);
    if (rc == 0)
        rc = remote_batch(&batch, settings, &state, &err);
    return rc < 0 ? cli_error(&err)
                  : cli_finish(
                        batch_print(&state, &(struct batch_ending){ o->results, "", json, false }),
                        "the summary");
}

struct batch_cluster {
    const char *urls, *priority;
    bool cancels;
};

/* By the nodes of a cluster; the results are graded here. */
static int batch_run_cluster(droste *d, const struct batch_cluster *cluster,
    const droste_batch_options *o, struct show *show, bool json)
{
    droste_batch_state state = { 0 };
    struct error err = { 0 };
    struct remote_queue queue = { .cluster = cluster->urls,
        .options = o,
        .priority = 1,
        .cancels = cluster->cancels,
        .fn = on_event,
        .arg = show };
    const struct list *settings = cli_settings();
    int rc = batch_check_no_contexts(settings, &err);
    if (rc == 0 && cluster->priority &&
        (!cli_count(cluster->priority, 0, &queue.priority) || queue.priority > 2))
        rc = error_set(&err, ERROR_ARGUMENT, "--priority is 0 (first), 1 or 2");
    cli_raise_descriptors();
    cli_catch_interrupts(d);
    if (rc == 0)
        rc = remote_queue(d, &queue, settings, &state, &err);
    if (show->out)
        batch_hide(show);
    if (rc < 0 && !state.stopped)
        return cli_error(&err);
    int status = batch_print(
        &state, &(struct batch_ending){ o->results, buf_text(&show->failure), json, true });
    status = cli_finish(rc < 0 ? cli_status(err.code) : status, "the summary");
    return rc < 0 ? cli_error(&err) : status;
}

static int cli_batch_run_batch(
    droste *d, const droste_batch_options *o, struct show *show, bool json)
{
    droste_batch_state state;
    droste_error err;
    cli_raise_descriptors();
    cli_catch_interrupts(d);
    int rc = droste_batch(d, o, on_event, show, &state, &err);
    if (show->out)
        batch_hide(show);
    if (rc < 0 && !state.stopped)
        return cli_error(&err);
    int status = batch_print(
        &state, &(struct batch_ending){ o->results, buf_text(&show->failure), json, false });
    status = cli_finish(rc < 0 ? cli_status(err.code) : status, "the summary");
    return rc < 0 ? cli_error(&err) : status;
}

struct words {
    const char *concurrency, *grader_timeout, *max_calls, *max_tokens, *max_cost, *timeout;
};

static bool batch_take_dollars(const char *text, double *out)
{
    char *end;
    *out = text_to_double(text, &end);
    return end != text && *end == '\0' && isfinite(*out) && *out > 0;
}

/* -1 to go on. */
static int batch_take_words(
    const struct command *self, const struct words *w, droste_batch_options *o)
{
    int64_t n = 0;
    if (w->concurrency && (!cli_count(w->concurrency, 1, &n) || n > 100000))
        return cli_usage(self, "--concurrency takes a number of tasks, 1 to 100000");
    o->concurrency = (unsigned)n;
    if (w->grader_timeout &&
        (!droste_parse_seconds(w->grader_timeout, &o->grader_timeout) || o->grader_timeout <= 0))
        return cli_usage(self, "--grader-timeout takes a time, as in 90s or 5m");
    if (w->max_calls && !cli_count(w->max_calls, 1, &o->max_calls))
        return cli_usage(self, "--batch-max-calls takes a number of calls, 1 or more");
    if (w->max_tokens && !cli_count(w->max_tokens, 1, &o->max_tokens))
        return cli_usage(self, "--batch-max-tokens takes a number of tokens, 1 or more");
    if (w->max_cost && !batch_take_dollars(w->max_cost, &o->max_cost))
        return cli_usage(self, "--batch-max-cost takes dollars, as in 2.50");
    if (w->timeout && (!droste_parse_seconds(w->timeout, &o->timeout) || o->timeout <= 0))
        return cli_usage(self, "--batch-timeout takes a time, as in 90s or 5m");
    return -1;
}

static int batch_check_place(
    const struct command *self, const struct batch_cluster *cluster, const char *server)
{
    if (cluster->urls && server && server[0])
        return cli_usage(self, "--server and --cluster are two ways: leave out one");
    if (!cluster->urls && (cluster->priority || cluster->cancels))
        return cli_usage(self, "--priority and --cancel are for --cluster URLS");
    return -1;
}

static int batch_run(const struct command *self, droste *d, int argc, char **argv)
{
    droste_batch_options o = { 0 };
    struct words w = { 0 };
    struct batch_cluster cluster = { 0 };
    const char *server = NULL;
    bool again = false, json = false, quiet = false, verbose = false;
    const struct flag flags[] = {
        { "out", "FILE", "Append results to this file.", &o.results, NULL },
        { "concurrency", "N", "Maximum concurrent tasks [8]; raises the setting.", &w.concurrency,
            NULL },
        FLAG_CONTEXT(
            "A file or a directory for every task, after its own contexts; may be repeated."),
        { "grader", "GRADER", "exact, contains, numeric[:TOLERANCE], program:PATH.", &o.grader,
            NULL },
        { "grader-timeout", "TIME", "Time limit of a grading program [60s].", &w.grader_timeout,
            NULL },
        { "again", NULL, "Run tasks again whose result has no answer.", NULL, &again },
        { "batch-max-calls", "N", "Maximum model calls of all tasks together.", &w.max_calls,
            NULL },
        { "batch-max-tokens", "N", "Maximum tokens of all tasks together.", &w.max_tokens, NULL },
        { "batch-max-cost", "DOLLARS", "Cost limit of all tasks together.", &w.max_cost, NULL },
        { "batch-timeout", "TIME", "Time limit of this command.", &w.timeout, NULL },
        { "cluster", "URLS", "Run the tasks in the queue of a cluster.", &cluster.urls, NULL },
        { "priority", "N", "In that queue: 0 (first), 1 or 2 [1].", &cluster.priority, NULL },
        { "cancel", NULL, "Cancel this batch's runs in that queue.", NULL, &cluster.cancels },
        { "json", NULL, "Print the summary as one JSON object.", NULL, &json },
        { "quiet", NULL, "Show no progress, even on a terminal.", NULL, &quiet },
        { "verbose", NULL, "Print each result as soon as it is available.", NULL, &verbose },
        FLAG_SERVER(&server),
        { 0 },
    };
    size_t count = 0;
    int status = cli_parse(self, argc, argv, flags, d, &o.tasks, 1, &count);
    if (status < 0 && (!o.tasks || !o.results))
        status = cli_usage(self, "name the file of tasks, and the results file with --out FILE");
    if (status < 0)
        status = batch_take_words(self, &w, &o);
    o.again = again;
    struct show show = { .out = quiet ? NULL : stderr,
        .terminal = cli_terminal_moves(stderr),
        .paints = cli_terminal_paints(stderr),
        .verbose = verbose,
        .said_ns = clock_ns() };
    if (status < 0)
        status = batch_check_place(self, &cluster, server);
    server = cluster.urls ? NULL : remote_address(server);
    if (status >= 0)
        return status;
    status = cluster.urls ? batch_run_cluster(d, &cluster, &o, &show, json)
             : server     ? batch_run_remote(d, server, &o, &show, json)
                          : cli_batch_run_batch(d, &o, &show, json);
    buf_free(&show.failure);
    return status;
}

const struct command command_batch = {
    .name = "batch",
    .synopsis = "TASKS.jsonl --out RESULTS.jsonl [--context [NAME=]PATH ...] [--concurrency N] "
                "[--grader GRADER] [--SETTING VALUE ...]",
    .summary = "run many tasks from a file, and grade their answers",
    .details =
        "A task is a line of JSON with a question, and optionally id, context (a path,\n"
        "relative to the file's directory), context_text or context_json, contexts (names\n"
        "and paths), expected, grader, settings. A result is a line of JSON, too: id,\n"
        "run, status, answer, error, grade, usage, seconds.\n"
        "docs/batch.md describes both.\n"
        "\n"
        "To continue a batch that was stopped or killed, run the same command again: it\n"
        "skips tasks with a result, resumes unfinished runs from the record, and repeats\n"
        "no call that was answered. Limits with `batch` in their name cover all tasks\n"
        "together, including earlier results. When one is reached, no further task\n"
        "begins, and the unfinished runs are suspended. Ctrl-C does the same.\n"
        "--cluster URLS has the nodes of a cluster do the runs (docs/cluster.md). They go on\n"
        "when this command ends; the same command fetches their results, and with\n"
        "--cancel it ends them.\n"
        "Exit status: 0 every task is answered, 1 some are not, 2 usage error, 3 a limit\n"
        "of the batch, 4 environment failed, 130 interrupted.\n",
    .examples =
        "  droste batch tasks.jsonl --out results.jsonl --model gpt-5-mini\n"
        "  droste batch tasks.jsonl --out results.jsonl --grader numeric:1% --batch-max-cost 5\n"
        "  droste batch tasks.jsonl --out results.jsonl --cluster http://10.0.0.5:8710\n"
        "  examples/tasks/needle.py --out needle && droste batch needle/tasks.jsonl --out "
        "needle/results.jsonl --grader exact\n",
    .settings = SETTINGS_RUN,
    .arguments = "FILE",
    .run = batch_run,
};
