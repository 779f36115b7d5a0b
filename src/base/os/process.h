/* base/os/process.h: a program of the user's that is spoken with over its standard streams.
 *
 * It is started with the rights and the environment of this process, leads a process group, which is
 * killed with it, and has the usual signals. Its input is a socket, because writing to a pipe whose
 * reader is gone is a signal. Of what it writes to standard error the end is kept, unless that is ours.
 */
#ifndef DROSTE_BASE_OS_PROCESS_H
#define DROSTE_BASE_OS_PROCESS_H

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
    bool aloud; /* its standard error is ours */
    const char *const
        *words;      /* its arguments, at most eight, with a NULL behind them; NULL: none */
    struct buf tail; /* of its complaints */
};

enum { PROCESS_WORDS_SIZE = 103 };

/* Of nobody yet: process_forget and process_free may be called. */
void process_init(struct process *p);
/* `output` is called when its standard output can be read (the descriptor `out` does not block),
 * `ended` when it has ended; its last output may still be there then. `what`, before the
 * path, is for errors. */
int process_start(struct process *p, struct loop *loop, const char *path, const char *what,
    watch_fn *output, watch_fn *ended, void *arg, struct error *err);
/* What was appended to `to_send` goes to its input, as it takes it. */
int process_send(struct process *p);
/* The same, as far as that goes at once: where the loop may not be run again soon. */
void process_send_now(struct process *p);
/* Ends it and its group, and says how it ended (as waitpid). `ask_ms`: how long it may take to go by
 * itself, once it is asked to. */
int process_end(struct process *p, int ask_ms);
/* What it still has to complain about, once it has ended. */
void process_read_complaints(struct process *p);
/* ": " and the last line of its complaints, visible and shortened; "" where there is none. */
void process_last_words(const struct process *p, char out[PROCESS_WORDS_SIZE]);
/* Closes its streams; it must have been ended. What is in `tail` stays. */
void process_forget(struct process *p);
void process_free(struct process *p);

#endif
