/* base/job.h: work that blocks (git, a slow disk, a pipe), in a thread of its own, so that the loop goes on.
 *
 * A thread for each job: libuv's pool has four for the whole process, looks names up in them too, and a few silent
 * servers would take them all. The thread has all signals blocked; they stay with the host's threads.
 */
#ifndef DROSTE_BASE_JOB_H
#define DROSTE_BASE_JOB_H

#include "base/error.h"
#include "base/loop.h"

typedef void job_fn(void *arg);

/* Runs `work` in a thread, and then `done` in the loop's: always, at the latest from loop_close, which waits for
 * all jobs. How `work` is made to end early is between it and its caller. */
int job_start(struct loop *loop, job_fn *work, job_fn *done, void *arg, struct error *err);

#endif
