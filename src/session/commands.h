/* session/commands.h: programs that run in a session's sandbox, whatever its cells do
 * (session/service.h, guest/python/core/serve_commands.py).
 *
 * The service sends output only in answer to COMMAND_OUTPUT, so a command whose output is not read
 * waits, as behind a pipe, and costs the host nothing.
 */
#ifndef DROSTE_SESSION_COMMANDS_H
#define DROSTE_SESSION_COMMANDS_H

#include "session/session.h"

enum {
    COMMANDS_PIECE = 1 << 20,     /* bytes of input, or of one stream's output, in one call */
    COMMANDS_WORDS_MAX = 1 << 20, /* bytes of arguments, environment and directory */
    COMMANDS_SIGNAL_MAX = 64,
};

enum command_op {
    COMMAND_START,
    /* answered when there is output, or when the command has ended and all of it was sent */
    COMMAND_OUTPUT,
    COMMAND_INPUT,   /* answered when it is written */
    COMMAND_SIGNAL,  /* to the process group */
    COMMAND_RELEASE, /* kills the process group if the command runs; the handle is invalid then */
    COMMAND_OP_COUNT
};

struct command_call {
    enum command_op op;
    uint64_t handle; /* of a started command */
    /* COMMAND_START; both lists end with NULL */
    const char *const *argv;
    const char *const *env; /* "NAME=value", beside the session's; NULL: none */
    const char *cwd;        /* NULL: where cells start */
    bool input;             /* COMMAND_INPUT follows; otherwise its input is empty */
    bool merge;             /* its errors go to its output */
    size_t length;          /* COMMAND_OUTPUT: of each stream, at most */
    const void *data;       /* COMMAND_INPUT */
    size_t len;
    bool eof; /* COMMAND_INPUT: nothing follows */
    int signal;
    /* COMMAND_START: then its process group is killed; COMMAND_OUTPUT: how long it may still take;
     * 0: no limit */
    uint64_t timeout_ms;
};

struct command_answer {
    uint64_t handle; /* COMMAND_START */
    int64_t pid;     /* in the sandbox */
    const char *out, *err;
    size_t out_len, err_len;
    bool ended; /* nothing follows */
    int status; /* of an ended command: its exit status, or the negative number of a signal */
    bool timed_out;
};

/* Called once, with an answer, which is valid during the call, or an error. It may start calls. */
typedef void command_done_fn(
    void *arg, const struct command_answer *answer, const struct error *why);

/* Starts a call. ERROR_UNSUPPORTED if the environment has no commands. An error has the errno in
 * `sys`. */
int session_command(struct session *s, const struct command_call *call, command_done_fn *done,
    void *arg, struct error *err);

#endif
