/* cli/repl.c: droste repl: one session, cell by cell.
 *
 * Only Python can decide whether a cell is complete. A second sandbox, the reader, does that and
 * nothing else, so that the session's cells, variables and `_` are the user's alone, even if a cell
 * changes builtins.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json/json.h"
#include "cli/approvals.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/results.h"
#include "cli/terminal/lines.h"
#include "cli/terminal/screen.h"

struct repl {
    droste *d;
    struct lines *lines;
    droste_session *session, *reader;
    char python[64];
    bool in_line; /* the last output did not end its line */
    bool over;
    bool exited; /* by exit() or sys.exit() */
    int status;  /* of the last cell that failed */
    struct image_files images;
};

static void repl_stream_output(void *arg, int stream, const char *data, size_t len)
{
    struct repl *r = arg;
    FILE *out = stream == 1 ? stdout : stderr;
    cli_print(out, data, len);
    fflush(out);
    if (len > 0)
        r->in_line = data[len - 1] != '\n';
}

static void repl_end_line(struct repl *r)
{
    if (r->in_line && lines_is_terminal(r->lines))
        putchar('\n');
    r->in_line = false;
}

/* The image of the last expression's value comes after its text, at the end of the cell. */
static void repl_show_image(void *arg, const droste_bundles *results, size_t result)
{
    struct repl *r = arg;
    if (droste_bundles_is_main(results, result) || !cli_has_image(results, result))
        return;
    repl_end_line(r);
    cli_save_image(&r->images, results, result);
    fflush(stdout);
}

/* ---- the reader ---- */

/* codeop as in Python's own prompt, with top-level await, which sessions have. */
static const char reader_code[] =
    "import ast, codeop, platform\n"
    "compiler = codeop.CommandCompiler()\n"
    "compiler.compiler.flags |= getattr(ast, 'PyCF_ALLOW_TOP_LEVEL_AWAIT', 0)\n"
    "def complete(source):\n"
    "    try:\n"
    "        return compiler(source, '<stdin>', 'single') is not None\n"
    "    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):\n"
    "        return True\n" /* running the cell will show it */
    "SUBMIT(platform.python_version())\n";

/* Runs code in the reader; returns the text that it submits, "" if it failed. */
static void ask_reader(struct repl *r, const char *code, char *out, size_t size)
{
    droste_result *result = NULL;
    cleanup_json struct json_object *o = NULL;
    const char *submit = NULL;
    size_t len = 0;
    out[0] = '\0';
    if (droste_session_exec(r->reader, code, strlen(code), 0, &result, NULL) == 0)
        submit = droste_result_submit(result, &len);
    if (submit && json_parse(submit, len, &json_limits_small, &o, NULL) == 0)
        snprintf(out, size, "%s", json_object_get_string(json_object_object_get(o, "output")));
    droste_result_free(result);
}

static int open_reader(struct repl *r, droste_error *err)
{
    int rc = droste_session_open_plain(r->d, &r->reader, err);
    if (rc == 0)
        ask_reader(r, reader_code, r->python, sizeof r->python);
    return rc;
}

/* Starts the reader again if it has reached the --timeout of sessions. */
static bool is_complete(struct repl *r, const struct buf *cell)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        char answer[16] = "";
        if (!r->reader && open_reader(r, NULL) < 0)
            return true;
        if (droste_session_set(r->reader, "source", "text", buf_text(cell), cell->len, NULL) == 0)
            ask_reader(r, "SUBMIT(complete(source))", answer, sizeof answer);
        if (answer[0])
            return strcmp(answer, "true") == 0;
        droste_session_close(steal(&r->reader));
    }
    return true;
}

/* ---- the session ---- */

static int repl_open_session(struct repl *r, droste_error *err)
{
    cli_approve_session(r->d);
    int rc = droste_session_open(r->d, &r->session, err);
    if (rc < 0)
        return rc;
    droste_session_on_output(r->session, repl_stream_output, r);
    droste_session_on_display(r->session, repl_show_image, r);
    return droste_session_load_contexts(r->session, err);
}

/* ---- completion ---- */

/* In the user's session, without binding a name there. What reading an attribute prints is not
 * shown, and what takes longer than the limit is given up. */
static const char completion_code[] =
    "SUBMIT(output=(lambda c, w: '\\n'.join((c.attr_matches if '.' in w else c.global_matches)(w)"
    "))(__import__('rlcompleter').Completer(globals()), '%.*s'))";
static const double completion_seconds = 2;

