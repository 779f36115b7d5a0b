/* env/local/pause.c: stops the processes of a sandbox without ending them.
 *
 * A family of sandboxes with a cgroup and namespaces is frozen by the kernel, which its processes
 * cannot notice. Otherwise the host sends SIGSTOP to all processes but the keepers, which run no
 * code of the guest: to parents before their children, so that no process ends and orphans a
 * stopped group, and again until no process is left that could have made another one meanwhile.
 * SIGCONT goes to children first, so that no shell sees its child stopped.
 *
 * A sandbox with a cgroup but without namespaces is not frozen: its keeper must be able to end its
 * processes if the host dies.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "env/local/process_list.h"
#include "env/local/sandbox.h"

enum { PAUSE_PASSES = 100, PAUSE_PASS_US = 1000 };

/* The first one, of which the others are forks, or beside which they are. */
static struct sandbox *pause_first(const struct sandbox *s)
{
    const struct sandbox *first = s->companion_of ? s->companion_of : s->family ? s->family : s;
    return (struct sandbox *)(uintptr_t)first;
}

static bool pids_have(const pid_t *pids, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

static bool pause_is_keeper(const struct sandbox *first, pid_t pid)
{
    if (pid == first->keeper)
        return true;
    for (const struct sandbox *c = first->companions; c; c = c->next_companion)
        if (pid == c->keeper)
            return true;
    return false;
}

static void pause_list(const struct sandbox *first, struct process_list *list)
{
    if (first->keeper > 0)
        process_list_read(list, first->keeper, NULL, NULL);
    for (const struct sandbox *c = first->companions; c; c = c->next_companion)
        if (c->keeper > 0 && !c->ended)
            process_list_read(list, c->keeper, NULL, NULL);
}

/* To a process of the list, unless it has ended: its number may be another process's, so its parent
 * is looked up after the pidfd is open. */
static void pause_signal(const struct process_list *list, pid_t pid, int signal)
{
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0 && pids_have(list->pids, list->count, process_parent(pid)))
        syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* Remembers what its own user has stopped. */
static int pause_remember(const struct sandbox *first, struct pause *p,
    const struct process_list *list, struct error *err)
{
    p->already = calloc(list->count + 1, sizeof *p->already);
    p->already_count = 0;
    if (!p->already)
        return error_memory(err);
    for (size_t i = 0; i < list->count; i++)
        if (!pause_is_keeper(first, list->pids[i]) && process_is_stopped(list->pids[i], NULL))
            p->already[p->already_count++] = list->pids[i];
    return 0;
}

/* Sends SIGSTOP to all. True: nothing can run any more, since each process had got the signal in
 * the last pass (`before`) already. One with several threads may run until all of them have
 * stopped. */
static bool pause_pass(
    const struct sandbox *first, const struct process_list *before, const struct process_list *list)
{
    bool done = true;
    for (size_t i = 0; i < list->count; i++) {
        pid_t pid = list->pids[i];
        size_t threads = 0;
        if (pause_is_keeper(first, pid) || process_is_stopped(pid, &threads))
            continue;
        done = done && threads <= 1 && pids_have(before->pids, before->count, pid);
        pause_signal(list, pid, SIGSTOP);
    }
    return done;
}

static int pause_by_signals(const struct sandbox *first, struct pause *p, struct error *err)
{
    struct process_list before = { 0 };
    bool done = false;
    int rc = 0;
    for (int i = 0; i < PAUSE_PASSES && rc == 0 && !done; i++) {
        struct process_list list = { 0 };
        pause_list(first, &list);
        if (i == 0)
            rc = pause_remember(first, p, &list, err);
        if (rc == 0)
            done = pause_pass(first, &before, &list);
        free(before.pids);
        before = list;
        if (!done && i > 0)
            usleep(PAUSE_PASS_US);
    }
    free(before.pids);
    return rc < 0 || done ? rc
                          : error_set(err, ERROR_TIMEOUT,
                                "the sandbox could not be paused: its processes did not stop");
}

static void pause_continue(const struct sandbox *first, struct pause *p)
{
    struct process_list list = { 0 };
    pause_list(first, &list);
    for (size_t i = list.count; i-- > 0;)
        if (!pause_is_keeper(first, list.pids[i]) &&
            !pids_have(p->already, p->already_count, list.pids[i]))
            pause_signal(&list, list.pids[i], SIGCONT);
    free(list.pids);
}

bool local_is_paused(const struct sandbox *s)
{
    return pause_first(s)->pause.on;
}

uint64_t local_paused_ns(const struct sandbox *s)
{
    const struct pause *p = &pause_first(s)->pause;
    return p->total_ns + (p->on ? clock_ns() - p->since_ns : 0);
}

void local_pause_end(struct sandbox *s)
{
    struct sandbox *first = pause_first(s);
    struct pause *p = &first->pause;
    if (!p->on)
        return;
    p->on = false;
    p->total_ns += clock_ns() - p->since_ns;
    if (p->by_group)
        cgroup_freeze(first->cgroup, false);
    else
        pause_continue(first, p);
    free(steal(&p->already));
}

/* Whether all processes that are not stopped themselves have started what they are for. */
static bool pause_can_begin(const struct sandbox *first)
{
    bool can = !first->clone_id && !local_waits(first) && local_is_set_up(first);
    for (const struct sandbox *c = first->companions; can && c; c = c->next_companion)
        can = c->ended || (c->keeper > 0 && local_is_set_up(c));
    return can;
}

int local_pause(struct sandbox *s, bool on, struct error *err)
{
    struct sandbox *first = pause_first(s);
    struct pause *p = &first->pause;
    if (!on || p->on) {
        if (!on)
            local_pause_end(s);
        return 0;
    }
    if (!pause_can_begin(first)) {
        error_set(
            err, ERROR_ARGUMENT, "a process of the sandbox is starting; pause it when it has");
        if (err)
            err->sys = EAGAIN;
        return -(int)ERROR_ARGUMENT;
    }
    p->since_ns = clock_ns();
    p->on = true;
    p->by_group = first->cgroup && first->plan->clone_flags && cgroup_freeze(first->cgroup, true);
    int rc = p->by_group ? 0 : pause_by_signals(first, p, err);
    if (rc < 0)
        local_pause_end(s);
    return rc;
}
