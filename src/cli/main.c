/* cli/main.c: picks the command; flags, help, errors and interrupts for all of them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/options/help.h"
#include "cli/terminal/screen.h"

static const struct command *const commands[] = { &command_run, &command_chat, &command_batch,
    &command_exec, &command_repl, &command_serve, &command_mcp, &command_jupyter, &command_keys,
    &command_cluster, &command_runs, &command_volume, &command_cp, &command_packages,
    &command_template, &command_env, &command_prompts, &command_smoke, &command_doctor,
    &command_bench, &command_completion, &command_run_basic, &command_daytona_smoke };

const struct command *cli_command_at(size_t index)
{
    return index < array_length(commands) ? commands[index] : NULL;
}

const struct command *cli_command_find(const char *name)
{
    for (size_t i = 0; i < array_length(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* ---- messages ---- */

int cli_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("droste: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return status;
}

void cli_note(const char *format, ...)
{
    cleanup_buf struct buf text = { 0 };
    va_list args;
    va_start(args, format);
    buf_puts(&text, "droste: ");
    buf_vprintf(&text, format, args);
    va_end(args);
    buf_putc(&text, '\n');
    screen_print_text(stderr, buf_text(&text));
}

int cli_usage(const struct command *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "droste %s: ", self->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry 'droste %s --help'.\n", self->name);
    va_end(args);
    return EXIT_USAGE;
}

