/* cli/main.c: picks the command and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/options/help.h"
#include "cli/terminal/screen.h"

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
    const struct command *command;
    for (size_t i = 0; (command = cli_command_at(i)); i++)
        suggestion_consider(&s, command->name);
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

/* In a wheel, this is a function of the library, and start.c has the program's main(). */
#ifndef DROSTE_MAIN
#define DROSTE_MAIN main
#endif

int DROSTE_MAIN(int argc, char **argv) __attribute__((visibility("default")));

int DROSTE_MAIN(int argc, char **argv)
{
    keep_standard_streams();
    signal(SIGPIPE, SIG_IGN);
    /* If inherited as ignored, waitpid(2) could not report exit statuses. */
    signal(SIGCHLD, SIG_DFL);
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
