/* env/local/kill.c: interrupts a sandbox and ends it, also when a limit is exceeded. */
#include <signal.h>
#include <sys/socket.h>

#include "env/local/sandbox.h"

void local_interrupt(struct sandbox *s)
{
    s->wants_interrupt = !local_has_keeper(s);
    local_signal_keeper(s, SIGUSR1);
}

/* A fork's keeper ends the fork's process group. The host does not wait for its report, because a
 * hostile guest may keep the socket open. */
static void local_kill_fork(struct sandbox *s)
{
    local_signal_keeper(s, SIGTERM);
    local_signal_keeper(s, SIGCONT);
    shutdown(s->fds[PORT_STATUS], SHUT_RDWR);
}

/* Ends the sandbox and all its processes, forks included. */
void local_kill_family(struct sandbox *s)
{
    if (!s->plan)
        return; /* not started yet */
    local_signal_keeper(s, s->plan->clone_flags ? SIGKILL : SIGTERM);
    if (!s->plan->clone_flags)
        local_signal_keeper(s, SIGCONT);
}

void local_kill(struct sandbox *s)
{
    s->wants_kill = true;
    local_pause_end(s);
    room_cancel(s->env->room, s);
    if (s->family) {
        local_kill_fork(s);
        return;
    }
    if (s->forks > 0) {
        local_signal_keeper(s, SIGHUP); /* only the worker */
        local_signal_keeper(s, SIGCONT);
        return;
    }
    /* A pid namespace dies with its first process. Without one, the keeper must kill the tree, and
     * the guest may have stopped the keeper. */
    local_kill_family(s);
}

/* The host found a limit exceeded. */
void local_end_for_limit(struct sandbox *s, enum limit limit)
{
    if (s->ended || s->wants_kill)
        return;
    s->over = limit;
    local_kill(s);
}

static void local_end_for_memory(void *arg)
{
    local_end_for_limit(arg, LIMIT_MEMORY);
}

int local_watch_memory(struct sandbox *s, uint64_t limit, struct error *err)
{
    const struct memory_watch_options options = { .limit = limit,
        .forks = &s->forks,
        .own_root = isolation_has_own_root(s->isolation),
        .over = local_end_for_memory,
        .arg = s };
    if (limit == 0 || s->cgroup)
        return 0;
    s->memory_limit = limit;
    return memory_watch_open(s->env->memory_watches, &options, &s->memory_watch, err);
}
