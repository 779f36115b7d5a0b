/* env/local/cpu_priority.c: see cpu_priority.h.
 *
 * A moment after an operation began, and then at growing intervals, the processor time of the
 * sandbox's processes is looked at, in /proc. When they have had some milliseconds since, all of them
 * give way, and what they start later inherits it. Time that they only waited for does not count: on a
 * full machine a small cell may last long. The first process, which runs the cells, has its priority
 * back at the next operation, for a shorter time if it had to give way in the last: threads and
 * processes that were left running stay behind.
 *
 * The kernel has several scales, and which one counts depends on the machine and on who asks:
 *   niceness   the share of one process beside others, and
 *   idle       a policy (sched(7)): whoever has it makes room for everybody else at once. Who may not raise a
 *              priority (CAP_SYS_NICE, RLIMIT_NICE) could take neither back. So the first step is the niceness, and the policy the
 *              second: a short cell that was unlucky, because the machine's host took the processor away in the middle of it, is not
 *              in one row with those that compute for ever (with 200 of them it waited for up to 30 s).
 *   autogroup  the share of a session (setsid), outside control groups. Everybody can take it back, so it is what
 *              others use. But between sessions the policies of single processes do not count: where they are to be had,
 *              all sandboxes are of one session, which goes behind the host's own while one of them gives way.
 *   weight     the share of a sandbox's own control group, of version 2, which does for all its processes what niceness
 *              and policy do for one, and which whoever made the group may change.
 *   group      the share of one for all sandboxes (env/local/cpu_share.h), where one can be made: in the autogroup's place. In it autogroups
 *              are nothing, so that a guest gains nothing by beginning sessions (20 that did made others wait for 11 s).
 *   slice      how long it runs once it does; a short one goes first (Linux 6.12, ignored before).
 *
 * To make room is not enough where there are many of them. Each idle task is owed a little time whenever it wakes, and
 * hundreds of them together are owed so much that somebody with the usual weight has to wait for 100 ms. So a sandbox whose
 * last operation was short goes ahead, with the highest niceness: within a group, or a session that has an autogroup, no
 * program outside feels it. Where niceness counts for the whole machine, nobody goes ahead.
 *
 * While at least as many give way as there are processors, the host sleeps at once when it waits for an answer: no processor is
 * idle, so that a wake-up costs little, and the one that the host does not use may be the one that the guest waits for.
 *
 * Measured with bench/crowd, 200 sandboxes of 21 attacks on two processors, beside which an honest session runs small
 * cells: 9 to 34 times their usual time with autogroups alone, 1.2 to 1.6 times with the policy (median); the slowest of a
 * hundred took 17 to 120 times its usual time, and 3 to 7 times since the short ones go ahead and the host sleeps.
 *
 * A pid may be another's by the time it is used. It would have to be reused within microseconds, and
 * what a stranger would get is a lower priority; nothing here kills or reveals.
 */
#include "env/local/cpu_priority.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

enum {
    FIRST_MS = 20, /* a cell that is shorter costs nothing */
    LAST_MS = 20 << 6,
    LONG_NS = 5000000,
    AGAIN_MS = 5, /* the same after an operation that was long */
    AGAIN_NS = 500000,
    MORE_NS = 10000000, /* until the second step */
    TASKS_MAX = 512,    /* of a sandbox that are looked at */
    NICE_LAST = 19,     /* the lowest there is, of a process and of an autogroup */
    NICE_FIRST = -20,
    SLICE_LAST_NS =
        3000000, /* a little longer than usual. With 100 ms, the longest, others wait so long
                                  whenever they have used up their own part */
};

/* Where it has its processes stand; without the policies there is only the usual one and the last. */
enum place { PLACE_USUAL, PLACE_AHEAD, PLACE_BEHIND, PLACE_LAST };

struct cpu_priority {
    LIST_ENTRY(cpu_priority) link; /* in all->paces */
    struct timer *timer;
    struct loop *loop;
    struct cgroup *group; /* NULL: niceness and policy have to do */
    struct paces *all;
    pid_t keeper, session; /* and its session; its processes may have begun others */
    pid_t worker;          /* 0: not known yet */
    uint64_t interval_ms;
    uint64_t used_ns; /* processor time when it was last compared */
    int nice;         /* of the host: what a sandbox has that does not give way */
    enum place place;
    bool begun;    /* it has had an operation */
    bool was_long; /* it gave way in the operation before */
    bool owes;     /* its session's share back */
    bool based;    /* used_ns is of this operation's beginning, or nearly */
};

