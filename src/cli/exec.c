/* cli/exec.c: droste exec: one piece of code in a fresh sandbox. */
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/cli.h"

static const size_t code_max = 256u << 20;

static void exec_stream_output(void *arg, int stream, const char *data, size_t len)
{
    FILE *out = stream == 1 ? stdout : stderr;
    cli_print(out, data, len);
    cli_flush(out);
}

/* Output was streamed; what is left is the submission and the reason of a failure. */
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
        cli_fail(0, "the cell reached its --execute-timeout");
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
        return cli_fail(EXIT_ENVIRONMENT, "there is no memory for what was submitted");
    return cli_cell_status(r);
}

static int run_code(droste *d, const struct buf *code, bool json)
{
    droste_session *s = NULL;
    droste_result *r = NULL;
    droste_error err;
    int rc = droste_session_open(d, &s, &err);
    if (rc == 0)
        rc = droste_session_load_contexts(s, &err);
    if (rc == 0) {
        const char *notice = droste_session_notice(s);
        if (notice)
            cli_fail(0, "note: %s", notice);
        cli_catch_interrupts(d);
        if (!json)
            droste_session_on_output(s, exec_stream_output, NULL);
        rc = droste_session_exec(s, buf_text(code), code->len, 0, &r, &err);
    }
    int status = rc < 0 ? cli_error(&err) : print_outcome(r, json);
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

static int exec_run(const struct command *self, droste *d, int argc, char **argv)
{
    const char *text = NULL, *file = NULL;
    bool json = false;
    size_t count = 0;
    const struct flag flags[] = {
        { "c", "CODE", "Run this code.", &text, .once = true },
        FLAG_CONTEXT(
            "A file, a directory or - (standard input), bound as `context`; may be repeated."),
        { "json", NULL, "Print one JSON object instead of the output.", NULL, &json },
        { 0 },
    };
    cleanup_buf struct buf code = { 0 };
    int status = cli_parse(self, argc, argv, flags, d, &file, 1, &count);
    if (status < 0 && (text != NULL) == (count == 1))
        status =
            cli_usage(self, text ? "give -c CODE or a FILE, not both"
                                 : "give the code with -c CODE, or a FILE (- for standard input)");
    if (status < 0)
        status = read_code(text, file, &code) ? EXIT_USAGE : -1;
    if (status < 0)
        status = run_code(d, &code, json);
    return status;
}

const struct command command_exec = {
    .name = "exec",
    .synopsis = "[-c CODE | FILE | -] [--context [NAME=]PATH ...] [--json] [--SETTING VALUE ...]",
    .summary = "run Python code in a fresh sandbox",
    .details = "--json prints one object: status (ok, submitted, error, timeout, killed, lost),\n"
               "submit, stdout, stderr, error {type, message, traceback}, killed, seconds,\n"
               "isolation, resources {memory_peak, cpu_seconds, limits}, and more.\n"
               "Exit status: 0 ok or submitted, 1 the code raised an exception, 2 usage error, 3\n"
               "limit or deadline, 4 environment failed, 130 interrupted; N if the code called\n"
               "sys.exit(N).\n",
    .examples = "  droste exec -c 'print(1 + 1)'\n"
                "  droste exec -c 'import math; SUBMIT(answer=math.factorial(15))' --json\n"
                "  droste exec script.py --execute-timeout 10 --memory 512M\n"
                "  droste exec -c 'SUBMIT(lines=len(context.splitlines()))' --context big.txt\n"
                "  droste exec --python .venv/bin/python analysis.py\n",
    .settings = true,
    .run = exec_run,
};
