/* env/local/memory_watch.c: decides when to measure, and measures in two steps.
 *
 * One timer serves all sandboxes. At each tick it reads the machine's figures (/proc/meminfo, some
 * 20 µs). As long as the memory use of the whole machine has grown by less than half of a sandbox's
 * headroom, that sandbox cannot exceed its limit and is only measured now and then.
 *
 * The first step adds up RssAnon, VmSwap and VmPTE of all processes (/proc/PID/status,
 * world-readable) and the machine's Shmem, which bounds whatever the sandbox has in memory files,
 * shared mappings and tmpfs. If that is below the limit, it is enough. Otherwise the second step
 * measures exactly:
 *   private memory   Pss_Anon of smaps_rollup, in which pages that are shared with the zygote and
 *                    among forks count in proportion;
 *   page tables      VmPTE;
 *   tmpfs            statfs(2) of its /tmp and /dev/shm, which also counts unlinked files;
 *   memory files     st_blocks of open ones, each once, except those from the host;
 *   shared mappings  st_blocks through /proc/PID/map_files or, if that is denied (it needs
 *                    CAP_SYS_ADMIN), how far the file is mapped;
 *   hidden           files in transit through a socket (SCM_RIGHTS) are not visible anywhere.
 * The size of a mapping, and files in sockets, are upper bounds. They count up to the growth of the
 * machine's Shmem since the sandbox started that is not explained otherwise.
 *
 * The second step reads files for which the kernel takes the lock of a process's mappings (proc(5):
 * maps, smaps_rollup). A process of low priority may hold it for as long as it waits for a
 * processor, so a job (base/job.h) reads them and not the loop, which would wait as well. There is
 * one job at a time, unless it is held up.
 *
 * Measuring takes at most a tenth of the time: after an expensive measurement the next one waits
 * ten times as long as that took.
 */
#include "env/local/memory_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/job.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/text.h"
#include "env/local/process_list.h"

enum {
    TICK_MS = 10, /* while the machine's memory use grows: one processor fills some 20 MB in it */
    BUSY_TICK_MS = 40,
    IDLE_TICK_MS = 500,
    TICK_WORK_NS = 1000000, /* of a tick, which blocks the loop */
    BUSY_LOOK_MS = 1000,    /* between measurements in an operation without growth of the machine */
    IDLE_LOOK_MS = 5000,
    HELD_UP_NS = 50000000, /* a job that has taken as long may wait for a lock */
    COST = 10,             /* pause after a measurement, as a multiple of its duration */
    GREW = 2 << 20,
};

struct machine {
    uint64_t used;   /* everything that a guest can make grow */
    uint64_t shared; /* of that: Shmem, and swap, which may contain some of it */
};

struct memory_watch {
    TAILQ_ENTRY(memory_watch) link; /* the last measured one comes last */
    struct memory_watches *all;
    struct memory_watch_options options;
    pid_t keeper;               /* 0: not running yet */
    struct machine first, then; /* at its start; at its last measurement */
    uint64_t headroom;          /* at its last measurement */
    uint64_t earliest_ns, latest_ns;
    struct measurement *measurement; /* the exact one under way; NULL: none */
    bool busy, over;
    int unread;        /* the channel, while the host does not read it; -1 */
    ino_t *host_files; /* files from the host */
    size_t host_file_count, host_file_room;
};

struct memory_watches {
    struct loop *loop;
    struct timer *timer;
    TAILQ_HEAD(watch_queue, memory_watch) queue;
    unsigned busy;
    uint64_t interval_ms; /* 0: the timer is stopped */
    uint64_t used;        /* by the machine, at the last tick */
    unsigned under_way;   /* jobs that measure */
    bool closed;          /* the last job frees this */
    uint64_t held_up_ns;  /* from then on, the last of them counts as held up */
    dev_t shared;         /* the file system of memory files and shared mappings */
};

/* ---- reading /proc ---- */

/* Bytes from a line "KEY:   123 kB"; 0 if it is missing. */
static uint64_t bytes_after(const char *text, const char *key)
{
    return text_number_after(text, key) * 1024;
}