/* The tasks of a sandbox: each of its processes, and each of their other threads. */
struct tasks {
    struct task {
        pid_t pid, tid;
    } at[TASKS_MAX];
    size_t count;
    uint64_t used_ns;
    uint64_t delayed_ns; /* in which they were ready to run, and had to wait */
};

static size_t read_text(const char *path, char *out, size_t size)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* Adds the time for which a thread had a processor, and waited for one;
 * Documentation/scheduler/sched-stats.rst. */
static void add_use(struct tasks *tasks, const struct task *t)
{
    char path[64], text[128], *rest;
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)t->pid, (int)t->tid);
    read_text(path, text, sizeof text);
    tasks->used_ns += strtoull(text, &rest, 10);
    tasks->delayed_ns += strtoull(rest, NULL, 10);
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
static void find_tasks(struct cpu_priority *p, struct tasks *tasks)
{
    tasks->count = 0;
    tasks->used_ns = tasks->delayed_ns = 0;
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

static bool is_behind(enum place place)
{
    return place == PLACE_BEHIND || place == PLACE_LAST;
}

static bool gives_way(const struct cpu_priority *p)
{
    return is_behind(p->place);
}

static void set_scheduling(const struct cpu_priority *p, pid_t tid, enum place place)
{
    struct scheduling attr = {
        .size = sizeof attr,
        .policy = place == PLACE_LAST && p->all->by_policy ? SCHED_IDLE : SCHED_OTHER,
        .nice = place == PLACE_BEHIND  ? NICE_LAST
                : place == PLACE_AHEAD ? NICE_FIRST
                                       : p->nice,
        .slice_ns = is_behind(place) ? SLICE_LAST_NS : 0,
    };
    syscall(SYS_sched_setattr, tid, &attr, 0);
}

/* False if it has to be tried again: the kernel takes ten of these a second from all who are not root together.
 * Where it is not to be had at all, the others have to do. */
static bool set_autogroup(pid_t pid, bool last)
{
    char path[48], text[8];
    int len = snprintf(text, sizeof text, "%d", last ? NICE_LAST : 0);
    snprintf(path, sizeof path, "/proc/%d/autogroup", (int)pid);
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, (size_t)len) >= 0 || errno != EAGAIN;
}

/* The session that all share is not written to with one of them. In a group sessions are nothing. */
static bool has_own_session(const struct cpu_priority *p, pid_t pid)
{
    return !p->all->share && (!p->all->by_policy || getsid(pid) != p->session);
}

static bool any_gives_way(const struct cpu_priority *p)
{
    const struct cpu_priority *other;
    LIST_FOREACH(other, &p->all->paces, link)
    if (gives_way(other) && (other->session == p->session || p->all->share))
        return true;
    return false;
}

/* It may be put behind in steps, as all of them can be taken back. */
static bool has_steps(const struct cpu_priority *p)
{
    return p->all->by_policy || p->group;
}

static void cpu_priority_weigh(const struct cpu_priority *p, enum place place)
{
    static const unsigned weights[] = {
        [PLACE_USUAL] = 100, [PLACE_AHEAD] = 10000, [PLACE_BEHIND] = 1, [PLACE_LAST] = 0
    };
    cgroup_weigh(p->group, weights[place]);
}

/* The worker alone, if the group is not the sandbox's own. */
static void set_worker(const struct cpu_priority *p, enum place place)
{
    if (p->group)
        cpu_priority_weigh(p, place);
    else if (p->worker)
        set_scheduling(p, p->worker, place);
}

static void set_tasks(const struct cpu_priority *p, const struct tasks *tasks, enum place place)
{
    for (size_t i = 0; i < tasks->count; i++) {
        const struct task *t = &tasks->at[i];
        set_scheduling(p, t->tid, place);
        if (t->tid == t->pid && has_own_session(p, t->pid))
            set_autogroup(t->pid, is_behind(place));
    }
}

