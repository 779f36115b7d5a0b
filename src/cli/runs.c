/* cli/runs.c: droste runs: lists, shows, exports and removes recorded runs, and resumes one. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json/fields.h"
#include "base/suggest.h"
#include "cli/answer.h"
#include "cli/approvals.h"
#include "cli/artifacts.h"
#include "cli/ask.h"
#include "cli/list.h"
#include "cli/record/show.h"
#include "cli/remote/remote.h"
#include "cli/results.h"
#include "cli/options/verbs.h"

typedef char run_id[DROSTE_RUN_ID_SIZE];

struct request {
    const char **words; /* the verb, then the beginnings of ids */
    size_t count;
    const char *limit, *status, *model, *batch, *task, *format, *out, *older, *keep, *database,
        *save, *save_artifacts, *server, *reason;
    char *batch_path; /* the absolute path of an existing file, as in the record */
    bool json, full, all, quiet, verbose;
    droste_record_filter filter;
    droste_record_keep kept;
    enum droste_export_format export_format;
};

/* ---- the record ---- */

static int no_record(const char *path, droste_error *err)
{
    return error_set(
        err, ERROR_NOT_FOUND, "there is no record at %.160s yet; `droste run` creates it", path);
}

/* ---- the verbs; `record` is NULL if there is none ---- */

static int runs_list(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    return r->json ? list_as_json(record, &r->filter, err)
                   : list_as_text(record, &r->filter, path, err);
}

static int runs_show(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    run_id id;
    if (!record)
        return no_record(path, err);
    int rc = droste_record_find(record, r->words[1], id, err);
    if (rc < 0)
        return rc;
    rc = r->save ? cli_save_recorded(record, id, r->save, err) : 0;
    if (rc == 0 && r->save_artifacts)
        rc = cli_save_artifacts(record, id, r->save_artifacts, err);
    if (rc < 0)
        return rc;
    return r->json ? show_as_json(record, id, err) : show_as_text(record, id, r->full, err);
}

static bool runs_has_id(const struct buf *ids, const run_id id)
{
    for (size_t at = 0; at < ids->len; at += sizeof(run_id))
        if (strcmp(ids->data + at, id) == 0)
            return true;
    return false;
}

/* The runs that were named, each once, as one run_id after the other. */
static int find_named(
    droste_record *record, const struct request *r, struct buf *ids, droste_error *err)
{
    for (size_t i = 1; i < r->count; i++) {
        run_id id = "";
        int rc = droste_record_find(record, r->words[i], id, err);
        if (rc < 0)
            return rc;
        if (!runs_has_id(ids, id))
            buf_append(ids, id, sizeof id);
    }
    return buf_failed(ids) ? error_memory(err) : 0;
}

static int add_id(void *arg, const droste_record_run *runs_run, droste_error *err)
{
    run_id id = "";
    snprintf(id, sizeof id, "%s", runs_run->id);
    buf_append(arg, id, sizeof id);
    return buf_failed(arg) ? error_memory(err) : 0;
}

/* All roots, or those of a batch, the oldest first. */
static int find_all(
    droste_record *record, const struct request *r, struct buf *ids, droste_error *err)
{
    const droste_record_filter roots = { .batch = r->filter.batch };
    int rc = droste_record_list(record, &roots, add_id, ids, err);
    run_id *id = (run_id *)ids->data;
    for (size_t i = 0, j = ids->len / sizeof *id; rc == 0 && i + 1 < j--; i++) {
        run_id other;
        memcpy(other, id[i], sizeof other);
        memcpy(id[i], id[j], sizeof other);
        memcpy(id[j], other, sizeof other);
    }
    return rc;
}

static int runs_write(
    droste_record *record, const struct request *r, const struct buf *ids, droste_error *err)
{
    droste_export runs = { .count = ids->len / sizeof(run_id),
        .batch = r->batch ? r->filter.batch : NULL,
        .format = r->export_format };
    cleanup_free const char **names = calloc(runs.count + 1, sizeof *names);
    if (!names)
        return error_memory(err);
    for (size_t i = 0; i < runs.count; i++)
        names[i] = ids->data + i * sizeof(run_id);
    runs.runs = names;
    return !r->out || strcmp(r->out, "-") == 0
               ? droste_record_export_fd(record, &runs, STDOUT_FILENO, err)
               : droste_record_export(record, &runs, r->out, err);
}