static void repl_complete(void *arg, const char *word, size_t len, struct buf *out)
{
    struct repl *r = arg;
    cleanup_buf struct buf code = { 0 };
    cleanup_json struct json_object *o = NULL;
    droste_result *result = NULL;
    size_t size = 0;
    buf_printf(&code, completion_code, (int)len, word);
    droste_session_on_output(r->session, NULL, NULL);
    if (droste_session_exec_start(
            r->session, buf_text(&code), code.len, 0, completion_seconds, NULL) == 0)
        droste_session_wait(r->session, -1, &result, NULL);
    droste_session_on_output(r->session, repl_stream_output, r);
    const char *submit = result ? droste_result_submit(result, &size) : NULL;
    if (submit && json_parse(submit, size, &json_limits_small, &o, NULL) == 0) {
        const char *names = json_get_string(o, "output", "");
        buf_puts(out, names);
    }
    droste_result_free(result);
}

/* ---- checkpoints ---- */

static int repl_make_checkpoint(struct repl *r, unsigned unused, droste_error *err)
{
    unsigned id;
    int rc = droste_session_checkpoint(r->session, &id, err);
    if (rc == 0)
        printf("checkpoint %u\n", id);
    return rc;
}

static int repl_roll_back(struct repl *r, unsigned id, droste_error *err)
{
    int rc = droste_session_rollback(r->session, id, err);
    if (rc == 0)
        printf("back at checkpoint %u; files are as they were left\n", id);
    return rc;
}

static int repl_forget(struct repl *r, unsigned id, droste_error *err)
{
    return droste_session_forget(r->session, id, err);
}

static int repl_list_checkpoints(struct repl *r, unsigned unused, droste_error *err)
{
    size_t count = droste_session_checkpoints(r->session, NULL, 0);
    cleanup_free droste_checkpoint *all = calloc(count + 1, sizeof *all);
    if (!all || count == 0) {
        puts("no checkpoints; /checkpoint makes one");
        return 0;
    }
    droste_session_checkpoints(r->session, all, count);
    for (size_t i = 0; i < count; i++) {
        char parent[24] = "";
        if (all[i].parent)
            snprintf(parent, sizeof parent, ", from %u", all[i].parent);
        printf("%c %u  after cell %llu%s, %.1f MB\n", all[i].current ? '*' : ' ', all[i].id,
            (unsigned long long)all[i].cell, parent, (double)all[i].memory / 1e6);
    }
    return 0;
}

static const struct {
    const char *name;
    bool takes_id;
    int (*run)(struct repl *r, unsigned id, droste_error *err);
} repl_commands[] = {
    { "checkpoint", false, repl_make_checkpoint },
    { "checkpoints", false, repl_list_checkpoints },
    { "rollback", true, repl_roll_back },
    { "forget", true, repl_forget },
};

/* A line that begins with a slash, which no Python code does. */
static void repl_run_command(struct repl *r, const char *line)
{
    char name[16], rest;
    unsigned id = 0;
    droste_error err;
    int words = sscanf(line, "/%15[a-z] %9u %c", name, &id, &rest);
    for (size_t i = 0; i < array_length(repl_commands); i++) {
        if (words < 1 || strcmp(repl_commands[i].name, name) != 0)
            continue;
        if (words == 1 + repl_commands[i].takes_id) {
            if (repl_commands[i].run(r, id, &err) < 0)
                r->status = cli_error(&err);
            fflush(stdout);
            return;
        }
    }
    r->status = cli_fail(EXIT_USAGE,
        "commands are /checkpoint, /checkpoints, /rollback ID and /forget ID; everything else is "
        "Python");
}

/* ---- cells ---- */

/* The checkpoint that the session made, or went back to, last; 0: none. */
static unsigned repl_current_checkpoint(const struct repl *r)
{
    size_t count = droste_session_checkpoints(r->session, NULL, 0);
    cleanup_free droste_checkpoint *all = calloc(count + 1, sizeof *all);
    count = all ? droste_session_checkpoints(r->session, all, count) : 0;
    for (size_t i = 0; i < count; i++)
        if (all[i].current)
            return all[i].id;
    return 0;
}

/* After a session has ended and the user was notified: goes back to a checkpoint, or starts a new
 * session. */
