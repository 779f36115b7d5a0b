/* cli/bench/density.c: how many sessions fit into one process, what each costs, and at what rate
 * they can be started, used and closed.
 *
 * Memory is measured twice: the proportional share of all processes (Pss of smaps_rollup), and how
 * much less memory the machine has available, which includes the kernel's own for processes,
 * namespaces and sockets, but also whatever other programs take or free in the meantime.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/array.h"
#include "base/clock.h"
#include "cli/bench/measure.h"

enum {
    ROOM_KIB = 2048,      /* of memory for a session, and as much stays free for others */
    OWN_DESCRIPTORS = 64, /* of the process and its zygote */
    SESSION_DESCRIPTORS = 3,
    SESSION_PROCESSES = 2,
    AT_A_TIME = 4,
};

static const char first_cell[] = "x = 1 + 1";

/* ---- the machine ---- */

static double density_read_number(const char *path, const char *key)
{
    char text[8192];
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : 0;
}

static double density_available_kib(void)
{
    return density_read_number("/proc/meminfo", "MemAvailable:");
}

struct density_process {
    pid_t pid, parent;
    bool ours;
};

struct density_list {
    struct density_process *at;
    size_t count, room;
};

static void density_list_add(struct density_list *list, pid_t pid)
{
    char path[48], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    int parent = 0;
    if (n <= 0)
        return;
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* the name may contain anything, proc(5) */
    if (!after || sscanf(after, ") %*c %d", &parent) != 1)
        return;
    if (!array_room(list->at, list->count, &list->room))
        return;
    list->at[list->count++] = (struct density_process){ pid, parent, pid == getpid() };
}

static int density_by_pid(const void *a, const void *b)
{
    const struct density_process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Whether the process descends from this one: rounds until nothing changes. */
static void density_mark_ours(struct density_list *list)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < list->count; i++) {
            struct density_process key = { .pid = list->at[i].parent };
            const struct density_process *parent =
                bsearch(&key, list->at, list->count, sizeof key, density_by_pid);
            if (list->at[i].ours || !parent || !parent->ours)
                continue;
            list->at[i].ours = changed = true;
        }
    }
}

/* This process and all below it, by their numbers. The caller frees list.at. */
static struct density_list density_ours(void)
{
    struct density_list list = { 0 };
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    while (proc && (entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0)
            density_list_add(&list, pid);
    }
    if (proc)
        closedir(proc);
    qsort(list.at, list.count, sizeof *list.at, density_by_pid);
    density_mark_ours(&list);
    size_t count = 0;
    for (size_t i = 0; i < list.count; i++)
        if (list.at[i].ours)
            list.at[count++] = list.at[i];
    list.count = count;
    return list;
}

static double density_kib_of(pid_t pid, const char *key)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    return density_read_number(path, key);
}

static double density_pss_kib(void)
{
    struct density_list list = density_ours();
    double sum = 0;
    for (size_t i = 0; i < list.count; i++)
        sum += density_kib_of(list.at[i].pid, "\nPss:");
    free(list.at);
    return sum;
}

void bench_processes(struct bench_processes *out)
{
    struct density_list list = density_ours();
    out->pids = calloc(list.count + 1, sizeof *out->pids);
    for (size_t i = 0; out->pids && i < list.count; i++)
        out->pids[out->count++] = list.at[i].pid;
    free(list.at);
}

static int density_pid_by_number(const void *a, const void *b)
{
    return (*(const pid_t *)a > *(const pid_t *)b) - (*(const pid_t *)a < *(const pid_t *)b);
}

double bench_private_kib(const struct bench_processes *before)
{
    struct density_list list = density_ours();
    double sum = 0;
    for (size_t i = 0; i < list.count; i++) {
        pid_t pid = list.at[i].pid;
        if (!before->count ||
            !bsearch(&pid, before->pids, before->count, sizeof pid, density_pid_by_number))
            sum +=
                density_kib_of(pid, "\nPrivate_Clean:") + density_kib_of(pid, "\nPrivate_Dirty:");
    }
    free(list.at);
    return sum;
}

