/* base/os/process.h: a user's program, with which Droste communicates over its standard streams.
 *
 * It runs with the rights of this process, and with its environment or one of its own, has default
 * signal handlers, and leads a process group, which is killed with it. Its input is a socket,
 * because writing to a pipe without a reader raises SIGPIPE. The end of its standard error is kept,
 * unless it goes to ours.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/loop.h"

struct process {
    pid_t pid; /* 0: it does not run */
    int in, out, complaints, pidfd;
    struct watch *in_watch, *out_watch, *complaints_watch, *exit_watch;
    struct buf to_send; /* those bytes before `sent` left */
    size_t sent;
    bool close_when_sent;
    bool aloud;                     /* its standard error is ours */
    const char *const *words;       /* its arguments, with a NULL behind them; NULL: none */
    const char *const *environment; /* NAME=VALUE, with a NULL behind them; NULL: ours */
    struct buf tail;                /* of its complaints */
};

enum { PROCESS_WORDS_SIZE = 103 };

/* Initialises the structure, so that process_forget and process_free may be called. */
void process_init(struct process *p);
/* Calls `output` when its standard output is readable (the descriptor `out` does not block), and
 * `ended` when it has ended; unread output may remain then. Errors begin with `what` and the
 * path. */
int process_start(struct process *p, struct loop *loop, const char *path, const char *what,
    watch_fn *output, watch_fn *ended, void *arg, struct error *err);
/* Writes `to_send` to its input as it accepts it. */
int process_send(struct process *p);
/* The same, as far as possible at once, if the loop may not run again soon. */
void process_send_now(struct process *p);
/* Ends it and its group after asking and waiting up to `ask_ms`; returns the status as waitpid. */
int process_end(struct process *p, int ask_ms);
/* Reads the rest of its standard error, once it has ended. */
void process_read_complaints(struct process *p);
/* ": " and the last line of its standard error, escaped and shortened; "" if there is none. */
void process_last_words(const struct process *p, char out[PROCESS_WORDS_SIZE]);
/* Closes the streams of a program that has ended. `tail` stays. */
void process_forget(struct process *p);
void process_free(struct process *p);
