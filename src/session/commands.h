/* session/commands.h: programs that run in a session's sandbox, whatever its cells do
 * (session/service.h, guest/python/core/serve_commands.py).
 *
 * A command may have several handles; each reads all output since it was made. The command waits
 * for the slowest, but others wait only a second for one that does not read, and when that is 1 MiB
 * behind it gets ENOBUFS. The service sends output only in answer to COMMAND_OUTPUT, so a command
 * whose output is not read waits, as behind a pipe, and costs the host nothing. Without a handle
 * its output is dropped.
 */
#pragma once

#include "session/session.h"

enum {
    COMMANDS_PIECE = 1 << 20,     /* bytes of input, or of one stream's output, in one call */
    COMMANDS_WORDS_MAX = 1 << 20, /* bytes of arguments, environment, directory, user and tag */
    COMMANDS_SIGNAL_MAX = 64,
    COMMANDS_SIDE_MAX = 10000, /* columns or rows of a terminal */
    COMMANDS_TAG_MAX = 256,
    COMMANDS_LISTED_MAX = 1024,
};

enum command_op {
    COMMAND_START,
    COMMAND_ATTACH,  /* another handle of a command, also for a while after its end */
    COMMAND_CONNECT, /* a handle of a connection to a port of the sandbox */
    COMMAND_LIST,
    /* answered when there is output, or when the command has ended and all of it was sent */
    COMMAND_OUTPUT,
    COMMAND_INPUT,   /* answered when it is written */
    COMMAND_SIGNAL,  /* to the process group */
    COMMAND_RESIZE,  /* its terminal */
    COMMAND_RELEASE, /* kills the process group if the command runs; the handle is invalid then */
    COMMAND_DETACH,  /* makes the handle invalid; the command goes on */
    COMMAND_OP_COUNT
};

struct command_call {
    enum command_op op;
    uint64_t handle; /* of a started command */
    /* COMMAND_START; both lists end with NULL */
    const char *const *argv;
    const char *const *env; /* "NAME=value", beside the session's; NULL: none */
    const char *cwd;        /* NULL: where cells start, or the user's home directory */
    const char *user;       /* a name in the sandbox; NULL: the session's */
    const char *tag;        /* also COMMAND_ATTACH; NULL: none */
    bool input;             /* COMMAND_INPUT follows; otherwise its input is empty */
    bool merge;             /* its errors go to its output */
    bool drain;             /* its end is told when nothing has its output open any more */
    bool terminal;          /* its input and output are a terminal */
    unsigned columns, rows; /* of the terminal; also COMMAND_RESIZE */
    int64_t pid;            /* COMMAND_ATTACH without a tag */
    unsigned port;          /* COMMAND_CONNECT */
    bool quiet;             /* COMMAND_ATTACH: it reads no output, and none waits for it */
    size_t length;          /* COMMAND_OUTPUT: of each stream, at most */
    const void *data;       /* COMMAND_INPUT */
    size_t len;
    bool eof; /* COMMAND_INPUT: nothing follows */
    int signal;
    bool alone; /* COMMAND_SIGNAL: to the process, not to its group */
    /* COMMAND_START: then its process group is killed; COMMAND_OUTPUT: how long it may still take;
     * 0: no limit */
    uint64_t timeout_ms;
};

struct command_answer {
    uint64_t handle; /* COMMAND_START, COMMAND_ATTACH and COMMAND_CONNECT */
    int64_t pid;     /* of the first two: in the sandbox */
    size_t listed;   /* COMMAND_LIST: commands in `out` */
    const char *out, *err;
    size_t out_len, err_len;
    bool ended; /* nothing follows */
    int status; /* of an ended command: its exit status, or the negative number of a signal */
    bool timed_out;
};

/* A command in a list. The words have a NUL behind each. */
struct command_info {
    int64_t pid;
    const char *tag, *user, *cwd; /* "" if none was given */
    const char *argv, *env;       /* the first word of each */
    uint32_t argc, envc;
    bool cut; /* they were too long: there is no environment, or fewer arguments */
    bool terminal, ended, timed_out;
    int status; /* of one that has ended */
};
/* Takes the next command of a checked list; false after the last. `*at` begins with 0. */
bool command_info_next(const struct command_answer *answer, size_t *at, struct command_info *out);

/* Called once, with an answer, which is valid during the call, or an error. It may start calls. */
typedef void command_done_fn(
    void *arg, const struct command_answer *answer, const struct error *why);

/* Starts a call. ERROR_UNSUPPORTED if the environment has no commands. An error has the errno in
 * `sys`. */
int session_command(struct session *s, const struct command_call *call, command_done_fn *done,
    void *arg, struct error *err);