static int runs_export(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    cleanup_buf struct buf ids = { 0 };
    if (!record)
        return no_record(path, err);
    bool named = !r->all && !r->batch;
    int rc = named ? find_named(record, r, &ids, err) : find_all(record, r, &ids, err);
    if (rc == 0 && r->batch && ids.len == 0)
        rc = error_set(err, ERROR_NOT_FOUND, "the record has no run of batch %.160s", r->batch);
    if (rc == 0 && ids.len == 0 && r->export_format == DROSTE_EXPORT_HTML)
        rc = error_set(err, ERROR_NOT_FOUND, "the record has no runs");
    if (rc < 0)
        return rc;
    return runs_write(record, r, &ids, err);
}

/* "3 runs and 41 values of 1.2 MB" */
static void print_freed(const droste_record_freed *freed)
{
    printf("removed %lld run%s and %lld value%s of %.1f MB", (long long)freed->runs,
        freed->runs == 1 ? "" : "s", (long long)freed->values, freed->values == 1 ? "" : "s",
        (double)freed->value_bytes / 1e6);
}

static void print_freed_json(const droste_record_freed *freed)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    field_int(&out, "runs", freed->runs);
    field_int(&out, "interrupted", freed->interrupted);
    field_int(&out, "values", freed->values);
    field_int(&out, "value_bytes", freed->value_bytes);
    field_int(&out, "file_bytes", freed->file_bytes);
    field_close(&out, '}');
    puts(buf_text(&out));
}

static int remove_runs(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    cleanup_buf struct buf ids = { 0 };
    droste_record_freed all = { 0 };
    if (!record)
        return no_record(path, err);
    int rc = find_named(record, r, &ids, err);
    for (size_t at = 0; at < ids.len && rc == 0; at += sizeof(run_id)) {
        droste_record_freed freed;
        rc = droste_record_remove(record, ids.data + at, &freed, err);
        all.runs += rc == 0 ? freed.runs : 0;
        all.values += rc == 0 ? freed.values : 0;
        all.value_bytes += rc == 0 ? freed.value_bytes : 0;
    }
    if (r->json)
        print_freed_json(&all);
    else if (all.runs > 0) {
        print_freed(&all);
        puts("; `droste runs gc` makes the file smaller");
    }
    return rc;
}

static int runs_collect(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    droste_record_freed freed = { 0 };
    bool choosy = r->older || r->keep;
    int rc = record ? droste_record_collect(record, choosy ? &r->kept : NULL, &freed, err) : 0;
    if (r->json) {
        print_freed_json(&freed);
        return rc;
    }
    if (freed.interrupted > 0)
        printf("marked %lld run%s as interrupted, whose process is gone\n",
            (long long)freed.interrupted, freed.interrupted == 1 ? "" : "s");
    print_freed(&freed);
    printf("; the file is %.1f MB smaller\n", (double)freed.file_bytes / 1e6);
    return rc;
}

static int runs_of_servers(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    return error_set(err, ERROR_UNSUPPORTED,
        "`runs %s` is for runs of a server: give --server URL; a run of this machine shows its "
        "progress where it was started, and ends with Ctrl-C there",
        r->words[0]);
}

/* ---- approvals ---- */

static int runs_approvals(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    run_id id = "";
    int rc = record && r->count > 1 ? droste_record_find(record, r->words[1], id, err) : 0;
    return rc < 0 ? rc : cli_approvals(record, id[0] ? id : NULL, r->json, err);
}

static int runs_decide(droste_record *record, const struct request *r, bool approve,
    const char *path, droste_error *err)
{
    int rc = record ? 0 : no_record(path, err);
    for (size_t i = 1; rc == 0 && i < r->count; i++)
        rc = cli_decide(record, r->words[i], approve, r->reason, err);
    return rc;
}

static int runs_approve(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    return runs_decide(record, r, true, path, err);
}

static int runs_deny(
    droste_record *record, const struct request *r, const char *path, droste_error *err)
{
    return runs_decide(record, r, false, path, err);
}

/* ---- arguments and flags ---- */

enum {
    LS = 1,
    SHOW = 2,
    EXPORT = 4,
    RM = 8,
    GC = 16,
    RESUME = 32,
    FOLLOW = 64,
    CANCEL = 128,
    APPROVALS = 256,
    DECIDE = 512
};

