/* env/local/cpu_priority.c: measures processor time per operation, and changes priorities.
 *
 * Most operations are short, so beginning one only starts a timer. When it fires, and then at
 * growing intervals, the processor time of the sandbox is read and compared with the first reading
 * of this operation. Time spent waiting for a processor does not count, because on a busy machine a
 * short cell may take long. Between operations, sandboxes that sleep are looked at rarely: a server
 * may hold ten thousand.
 *
 * The next operation raises the worker, the process that runs the cells. Threads and processes that
 * a cell left running stay lowered; a cgroup is raised as a whole. Niceness 19 instead of
 * SCHED_IDLE is not enough, because the weights of hundreds of processes add up. They also add up
 * in the moment before they are lowered, so all sandboxes start below the host (zygote_boot.c).
 *
 * The kernel owes each task that wakes a little time, and hundreds of lowered ones together so much
 * that a short cell waits for them. In a group of its own (cpu_group.h), a worker whose last
 * operation was short therefore goes ahead, with the highest niceness.
 *
 * docs/performance.md has the measurements, with bench/crowd.
 *
 * A pid can be reused between being read and being used, within microseconds. The other process
 * would get a lower priority; nothing here kills or reveals.
 */
#include "env/local/cpu_priority.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/os/file.h"

enum {
    FIRST_MS = 10,
    LAST_MS = FIRST_MS << 7,
    ASLEEP_MS = LAST_MS << 4, /* of a sandbox without an operation that uses no processor time */
    LONG_NS = 5000000,
    TASKS_MAX = 512,    /* tasks of a sandbox that are examined */
    WEIGHT_USUAL = 100, /* Documentation/admin-guide/cgroup-v2.rst: cpu.weight */
    WEIGHT_LOWEST = 1,
    NICE_HIGHEST = -20,
};

struct cpu_priority {
    struct timer *timer;
    struct cgroup *weighed; /* NULL: use the processes' policy */
    const struct cpu_priorities *all;
    pid_t keeper;
    pid_t worker; /* 0: not known yet */
    uint64_t interval_ms;
    uint64_t used_ns; /* processor time at the last comparison */
    uint64_t seen_ns; /* at the last look */
    bool works; /* its priority can be lowered and raised again; not above an idle host's own */
    bool lowered;
    bool begun;   /* it has had an operation */
    bool ahead;   /* the worker has the highest niceness */
    bool settled; /* no operation is under way */
    bool looked;  /* used_ns was read near the beginning of this operation */
};

/* The tasks of a sandbox: its processes and their other threads. */
struct tasks {
    struct task {
        pid_t pid, tid;
    } at[TASKS_MAX];
    size_t count;
    uint64_t used_ns;
    uint64_t delayed_ns; /* time in which they were ready to run but waited; if asked for */
};

/* Adds the running time of a process, of all its threads; clock_getcpuclockid(3). */
static void tasks_add_use(struct tasks *tasks, pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0)
        tasks->used_ns += (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Adds a thread's waiting time; Documentation/scheduler/sched-stats.rst. */
static void tasks_add_delay(struct tasks *tasks, const struct task *t)
{
    char path[64], text[128], *rest;
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)t->pid, (int)t->tid);
    file_peek(AT_FDCWD, path, text, sizeof text);
    strtoull(text, &rest, 10);
    tasks->delayed_ns += strtoull(rest, NULL, 10);
}

static void tasks_add(struct tasks *tasks, pid_t pid, pid_t tid)
{
    if (tasks->count < TASKS_MAX)
        tasks->at[tasks->count++] = (struct task){ pid, tid };
}

/* The children of one thread. A full buffer may end within a number, which is ignored. */
static void tasks_add_children(struct tasks *tasks, pid_t pid, pid_t tid)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
    file_peek(AT_FDCWD, path, text, sizeof text);
    for (char *p = text, *end; *p; p = end + 1) {
        long child = strtol(p, &end, 10);
        if (end == p || *end != ' ')
            return;
        tasks_add(tasks, (pid_t)child, (pid_t)child);
    }
}

