/* guest/zygote/zygote.h: what the zygote (zygote.c) and a worker that forks (fork.c) share. */
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "clone.h"
#include "jail/plan.h"
#include "jail/zygote_wire.h"

/* The state of this process; a worker inherits its zygote's. */
extern struct zygote {
    int control;
    int keeper;  /* the keeper program, guest/zygote/keeper.c */
    int life[2]; /* the write end closes when the zygote dies, for any reason */
    void *tid_address;
    bool hooks; /* the interpreter's functions around a fork must be called */
    bool is_set_up, is_copy, has_no_standbys;
    char *sequences; /* glibc's area for rseq(2), or NULL */
    char name
        [16]; /* of the process: standbys and copies have others, which a worker does not keep */
    void (*before_fork)(void);
    void (*after_fork_parent)(void);
    void (*after_fork_child)(void);
} zygote;

struct clone_job {
    uint32_t id;
    uint64_t tag;
    const struct jail_plan *plan;
    int channel, out, err, status;
    int extra[ZYGOTE_EXTRA_COUNT]; /* -1: it has none */
    int pidfd;
    int settled[2]; /* a pipe that closes once the keeper program runs and the standby has exited */
    sigset_t old_mask;
    jmp_buf resume; /* where the worker continues: of _setjmp, which leaves the signals alone */
    int standby;    /* its end of the socket to the zygote; -1: not in a standby */
    int sys;        /* of a trial: its error, or 0 */
    uint32_t op;    /* and the operation that failed */
};

/* The stack of a process that starts a keeper. */
extern char keeper_stack[CLONE_STACK];

/* Starts the worker in this process's memory; it continues at job->resume. */
pid_t zygote_clone_taker(struct clone_job *job);
/* Replaces this process by the keeper program of descriptor `program`; returns only on failure,
 * with the status descriptor at 0. */
void zygote_exec_keeper(const struct clone_job *job, int program, pid_t worker, char *mark);
/* Blocks until the keeper program runs. */
void zygote_wait_for_keeper(struct clone_job *job);
/* Registers glibc's area for rseq(2) in a process that took over a memory. */
void zygote_register_sequences(void);
/* pages.c: pins the pages that clones of this process write to; a negative errno if it cannot. */
int pages_pin(void);
/* Opens a /dev/null of its own as descriptor 0; -1 with errno. */
int zygote_open_null(void);
