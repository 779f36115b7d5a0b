/* env/local/memory_watch.h: the memory of a whole sandbox, measured by the host where no cgroup counts it.
 *
 * RLIMIT_DATA bounds the private memory of one process. What several processes have together, memory
 * files, shared maps, files on a tmpfs and page tables are in no rlimit, so the host adds them up and
 * reports a sandbox that holds more than its limit. It looks often while the machine's memory in use
 * grows, and seldom else; what a sandbox takes between two looks passes (SECURITY.md).
 */
#ifndef DROSTE_ENV_LOCAL_MEMORY_WATCH_H
#define DROSTE_ENV_LOCAL_MEMORY_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"

struct memory_watches; /* all sandboxes of an environment */
struct memory_watch;   /* one of them */

/* The sandbox holds more than its limit. Once; from the loop. */
typedef void memory_over_fn(void *arg);

struct memory_watch_options {
    uint64_t limit; /* bytes */
    bool own_root;  /* its /tmp and /dev/shm are file systems of its own, in memory */
    memory_over_fn *over;
    void *arg;
};

int memory_watches_open(struct loop *loop, struct memory_watches **out, struct error *err);
/* Each watch has been closed. NULL is fine. */
void memory_watches_close(struct memory_watches *all);

int memory_watch_open(struct memory_watches *all, const struct memory_watch_options *options,
    struct memory_watch **out, struct error *err);
/* It runs: `keeper` is its first process (guest/zygote/keeper.c), whose pid must stay its own until the close.
 * Before that nothing is measured. NULL is fine. */
void memory_watch_begin(struct memory_watch *w, pid_t keeper);
/* An operation begins, or ends: it is looked at more often meanwhile. NULL is fine. */
void memory_watch_busy(struct memory_watch *w, bool busy);
/* A memory file of the host's goes to the guest, and is not the guest's memory. NULL is fine. */
void memory_watch_gave(struct memory_watch *w, int fd);
/* NULL is fine. */
void memory_watch_close(struct memory_watch *w);

#endif
