/* env/local/memory_watch.h: measures the memory of a whole sandbox, for hosts without cgroups.
 *
 * RLIMIT_DATA bounds the private memory of one process. No rlimit covers the sum over processes,
 * memory files, shared mappings, files on a tmpfs, and page tables. The host therefore adds them up
 * and reports a sandbox that exceeds its limit. It measures often while the machine's memory use
 * grows, and rarely otherwise. A sandbox can exceed its limit between two measurements
 * (SECURITY.md).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"
#include "env/local/process_list.h"

struct memory_watches; /* all sandboxes of an environment */
struct memory_watch;   /* one of them */

/* The sandbox exceeds its limit. Called once, from the loop. */
typedef void memory_over_fn(void *arg);

struct memory_watch_options {
    uint64_t limit; /* bytes */
    /* how many forks its sandbox has, each with a watch of its own; NULL: none */
    const unsigned *forks;
    bool own_root; /* its /tmp and /dev/shm are private file systems in memory */
    memory_over_fn *over;
    void *arg;
};

int memory_watches_open(struct loop *loop, struct memory_watches **out, struct error *err);
/* Each watch must have been closed. NULL is fine. */
void memory_watches_close(struct memory_watches *all);

int memory_watch_open(struct memory_watches *all, const struct memory_watch_options *options,
    struct memory_watch **out, struct error *err);
/* Starts measuring. `keeper` is the sandbox's first process (guest/zygote/keeper.c), whose pid must
 * not be reused before the close. NULL is fine. */
void memory_watch_begin(struct memory_watch *w, pid_t keeper);
/* An operation begins or ends: measures more often in between. NULL is fine. */
void memory_watch_busy(struct memory_watch *w, bool busy);
/* A memory file of the host goes to the guest and is not counted as the guest's. NULL is fine. */
void memory_watch_exclude(struct memory_watch *w, int fd);
/* The host stops reading this channel, or goes on (-1): memory files that wait in it count as the
 * guest's. NULL is fine. */
void memory_watch_unread(struct memory_watch *w, int channel);
/* Bytes of private memory of a fork's processes; pages that they share with others count in
 * proportion. */
uint64_t memory_of_fork(pid_t keeper);
/* What the processes of a sandbox use now, at most: private memory counts for each process that
 * shares it. Takes some 20 µs a process, and waits for no lock. */
struct memory_now {
    uint64_t private_bytes;
    uint64_t files, files_limit; /* of its private file system in memory; 0: it has none */
};
void memory_now(pid_t keeper, const struct process_list *processes, struct memory_now *out);
/* NULL is fine. */
void memory_watch_close(struct memory_watch *w);
