/* base/job.h: runs blocking work (git, a slow disk, a pipe) in a thread beside the loop.
 *
 * Each job has a thread of its own. libuv's pool has four threads for the whole process and also
 * resolves names in them; a few silent servers would block it. The thread blocks all signals, so
 * that the host's threads handle them.
 */
#pragma once

#include "base/error.h"
#include "base/loop.h"

typedef void job_fn(void *arg);

/* Runs `work` in a thread and then `done` on the loop's thread. `done` always runs, at the
 * latest from loop_close, which waits for all jobs. A caller that wants to end `work` early
 * arranges that with it. */
int job_start(struct loop *loop, job_fn *work, job_fn *done, void *arg, struct error *err);
