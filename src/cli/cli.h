/* cli/cli.h: what the commands share: one table a command, flags from the library's settings.
 *
 * Commands have no logic of their own: they read flags, call the library, and print.
 */
#ifndef DROSTE_CLI_CLI_H
#define DROSTE_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "droste.h"

/* Exit statuses, the same for all commands. */
enum {
    EXIT_FINE = 0,
    EXIT_RAISED = 1, /* the code raised; a run has no answer */
    EXIT_USAGE = 2,
    EXIT_LIMIT = 3,       /* a limit or deadline */
    EXIT_ENVIRONMENT = 4, /* the environment failed */
    EXIT_INTERRUPTED = 130,
    EXIT_PIPE = 141, /* standard output was closed by its reader, as after SIGPIPE */
};

/* A flag of one command, beside the settings. */
struct flag {
    const char *name;  /* without the dashes; one letter: a short flag */
    const char *value; /* what it takes, as help shows it; NULL: nothing */
    const char *help;
    const char **text; /* where the value goes */
    bool *on;          /* or that it was given */
    /* or who takes the value, as often as it is given */
    int (*add)(droste *d, const char *value, droste_error *err);
    bool
        once; /* what it takes is too much to be replaced by a second one; of others the last counts */
};

/* The flag --context of a command: PATH or NAME=PATH, each a context of the droste. */
#define FLAG_CONTEXT(help)                                                                         \
    {                                                                                              \
        "context", "[NAME=]PATH", help, NULL, NULL, droste_context_add                             \
    }

/* A setting that a command has from the start. */
struct command_default {
    const char *name, *value;
};

struct command {
    const char *name;
    const char *synopsis; /* behind "droste NAME " */
    const char *summary;
    const char *details; /* exit statuses, notes; may be NULL */
    const char *examples;
    bool settings; /* takes the library's settings as flags */
    const struct command_default
        *defaults; /* what the configuration and flags overrule; ends with a NULL name */
    /* Returns the exit status. `d` is made before, and freed behind it. */
    int (*run)(const struct command *self, droste *d, int argc, char **argv);
};

extern const struct command command_run, command_chat, command_batch, command_exec, command_repl,
    command_runs, command_volume, command_env, command_prompts, command_smoke, command_doctor,
    command_bench, command_run_basic, command_daytona_smoke;

/* Reads the flags of `argv` (argv[0] is the command's name): `flags` ends with a NULL name, and
 * `d`, if the command takes settings, gets those. The configuration comes first. Arguments that are
 * no flags go to `words` (at most `max`), their number to *count. Returns -1 to go on, else the
 * status with which to end (help was printed, or a mistake explained). */
int cli_parse(const struct command *self, int argc, char **argv, const struct flag *flags,
    droste *d, const char **words, size_t max, size_t *count);

/* "droste: TEXT" on standard error; returns `status`. */
int cli_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The status that suits an error code of the library. */
int cli_status(int code);
/* Prints an error of the library; returns its status. */
int cli_error(const droste_error *err);
struct error;
int cli_inner_error(const struct error *err); /* of a command's own */
/* The library's error becomes a command's own, where rc is negative; returns rc. */
int cli_inner(int rc, const droste_error *why, struct error *err);
/* As error_set, error_set_errno and error_memory: an error in the form of the library. */
int cli_set_error(droste_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int cli_set_errno(droste_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int cli_set_memory(droste_error *err);
/* As above, for a usage mistake: with a pointer to --help. */
int cli_usage(const struct command *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets a setting to what a flag of the command's own gave; NULL: nothing was. -1 to go on, else the status. */
int cli_set(droste *d, const char *name, const char *value);

/* Replaces the pipes that arguments name, as `<(program)` does, by memory files with what they
 * hold. -1 to go on, else the status. */
int cli_replace_pipes(int argc, char **argv);

/* Standard input that has something to read, though no context is `-`: a mistake where there is no other context
 * either, else worth a note. -1 to go on, else the status. */
int cli_check_input(const struct command *self, droste *d);

/* A whole number that is not less than `least`; false if the text is none. */
bool cli_count(const char *text, int64_t least, int64_t *out);

/* From now on Ctrl-C and SIGTERM interrupt what `d` does. */
void cli_catch_interrupts(droste *d);
/* True if one came since the last look. */
bool cli_was_interrupted(void);

/* The exit status that suits what became of a cell; that of sys.exit(N) is N. */
int cli_cell_status(const droste_result *r);

/* After sys.exit: as `python FILE`, sys.exit("text") prints the text, sys.exit(3) and sys.exit() print nothing. */
void cli_print_exit(const droste_result *r);

/* Prints text that came from a guest or a model, harmless to a terminal if `out` is one. */
void cli_print(FILE *out, const char *text, size_t len);
/* The same for an object or array of JSON, and a newline, on standard output: it is still JSON on a terminal. */
void cli_print_json(const char *json);
void cli_flush(FILE *out);
/* Whether lines of `out` may be rewritten: it is a terminal, and TERM is not "dumb". */
bool cli_terminal_moves(FILE *out);
/* Whether `out` may have colours: the same, and NO_COLOR is not set (https://no-color.org). */
bool cli_terminal_paints(FILE *out);
/* True once the reader of standard output has gone (`| head`): a command ends then, silently. */
bool cli_output_gone(void);
/* The end of a command that printed `what`: `status`, or, if standard output did not take all of
 * it, an explanation and EXIT_ENVIRONMENT. */
int cli_finish(int status, const char *what);
/* The same of one with an error of its own, which comes behind what was printed. */
int cli_end(int rc, const struct error *err, const char *what);

#endif
