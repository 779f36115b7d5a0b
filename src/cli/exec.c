/* cli/exec.c: droste exec: one piece of code in a fresh sandbox. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/approvals.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/results.h"
#include "cli/transfer.h"

static const size_t code_max = 256u << 20;

static void exec_stream_output(void *arg, int stream, const char *data, size_t len)
{
    FILE *out = stream == 1 ? stdout : stderr;
    cli_print(out, data, len);
    cli_flush(out);
}

/* Output was streamed already; prints the submission and the reason for a failure. */
static void exec_print_result(const droste_result *r)
{
    if (cli_output_gone())
        return;
    size_t len;
    const char *submit = droste_result_submit(r, &len);
    const char *traceback = droste_result_traceback(r);
    droste_error why;
    if (submit) {
        cli_print(stdout, submit, len);
        putchar('\n');
    }
    droste_result_error(r, &why);
    if (droste_result_exit_status(r) >= 0)
        cli_print_exit(r);
    else if (traceback)
        cli_print(stderr, traceback, strlen(traceback));
    if (why.code != DROSTE_ERROR_NONE)
        cli_error(&why);
    else if (strcmp(droste_result_status(r), "timeout") == 0)
        cli_note("the cell reached its --execute-timeout");
}

static int print_outcome(const droste_result *r, bool json)
{
    const char *whole = json ? droste_result_json(r, NULL) : NULL;
    bool lost = droste_result_outline(r, NULL) && !droste_result_submit(r, NULL);
    if (!json)
        exec_print_result(r);
    else if (whole)
        cli_print_json(whole);
    if (lost || (json && !whole))
        return cli_fail(EXIT_ENVIRONMENT, "out of memory for the submitted value");
    return cli_cell_status(r);
}

static void exec_find_read(void *arg, const droste_feature *feature)
{
    bool *reads = arg;
    *reads = *reads || (feature->supported && strcmp(feature->settings, "read") == 0);
}

/* A module beside the script that the sandbox does not see: says how it can. */
static void exec_note_module(droste *d, const char *file, const droste_result *r)
{
    static const char missing[] = "ModuleNotFoundError: No module named '";
    const char *traceback = droste_result_traceback(r);
    const char *name = traceback ? strstr(traceback, missing) : NULL;
    cleanup_free char *real = file && name ? realpath(file, NULL) : NULL;
    char *slash = real ? strrchr(real, '/') : NULL;
    cleanup_buf struct buf module = { 0 };
    bool reads = false;
    if (!slash)
        return;
    name += strlen(missing);
    *slash = '\0';
    buf_printf(&module, "%s/%.*s", real, (int)strcspn(name, "'./"), name);
    if (access(buf_text(&module), F_OK) < 0)
        buf_puts(&module, ".py");
    if (access(buf_text(&module), F_OK) < 0 || buf_failed(&module))
        return;
    droste_environment_features(d, NULL, exec_find_read, &reads, NULL);
    cli_note("note: the sandbox does not see %s; %s%s", buf_text(&module),
        reads ? "add --read " : "this environment cannot show it files of this machine",
        !reads     ? ""
        : !real[0] ? "/"
                   : real);
}

struct exec_options {
    const char *server; /* NULL: this machine */
    const char *file;   /* NULL: the code has none */
    const char *const *argv;
    bool json;
    struct result_files save; /* without a directory: not saved */
    struct transfer files;
};

/* With --json, rich results are members of the object and not text in the output. */
static int exec_flags(const struct exec_options *o)
{
    if (o->json)
        return DROSTE_ECHO | DROSTE_RESULTS;
    return o->save.dir ? DROSTE_ECHO | DROSTE_RESULTS | DROSTE_PRINT : 0;
}