static struct machine read_machine(void)
{
    char text[4096];
    file_peek(AT_FDCWD, "/proc/meminfo", text, sizeof text);
    uint64_t swapped = bytes_after(text, "SwapTotal:") - bytes_after(text, "SwapFree:");
    struct machine now = { .shared = bytes_after(text, "Shmem:") + swapped };
    now.used = now.shared + bytes_after(text, "AnonPages:") + bytes_after(text, "PageTables:");
    return now;
}

static uint64_t growth(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

static bool has_inode(const ino_t *files, size_t count, ino_t inode)
{
    for (size_t i = 0; i < count; i++)
        if (files[i] == inode)
            return true;
    return false;
}

/* ---- processes ---- */

static bool is_fork_of(const void *watch, pid_t pid)
{
    const struct memory_watch *w = watch;
    struct memory_watch *other;
    if (!w->options.forks || *w->options.forks == 0 || pid == w->keeper)
        return false;
    TAILQ_FOREACH(other, &w->all->queue, link)
    if (other != w && other->keeper == pid)
        return true;
    return false;
}

struct private_memory {
    uint64_t most;   /* counts what forks share for each of them */
    uint64_t tables; /* of that: page tables */
};

static struct private_memory read_private(const struct process_list *list)
{
    struct private_memory sum = { 0 };
    for (size_t i = 0; i < list->count; i++) {
        char path[48], text[4096];
        snprintf(path, sizeof path, "/proc/%d/status", (int)list->pids[i]);
        file_peek(AT_FDCWD, path, text, sizeof text);
        uint64_t tables = bytes_after(text, "VmPTE:");
        sum.tables += tables;
        sum.most += tables + bytes_after(text, "RssAnon:") + bytes_after(text, "VmSwap:");
    }
    return sum;
}

/* ---- the exact measurement ---- */

/* What a job measures: nothing of it belongs to the loop meanwhile, except `watch`. */
struct measurement {
    struct memory_watches *all;
    struct memory_watch *watch; /* NULL: closed meanwhile */
    struct process_list processes;
    pid_t keeper;
    bool own_root;
    bool unread; /* files wait in its channel */
    dev_t device;
    ino_t *host_files;
    size_t host_file_count;
    uint64_t first_shared; /* by the machine at the start of the sandbox */
    struct machine now;
    uint64_t began_ns;
    uint64_t sum; /* the result, which begins with what is known */
};

struct shared_memory {
    struct shared_file {
        ino_t inode;
        uint64_t unseen; /* of `unseen` below; 0: it was measured */
    } * files;           /* already counted */
    size_t count, room;
    uint64_t bytes;
    uint64_t unseen; /* upper bound of what could not be measured */
};

/* True the first time, when it is to be counted. */
static bool shared_is_new(struct shared_memory *shared, ino_t inode)
{
    for (size_t i = 0; i < shared->count; i++)
        if (shared->files[i].inode == inode)
            return false;
    if (array_room(shared->files, shared->count, &shared->room))
        shared->files[shared->count++] = (struct shared_file){ .inode = inode };
    return true;
}

/* Adds a file that only its mappings are known of, once for all processes: up to the end of the
 * farthest mapping. */
static void shared_add_unseen(struct shared_memory *shared, ino_t inode, uint64_t end)
{
    bool is_new = shared_is_new(shared, inode);
    for (size_t i = 0; i < shared->count; i++) {
        struct shared_file *f = &shared->files[i];
        if (f->inode != inode || (!is_new && f->unseen == 0) || end <= f->unseen)
            continue;
        shared->unseen += shared->unseen > UINT64_MAX / 2 ? 0 : end - f->unseen;
        f->unseen = end;
    }
}

/* Reads a link in /proc without contacting a file server that it may point to. */
static bool stat_link(int dir, const char *name, struct statx *out)
{
    return statx(dir, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
               STATX_TYPE | STATX_INO | STATX_BLOCKS, out) == 0;
}

/* Whether a file is in memory and not from the host. */
static bool measurement_counts(
    const struct measurement *m, unsigned major_number, unsigned minor_number, ino_t inode)
{
    return m->device == makedev(major_number, minor_number) &&
           !has_inode(m->host_files, m->host_file_count, inode);
}

/* fdinfo of UNIX sockets, proc(5), since Linux 5.6. */
static bool socket_holds_files(pid_t pid, const char *fd)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%.20s", (int)pid, fd);
    file_peek(AT_FDCWD, path, text, sizeof text);
    const char *line = strstr(text, "scm_fds:");
    return line && strtoul(line + strlen("scm_fds:"), NULL, 10) > 0;
}