int cli_status(int code)
{
    static const struct {
        int code, status;
    } statuses[] = {
        { DROSTE_ERROR_ARGUMENT, EXIT_USAGE },
        { DROSTE_ERROR_CONFIG, EXIT_USAGE },
        { DROSTE_ERROR_NOT_FOUND, EXIT_USAGE },
        { DROSTE_ERROR_PERMISSION, EXIT_USAGE },
        { DROSTE_ERROR_TIMEOUT, EXIT_LIMIT },
        { DROSTE_ERROR_BUDGET, EXIT_LIMIT },
        { DROSTE_ERROR_CANCELLED, EXIT_INTERRUPTED },
        { DROSTE_ERROR_ENVIRONMENT, EXIT_ENVIRONMENT },
        { DROSTE_ERROR_UNSUPPORTED, EXIT_ENVIRONMENT },
        { DROSTE_ERROR_LOST, EXIT_ENVIRONMENT },
    };
    if (code >= DROSTE_ERROR_BUDGET_CALLS && code <= DROSTE_ERROR_BUDGET_RECORD)
        code = DROSTE_ERROR_BUDGET;
    for (size_t i = 0; i < array_length(statuses); i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return EXIT_RAISED;
}

int cli_error(const droste_error *err)
{
    fputs("droste: ", stderr);
    cli_print(stderr, err->text, strlen(err->text));
    fputc('\n', stderr);
    return cli_status(err->code);
}

/* The library's form of a command's own error. */
int cli_inner_error(const struct error *err)
{
    droste_error public;
    public_error_copy(err, &public);
    return cli_error(&public);
}

int cli_inner(int rc, const droste_error *why, struct error *err)
{
    if (rc < 0) {
        err->code = (enum error_code)why->code;
        err->sys = why->sys;
        memcpy(err->text, why->text, sizeof err->text);
    }
    return rc;
}

int cli_status_of_cell(const char *status)
{
    static const struct {
        const char *status;
        int exit;
    } statuses[] = {
        { "ok", EXIT_FINE },
        { "submitted", EXIT_FINE },
        { "error", EXIT_RAISED },
        { "timeout", EXIT_LIMIT },
        { "killed", EXIT_LIMIT },
        { "lost", EXIT_ENVIRONMENT },
    };
    for (size_t i = 0; i < array_length(statuses); i++)
        if (strcmp(statuses[i].status, status) == 0)
            return statuses[i].exit;
    return EXIT_ENVIRONMENT;
}

int cli_cell_status(const droste_result *r)
{
    return droste_result_exit_status(r) >= 0 ? droste_result_exit_status(r)
                                             : cli_status_of_cell(droste_result_status(r));
}

void cli_print_exit(const droste_result *r)
{
    const char *message = droste_result_message(r);
    size_t len = message ? strlen(message) : 0;
    if (droste_result_exit_status(r) != EXIT_RAISED || len == 0 ||
        strspn(message, "-0123456789") == len)
        return;
    cli_print(stderr, message, len);
    fputc('\n', stderr);
}

static droste *interruptible; /* stopped by an interrupt, or if the output is closed */

/* The errno of the first failed write to standard output. The stream does not keep it, and a later
 * flush succeeds because nothing is left to write. */
static int output_errno;

static void keep_output_error(FILE *out, bool failed)
{
    if (!failed || out != stdout || output_errno != 0)
        return;
    output_errno = errno;
    if (output_errno == EPIPE && interruptible)
        droste_interrupt(interruptible); /* its output has no reader any more */
}

/* When stdio flushes a full buffer, errno is lost; poll(2) still shows a pipe without a reader. */
bool cli_output_gone(void)
{
    struct pollfd p = { .fd = STDOUT_FILENO };
    if (output_errno == 0 && ferror(stdout) && poll(&p, 1, 0) == 1 && (p.revents & POLLERR))
        output_errno = EPIPE;
    return output_errno == EPIPE;
}

static bool is_dumb(void)
{
    const char *term = getenv("TERM");
    return term && strcmp(term, "dumb") == 0;
}

bool cli_terminal_moves(FILE *out)
{
    return isatty(fileno(out)) && !is_dumb();
}

bool cli_terminal_paints(FILE *out)
{
    const char *no_color = getenv("NO_COLOR");
    return cli_terminal_moves(out) && !(no_color && no_color[0]);
}

static void print_visible(FILE *out, const char *text, size_t len,
    void (*append)(struct buf *out, const char *data, size_t len))
{
    cleanup_buf struct buf visible = { 0 };
    if (isatty(fileno(out))) {
        append(&visible, text, len);
        text = buf_text(&visible);
        len = visible.len;
    }
    keep_output_error(out, fwrite(text, 1, len, out) != len);
}

void cli_print(FILE *out, const char *text, size_t len)
{
    print_visible(out, text, len, text_append_visible);
}

void cli_print_json(const char *json)
{
    print_visible(stdout, json, strlen(json), text_append_visible_json);
    putchar('\n');
}

void cli_flush(FILE *out)
{
    keep_output_error(out, fflush(out) != 0);
}

int cli_finish(int status, const char *what)
{
    cli_flush(stdout);
    if (cli_output_gone())
        return EXIT_PIPE;
    if (!ferror(stdout) && output_errno == 0)
        return status;
    return cli_fail(EXIT_ENVIRONMENT, "writing %s: %s", what,
        output_errno ? strerror(output_errno)
                     : "standard output did not accept all of it; check the disk");
}

int cli_end(int rc, const struct error *err, const char *what)
{
    if (rc >= 0)
        return cli_finish(EXIT_FINE, what);
    cli_flush(stdout);
    return cli_inner_error(err);
}

/* ---- interrupts ---- */

static volatile sig_atomic_t interrupts;

/* The loop handles an interrupt asynchronously. The third one exits at once: the sandboxes die with
 * this process, and the record has every step that ended. */
static void main_on_signal(int signal)
{
    if (interrupts == 2)
        _exit(EXIT_INTERRUPTED);
    interrupts++;
    droste_interrupt(interruptible);
}

void cli_raise_descriptors(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

void cli_catch_interrupts(droste *d)
{
    /* Without SA_RESTART, so that a read of the terminal ends too. */
    struct sigaction action = { .sa_handler = main_on_signal };
    interruptible = d;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_was_interrupted(void)
{
    bool was = interrupts > 0;
    interrupts = 0;
    return was;
}

/* A producer in the same pipeline may need a moment before its first line. */
enum { FIRST_INPUT_MS = 300 };

static bool input_waits(int milliseconds)
{
    struct stat st;
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    int ready = 0;
    if (fstat(STDIN_FILENO, &st) < 0)
        return false;
    if (S_ISREG(st.st_mode))
        return lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size;
    return S_ISFIFO(st.st_mode) && poll(&p, 1, milliseconds) == 1 &&
           ioctl(STDIN_FILENO, FIONREAD, &ready) == 0 && ready > 0;
}

static const char unread_input[] = "note: standard input is not read; use --context - to read it";

int cli_check_input(const struct command *self, droste *d, bool asked)
{
    if (droste_context_reads_input(d) || !input_waits(FIRST_INPUT_MS))
        return -1;
    if (droste_context_count(d) == 0)
        return cli_usage(self, "standard input has data that is not used: %s",
            asked ? "use --context - to ask about it, or </dev/null"
                  : "use `-` as the question if it is the question, or `--context - 'QUESTION'` "
                    "to ask about it");
    cli_note("%s", unread_input);
    return -1;
}

void cli_note_input(droste *d)
{
    if (!droste_context_reads_input(d) && input_waits(0))
        cli_note("%s", unread_input);
}

bool cli_count(const char *text, int64_t least, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *out >= least;
}

/* The next open file would get the descriptor of a closed standard stream. Open /dev/null there, in
 * the opposite direction, so that reads and writes still fail. */
static void keep_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* On a terminal, notices overwrite one line, which an empty one clears; elsewhere, only the first
 * is printed. */
static void print_notice(void *arg, const char *text)
{
    bool *printed = arg;
    cleanup_buf struct buf line = { 0 };
    struct screen screen;
    screen_open(&screen, stderr);
    if (screen.moves) {
        screen_fit(&screen, &line, text, strlen(text), screen_columns(&screen) - 1);
        fprintf(stderr, "\r\033[K%s", buf_text(&line));
    } else if (!*printed) {
        cli_print(stderr, text, strlen(text));
        fputc('\n', stderr);
    }
    screen_close(&screen);
    *printed = true;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    droste *d = NULL;
    droste_error err;
    bool printed = false;
    int status = droste_new(&d, &err) < 0 ? cli_error(&err) : -1;
    if (status < 0)
        droste_on_notice(d, print_notice, &printed);
    for (const struct command_default *f = command->defaults; status < 0 && f && f->name; f++)
        status = cli_set(d, f->name, f->value);
    if (status < 0)
        status = command->run(command, d, argc, argv);
    droste_free(d);
    return status;
}

static int refuse_command(const char *word)
{
    struct suggestion s = { .typed = word, .len = strlen(word) };
    for (size_t i = 0; i < array_length(commands); i++)
        suggestion_consider(&s, commands[i]->name);
    const char *best = suggestion_best(&s);
    if (best)
        return cli_fail(EXIT_USAGE, "unknown command '%s'; did you mean %s?", word, best);
    cli_fail(EXIT_USAGE, "unknown command '%s'; 'droste help' lists them", word);
    return help_print_overview(stderr, false);
}

/* `droste help [all]`, or `droste help COMMAND [all]`, which is `droste COMMAND --help [all]`. */
static int print_help(int argc, char **argv)
{
    bool all = argc == 2 && strcmp(argv[1], "all") == 0;
    const struct command *command = argc > 1 ? cli_command_find(argv[1]) : NULL;
    char flag[] = "--help", *words[] = { argv[1], flag, argc > 2 ? argv[2] : NULL, NULL };
    if (argc > 1 && !command && !all)
        return refuse_command(argv[1]);
    return command ? run_command(command, argc > 2 ? 3 : 2, words)
                   : help_print_overview(stdout, all);
}

int main(int argc, char **argv)
{
    keep_standard_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(
        SIGCHLD, SIG_DFL); /* if inherited as ignored, waitpid(2) could not report exit statuses */
    if (argc < 2)
        return help_print_overview(stderr, false);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0) {
        printf("droste %s\n", droste_version());
        return cli_finish(EXIT_FINE, "the version");
    }
    const struct command *command = cli_command_find(argv[1]);
    if (!command)
        return refuse_command(argv[1]);
    int status = cli_replace_pipes(argc - 2, argv + 2);
    return status < 0 ? run_command(command, argc - 1, argv + 1) : status;
}