static void repl_restart(struct repl *r)
{
    droste_error err;
    unsigned checkpoint = repl_current_checkpoint(r);
    if (checkpoint && droste_session_rollback(r->session, checkpoint, &err) == 0) {
        cli_note("back at checkpoint %u", checkpoint);
        return;
    }
    if (droste_session_finish(r->session, &err) < 0)
        cli_error(&err);
    droste_session_close(steal(&r->session));
    if (repl_open_session(r, &err) < 0) {
        r->status = cli_error(&err);
        r->over = true;
        return;
    }
    cli_note("new session: the variables are lost%s",
        droste_context_count(r->d) > 0 ? ", `context` was loaded again" : "");
}

static void repl_print_result(struct repl *r, const droste_result *result)
{
    size_t len;
    bool exits = droste_result_exit_status(result) >= 0;
    const char *echo = droste_result_echo(result), *submit = droste_result_submit(result, &len);
    const char *traceback = droste_result_traceback(result);
    repl_end_line(r);
    if (echo) {
        cli_print(stdout, echo, strlen(echo));
        putchar('\n');
    }
    long shown = droste_result_main(result);
    if (shown >= 0)
        cli_save_image(&r->images, droste_result_shown(result), (size_t)shown);
    if (submit) {
        fputs("submitted: ", stdout);
        cli_print(stdout, submit, len);
        putchar('\n');
    }
    fflush(stdout);
    if (exits)
        cli_print_exit(result);
    else if (traceback)
        cli_print(stderr, traceback, strlen(traceback));
}

/* Prints why a cell was stopped, and whether the session is left. */
static void repl_explain(struct repl *r, const droste_result *result, bool interrupted)
{
    bool late = strcmp(droste_result_status(result), "timeout") == 0;
    droste_error why;
    droste_result_error(result, &why);
    if (!droste_result_alive(result)) {
        if (why.code != DROSTE_ERROR_NONE)
            cli_error(&why);
        repl_restart(r);
    } else if (droste_result_rolled_back(result) >= 0) {
        cli_error(&why);
    } else if (interrupted || late) {
        cli_note("%s; the session and its variables are kept",
            late ? "the cell reached its --execute-timeout" : "interrupted");
    }
}

/* The cell did not run. */
static void repl_refuse(struct repl *r, const droste_error *err)
{
    r->status = cli_error(err);
    if (err->code == DROSTE_ERROR_ARGUMENT || err->code == DROSTE_ERROR_MEMORY)
        return;
    cli_note("the cell did not run");
    repl_restart(r);
}

static void repl_run_cell(struct repl *r, struct buf *cell)
{
    droste_result *result = NULL;
    droste_error err;
    buf_putc(cell, '\n');
    lines_busy(r->lines, r->d);
    int flags = DROSTE_ECHO | DROSTE_RESULTS | DROSTE_PRINT;
    int rc = droste_session_exec(r->session, buf_text(cell), cell->len, flags, &result, &err);
    enum lines_event event = lines_busy_end(r->lines);
    droste_turn(r->d, 0, NULL); /* an interrupt that came too late must not hit the next cell */
    if (rc < 0) {
        repl_refuse(r, &err);
    } else {
        int status = cli_cell_status(result);
        r->exited = droste_result_exit_status(result) >= 0;
        r->over = r->over || r->exited;
        if (status != EXIT_FINE || r->exited)
            r->status = status;
        repl_print_result(r, result);
        repl_explain(r, result, event == LINES_INTERRUPT);
    }
    droste_result_free(result);
    if (event == LINES_LEAVE || (event == LINES_INTERRUPT && !lines_is_terminal(r->lines))) {
        r->status = EXIT_INTERRUPTED;
        r->over = true;
    }
}

/* ---- the loop ---- */

static bool repl_is_blank(const struct buf *line)
{
    return strspn(buf_text(line), " \t\r") == line->len;
}

static void repl_take_line(struct repl *r, const struct buf *line, struct buf *cell)
{
    if (cell->len == 0 && repl_is_blank(line))
        return;
    if (cell->len == 0 && buf_text(line)[0] == '/') {
        lines_remember(r->lines, line);
        repl_run_command(r, buf_text(line));
        return;
    }
    if (cell->len > 0)
        buf_putc(cell, '\n');
    buf_append(cell, buf_text(line), line->len);
    if (!is_complete(r, cell))
        return;
    lines_remember(r->lines, cell);
    repl_run_cell(r, cell);
    buf_clear(cell);
}