static int run_code(droste *d, const struct buf *code, struct exec_options *o)
{
    droste_session *s = NULL;
    droste_result *r = NULL;
    droste_error err;
    cli_approve_session(d);
    int rc = droste_session_open(d, &s, &err);
    if (rc == 0)
        rc = droste_session_load_contexts(s, &err);
    if (rc == 0) {
        const char *notice = droste_session_notice(s);
        if (notice)
            cli_note("note: %s", notice);
        cli_catch_interrupts(d);
        if (!o->json)
            droste_session_on_output(s, exec_stream_output, NULL);
        if (o->save.dir)
            droste_session_on_display(s, cli_save_shown, &o->save);
        rc = droste_session_script(s, o->file, o->argv, &err);
    }
    if (rc == 0)
        rc = transfer_put(&o->files, s, &err);
    if (rc == 0)
        rc = droste_session_exec(s, buf_text(code), code->len, exec_flags(o), &r, &err);
    int status = rc < 0 ? cli_error(&err) : print_outcome(r, o->json);
    if (r)
        exec_note_module(d, o->file, r);
    int saved = r && o->save.dir ? cli_save_results(&o->save, r) : EXIT_FINE;
    status = status == EXIT_FINE ? saved : status;
    int fetched = r && droste_result_alive(r) ? transfer_get(&o->files, s) : EXIT_FINE;
    status = status == EXIT_FINE ? fetched : status;
    if (r && cli_was_interrupted())
        status = EXIT_INTERRUPTED;
    droste_result_free(r);
    if (s && droste_session_finish(s, &err) < 0) {
        int failed = cli_error(&err);
        status = status == EXIT_FINE ? failed : status;
    }
    droste_session_close(s);
    return cli_finish(status, "the result");
}

static int read_code(const char *text, const char *file, struct buf *code)
{
    struct error err = { 0 };
    if (text) {
        buf_puts(code, text);
        return 0;
    }
    int rc = strcmp(file, "-") == 0
                 ? file_read_fd(STDIN_FILENO, "standard input", code_max, code, &err)
                 : file_read(file, code_max, code, &err);
    return rc < 0 ? cli_fail(EXIT_USAGE, "%s", err.text) : 0;
}

static int exec_remotely(droste *d, const struct buf *code, const struct exec_options *o)
{
    const struct remote_exec e = { .server = o->server,
        .code = buf_text(code),
        .len = code->len,
        .argv = (const char **)o->argv,
        .files = &o->files,
        .json = o->json };
    if (o->save.dir || o->files.patterns.count > 0)
        return cli_fail(EXIT_ENVIRONMENT,
            "with a server, --save-results and --artifacts do not work: use --json and --get");
    cli_catch_interrupts(d);
    return remote_exec(&e, cli_settings());
}

/* An absolute path, as __file__ is since Python 3.9. */
static void exec_put_path(const char *file, struct buf *out)
{
    cleanup_free char *here = file[0] == '/' ? NULL : getcwd(NULL, 0);
    if (here)
        buf_printf(out, "%s/", strcmp(here, "/") == 0 ? "" : here);
    buf_puts(out, file);
}

/* sys.argv: as of python, the first is the file, "-c" or "-". */
static int exec_code(droste *d, const char *text, const char **words, struct exec_options *o)
{
    static const char flag[] = "-c";
    cleanup_buf struct buf code = { 0 }, path = { 0 };
    bool from_file = !text && strcmp(words[0], "-") != 0;
    if (text) /* words[-1] is free for it */
        *--words = flag;
    if (from_file)
        exec_put_path(words[0], &path);
    o->file = from_file ? buf_text(&path) : NULL;
    o->argv = words;
    int rc = read_code(text, words[0], &code);
    int status = rc ? EXIT_USAGE : o->server ? exec_remotely(d, &code, o) : run_code(d, &code, o);
    if (!rc && (text || from_file)) /* which in Python could read it */
        cli_note_input(d);
    return status;
}