/* As many as fit, and no more than half of the machine's memory and process numbers. */
static unsigned density_room(unsigned wanted)
{
    struct rlimit files = { .rlim_cur = RLIM_INFINITY };
    double memory = density_available_kib() / 2 / ROOM_KIB;
    double pids = density_read_number("/proc/sys/kernel/pid_max", "") / 2 / SESSION_PROCESSES;
    getrlimit(RLIMIT_NOFILE, &files);
    double descriptors = ((double)files.rlim_cur - OWN_DESCRIPTORS) / SESSION_DESCRIPTORS;
    double fit = wanted;
    fit = memory < fit ? memory : fit;
    fit = pids < fit ? pids : fit;
    fit = descriptors < fit ? descriptors : fit;
    return fit > 1 ? (unsigned)fit : 1;
}

/* ---- many at once ---- */

static int density_open(droste *d, droste_session **out, droste_error *err)
{
    droste_result *r = NULL;
    int rc = droste_session_open(d, out, err);
    if (rc == 0)
        rc = droste_session_exec(*out, first_cell, sizeof first_cell - 1, 0, &r, err);
    droste_result_free(r);
    return rc;
}

int bench_density(droste *d, struct series *s, unsigned fallback, droste_error *err)
{
    unsigned n = density_room(bench_sessions(fallback)), opened = 0;
    cleanup_free droste_session **sessions = calloc(n + 1, sizeof(droste_session *));
    int rc = droste_set(d, "pool", "0", err);
    if (rc == 0 && sessions)
        rc = density_open(d, &sessions[n], err); /* starts the zygote */
    double pss = density_pss_kib(), available = density_available_kib();
    for (; rc == 0 && sessions && opened < n; opened++) {
        uint64_t start = clock_ns();
        rc = density_open(d, &sessions[opened], err);
        bench_add(&s[1], bench_elapsed_us(start));
    }
    if (rc == 0 && opened > 0) {
        bench_add(&s[0], opened);
        bench_add(&s[2], (density_pss_kib() - pss) / opened / 1024);
        bench_add(&s[3], (available - density_available_kib()) / opened / 1024);
    }
    uint64_t start = clock_ns();
    for (unsigned i = 0; sessions && i <= n; i++)
        droste_session_close(sessions[i]);
    if (rc == 0)
        bench_add(&s[4], bench_elapsed_us(start) / 1e6);
    return rc;
}

/* ---- a sustained rate ---- */

static int churn_start(droste *d, droste_session **out, droste_error *err)
{
    int rc = droste_session_start(d, NULL, out, err);
    return rc < 0 ? rc
                  : droste_session_exec_start(*out, first_cell, sizeof first_cell - 1, 0, 0, err);
}

static int churn_end(droste_session **s, droste_error *err)
{
    droste_result *r = NULL;
    int rc = droste_session_wait(*s, -1, &r, err);
    droste_result_free(r);
    droste_session_close(*s);
    *s = NULL;
    return rc;
}

/* The time of each is that of all by their number, since they overlap. */
static int churn_round(droste *d, unsigned n, struct series *s, droste_error *err)
{
    droste_session *sessions[AT_A_TIME] = { NULL };
    uint64_t start = clock_ns();
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n + AT_A_TIME; i++) {
        droste_session **at = &sessions[i % AT_A_TIME];
        if (*at)
            rc = churn_end(at, err);
        if (rc == 0 && i < n)
            rc = churn_start(d, at, err);
    }
    for (unsigned i = 0; i < AT_A_TIME; i++)
        droste_session_close(sessions[i]);
    if (rc == 0)
        bench_add(s, bench_elapsed_us(start) / n);
    return rc;
}

int bench_churn(droste *d, struct series *s, unsigned n, droste_error *err)
{
    const char *path = droste_python(d, err);
    if (!path)
        return -err->code;
    cleanup_free char *python = strdup(path);
    struct series warm_up = { 0 };
    int rc = churn_round(d, AT_A_TIME, &warm_up, err);
    free(warm_up.times);
    for (unsigned round = 0; rc == 0 && round < bench_rounds; round++) {
        rc = churn_round(d, n / bench_rounds, &s[0], err);
        bench_bare_forks(&s[1], python, bench_preload, n / bench_rounds);
    }
    return rc;
}
