/* cli/cli.h: shared by the commands: a table for each command, and the library's settings as flags.
 *
 * Commands have no logic of their own: they read flags, call the library, and print.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "droste.h"
#include "base/error.h"

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

struct list;

/* A flag of one command, beside the settings. */
struct flag {
    const char *name;  /* without the dashes; one letter: a short flag */
    const char *value; /* the kind of value, as help shows it; NULL: takes none */
    const char *help;
    const char **text; /* where the value goes */
    bool *on;          /* or is set to true */
    /* or is called with the value, for each use of the flag */
    int (*add)(droste *d, const char *value, droste_error *err);
    bool once;          /* a second use is an error; for others the last value counts */
    struct list *words; /* the value is added to this list */
};

/* The flag --context of a command: PATH or NAME=PATH adds a context to the droste. */
#define FLAG_CONTEXT(help)                                                                         \
    {                                                                                              \
        "context", "[NAME=]PATH", help, NULL, NULL, droste_context_add                             \
    }

/* A command's own default of a setting. */
struct command_default {
    const char *name, *value;
};

/* The library's settings, which a command may take as flags. */
enum command_settings {
    SETTINGS_NONE,
    SETTINGS_SANDBOX, /* the user writes the code: models rarely matter */
    SETTINGS_RUN,     /* a model writes the code */
};

struct command {
    const char *name;
    const char *synopsis; /* after "droste NAME " */
    const char *summary;
    const char *details; /* exit statuses, notes; may be NULL */
    const char *examples;
    enum command_settings settings;
    bool runs_scripts; /* what stands behind `--` is a script's */
    struct {
        const void *rows; /* each begins with a struct verb */
        size_t count, size;
    } verbs; /* zeroed for a command without verbs */
    /* The kinds of the arguments after the verb, separated by spaces; the last one repeats. See
     * completion.c. NULL: no completion. */
    const char *arguments;
    /* Overridden by the configuration and by flags; ends with a NULL name. */
    const struct command_default *defaults;
    /* Returns the exit status. The caller creates and frees `d`. */
    int (*run)(const struct command *self, droste *d, int argc, char **argv);
};

extern const struct command command_run, command_chat, command_batch, command_exec, command_repl,
    command_serve, command_mcp, command_jupyter, command_keys, command_cluster, command_runs,
    command_volume, command_cp, command_packages, command_image, command_template, command_env,
    command_prompts, command_smoke, command_doctor, command_bench, command_completion,
    command_run_basic, command_daytona_smoke;

/* The commands, in the order of the overview; NULL after the last. */
const struct command *cli_command_at(size_t index);
/* NULL: there is no such command. */
const struct command *cli_command_find(const char *name);

/* Reads the configuration, then the flags of `argv` (argv[0] is the command's name). `flags` ends
 * with a NULL name; settings go to `d`, if the command takes them. Other arguments go to `words`
 * (at most `max`), their number to *count. Returns -1 to continue, else the exit status: help or a
 * usage error was printed. */
int cli_parse(const struct command *self, int argc, char **argv, const struct flag *flags,
    droste *d, const char **words, size_t max, size_t *count);

/* The settings and contexts that flags have given to this process, in order: names, each before its
 * value. */
const struct list *cli_settings(void);

/* "droste: TEXT" on standard error, broken between words on a terminal; returns `status`. */
int cli_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a remark, which is not an error. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The exit status for an error code of the library. */
int cli_status(int code);
/* Prints an error of the library; returns its status. */
int cli_error(const droste_error *err);
/* As cli_fail, for a usage error: with a pointer to --help. Returns EXIT_USAGE. */
int cli_usage(const struct command *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets a setting to the value of a command's own flag; NULL: does nothing. Returns -1 to continue,
 * else the exit status. */
int cli_set(droste *d, const char *name, const char *value);

/* Replaces the pipes that arguments name, such as `<(program)`, with memory files of their content.
 * Returns -1 to continue, else the exit status. */
int cli_replace_pipes(int argc, char **argv);

/* Checks for data on standard input that no context `-` reads: a usage error if there is no context
 * at all, else a note. `asked`: there is a question that the data could belong to. Returns -1 to
 * continue, else the exit status. */
int cli_check_input(const struct command *self, droste *d, bool asked);
/* Notes data on standard input that is there and that the command has not read. Does not wait. */
void cli_note_input(droste *d);

/* Reads a whole number of at least `least`; false if the text is none. */
bool cli_count(const char *text, int64_t least, int64_t *out);

/* From now on Ctrl-C and SIGTERM interrupt the operation of `d`. */
void cli_catch_interrupts(droste *d);
/* Allows this process as many descriptors as it may have, for commands with many sandboxes. The
 * library leaves the limits of its process alone. */
void cli_raise_descriptors(void);
/* True if a signal came since the last call. */
bool cli_was_interrupted(void);

/* The exit status for a cell's result; for sys.exit(N) it is N. */
int cli_cell_status(const droste_result *r);
/* The same for a result's status alone. */
int cli_status_of_cell(const char *status);

/* After sys.exit, as `python FILE` does: sys.exit("text") prints the text, sys.exit(3) and
 * sys.exit() print nothing. */
void cli_print_exit(const droste_result *r);

/* Prints text from a guest or a model, with control characters escaped if `out` is a terminal. */
void cli_print(FILE *out, const char *text, size_t len);
/* The same for a JSON object or array and a newline, on standard output. It stays valid JSON. */
void cli_print_json(const char *json);
void cli_flush(FILE *out);
/* Whether lines of `out` may be rewritten: it is a terminal, and TERM is not "dumb". */
bool cli_terminal_moves(FILE *out);
/* Whether `out` may have colours: the same, and NO_COLOR is not set (https://no-color.org). */
bool cli_terminal_paints(FILE *out);
/* True once the reader of standard output is gone (`| head`): the command then ends silently. */
bool cli_output_gone(void);
/* Flushes standard output; 0, or the errno of its first failed write (-1: not known). */
int cli_output_failed(void);
/* Ends a command that printed `what`: returns `status`, or, if writing standard output failed,
 * prints why and returns EXIT_ENVIRONMENT. */
int cli_finish(int status, const char *what);
/* The same for a command that may have failed: prints its error after the output. */
int cli_end(int rc, const struct error *err, const char *what);