static int exec_run(const struct command *self, droste *d, int argc, char **argv)
{
    const char *text = NULL, *server = NULL;
    struct exec_options o = { 0 };
    cleanup_free const char **words = calloc((size_t)argc + 2, sizeof *words);
    size_t count = 0;
    const struct flag flags[] = {
        { "c", "CODE", "Run this code.", &text, .once = true },
        FLAG_CONTEXT(
            "A file, a directory or - (standard input), bound as `context`; may be repeated."),
        { "json", NULL, "Print one JSON object instead of the output.", NULL, &o.json },
        { "save-results", "DIR", "Write rich results (images, tables, charts) to files there.",
            &o.save.dir },
        { "put", "LOCAL:PATH", "Copy a file into the sandbox first; may be repeated.",
            .words = &o.files.puts },
        { "get", "PATH:LOCAL", "Copy a file out of the sandbox at the end; may be repeated.",
            .words = &o.files.gets },
        { "artifacts", "PATTERN",
            "Save files that match, such as 'out/*.png', at the end; may be repeated.",
            .words = &o.files.patterns },
        { "artifacts-dir", "DIR", "Where artifacts are saved (default: artifacts).", &o.files.dir },
        FLAG_SERVER(&server),
        { 0 },
    };
    if (!words)
        return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    int status = cli_set(d, "warm-up", "no"); /* there is one sandbox */
    if (status >= 0)
        return status;
    status = cli_parse(self, argc, argv, flags, d, words + 1, (size_t)argc, &count);
    if (status < 0 && !text && count == 0)
        status = cli_usage(self, "give the code with -c CODE, or a FILE (- for standard input)");
    o.server = remote_address(server);
    status = status < 0 ? exec_code(d, text, words + 1, &o) : status;
    transfer_free(&o.files);
    cli_save_end(&o.save);
    return status;
}

const struct command command_exec = {
    .name = "exec",
    .synopsis = "[-c CODE | FILE | -] [ARGUMENT ...] [--context [NAME=]PATH ...] [--json] "
                "[--save-results DIR] [--put LOCAL:PATH] [--get PATH:LOCAL] "
                "[--artifacts PATTERN] [--artifacts-dir DIR] [--server URL] [--SETTING VALUE ...]",
    .summary = "run Python code in a fresh sandbox",
    .details = "FILE runs as with `python FILE ARGUMENT ...`: its arguments are sys.argv, its\n"
               "directory comes first in sys.path, and tracebacks name it. Arguments that begin\n"
               "with a dash come after `--`: `droste exec script.py -- --size 3`. To import\n"
               "modules that lie beside FILE, show the sandbox their directory: --read DIR.\n"
               "\n"
               "--json prints one object: status (ok, submitted, error, timeout, killed, lost),\n"
               "submit, stdout, stderr, error {type, message, traceback}, results, killed,\n"
               "seconds, isolation, resources {memory_peak, cpu_seconds, limits}, and more.\n"
               "`results` has what display(), figures and the last expression show: a list of\n"
               "objects from media type to data, bytes as base64. --save-results writes each to\n"
               "a file as soon as it is shown: 1.png, 1.html, 2.txt...\n"
               "\n"
               "--put copies files into the sandbox before the code, --get and --artifacts out of\n"
               "it afterwards, also if the code raised. Relative paths begin where it runs. Of\n"
               "artifacts, ** stands for any directories; at most 1000 files with 1G are saved.\n"
               "\n"
               "With --server the code runs in a new sandbox of that server; settings and\n"
               "contexts are those of flags alone, and results and artifacts are not saved.\n"
               "\n"
               "Exit status: 0 ok or submitted, 1 the code raised an exception, 2 usage error, 3\n"
               "limit or deadline, 4 environment failed, 130 interrupted; N if the code called\n"
               "sys.exit(N).\n",
    .examples = "  droste exec -c 'print(1 + 1)'\n"
                "  droste exec -c 'import math; SUBMIT(answer=math.factorial(15))' --json\n"
                "  droste exec script.py input.txt -- --verbose\n"
                "  droste exec script.py --execute-timeout 10 --memory 512M\n"
                "  droste exec -c 'SUBMIT(lines=len(context.splitlines()))' --context big.txt\n"
                "  droste exec plot.py --put data.csv:data.csv --artifacts 'out/*.png'\n"
                "  droste exec --server http://127.0.0.1:8710 -c 'print(1 + 1)'\n"
                "  droste exec --python .venv/bin/python analysis.py --save-results out\n",
    .settings = SETTINGS_SANDBOX,
    .runs_scripts = true,
    .arguments = "FILE",
    .run = exec_run,
};