static const struct runs_verb {
    struct verb verb; /* the words are ids */
    /* NULL: continues a run instead of reading the record */
    int (*run)(droste_record *record, const struct request *r, const char *path, droste_error *err);
} verbs[] = {
    { { "ls", LS, 0, 0 }, runs_list },
    { { "show", SHOW, 1, 1 }, runs_show },
    { { "export", EXPORT, 0, SIZE_MAX }, runs_export },
    { { "rm", RM, 1, SIZE_MAX }, remove_runs },
    { { "gc", GC, 0, 0 }, runs_collect },
    { { "resume", RESUME, 1, 1 }, NULL },
    { { "follow", FOLLOW, 1, 1 }, runs_of_servers },
    { { "cancel", CANCEL, 1, SIZE_MAX }, runs_of_servers },
    { { "approvals", APPROVALS, 0, 1 }, runs_approvals },
    { { "approve", DECIDE, 1, SIZE_MAX, "APPROVAL" }, runs_approve },
    { { "deny", DECIDE, 1, SIZE_MAX, "APPROVAL" }, runs_deny },
};

/* Checks that each flag belongs to the verb. */
static int runs_check_flags(
    const struct command *self, const struct request *r, const struct verb *verb)
{
    const struct verb_flag flags[] = {
        { "limit", r->limit, LS },
        { "status", r->status, LS },
        { "model", r->model, LS },
        { "batch", r->batch, LS | EXPORT },
        { "task", r->task, LS },
        { "save-results", r->save, SHOW },
        { "save-artifacts", r->save_artifacts, SHOW },
        { "json", r->json, LS | SHOW | RM | GC | RESUME | APPROVALS },
        { "reason", r->reason, DECIDE },
        { "quiet", r->quiet, RESUME },
        { "verbose", r->verbose, RESUME },
        { "full", r->full, SHOW },
        { "format", r->format, EXPORT },
        { "out", r->out, EXPORT },
        { "all", r->all, EXPORT },
        { "older", r->older, GC },
        { "keep", r->keep, GC },
    };
    return verb_check_flags(self, verb, flags, array_length(flags));
}

static bool runs_is_status(const char *word)
{
    static const char *const statuses[] = { "running", "interrupted", "answered", "exhausted",
        "budget", "timeout", "cancelled", "error" };
    bool known = false;
    for (size_t i = 0; i < array_length(statuses) && !known; i++)
        known = strcmp(word, statuses[i]) == 0;
    return known;
}

static int runs_take_list(const struct command *self, struct request *r)
{
    r->batch_path = r->batch ? realpath(r->batch, NULL) : NULL;
    r->filter = (droste_record_filter){ .limit = 20,
        .status = r->status,
        .model = r->model,
        .batch = r->batch_path ? r->batch_path : r->batch,
        .task = r->task };
    if (r->limit && !cli_count(r->limit, 1, &r->filter.limit))
        return cli_usage(self, "--limit takes a number of runs to list, 1 or more");
    if (r->status && !runs_is_status(r->status))
        return cli_usage(self,
            "--status: '%s' is not a status; use running, interrupted, answered, exhausted, "
            "budget, timeout, cancelled or error",
            r->status);
    return -1;
}

static int take_export(const struct command *self, struct request *r)
{
    static const char *const formats[] = { [DROSTE_EXPORT_JSONL] = "jsonl",
        [DROSTE_EXPORT_HTML] = "html",
        [DROSTE_EXPORT_OTLP] = "otlp" };
    struct error why = { 0 };
    size_t format = 0;
    while (r->format && format < array_length(formats) && strcmp(r->format, formats[format]) != 0)
        format++;
    if (format == array_length(formats)) {
        suggest_refuse(
            "--format", r->format, formats, sizeof *formats, array_length(formats), &why);
        return cli_usage(self, "%s", why.text);
    }
    r->export_format = (enum droste_export_format)format;
    bool html = r->export_format == DROSTE_EXPORT_HTML;
    if (r->all + (r->count > 1) + (r->batch != NULL) != 1)
        return cli_usage(self,
            "name the runs to export, or use --all or --batch FILE; `droste runs ls` lists them");
    r->batch_path = r->batch ? realpath(r->batch, NULL) : NULL;
    r->filter.batch = r->batch_path ? r->batch_path : r->batch;
    if (html && (!r->out || strcmp(r->out, "-") == 0) && isatty(STDOUT_FILENO))
        return cli_usage(self, "a page is not for a terminal; use --out FILE");
    return -1;
}

