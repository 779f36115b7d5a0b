/* droste/commands.h: programs that run in an open session's sandbox. */
#ifndef DROSTE_COMMANDS_H
#define DROSTE_COMMANDS_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process beside the session's starts them and reads their output, so no call waits for a running
 * cell (docs/commands.md). They have the code's files, user and limits, and end with the session at
 * the latest. What comes from a sandbox is untrusted. */

typedef struct droste_session droste_session;

enum { DROSTE_COMMAND_PIECE = 1 << 20 }; /* bytes of input, or of a stream's output, in a request */
enum {
    DROSTE_COMMAND_STDIN = 1, /* "start": "input" follows; without, its input is empty */
    DROSTE_COMMAND_MERGE = 2, /* "start": what it writes to stderr goes to its stdout */
    DROSTE_COMMAND_EOF = 4,   /* "input": nothing follows; at a terminal, ^D is typed */
    /* "start": its input and output are a terminal of `columns` and `rows`; its output is stdout */
    DROSTE_COMMAND_TERMINAL = 8,
    /* "start": its end is told when no process has its output open any more, or at once after a
     * signal or its time limit; without, when it ends, whatever it has left running */
    DROSTE_COMMAND_DRAIN = 16,
    DROSTE_COMMAND_QUIET =
        64, /* "attach": the handle reads no output, and no output waits for it */
    DROSTE_COMMAND_ALONE = 32, /* "signal": to the process, not to its process group */
};

typedef struct droste_command_request {
    /* "start" and "attach" answer a handle, which reads all output from then on; "attach" finds a
     * command by its tag or pid, also for 30 seconds after its end.
     * "connect" answers a handle of a connection to a port of the sandbox, at its 127.0.0.1 or ::1
     * (setting `loopback`): what the server there sends is the output, and its end the end; what
     * is written is the input. It ends with its handle.
     * "list" answers the commands that run, that have a handle, or that can be attached to.
     * "output" is answered when there is output, or at the end. A command waits for its readers,
     * but only a second for one that does not read; that one gets ENOBUFS when it is 1 MiB behind.
     * Without a handle, its output is dropped.
     * "input" is answered when it is written.
     * "signal" goes to the command's process group. "resize" sets the size of its terminal.
     * "release" ends the command if it still runs, and its handle; "detach" only the handle. */
    const char *op;
    uint64_t handle; /* of a command that was started or attached to */
    /* of "start": both lists end with NULL; the program is looked for in PATH */
    const char *const *argv;
    const char *const *env; /* "NAME=value", besides the session's environment; may be NULL */
    const char *cwd;        /* NULL: where cells start */
    int flags;              /* DROSTE_COMMAND_… */
    size_t length;          /* of "output": bytes of each stream, at most DROSTE_COMMAND_PIECE */
    const void *data;       /* of "input": at most DROSTE_COMMAND_PIECE bytes */
    size_t len;
    int signal; /* of "signal" */
    /* of "start": then its process group is killed; of "output": how long the command may still
     * take, so that a sandbox that does not answer is an error a minute later; 0: no limit */
    uint64_t timeout_ms;
    /* of "start": a user of the sandbox, whose environment and home directory it gets (`cwd` is
     * relative to that, and may begin with "~"); NULL: the session's */
    const char *user;
    const char *tag;        /* of "start" and "attach": a name for it, at most 256 bytes; or NULL */
    int64_t pid;            /* of "attach" without a tag */
    unsigned columns, rows; /* of "resize", and of "start" with DROSTE_COMMAND_TERMINAL */
    unsigned port;          /* of "connect" */
} droste_command_request;

typedef struct droste_command_info {
    int64_t pid;
    const char *tag, *user, *cwd; /* as they were given; "": not */
    const char *const *argv, *const *env;
    int cut;      /* the words were longer than 8 KiB: there is no `env`, or not all of `argv` */
    int terminal; /* it has one */
    int ended, status, timed_out; /* as below */
} droste_command_info;

typedef struct droste_command_reply {
    uint64_t handle; /* of "start", "attach" and "connect" */
    int64_t pid;     /* of the first two: in the sandbox */
    const char *out; /* of "output" */
    size_t out_len;
    const char *err;
    size_t err_len;
    int ended;     /* of "output": the command has ended, and all output was sent before */
    int status;    /* then: its exit status, or the negative number of the signal that ended it */
    int timed_out; /* then: it was killed at its time limit */
    const droste_command_info *commands; /* of "list" */
    size_t count;
} droste_command_reply;

/* Called once, in the loop's thread, with a reply, valid during the call, or an error; also when
 * the session is closed. It must not call functions that wait. */
typedef void droste_command_fn(
    void *arg, const droste_command_reply *reply, const droste_error *err);
/* Starts a request. A handle has one open request for output at a time. An error has the errno in
 * `sys`: ESRCH if there is no command to attach to, or it has ended before "signal". */
DROSTE_API int droste_command_start(droste_session *s, const droste_command_request *request,
    droste_command_fn *fn, void *arg, droste_error *err);

/* Called with output as it arrives: stream 1 is stdout, 2 is stderr. */
typedef void droste_command_output_fn(void *arg, int stream, const char *data, size_t len);
/* Runs a command and waits for its end. `start` has the fields of "start"; its `data` and `len`, of
 * any length, are the input. *end has `status` and `timed_out` of the end. `fn` may be NULL. */
DROSTE_API int droste_command_run(droste_session *s, const droste_command_request *start,
    droste_command_output_fn *fn, void *arg, droste_command_reply *end, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