/* The threads beside the first, and the children of all. The directory has a link for itself, one
 * for its parent and one for each thread, which spares listing it for most workers. */
static void tasks_add_threads(struct tasks *tasks, pid_t pid)
{
    enum { LINKS_OF_ONE_THREAD = 3 };
    char path[48];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    if (stat(path, &st) == 0 && st.st_nlink == LINKS_OF_ONE_THREAD) {
        tasks_add_children(tasks, pid, pid);
        return;
    }
    cleanup_listing DIR *threads = opendir(path);
    for (const char *name; (name = next_listed(threads));) {
        pid_t tid = (pid_t)strtol(name, NULL, 10);
        if (tid != pid)
            tasks_add(tasks, pid, tid);
        tasks_add_children(tasks, pid, tid);
    }
}

/* Finds all processes below the keeper, the worker first. The list is also the queue of the
 * search. */
static void tasks_find(struct cpu_priority *p, struct tasks *tasks, bool wants_delay)
{
    tasks->count = 0;
    tasks->used_ns = tasks->delayed_ns = 0;
    tasks_add_children(tasks, p->keeper, p->keeper);
    for (size_t i = 0; i < tasks->count; i++) {
        struct task *t = &tasks->at[i];
        if (wants_delay)
            tasks_add_delay(tasks, t);
        if (t->tid != t->pid)
            continue;
        tasks_add_use(tasks, t->pid);
        tasks_add_threads(tasks, t->pid);
    }
    if (!p->worker && tasks->count > 0)
        p->worker = tasks->at[0].pid;
}

/* For one thread. Its niceness is kept, and applies again with SCHED_OTHER. */
static void set_policy(pid_t tid, int policy)
{
    static const struct sched_param none = { 0 };
    sched_setscheduler(tid, policy, &none);
}

static void cpu_priority_lower(struct cpu_priority *p, const struct tasks *tasks)
{
    if (p->weighed)
        cgroup_weigh(p->weighed, WEIGHT_LOWEST);
    for (size_t i = 0; !p->weighed && i < tasks->count; i++)
        set_policy(tasks->at[i].tid, SCHED_IDLE);
    if (p->ahead)
        setpriority(PRIO_PROCESS, (id_t)p->worker, getpriority(PRIO_PROCESS, (id_t)p->keeper));
    p->ahead = false;
    p->lowered = true;
}

static void cpu_priority_go_ahead(struct cpu_priority *p)
{
    struct tasks tasks;
    if (!p->worker)
        tasks_find(p, &tasks, false);
    p->ahead = p->worker && setpriority(PRIO_PROCESS, (id_t)p->worker, NICE_HIGHEST) == 0;
}

static void cpu_priority_raise(struct cpu_priority *p)
{
    struct tasks tasks;
    if (p->weighed)
        cgroup_weigh(p->weighed, WEIGHT_USUAL);
    else if (!p->worker)
        tasks_find(p, &tasks, false);
    if (p->worker && !p->weighed)
        set_policy(p->worker, SCHED_OTHER);
    p->lowered = false;
}

/* Raises a fork whose parent was lowered at that moment. Its keeper may only be about to start the
 * worker, so the next operation raises it again. */
static void cpu_priority_raise_fork(struct cpu_priority *p)
{
    if (p->weighed || !p->works || sched_getscheduler(p->keeper) != SCHED_IDLE)
        return;
    set_policy(p->keeper, SCHED_OTHER);
    cpu_priority_raise(p);
    p->lowered = true;
}

void cpu_priority_of_fork(struct cpu_priority *p, pid_t first)
{
    struct tasks tasks;
    int niceness = getpriority(PRIO_PROCESS, (id_t)first);
    if (!p || getpriority(PRIO_PROCESS, (id_t)p->keeper) == niceness)
        return;
    setpriority(PRIO_PROCESS, (id_t)p->keeper, niceness); /* and so of what it starts from now on */
    if (!p->worker)
        tasks_find(p, &tasks, false);
    if (p->worker)
        setpriority(PRIO_PROCESS, (id_t)p->worker, niceness);
}

