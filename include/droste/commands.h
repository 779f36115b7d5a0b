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
    DROSTE_COMMAND_EOF = 4,   /* "input": nothing follows */
};

typedef struct droste_command_request {
    /* "start"; "output" is answered when there is output, or at the end; "input" is answered when
     * it is written; "signal" goes to the command's process group; "release" ends the command if it
     * still runs, and its handle */
    const char *op;
    uint64_t handle; /* of a started command */
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
} droste_command_request;

typedef struct droste_command_reply {
    uint64_t handle; /* of "start" */
    int64_t pid;     /* of "start": in the sandbox */
    const char *out; /* of "output" */
    size_t out_len;
    const char *err;
    size_t err_len;
    int ended;     /* of "output": the command has ended, and all output was sent before */
    int status;    /* then: its exit status, or the negative number of the signal that ended it */
    int timed_out; /* then: it was killed at its time limit */
} droste_command_reply;

/* Called once, in the loop's thread, with a reply, valid during the call, or an error; also when
 * the session is closed. It must not call functions that wait. */
typedef void droste_command_fn(
    void *arg, const droste_command_reply *reply, const droste_error *err);
/* Starts a request. A command has one open request for output at a time. */
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