static int take_collect(const struct command *self, struct request *r)
{
    double seconds = 0;
    if (r->older && (!droste_parse_seconds(r->older, &seconds) || seconds > 1e10))
        return cli_usage(self, "--older takes a time, as in 30d, 12h or 90m");
    if (r->keep && !cli_count(r->keep, 0, &r->kept.newest))
        return cli_usage(self, "--keep takes a number of runs, 0 or more");
    /* Without --older, age keeps no run, not even one that began in this millisecond. */
    r->kept.older_ms = r->older ? (int64_t)(seconds * 1000) : -1000;
    return -1;
}

/* -1 to continue. */
static int runs_check(const struct command *self, struct request *r, const struct runs_verb *row)
{
    static int (*const takes[])(const struct command *self,
        struct request *r) = { [LS] = runs_take_list, [EXPORT] = take_export, [GC] = take_collect };
    const struct verb *verb = row ? &row->verb : NULL;
    if (!verb)
        return verb_refuse(self, r->count > 0 ? r->words[0] : NULL);
    if (r->count - 1 < verb->least)
        return cli_usage(self, "%s needs the id of %s lists them", verb->name,
            verb->bit == DECIDE ? "an approval; `droste runs approvals`"
                                : "a run; `droste runs ls`");
    if (r->count - 1 > verb->most)
        return cli_usage(self, "unexpected argument '%s'; leave it out", r->words[verb->most + 1]);
    int status = runs_check_flags(self, r, verb);
    if (status < 0 && verb->bit < array_length(takes) && takes[verb->bit])
        status = takes[verb->bit](self, r);
    return status;
}

/* ---- the command ---- */

static int runs_remotely(droste *d, const struct request *r, const char *server)
{
    const struct remote_runs o = { .server = server,
        .status = r->status,
        .model = r->model,
        .format = r->format,
        .out = r->out,
        .limit = r->filter.limit,
        .json = r->json };
    if (r->database || r->batch || r->task || r->full || r->save || r->save_artifacts || r->all)
        return cli_fail(EXIT_ENVIRONMENT,
            "with a server, --database, --batch, --task, --full, --save-results, --save-artifacts "
            "and --all do not work: leave them out, or run this where the server is");
    cli_catch_interrupts(d);
    return remote_runs(&o, r->words[0], r->words + 1, r->count - 1);
}

static int runs_look(droste *d, const struct request *r, const struct runs_verb *row)
{
    droste_record *record = NULL;
    droste_error err;
    int rc = droste_record_open(d, &record, &err);
    if (rc == 0)
        rc = row->run(record, r, droste_record_path(d, NULL), &err);
    droste_record_close(record);
    return cli_end(rc, &err, "the record");
}

static int runs_go_on(droste *d, const struct request *r)
{
    droste_result *result = NULL;
    droste_error err;
    bool quiet = r->quiet || (!r->verbose && !isatty(STDERR_FILENO));
    droste_request request = { .resume = r->words[1] };
    cli_catch_interrupts(d);
    int rc = cli_ask(d, &request, !quiet, &result, &err);
    return rc < 0 ? cli_error(&err) : answer_print(d, result, r->json);
}

static int runs_run(const struct command *self, droste *d, int argc, char **argv)
{
    cleanup_free const char **words = calloc((size_t)argc, sizeof *words);
    struct request r = { .words = words };
    const struct flag flags[] = {
        { "limit", "N", "ls: number of runs, newest first [20].", &r.limit, NULL },
        { "status", "WORD", "ls: only runs with this status.", &r.status, NULL },
        { "model", "TEXT", "ls: only runs of models whose names contain this.", &r.model, NULL },
        { "batch", "FILE",
            "ls, export: the runs of this batch, named by its results file or a part of "
            "that path.",
            &r.batch, NULL },
        { "task", "ID", "ls: only runs for the batch task with this id.", &r.task, NULL },
        { "full", NULL, "show: shorten nothing, and show prompts, too.", NULL, &r.full },
        { "save-results", "DIR",
            "show: write rich results (images, tables, charts) to files there.", &r.save, NULL },
        { "save-artifacts", "DIR", "show: write the files that the run has saved there.",
            &r.save_artifacts, NULL },
        { "format", "FORMAT", "export: jsonl, html or otlp [jsonl].", &r.format, NULL },
        { "out", "FILE", "export: the output file; - is standard output [-].", &r.out, NULL },
        { "all", NULL, "export: all runs.", NULL, &r.all },
        { "older", "TIME", "gc: remove runs that began longer ago than this, such as 30d.",
            &r.older, NULL },
        { "keep", "N", "gc: keep the newest N runs and remove the others.", &r.keep, NULL },
        { "reason", "TEXT", "approve, deny: why; the record keeps it, and the code sees it.",
            &r.reason },
        { "json", NULL, "Print JSON.", NULL, &r.json },
        { "quiet", NULL, "resume: show no progress, even on a terminal.", NULL, &r.quiet },
        { "verbose", NULL, "resume: show progress even if standard error is not a terminal.", NULL,
            &r.verbose },
        { "database", "FILE", "The database of runs ($DROSTE_DATABASE).", &r.database, NULL },
        FLAG_SERVER(&r.server),
        { 0 },
    };
    if (!words)
        return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    int status = cli_parse(self, argc, argv, flags, d, words, (size_t)argc, &r.count);
    const struct runs_verb *row =
        verb_find(verbs, array_length(verbs), sizeof *verbs, r.count ? words[0] : NULL);
    if (status < 0)
        status = runs_check(self, &r, row);
    if (status < 0)
        status = cli_set(d, "database", r.database);
    const char *server = r.database && !r.server ? NULL : remote_address(r.server);
    if (status < 0 && server)
        status = runs_remotely(d, &r, server);
    else if (status < 0)
        status = row->run ? runs_look(d, &r, row) : runs_go_on(d, &r);
    free(r.batch_path);
    return status;
}

