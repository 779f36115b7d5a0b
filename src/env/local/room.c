/* env/local/room.c: what is left for another sandbox, and the queue for it.
 *
 * The descriptor of a trial dup shows how many are in use, since the kernel gives the lowest free
 * number. Memory and processes are the machine's and change without this process, so they are
 * looked at again from time to time, and only when there are many sandboxes: a single one starts
 * and fails as any process would.
 */
#include "env/local/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/os/file.h"
#include "base/text.h"

enum {
    FEW = 16,                /* sandboxes that start without a look at the machine */
    LOOK_NS = 10000000,      /* between two looks; about 30 µs each */
    RETRY_MS = 20,           /* other programs free things, too */
    FREE_DESCRIPTORS = 32,   /* for the host, and for sandboxes that are being started */
    SANDBOX_DESCRIPTORS = 3, /* at least; local.c */
    FREE_TASKS = 256,        /* of the machine or the container */
    MEMORY_PART = 64,        /* this part of the machine's memory stays available */
};

struct room {
    struct loop *loop;
    struct timer *retry;
    room_fn *fn;
    TAILQ_HEAD(room_queue, room_entry) queue;
    unsigned sandboxes;
    uint64_t looked_ns;
    struct error seen; /* code ERROR_NONE: there was room */
};

struct room_entry {
    TAILQ_ENTRY(room_entry) link;
    struct sandbox *sandbox;
    uint64_t since_ns;
    double seconds;
    bool cancelled;
};

/* ---- what is left ---- */

static int room_check_descriptors(const struct room *r, struct error *why)
{
    struct rlimit files = { 0 };
    int free_one = fcntl(loop_backend(r->loop), F_DUPFD_CLOEXEC, 0), sys = errno;
    if (free_one >= 0)
        close(free_one);
    getrlimit(RLIMIT_NOFILE, &files);
    if (free_one >= 0 && (rlim_t)free_one + FREE_DESCRIPTORS < files.rlim_cur)
        return 0;
    if (free_one < 0 && sys == ENFILE)
        return error_set(why, ERROR_ENVIRONMENT,
            "no room for another sandbox: the machine has no descriptors left; raise "
            "fs.file-max, or end other programs");
    return error_set(why, ERROR_ENVIRONMENT,
        "no room for another sandbox: this process may have %llu open files, which is enough for "
        "%llu sandboxes of at least %d each; raise the limit (ulimit -n; at most %llu here), or "
        "close sessions",
        (unsigned long long)files.rlim_cur,
        (unsigned long long)(files.rlim_cur > FREE_DESCRIPTORS
                                 ? (files.rlim_cur - FREE_DESCRIPTORS) / SANDBOX_DESCRIPTORS
                                 : 0),
        SANDBOX_DESCRIPTORS, (unsigned long long)files.rlim_max);
}

static int room_check_memory(struct error *why)
{
    char text[4096];
    file_peek(AT_FDCWD, "/proc/meminfo", text, sizeof text);
    unsigned long long total = text_number_after(text, "MemTotal:");
    unsigned long long available = text_number_after(text, "MemAvailable:");
    if (available == 0 || available >= total / MEMORY_PART)
        return 0;
    return error_set(why, ERROR_ENVIRONMENT,
        "no room for another sandbox: %llu MB of the machine's %llu MB of memory are available; "
        "close sessions, or end other programs",
        available / 1024, total / 1024);
}

static uint64_t room_read_limit(const char *path)
{
    char text[64];
    unsigned long long n = 0;
    return file_peek(AT_FDCWD, path, text, sizeof text) && sscanf(text, "%llu", &n) == 1
               ? n
               : UINT64_MAX;
}

static int room_check_tasks(struct error *why)
{
    char text[128];
    unsigned long long tasks = 0;
    uint64_t pids = room_read_limit("/proc/sys/kernel/pid_max");
    uint64_t threads = room_read_limit("/proc/sys/kernel/threads-max");
    uint64_t most = pids < threads ? pids : threads;
    file_peek(AT_FDCWD, "/proc/loadavg", text, sizeof text);
    if (sscanf(text, "%*f %*f %*f %*u/%llu", &tasks) != 1 || tasks + FREE_TASKS <= most)
        return 0;
    return error_set(why, ERROR_ENVIRONMENT,
        "no room for another sandbox: the machine has %llu of at most %llu threads; raise "
        "kernel.%s, close sessions, or end other programs",
        tasks, (unsigned long long)most, pids < threads ? "pid_max" : "threads-max");
}

/* A container's limit, cgroup v2: Documentation/admin-guide/cgroup-v2.rst, pids. */
static int room_check_container(struct error *why)
{
    char text[512], path[600], own[400];
    if (!file_peek(AT_FDCWD, "/proc/self/cgroup", text, sizeof text))
        return 0;
    const char *at = strstr(text, "0::/");
    if (!at || sscanf(at, "0::%399[^\n]", own) != 1)
        return 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/pids.max", own);
    uint64_t most = room_read_limit(path); /* "max" is not a number */
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/pids.current", own);
    uint64_t now = room_read_limit(path);
    if (most == UINT64_MAX || now == UINT64_MAX || now + FREE_TASKS / 8 <= most)
        return 0;
    return error_set(why, ERROR_ENVIRONMENT,
        "no room for another sandbox: this container has %llu of at most %llu processes; raise its "
        "limit (docker run --pids-limit), or close sessions",
        (unsigned long long)now, (unsigned long long)most);
}

