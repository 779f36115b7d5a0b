/* env/pace.c: see pace.h.
 *
 * Some time after an operation began, and then at growing intervals, the processor time of the
 * sandbox's processes is looked at, in /proc. If one of them is running, or they took a good part of
 * a processor since the last look, all of them give way, and what they start later inherits it. The
 * first process, which runs the cells, has its priority back at the next operation: threads and
 * processes that were left running stay behind.
 *
 * The kernel has three scales, and which one counts depends on the machine:
 *   nice       among processes of one control group. Who is not root may give it but not take it
 *              back (RLIMIT_NICE), so it is left alone then.
 *   autogroup  among sessions (setsid), outside control groups: sched(7). It can be taken back.
 *   slice      how long it runs once it does; a short one goes first (Linux 6.12, ignored before).
 *
 * Measured with bench/crowd, 200 sandboxes spinning on two processors: the slowest hundredth of an
 * honest session's cells took 480 times as long as without them; with this, some 4 times.
 *
 * A pid may be another's by the time it is used. It would have to be reused within microseconds, and
 * what a stranger would get is a lower priority; nothing here kills or reveals.
 */
#include "env/pace.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

enum {
    FIRST_MS = 50, /* a cell that is shorter costs nothing */
    LAST_MS = 1600,
    TASKS_MAX = 512,        /* of a sandbox that are looked at */
    BUSY_PERCENT = 25,      /* of one processor */
    NICE_LAST = 19,         /* the lowest there is */
    SLICE_LAST_NS = 100000000, /* the longest */
};

struct pace {
    struct timer *timer;
    pid_t keeper;
    pid_t worker; /* 0: not known yet */
    uint64_t interval_ms;
    uint64_t ticks; /* processor time at the last look */
    uint64_t looked_ns;
    int nice;     /* of the host: what a sandbox has that does not give way */
    bool may_raise;
    bool gave_way;
};

/* The tasks of a sandbox: each of its processes, and each of their other threads. */
struct tasks {
    struct task {
        pid_t pid, tid;
    } at[TASKS_MAX];
    size_t count;
    uint64_t ticks;
    bool running;
};

static size_t read_text(const char *path, char *out, size_t size)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* Adds a thread's user and system time, and whether it runs or would if it could: proc(5). */
static void add_use(struct tasks *tasks, const struct task *t)
{
    char path[64], text[1024], state;
    unsigned long long user, system;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)t->pid, (int)t->tid);
    read_text(path, text, sizeof text);
    const char *rest = strrchr(text, ')'); /* the name before it is the guest's choice */
    if (!rest || sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state,
                     &user, &system) != 3)
        return;
    tasks->ticks += user + system;
    tasks->running = tasks->running || state == 'R';
}

static void add_task(struct tasks *tasks, pid_t pid, pid_t tid)
{
    if (tasks->count < TASKS_MAX)
        tasks->at[tasks->count++] = (struct task){ pid, tid };
}

/* The children of one thread. Many are cut off at the end of the text; so is the last number. */
static void add_children(struct tasks *tasks, pid_t pid, pid_t tid)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
    read_text(path, text, sizeof text);
    for (char *p = text, *end; *p; p = end + 1) {
        long child = strtol(p, &end, 10);
        if (end == p || *end != ' ')
            return;
        add_task(tasks, (pid_t)child, (pid_t)child);
    }
}

static void add_threads(struct tasks *tasks, pid_t pid)
{
    char path[48];
    struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    while (threads && (entry = readdir(threads))) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid <= 0)
            continue;
        if (tid != pid)
            add_task(tasks, pid, tid);
        add_children(tasks, pid, tid);
    }
    if (threads)
        closedir(threads);
}

/* All processes below the keeper, the worker first. The list is the queue. */
static void find_tasks(struct pace *p, struct tasks *tasks)
{
    tasks->count = 0;
    tasks->ticks = 0;
    tasks->running = false;
    add_children(tasks, p->keeper, p->keeper);
    for (size_t i = 0; i < tasks->count; i++) {
        struct task *t = &tasks->at[i];
        add_use(tasks, t);
        if (t->tid == t->pid)
            add_threads(tasks, t->pid);
    }
    if (!p->worker && tasks->count > 0)
        p->worker = tasks->at[0].pid;
}

/* As in linux/sched/types.h, which does not go together with glibc's sched.h. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
};

static void set_scheduling(const struct pace *p, pid_t tid, int nice, uint64_t slice_ns)
{
    struct scheduling attr = {
        .size = sizeof attr,
        .policy = SCHED_OTHER,
        .nice = p->may_raise ? nice : p->nice,
        .slice_ns = slice_ns,
    };
    syscall(SYS_sched_setattr, tid, &attr, 0);
}

static void set_autogroup(pid_t pid, int nice)
{
    char path[48], text[8];
    int len = snprintf(text, sizeof text, "%d", nice);
    snprintf(path, sizeof path, "/proc/%d/autogroup", (int)pid);
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, text, (size_t)len); /* where it is not to be had, the others have to do */
}

static void give_way(struct pace *p, const struct tasks *tasks)
{
    for (size_t i = 0; i < tasks->count; i++) {
        const struct task *t = &tasks->at[i];
        set_scheduling(p, t->tid, NICE_LAST, SLICE_LAST_NS);
        if (t->tid == t->pid)
            set_autogroup(t->pid, NICE_LAST);
    }
    p->gave_way = true;
}

static void look(void *arg)
{
    struct pace *p = arg;
    struct tasks tasks;
    uint64_t now = clock_ns();
    uint64_t tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    find_tasks(p, &tasks);
    uint64_t used_ns = tasks.ticks > p->ticks ? (tasks.ticks - p->ticks) * tick_ns : 0;
    /* On a full machine an endless cell gets little time, but it is always ready to run. */
    if (tasks.running || used_ns * 100 > (now - p->looked_ns) * BUSY_PERCENT)
        give_way(p, &tasks);
    p->ticks = tasks.ticks;
    p->looked_ns = now;
    if (used_ns == 0 && !tasks.running && p->interval_ms == LAST_MS)
        return; /* it waits; the next operation begins anew */
    p->interval_ms = p->interval_ms < LAST_MS ? 2 * p->interval_ms : LAST_MS;
    timer_start(p->timer, p->interval_ms, 0);
}

void pace_begin(struct pace *p)
{
    if (!p)
        return;
    if (p->gave_way) {
        set_scheduling(p, p->worker, p->nice, 0);
        set_autogroup(p->worker, 0);
        p->gave_way = false;
    }
    p->looked_ns = clock_ns();
    p->interval_ms = FIRST_MS;
    timer_start(p->timer, FIRST_MS, 0);
}

int pace_open(struct loop *loop, pid_t keeper, struct pace **out, struct error *err)
{
    struct rlimit limit = { 0 };
    struct pace *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    getrlimit(RLIMIT_NICE, &limit);
    *p = (struct pace){ .timer = timer_new(loop, look, p), .keeper = keeper,
        .nice = getpriority(PRIO_PROCESS, 0) };
    p->may_raise = geteuid() == 0 || limit.rlim_cur >= (rlim_t)(20 - p->nice);
    if (!p->timer) {
        free(p);
        return error_memory(err);
    }
    *out = p;
    return 0;
}

void pace_close(struct pace *p)
{
    if (!p)
        return;
    timer_free(p->timer);
    free(p);
}