/* Of all sandboxes together; as set_autogroup. */
static bool set_shared(const struct cpu_priority *p, bool last)
{
    if (!p->all->share)
        return set_autogroup(p->keeper, last);
    cpu_share_lower(p->all->share, last);
    return true;
}

/* What sandboxes share is back with the last that gave way. */
static bool raise_shared(const struct cpu_priority *p)
{
    return !has_steps(p) || any_gives_way(p) || set_shared(p, false);
}

static bool raise_own(const struct cpu_priority *p)
{
    return !has_own_session(p, p->worker) || set_autogroup(p->worker, false);
}

/* Who gives way is counted, and the host told whether there is a processor to spare. */
static void move_to(struct cpu_priority *p, enum place place)
{
    struct paces *all = p->all;
    bool was_full = all->behind >= all->processors;
    all->behind += is_behind(place);
    all->behind -= gives_way(p);
    p->place = place;
    if ((all->behind >= all->processors) != was_full)
        loop_far(p->loop, !was_full);
}

static void set_all(struct cpu_priority *p, const struct tasks *tasks, enum place place)
{
    if (p->group)
        cpu_priority_weigh(p, place);
    else
        set_tasks(p, tasks, place);
    if (is_behind(place) && !gives_way(p) && has_steps(p))
        set_shared(p, true);
    move_to(p, place);
}

/* What it may use where it is. */
static uint64_t allowance_ns(const struct cpu_priority *p)
{
    return p->place == PLACE_BEHIND ? MORE_NS : p->was_long ? AGAIN_NS : LONG_NS;
}

static void cpu_priority_go_back(struct cpu_priority *p, const struct tasks *tasks)
{
    bool first = !gives_way(p) && has_steps(p);
    set_all(p, tasks, first ? PLACE_BEHIND : PLACE_LAST);
    p->used_ns = tasks->used_ns;
    if (first)
        p->interval_ms = FIRST_MS;
}

static void look_again(struct cpu_priority *p)
{
    p->interval_ms = p->interval_ms < LAST_MS ? 2 * p->interval_ms : LAST_MS;
    timer_start(p->timer, p->interval_ms, 0);
}

static void cpu_priority_look(void *arg)
{
    struct cpu_priority *p = arg;
    struct tasks tasks;
    /* To look at a hundred threads takes a millisecond, in which nobody is answered. */
    if (p->all->sandboxes <= 1 && p->interval_ms < LAST_MS && !gives_way(p) && !p->owes) {
        look_again(p);
        return;
    }
    find_tasks(p, &tasks);
    uint64_t used_ns = tasks.used_ns > p->used_ns ? tasks.used_ns - p->used_ns : 0;
    if (p->based && p->all->sandboxes > 1 && used_ns > allowance_ns(p))
        cpu_priority_go_back(p, &tasks);
    if (p->owes && !gives_way(p))
        p->owes = !raise_shared(p) || !raise_own(p);
    if (!p->based || p->place == PLACE_LAST)
        p->used_ns = tasks.used_ns;
    else if (!gives_way(p) && used_ns == 0 && p->interval_ms >= LAST_MS && !p->owes)
        return; /* it waits; the next operation begins anew */
    p->based = true;
    look_again(p);
}

/* Without a group: what else runs in the sandbox stays where it is. */
static void come_back(struct cpu_priority *p)
{
    struct tasks tasks;
    set_worker(p, PLACE_USUAL);
    move_to(p, PLACE_USUAL);
    p->owes = !raise_shared(p) || !raise_own(p);
    find_tasks(p, &tasks);
    p->used_ns = tasks.used_ns;
}

static void go_ahead(struct cpu_priority *p)
{
    struct tasks tasks;
    if (!p->worker)
        find_tasks(p, &tasks);
    set_worker(p, PLACE_AHEAD);
    move_to(p, PLACE_AHEAD);
}

static void watch_from_now(struct cpu_priority *p)
{
    p->interval_ms = p->was_long ? AGAIN_MS : FIRST_MS;
    timer_start(p->timer, p->interval_ms, 0);
}