static void room_look(struct room *r)
{
    uint64_t now = clock_ns();
    if (r->looked_ns && now - r->looked_ns < LOOK_NS)
        return;
    r->looked_ns = now;
    r->seen = (struct error){ 0 };
    if (room_check_memory(&r->seen) == 0 && room_check_tasks(&r->seen) == 0)
        room_check_container(&r->seen);
}

int room_check(struct room *r, unsigned sandboxes, struct error *why)
{
    int rc = room_check_descriptors(r, why);
    if (rc < 0 || sandboxes < FEW)
        return rc;
    room_look(r);
    if (r->seen.code == ERROR_NONE)
        return 0;
    if (why)
        *why = r->seen;
    return -(int)r->seen.code;
}

/* ---- the queue ---- */

static struct room_entry *room_find(const struct room *r, const struct sandbox *s)
{
    struct room_entry *e;
    TAILQ_FOREACH(e, &r->queue, link)
    if (e->sandbox == s)
        return e;
    return NULL;
}

static void room_drop(struct room *r, struct room_entry *e)
{
    TAILQ_REMOVE(&r->queue, e, link);
    free(e);
}

/* Takes the entry out, and starts its sandbox or tells it why not. */
static void room_settle(struct room *r, struct room_entry *e, const struct error *why)
{
    struct sandbox *s = e->sandbox;
    room_drop(r, e);
    r->sandboxes++;
    r->fn(s, why);
}

static struct room_entry *room_find_over(struct room *r)
{
    struct room_entry *e;
    TAILQ_FOREACH(e, &r->queue, link)
    if (e->cancelled || clock_seconds_since(e->since_ns) >= e->seconds)
        return e;
    return NULL;
}

static void room_refuse(struct room *r, struct room_entry *e, const struct error *no_room)
{
    struct error why = { 0 };
    if (e->cancelled)
        error_set(&why, ERROR_CANCELLED, "killed while it waited for room");
    else
        error_set(&why, ERROR_ENVIRONMENT, "after %g s of waiting (start-wait): %.900s", e->seconds,
            no_room->text);
    room_settle(r, e, &why);
}

static void room_try(void *arg)
{
    struct room *r = arg;
    struct room_entry *e;
    struct error why = { 0 };
    bool fits = true;
    while (fits && (e = TAILQ_FIRST(&r->queue)) && !e->cancelled) {
        fits = room_check(r, r->sandboxes, &why) == 0;
        if (fits)
            room_settle(r, e, NULL);
    }
    while ((e = room_find_over(r)))
        room_refuse(r, e, &why);
    if (room_is_awaited(r))
        timer_start(r->retry, RETRY_MS, 0);
}

int room_open(struct loop *loop, room_fn *fn, struct room **out, struct error *err)
{
    struct room *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    *r = (struct room){ .loop = loop, .fn = fn };
    TAILQ_INIT(&r->queue);
    r->retry = timer_new(loop, room_try, r);
    if (!r->retry) {
        free(r);
        return error_memory(err);
    }
    *out = r;
    return 0;
}

void room_close(struct room *r)
{
    struct room_entry *e;
    if (!r)
        return;
    while ((e = TAILQ_FIRST(&r->queue)))
        room_drop(r, e);
    timer_free(r->retry);
    free(r);
}

int room_wait(struct room *r, struct sandbox *s, double seconds, struct error *err)
{
    struct room_entry *e = calloc(1, sizeof *e);
    if (!e)
        return error_memory(err);
    *e = (struct room_entry){ .sandbox = s, .since_ns = clock_ns(), .seconds = seconds };
    if (!room_is_awaited(r))
        timer_start(r->retry, RETRY_MS, 0);
    TAILQ_INSERT_TAIL(&r->queue, e, link);
    return 0;
}

bool room_is_awaited(const struct room *r)
{
    return !TAILQ_EMPTY(&r->queue);
}

bool room_has(const struct room *r, const struct sandbox *s)
{
    return room_find(r, s);
}

void room_leave(struct room *r, const struct sandbox *s)
{
    struct room_entry *e = room_find(r, s);
    if (e)
        room_drop(r, e);
}

void room_cancel(struct room *r, const struct sandbox *s)
{
    struct room_entry *e = room_find(r, s);
    if (!e)
        return;
    e->cancelled = true;
    timer_start(r->retry, 0, 0);
}

void room_changed(struct room *r, unsigned sandboxes)
{
    r->sandboxes = sandboxes;
    if (room_is_awaited(r))
        timer_start(r->retry, 0, 0);
}