const struct command command_runs = {
    .name = "runs",
    .synopsis = "ls | show RUN | resume RUN | export RUN... | rm RUN... | gc | follow RUN | "
                "cancel RUN... | approvals [RUN] | approve APPROVAL... | deny APPROVAL...  [FLAGS]",
    .summary = "list, show, resume, export and remove recorded runs; approve calls",
    .details = "RUN is the id of a run, its beginning, or `last`. `show` marks lines: `<`\n"
               "prompts (with --full), `>` code, `|` output, `|!` standard error, `!`\n"
               "exceptions, `*` rich results, `=` what was submitted. --save-results writes\n"
               "each form of a result to a file there: 1.2.3.png is the third result of the\n"
               "second cell of turn 1. A run is `interrupted` if its process ended first.\n"
               "\n"
               "`resume` continues an interrupted run and prints its answer as `run` does. Its\n"
               "cells run again; the record answers their calls, so no answered call is\n"
               "repeated. If the code now makes other calls than before, resume stops, says\n"
               "where, and leaves the run interrupted. The exit status is that of `droste run`.\n"
               "\n"
               "`export` writes lines of JSON, one for each run, turn, call, cell and end\n"
               "(docs/record.md), or with --format html one page that needs no network: a\n"
               "table of several runs, with the grades of a --batch. With --format otlp it writes\n"
               "each run as a trace of OpenTelemetry, a line of OTLP/JSON, without contents. All\n"
               "include a run's child runs.\n"
               "`approvals` lists the calls of tools that wait for an approval (--ask), with\n"
               "their ids; `approve` and `deny` decide. A run that waits goes on at once; one\n"
               "whose process is gone goes on when it is resumed.\n"
               "\n"
               "`rm` removes runs with their child runs. `gc` ends runs whose process is gone,\n"
               "removes the runs that --older and --keep select (with both, those that neither\n"
               "keeps) and data that no run needs, and shrinks the file. It never removes an\n"
               "active run.\n"
               "\n"
               "With --server the runs are those of a key: `follow` shows one until it ends, and\n"
               "`cancel` ends it; `gc` and the flags of results, batches and artifacts are for\n"
               "this machine.\n"
               "Exit status: 0, 2 usage error or no such run, 1 the database cannot be read or\n"
               "written.\n",
    .examples = "  droste runs ls\n"
                "  droste runs ls --status error --model gpt-5 --limit 100 --json\n"
                "  droste runs ls --batch results.jsonl --task t17\n"
                "  droste runs show 20261120-1915 --full | less\n"
                "  droste runs resume 20261120-1915\n"
                "  droste runs approve 42\n"
                "  droste runs deny 43 --reason 'not on a Friday'\n"
                "  droste runs export 20261120-1915 --format html --out run.html\n"
                "  droste runs export --batch results.jsonl --format html --out batch.html\n"
                "  droste runs export --all --out runs.jsonl\n"
                "  droste runs gc --older 30d --keep 100\n"
                "  droste runs follow 00013b --server http://127.0.0.1:8710\n",
    .verbs = { verbs, array_length(verbs), sizeof *verbs },
    .arguments = "RUN",
    .run = runs_run,
};
