/* cli/main.c: picks the command; flags, help, errors and interrupts for all of them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"

static const struct command *const commands[] = { &command_run, &command_chat, &command_batch,
    &command_exec, &command_repl, &command_runs, &command_volume, &command_env, &command_prompts,
    &command_smoke, &command_doctor, &command_bench, &command_run_basic, &command_daytona_smoke };

/* ---- words to people ---- */

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
static void cli_outer(const struct error *why, droste_error *err)
{
    err->code = (int)why->code;
    err->sys = why->sys;
    memcpy(err->text, why->text, sizeof err->text);
}

int cli_inner_error(const struct error *err)
{
    droste_error public;
    cli_outer(err, &public);
    return cli_error(&public);
}

static void set_error_v(droste_error *err, int code, int sys, const char *format, va_list args)
{
    cleanup_buf struct buf text = { 0 };
    struct error why = { 0 };
    buf_vprintf(&text, format, args);
    errno = sys;
    if (sys)
        error_set_errno(&why, (enum error_code)code, "%s", buf_text(&text));
    else
        error_set(&why, (enum error_code)code, "%s", buf_text(&text));
    cli_outer(&why, err);
}

int cli_set_error(droste_error *err, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_error_v(err, code, 0, format, args);
    va_end(args);
    return -code;
}

int cli_set_errno(droste_error *err, int code, const char *format, ...)
{
    int sys = errno;
    va_list args;
    va_start(args, format);
    set_error_v(err, code, sys, format, args);
    va_end(args);
    return -code;
}

int cli_set_memory(droste_error *err)
{
    return cli_set_error(err, DROSTE_ERROR_MEMORY, "out of memory");
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

int cli_cell_status(const droste_result *r)
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
    if (droste_result_exit_status(r) >= 0)
        return droste_result_exit_status(r);
    for (size_t i = 0; i < array_length(statuses); i++)
        if (strcmp(statuses[i].status, droste_result_status(r)) == 0)
            return statuses[i].exit;
    return EXIT_ENVIRONMENT;
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

static droste *interruptible; /* what an interrupt, or a closed output, stops */

/* Of the first write to standard output that failed. A stream forgets why, and a later flush of it
 * succeeds because there is nothing left to write. */
static int output_errno;

static void keep_output_error(FILE *out, bool failed)
{
    if (!failed || out != stdout || output_errno != 0)
        return;
    output_errno = errno;
    if (output_errno == EPIPE && interruptible)
        droste_interrupt(interruptible); /* what runs has no reader any more */
}

/* What stdio wrote by itself left no errno, but a pipe without a reader can be seen. */
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
        output_errno ? strerror(output_errno) : "standard output did not accept all of it");
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

/* The loop hears of an interrupt when it gets to it. Somebody who asks a third time is not kept
 * waiting: the sandboxes die with this process, and the record has every step that ended. */