/* What seems to sleep during an operation may only wait for a processor, or for an answer of the
 * host, and is looked at like one that works. */
static void cpu_priority_look_again(struct cpu_priority *p, bool sleeps)
{
    uint64_t longest = sleeps && p->settled ? ASLEEP_MS : LAST_MS;
    p->interval_ms *= sleeps ? 8 : 2;
    if (p->interval_ms > longest)
        p->interval_ms = longest;
    timer_start(p->timer, p->interval_ms, 0);
}

/* The next look finds processes that were forked while this one lowered their parent. */
static void cpu_priority_look(void *arg)
{
    struct cpu_priority *p = arg;
    struct tasks tasks;
    if (p->all->sandboxes <= 1) { /* examining a hundred threads takes a millisecond */
        p->looked = false;
        cpu_priority_look_again(p, false);
        return;
    }
    tasks_find(p, &tasks, false);
    uint64_t used_ns = tasks.used_ns > p->used_ns ? tasks.used_ns - p->used_ns : 0;
    bool is_long = p->looked && used_ns > LONG_NS;
    bool sleeps = p->looked && tasks.used_ns == p->seen_ns;
    p->seen_ns = tasks.used_ns;
    if (is_long)
        cpu_priority_lower(p, &tasks);
    if (is_long || !p->looked)
        p->used_ns = tasks.used_ns;
    p->looked = true;
    cpu_priority_look_again(p, sleeps);
}

void cpu_priority_begin(struct cpu_priority *p)
{
    if (!p || !p->works)
        return;
    if (p->lowered)
        cpu_priority_raise(p);
    else if (p->begun && p->all->apart && !p->ahead)
        cpu_priority_go_ahead(p);
    p->begun = true;
    p->looked = false;
    p->settled = false;
    p->interval_ms = FIRST_MS;
    timer_start(p->timer, FIRST_MS, 0);
}

void cpu_priority_settle(struct cpu_priority *p)
{
    if (p)
        p->settled = true;
}

uint64_t cpu_priority_busy_ns(struct cpu_priority *p)
{
    struct tasks tasks;
    if (!p)
        return 0;
    tasks_find(p, &tasks, true);
    return tasks.used_ns + tasks.delayed_ns;
}

bool cpu_priority_can_raise(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2] = { { 0 }, { 0 } };
    struct rlimit limit = { 0 };
    if (syscall(SYS_capget, &header, sets) == 0 && sets[0].effective >> CAP_SYS_NICE & 1)
        return true;
    getrlimit(RLIMIT_NICE, &limit);
    return limit.rlim_cur >= (rlim_t)(20 - getpriority(PRIO_PROCESS, 0)); /* getrlimit(2) */
}

int cpu_priority_open(struct loop *loop, pid_t keeper, struct cgroup *weighed,
    const struct cpu_priorities *all, struct cpu_priority **out, struct error *err)
{
    struct cpu_priority *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    *p = (struct cpu_priority){ .timer = timer_new(loop, cpu_priority_look, p),
        .weighed = weighed,
        .all = all,
        .works = weighed || (cpu_priority_can_raise() && sched_getscheduler(0) != SCHED_IDLE),
        .keeper = keeper };
    if (!p->timer) {
        free(p);
        return error_memory(err);
    }
    cpu_priority_begin(p); /* a cell may have been sent before the sandbox existed */
    p->begun = false;
    cpu_priority_raise_fork(p);
    p->looked = true; /* everything it uses belongs to this cell */
    *out = p;
    return 0;
}

void cpu_priority_close(struct cpu_priority *p)
{
    if (!p)
        return;
    timer_free(p->timer);
    free(p);
}