static void add_open_files(const struct measurement *m, pid_t pid, struct shared_memory *shared)
{
    char path[48];
    struct statx st;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    cleanup_listing DIR *fds = opendir(path);
    for (const char *fd; (fd = next_listed(fds));) {
        if (!stat_link(dirfd(fds), fd, &st))
            continue;
        if (S_ISSOCK(st.stx_mode) && socket_holds_files(pid, fd))
            shared->unseen = UINT64_MAX;
        if (measurement_counts(m, st.stx_dev_major, st.stx_dev_minor, st.stx_ino) &&
            shared_is_new(shared, st.stx_ino))
            shared->bytes += st.stx_blocks * 512;
    }
}

static void add_map(
    const struct measurement *m, pid_t pid, const char *line, struct shared_memory *shared)
{
    unsigned long from, to, offset;
    unsigned major_number, minor_number;
    unsigned long long inode;
    char path[96];
    struct statx st;
    if (sscanf(line, "%lx-%lx %*s %lx %x:%x %llu", &from, &to, &offset, &major_number,
            &minor_number, &inode) != 6)
        return;
    if (!measurement_counts(m, major_number, minor_number, inode))
        return;
    snprintf(path, sizeof path, "/proc/%d/map_files/%lx-%lx", (int)pid, from, to);
    bool seen = stat_link(AT_FDCWD, path, &st);
    if (seen && shared_is_new(shared, inode))
        shared->bytes += st.stx_blocks * 512;
    if (!seen)
        shared_add_unseen(shared, inode, offset + (to - from));
}

static void add_maps(const struct measurement *m, pid_t pid, struct shared_memory *shared)
{
    char path[48];
    cleanup_free char *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && getline(&line, &size, f) > 0)
        add_map(m, pid, line, shared);
    if (f)
        fclose(f);
}