/* Most operations are short: to start a timer is all that is done for them. */
void cpu_priority_begin(struct cpu_priority *p)
{
    if (!p)
        return;
    p->was_long = p->based = gives_way(p);
    if (p->was_long)
        come_back(p);
    else if (p->place == PLACE_USUAL && p->begun && p->all->apart && p->all->behind > 0)
        go_ahead(p);
    p->begun = true;
    watch_from_now(p);
}

uint64_t cpu_priority_busy_ns(struct cpu_priority *p)
{
    struct tasks tasks;
    if (!p)
        return 0;
    find_tasks(p, &tasks);
    return tasks.used_ns + tasks.delayed_ns;
}

void cpu_priority_end(struct cpu_priority *p)
{
    struct tasks tasks;
    if (!p || !gives_way(p))
        return;
    timer_stop(p->timer);
    find_tasks(p, &tasks);
    set_all(p, &tasks, PLACE_USUAL);
    raise_shared(p);
}

static bool has_sys_nice(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2] = { { 0 }, { 0 } };
    return syscall(SYS_capget, &header, sets) == 0 && sets[0].effective >> CAP_SYS_NICE & 1;
}

/* The path of the control group that this process is in, for processors; NULL: not known. */
static const char *cpu_group(char *groups)
{
    const char *unified = NULL;
    for (char *rest = groups, *line; (line = strsep(&rest, "\n"));) {
        strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        if (!line)
            continue;
        if (strcmp(controllers, "cpu") == 0 || strstr(controllers, "cpu,") == controllers)
            return line; /* `cpu` and `cpu,cpuacct` are what there is; it is of version 1, and decides */
        if (!*controllers)
            unified = line;
    }
    return unified;
}

/* sched(7): autogroups are there, and count, for processes in no control group but the root. The first namespace of
 * control groups always has the same number (linux/proc_ns.h); in others any group may look like the root. */
static bool sessions_have_shares(void)
{
    enum { FIRST_NAMESPACE = 0xEFFFFFFB };
    struct stat st;
    char text[4096];
    read_text("/proc/sys/kernel/sched_autogroup_enabled", text, sizeof text);
    if (text[0] != '1' || stat("/proc/self/ns/cgroup", &st) < 0 || st.st_ino != FIRST_NAMESPACE)
        return false;
    read_text("/proc/self/cgroup", text, sizeof text);
    const char *group = cpu_group(text);
    return group && strcmp(group, "/") == 0;
}

static unsigned count_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set)
                                                       : CPU_SETSIZE; /* more than that */
}

void paces_init(struct paces *all)
{
    struct rlimit limit = { 0 };
    getrlimit(RLIMIT_NICE, &limit);
    LIST_INIT(&all->paces);
    all->sandboxes = all->behind = 0;
    all->processors = count_processors();
    all->by_policy =
        has_sys_nice() || limit.rlim_cur >= (rlim_t)(20 - getpriority(PRIO_PROCESS, 0));
    all->may_go_ahead = has_sys_nice() || limit.rlim_cur >= 20 - NICE_FIRST;
    all->apart = all->may_go_ahead && sessions_have_shares();
    all->share = NULL;
}

void paces_share(struct paces *all, struct cpu_share *share, bool with_groups)
{
    all->share = share;
    all->apart = with_groups || all->may_go_ahead;
}

int cpu_priority_open(struct loop *loop, pid_t keeper, struct cgroup *group, struct paces *all,
    struct cpu_priority **out, struct error *err)
{
    struct cpu_priority *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    *p = (struct cpu_priority){ .timer = timer_new(loop, cpu_priority_look, p),
        .loop = loop,
        .group = group,
        .all = all,
        .keeper = keeper,
        .session = getsid(keeper),
        .nice = getpriority(PRIO_PROCESS, 0) };
    if (!p->timer) {
        free(p);
        return error_memory(err);
    }
    LIST_INSERT_HEAD(&all->paces, p, link);
    watch_from_now(p); /* to begin is no operation that it could be known by */
    *out = p;
    return 0;
}

void cpu_priority_close(struct cpu_priority *p)
{
    if (!p)
        return;
    bool was_behind = gives_way(p);
    move_to(p, PLACE_USUAL);
    if (was_behind)
        raise_shared(p);
    LIST_REMOVE(p, link);
    timer_free(p->timer);
    free(p);
}