static void stop_reading(struct repl *r, enum lines_event event, struct buf *cell)
{
    bool terminal = lines_is_terminal(r->lines);
    if (terminal)
        putchar('\n');
    if (event == LINES_INTERRUPT && terminal) {
        buf_clear(cell);
        return;
    }
    r->over = true;
    if (event != LINES_END)
        r->status = EXIT_INTERRUPTED;
    else if (cell->len > 0)
        repl_run_cell(r, cell);
}

static int read_and_run(struct repl *r)
{
    cleanup_buf struct buf cell = { 0 };
    while (!r->over) {
        cleanup_buf struct buf line = { 0 };
        enum lines_event event = lines_read(r->lines, cell.len > 0 ? "... " : ">>> ", &line);
        if (event == LINES_LINE)
            repl_take_line(r, &line, &cell);
        else
            stop_reading(r, event, &cell);
        if (buf_failed(&cell) || buf_failed(&line))
            return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    }
    /* At a terminal, the user has seen the errors; a script's caller has only the status. */
    bool seen = lines_is_terminal(r->lines) && r->status == EXIT_RAISED && !r->exited;
    return seen ? EXIT_FINE : r->status;
}

static void repl_greet(const struct repl *r)
{
    const char *model = droste_get(r->d, "model");
    cleanup_buf struct buf text = { 0 };
    if (!lines_is_terminal(r->lines))
        return;
    buf_printf(&text,
        "Droste %s, Python %s, isolation %s, %s%s. Ctrl-C interrupts, exit() or Ctrl-D leaves.\n",
        droste_version(), r->python, droste_session_isolation(r->session),
        model ? "model " : "no model", model ? model : "");
    screen_print_text(stdout, buf_text(&text));
}

static int repl_converse(struct repl *r)
{
    droste_error err;
    struct error why = { 0 };
    if (repl_open_session(r, &err) < 0 || open_reader(r, &err) < 0)
        return cli_error(&err);
    if (lines_open(&r->lines, &why) < 0)
        return cli_error(&why);
    lines_complete_with(r->lines, repl_complete, r);
    repl_greet(r);
    int status = read_and_run(r);
    if (r->session && droste_session_finish(r->session, &err) < 0) {
        int failed = cli_error(&err);
        status = status == EXIT_FINE ? failed : status;
    }
    return cli_finish(status, "the output");
}

static int repl_run(const struct command *self, droste *d, int argc, char **argv)
{
    struct repl r = { .d = d };
    const char *server = NULL;
    const struct flag flags[] = {
        FLAG_CONTEXT("A file or a directory, bound as `context`; may be repeated."),
        FLAG_NO_SERVER(&server),
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, NULL, 0, NULL);
    if (status < 0)
        status = remote_refuse(self->name, server);
    if (status < 0 && droste_context_reads_input(d))
        status = cli_usage(self, "standard input has the code; use --context PATH for the context");
    if (status < 0)
        status = repl_converse(&r);
    lines_close(r.lines);
    free(r.images.directory);
    return status;
}

const struct command command_repl = {
    .name = "repl",
    .synopsis = "[--context [NAME=]PATH ...] [--SETTING VALUE ...]",
    .summary = "start a Python prompt in a sandbox",
    .details = "A cell runs as soon as it is complete; a blank line ends a block. Tab completes\n"
               "names, and indents. Up brings back a whole block for editing. Ctrl-C clears\n"
               "the line, or interrupts the cell and keeps the variables. If a sandbox dies, a\n"
               "new one replaces it, without the variables. Standard input may be a pipe; then\n"
               "there is no prompt. Images that a cell shows, such as figures, are saved to a new\n"
               "directory in $TMPDIR, and named.\n"
               "\n"
               "/checkpoint keeps the state of all variables and prints its number; /rollback ID\n"
               "goes back to it; /checkpoints lists them, and /forget ID drops one. If a sandbox\n"
               "dies, the session goes back to the last one, if there is any. With --checkpoint\n"
               "auto, a cell that is killed is undone.\n"
               "\n"
               "exit(N) leaves with status N. Otherwise, the exit status is 0 on a terminal. For\n"
               "a pipe, it is that of the last cell that failed: 1 exception, 3 limit or\n"
               "deadline, 4 environment failed. 2 is a usage error, 130 an interrupt.\n",
    .examples = "  droste repl\n"
                "  droste repl --context big.txt --model gpt-5-mini\n"
                "  droste repl --checkpoint auto --execute-timeout 10\n"
                "  droste repl --python .venv/bin/python --preload numpy,pandas\n"
                "  echo 'print(1 + 1)' | droste repl\n",
    .settings = SETTINGS_SANDBOX,
    .run = repl_run,
};