/* Of a tmpfs of the sandbox; *size becomes how much may be in it. */
static uint64_t file_system_used(pid_t keeper, const char *at, uint64_t *size)
{
    char path[64];
    struct statfs st;
    snprintf(path, sizeof path, "/proc/%d/root%s", (int)keeper, at);
    if (statfs(path, &st) < 0 || st.f_type != TMPFS_MAGIC)
        return 0;
    *size = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize;
    return (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
}

static uint64_t read_proportional(pid_t pid)
{
    char path[48], text[4096];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    if (file_peek(AT_FDCWD, path, text, sizeof text) && strstr(text, "Pss_Anon:")) /* Linux 5.4 */
        return bytes_after(text, "Pss_Anon:") + bytes_after(text, "SwapPss:");
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file_peek(AT_FDCWD, path, text, sizeof text);
    return bytes_after(text, "RssAnon:") + bytes_after(text, "VmSwap:");
}

static bool holds_unread_files(const struct memory_watch *w)
{
    char fd[12];
    snprintf(fd, sizeof fd, "%d", w->unread);
    return w->unread >= 0 && socket_holds_files(getpid(), fd);
}

static uint64_t measurement_shared(const struct measurement *m)
{
    struct shared_memory shared = { 0 };
    uint64_t size;
    for (size_t i = 0; i < m->processes.count; i++)
        add_open_files(m, m->processes.pids[i], &shared);
    for (size_t i = 0; i < m->processes.count; i++)
        add_maps(m, m->processes.pids[i], &shared);
    free(shared.files);
    if (m->unread)
        shared.unseen = UINT64_MAX;
    if (m->own_root)
        shared.bytes += file_system_used(m->keeper, "/tmp", &size) +
                        file_system_used(m->keeper, "/dev/shm", &size);
    uint64_t unseen = growth(m->first_shared + shared.bytes, m->now.shared);
    return shared.bytes + (shared.unseen < unseen ? shared.unseen : unseen);
}

static void measurement_take(void *arg)
{
    struct measurement *m = arg;
    m->sum += measurement_shared(m);
    for (size_t i = 0; i < m->processes.count; i++)
        m->sum += read_proportional(m->processes.pids[i]);
}

uint64_t memory_of_fork(pid_t keeper)
{
    struct process_list list = { 0 };
    uint64_t sum = 0;
    if (keeper <= 0)
        return 0;
    process_list_read(&list, keeper, NULL, NULL);
    for (size_t i = 0; i < list.count; i++)
        sum += read_proportional(list.pids[i]);
    free(list.pids);
    return sum;
}

void memory_now(pid_t keeper, const struct process_list *processes, struct memory_now *out)
{
    *out = (struct memory_now){ .private_bytes = read_private(processes).most };
    out->files = file_system_used(keeper, "/tmp", &out->files_limit);
}

/* ---- scheduling ---- */

static void look_ended(
    struct memory_watch *w, uint64_t sum, const struct machine *now, uint64_t began_ns)
{
    uint64_t ended_ns = clock_ns();
    w->then = *now;
    w->headroom = growth(sum, w->options.limit);
    w->earliest_ns = ended_ns + COST * (ended_ns - began_ns);
    w->latest_ns = ended_ns + (w->busy ? BUSY_LOOK_MS : IDLE_LOOK_MS) * UINT64_C(1000000);
    w->over = sum > w->options.limit;
    if (w->over)
        w->options.over(w->options.arg);
}

static void measurement_ended(void *arg)
{
    struct measurement *m = arg;
    if (--m->all->under_way == 0 && m->all->closed)
        free(m->all);
    if (m->watch) {
        m->watch->measurement = NULL;
        look_ended(m->watch, m->sum, &m->now, m->began_ns);
    }
    free(m->processes.pids);
    free(m->host_files);
    free(m);
}

/* Takes the list of processes. Without memory the sandbox is looked at again later. */
static void measurement_begin(struct memory_watch *w, struct process_list *list, uint64_t tables,
    const struct machine *now, uint64_t began_ns)
{
    struct measurement *m = calloc(1, sizeof *m);
    size_t size = w->host_file_count * sizeof *w->host_files;
    ino_t *host_files = m && size ? malloc(size) : NULL;
    if (!m || (size && !host_files)) {
        free(m);
        return;
    }
    if (size)
        memcpy(host_files, w->host_files, size);
    *m = (struct measurement){ .all = w->all,
        .watch = w,
        .processes = *list,
        .keeper = w->keeper,
        .own_root = w->options.own_root,
        .unread = holds_unread_files(w),
        .device = w->all->shared,
        .host_files = host_files,
        .host_file_count = w->host_file_count,
        .first_shared = w->first.shared,
        .now = *now,
        .began_ns = began_ns,
        .sum = tables };
    *list = (struct process_list){ 0 };
    w->measurement = m;
    w->all->under_way++;
    w->all->held_up_ns = began_ns + HELD_UP_NS;
    if (job_start(w->all->loop, measurement_take, measurement_ended, m, NULL) == 0)
        return;
    measurement_take(m);
    measurement_ended(m);
}

/* First an upper bound; if that may exceed the limit, exactly. */
static void look(struct memory_watch *w, const struct machine *now)
{
    uint64_t began_ns = clock_ns();
    struct process_list list = { 0 };
    process_list_read(&list, w->keeper, is_fork_of, w);
    struct private_memory own = read_private(&list);
    uint64_t sum = own.most + now->shared;
    if (sum > w->options.limit && own.tables <= w->options.limit)
        measurement_begin(w, &list, own.tables, now, began_ns);
    else
        look_ended(w, sum, now, began_ns);
    free(list.pids);
}

static bool is_due(const struct memory_watch *w, const struct machine *now, uint64_t now_ns)
{
    if (!w->keeper || w->over || w->measurement || now_ns < w->earliest_ns)
        return false;
    return now_ns >= w->latest_ns || growth(w->then.used, now->used) >= w->headroom / 2;
}

static void set_interval(struct memory_watches *all, uint64_t ms)
{
    if (all->interval_ms == ms)
        return;
    all->interval_ms = ms;
    timer_start(all->timer, ms, ms);
}

/* Sandboxes that this tick did not reach come first at the next one. */
static void tick(void *arg)
{
    struct memory_watches *all = arg;
    struct memory_watch *w, *next, *last = TAILQ_LAST(&all->queue, watch_queue);
    uint64_t now_ns = clock_ns();
    struct machine now = read_machine();
    bool grew = growth(all->used, now.used) > GREW;
    all->used = now.used;
    unsigned under_way = all->under_way;
    bool waits = under_way > 0 && now_ns < all->held_up_ns;
    for (w = waits ? NULL : TAILQ_FIRST(&all->queue); w; w = next) {
        next = w == last ? NULL : TAILQ_NEXT(w, link);
        if (!is_due(w, &now, now_ns))
            continue;
        TAILQ_REMOVE(&all->queue, w, link);
        TAILQ_INSERT_TAIL(&all->queue, w, link);
        look(w, &now);
        if (all->under_way > under_way || clock_ns() - now_ns > TICK_WORK_NS)
            break;
    }
    set_interval(all, grew ? TICK_MS : all->busy > 0 ? BUSY_TICK_MS : IDLE_TICK_MS);
}

void memory_watch_busy(struct memory_watch *w, bool busy)
{
    if (!w || w->busy == busy)
        return;
    w->busy = busy;
    w->all->busy += busy ? 1 : -1u;
    if (busy && w->all->interval_ms > BUSY_TICK_MS)
        set_interval(w->all, BUSY_TICK_MS);
}

void memory_watch_unread(struct memory_watch *w, int channel)
{
    if (w)
        w->unread = channel;
}

/* If memory runs out, the file counts as the guest's. */
void memory_watch_exclude(struct memory_watch *w, int fd)
{
    struct stat st;
    if (!w || fd < 0 || fstat(fd, &st) < 0 ||
        has_inode(w->host_files, w->host_file_count, st.st_ino))
        return;
    if (array_room(w->host_files, w->host_file_count, &w->host_file_room))
        w->host_files[w->host_file_count++] = st.st_ino;
}

int memory_watches_open(struct loop *loop, struct memory_watches **out, struct error *err)
{
    struct memory_watches *all = calloc(1, sizeof *all);
    struct stat st;
    cleanup_fd int fd = memfd_create("droste-device", MFD_CLOEXEC);
    if (!all)
        return error_memory(err);
    if (fd >= 0 && fstat(fd, &st) == 0)
        all->shared = st.st_dev;
    TAILQ_INIT(&all->queue);
    all->loop = loop;
    all->timer = timer_new(loop, tick, all);
    if (!all->timer) {
        free(all);
        return error_memory(err);
    }
    *out = all;
    return 0;
}

void memory_watches_close(struct memory_watches *all)
{
    if (!all)
        return;
    timer_free(all->timer);
    all->closed = true;
    if (all->under_way == 0)
        free(all);
}

int memory_watch_open(struct memory_watches *all, const struct memory_watch_options *options,
    struct memory_watch **out, struct error *err)
{
    struct memory_watch *w = calloc(1, sizeof *w);
    if (!w)
        return error_memory(err);
    *w = (struct memory_watch){ .all = all, .options = *options, .unread = -1 };
    w->first = w->then = read_machine();
    w->headroom = options->limit;
    w->latest_ns = clock_ns() + IDLE_LOOK_MS * UINT64_C(1000000);
    TAILQ_INSERT_HEAD(&all->queue, w, link);
    if (!all->interval_ms)
        set_interval(all, BUSY_TICK_MS);
    *out = w;
    return 0;
}

void memory_watch_begin(struct memory_watch *w, pid_t keeper)
{
    if (w)
        w->keeper = keeper;
}

void memory_watch_close(struct memory_watch *w)
{
    if (!w)
        return;
    memory_watch_busy(w, false);
    if (w->measurement)
        w->measurement->watch = NULL;
    TAILQ_REMOVE(&w->all->queue, w, link);
    if (TAILQ_EMPTY(&w->all->queue)) {
        timer_stop(w->all->timer);
        w->all->interval_ms = 0;
    }
    free(w->host_files);
    free(w);
}