static void main_on_signal(int signal)
{
    if (interrupts == 2)
        _exit(EXIT_INTERRUPTED);
    interrupts++;
    droste_interrupt(interruptible);
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

/* ---- help ---- */

static void print_flag(const char *name, const char *value, const char *help, const char *fallback,
    const char *environment)
{
    char left[80];
    snprintf(left, sizeof left, "%s%s%s%s", name[1] ? "--" : "-", name, value ? " " : "",
        value ? value : "");
    printf("  %-28s %s", left, help);
    if (fallback && fallback[0])
        printf(" [%s]", fallback);
    if (environment)
        printf(" ($%s)", environment);
    putchar('\n');
}

static const struct flag *find_flag(const struct flag *flags, const char *name, size_t len)
{
    for (; flags->name; flags++)
        if (strlen(flags->name) == len && strncmp(flags->name, name, len) == 0)
            return flags;
    return NULL;
}

static int print_help(const struct command *self, const struct flag *flags)
{
    printf("usage: droste %s %s\n\n%s\n", self->name, self->synopsis, self->summary);
    if (flags->name)
        puts("\nFlags:");
    for (const struct flag *f = flags; f->name; f++)
        print_flag(f->name, f->value, f->help, NULL, NULL);
    if (self->settings) {
        const droste_option *o;
        puts("\nSettings (also in config.ini, as name = value):");
        for (size_t i = 0; (o = droste_option_at(i)); i++)
            if (!o->secret && !find_flag(flags, o->name, strlen(o->name)))
                print_flag(o->name, o->value, o->help, o->fallback, o->environment);
    }
    if (self->details)
        printf("\n%s", self->details);
    printf("\nExamples:\n%s", self->examples);
    return EXIT_FINE;
}

static int print_overview(FILE *out)
{
    fprintf(out,
        "usage: droste COMMAND [...]\n\n"
        "Droste runs language-model-written Python in a sandbox, with a bridge from inside\n"
        "it to the models: a runtime for Recursive Language Models.\n\n");
    for (size_t i = 0; i < array_length(commands); i++)
        fprintf(out, "  %-13s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(
        out, "\n'droste COMMAND --help' has flags and examples. Version %s.\n", droste_version());
    return out == stdout ? EXIT_FINE : EXIT_USAGE;
}

/* ---- flags ---- */

static const droste_option *find_option(const char *name, size_t len)
{
    const droste_option *o;
    for (size_t i = 0; (o = droste_option_at(i)); i++)
        if (strlen(o->name) == len && strncmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

struct parsing {
    const struct command *self;
    int argc;
    char **argv;
    int at;
    const struct flag *flags;
    uint64_t given; /* a bit for each of the flags that stood already */
    droste *d;
};

/* The value of the flag at hand: behind '=', or the next word. */
static const char *main_take_value(struct parsing *p, const char *behind)
{
    if (behind)
        return behind;
    return p->at + 1 < p->argc ? p->argv[++p->at] : NULL;
}

static int set_text_flag(
    struct parsing *p, const struct flag *flag, const char *word, const char *value)
{
    uint64_t bit = UINT64_C(1) << (flag - p->flags);
    if (flag->once && (p->given & bit))
        return cli_usage(p->self, "%s is given twice", word);
    p->given |= bit;
    *flag->text = value;
    return -1;
}

/* One flag; -1 to go on. */
static int take_flag(struct parsing *p)
{
    const char *word = p->argv[p->at], *name = word + (word[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const char *behind = equals ? equals + 1 : NULL;
    const struct flag *flag = find_flag(p->flags, name, len);
    if (strcmp(name, "help") == 0 || strcmp(word, "-h") == 0)
        return print_help(p->self, p->flags);
    if (flag && flag->on) {
        *flag->on = true;
        return behind ? cli_usage(p->self, "%s takes no value", word) : -1;
    }
    const droste_option *option = p->d && p->self->settings ? find_option(name, len) : NULL;
    if (!flag && !option)
        return cli_usage(p->self, "unknown flag '%.*s'", (int)(name - word) + (int)len, word);
    if (option && option->secret)
        return cli_usage(p->self,
            "--%s would be visible to all users of this machine; set %s, or `%s = …` in config.ini",
            option->name, option->environment, option->name);
    const char *value = main_take_value(p, behind);
    if (!value)
        return cli_usage(
            p->self, "%s needs a value (%s)", word, flag ? flag->value : option->value);
    droste_error err;
    if (flag && flag->add)
        return flag->add(p->d, value, &err) < 0 ? cli_error(&err) : -1;
    if (flag)
        return set_text_flag(p, flag, word, value);
    return droste_set(p->d, option->name, value, &err) < 0 ? cli_error(&err) : -1;
}

int cli_parse(const struct command *self, int argc, char **argv, const struct flag *flags,
    droste *d, const char **words, size_t max, size_t *count)
{
    struct parsing p = { self, argc, argv, 1, flags, 0, d };
    droste_error err;
    bool only_words = false;
    size_t found = 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help(self, flags);
    if (d && droste_configure(d, getenv("DROSTE_CONFIG"), &err) < 0)
        return cli_error(&err);
    for (; p.at < argc; p.at++) {
        const char *word = argv[p.at];
        if (!only_words && strcmp(word, "--") == 0) {
            only_words = true;
        } else if (!only_words && word[0] == '-' && word[1] != '\0') {
            int status = take_flag(&p);
            if (status >= 0)
                return status;
        } else if (found < max) {
            words[found++] = word;
        } else {
            return cli_usage(self, "unexpected argument '%s'", word);
        }
    }
    if (count)
        *count = found;
    return -1;
}

int cli_set(droste *d, const char *name, const char *value)
{
    droste_error err;
    return value && droste_set(d, name, value, &err) < 0 ? cli_error(&err) : -1;
}

/* A producer in the same pipeline may need a moment before its first line. */
enum { FIRST_INPUT_MS = 300 };

static bool input_waits(void)
{
    struct stat st;
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    int ready = 0;
    if (fstat(STDIN_FILENO, &st) < 0)
        return false;
    if (S_ISREG(st.st_mode))
        return lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size;
    return S_ISFIFO(st.st_mode) && poll(&p, 1, FIRST_INPUT_MS) == 1 &&
           ioctl(STDIN_FILENO, FIONREAD, &ready) == 0 && ready > 0;
}

int cli_check_input(const struct command *self, droste *d)
{
    if (droste_context_reads_input(d) || !input_waits())
        return -1;
    if (droste_context_count(d) == 0)
        return cli_usage(self,
            "standard input has data that nothing reads: use --context - to ask about it, or "
            "</dev/null");
    cli_fail(0, "note: standard input is not read; --context - would read it");
    return -1;
}

bool cli_count(const char *text, int64_t least, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *out >= least;
}

/* A closed standard stream would be given out again as something else's descriptor. What takes its
 * place is open the wrong way round, so that using it fails as it would have failed. */
static void keep_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* On a terminal the line is written over, and an empty one ends it; elsewhere the first says enough. */
static void print_notice(void *arg, const char *text)
{
    bool *told = arg;
    if (cli_terminal_moves(stderr))
        fprintf(stderr, "\r\033[K%.100s", text);
    else if (!*told)
        fprintf(stderr, "%s\n", text);
    *told = true;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    droste *d = NULL;
    droste_error err;
    bool told = false;
    int status = droste_new(&d, &err) < 0 ? cli_error(&err) : -1;
    if (status < 0)
        droste_on_notice(d, print_notice, &told);
    for (const struct command_default *f = command->defaults; status < 0 && f && f->name; f++)
        status = cli_set(d, f->name, f->value);
    if (status < 0)
        status = command->run(command, d, argc, argv);
    droste_free(d);
    return status;
}

int main(int argc, char **argv)
{
    keep_standard_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD,
        SIG_DFL); /* whoever started us may ignore it; then nobody knows how a program ended */
    if (argc < 2)
        return print_overview(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_overview(stdout);
    if (strcmp(argv[1], "--version") == 0) {
        printf("droste %s\n", droste_version());
        return EXIT_FINE;
    }
    for (size_t i = 0; i < array_length(commands); i++)
        if (strcmp(commands[i]->name, argv[1]) == 0) {
            int status = cli_replace_pipes(argc - 2, argv + 2);
            return status < 0 ? run_command(commands[i], argc - 1, argv + 1) : status;
        }
    cli_fail(EXIT_USAGE, "there is no command '%s'", argv[1]);
    return print_overview(stderr);
}
