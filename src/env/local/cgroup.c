/* env/local/cgroup.c: finds a cgroup to divide, and creates one for each sandbox.
 *
 * Other software (systemd, a container runtime) manages the tree. The search therefore starts at
 * this process's own cgroup and goes up to the first one that may be divided. It must have the
 * controllers memory and pids, enable them for its children or let this process do so (which the
 * kernel refuses if the cgroup itself contains processes), and be writable. Names contain the
 * host's pid and start time, so that directories of killed hosts can be told from those in use.
 *
 *   DIRECTORY/droste-PID-START-SPACE-N/zygotes
 *                                     /sandbox-1
 *
 * Documentation/admin-guide/cgroup-v2.rst describes the files.
 */
#include "env/local/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "env/local/cgroup_tree.h"

enum {
    RETRY_MS = 2, /* at first; doubles with each try, up to a second */
    RETRY_MAX_MS = 1000,
    CLOSE_TRIES = 200, /* a millisecond each */
    CPU_PERIOD_US = 100000,
    CPU_QUOTA_MIN_US = 1000, /* the kernel's minimum */
};

struct cgroup {
    struct cgroups *home;
    struct cgroup *next; /* in the list of cgroups to remove */
    int fd;
    char name[32];
};

struct cgroups {
    int parent, home, zygotes; /* descriptors of directories */
    char name[96];
    char path[512];
    bool cpu; /* the controller is enabled for sandboxes */
    unsigned last;
    struct cgroup *doomed;
    struct timer *retry;
    uint64_t retry_ms;
};

/* ---- finding a cgroup to divide ---- */

/* Why a cgroup may not be divided; the more informative reasons come later. */
enum cgroup_refusal {
    REFUSED_NONE,
    REFUSED_GONE,
    REFUSED_CONTROLLERS,
    REFUSED_READ_ONLY,
    REFUSED_OWNER,
    REFUSED_BUSY,
};

static const char *const refusals[] = {
    [REFUSED_GONE] = "the cgroup of this process could not be opened",
    [REFUSED_CONTROLLERS] = "this process has no memory and pids controllers there (they may be "
                            "bound to version 1: boot with systemd.unified_cgroup_hierarchy=1)",
    [REFUSED_READ_ONLY] = "it is mounted read-only, as in a container without its own cgroup",
    [REFUSED_OWNER] = "this user owns no cgroup of this process: start it with `systemd-run "
                      "--user --scope`, or as root",
    [REFUSED_BUSY] = "the cgroups of this user contain processes, so child cgroups cannot get "
                     "controllers: start droste in a child of a delegated cgroup, as with "
                     "`systemd-run --user --scope`",
};

static bool cgroup_gives(int dir, const char *file)
{
    char words[512];
    file_peek(dir, file, words, sizeof words);
    return group_has_word(words, "memory") && group_has_word(words, "pids");
}

/* Checks that the controllers for children are enabled or can be. */
static enum cgroup_refusal cgroup_check_parent(int dir)
{
    if (!cgroup_gives(dir, "cgroup.controllers"))
        return REFUSED_CONTROLLERS;
    if (faccessat(dir, ".", W_OK, AT_EACCESS) < 0 ||
        faccessat(dir, "cgroup.procs", W_OK, AT_EACCESS) < 0)
        return errno == EROFS ? REFUSED_READ_ONLY : REFUSED_OWNER;
    if (cgroup_gives(dir, "cgroup.subtree_control") ||
        group_put(dir, "cgroup.subtree_control", "+memory +pids") == 0)
        return REFUSED_NONE;
    return errno == EACCES || errno == EPERM ? REFUSED_OWNER : REFUSED_BUSY;
}

/* Goes upwards from `path`, which is shortened on the way. Returns the directory, or -1 with the
 * reason. */
static int cgroup_climb(int mount, char *path, enum cgroup_refusal *why)
{
    *why = REFUSED_GONE;
    for (;;) {
        cleanup_fd int dir = openat(mount, path[0] ? path : ".", GROUP_DIRECTORY);
        enum cgroup_refusal cgroup_refusal = dir < 0 ? REFUSED_GONE : cgroup_check_parent(dir);
        if (cgroup_refusal == REFUSED_NONE)
            return steal_fd(&dir);
        *why = cgroup_refusal > *why ? cgroup_refusal : *why;
        char *slash = strrchr(path, '/');
        if (!path[0])
            return -1;
        *(slash ? slash : path) = '\0';
    }
}

static int cgroup_find_parent(struct cgroups *c, int root, struct error *err)
{
    struct cgroup_location place = { .mount = -1 };
    enum cgroup_refusal why;
    int rc = group_find(root, NULL, &place, err);
    if (rc == 0) {
        c->parent = cgroup_climb(place.mount, place.path, &why);
        if (c->parent < 0)
            rc = error_set(
                err, ERROR_UNSUPPORTED, "cgroup v2 on %.60s: %s", place.point, refusals[why]);
        snprintf(
            c->path, sizeof c->path, "%s/%s%s", place.point, place.path, place.path[0] ? "/" : "");
    }
    cgroup_location_free(&place);
    return rc;
}

/* ---- the environment's directory ---- */

/* As root, the zygote clones as the user nobody, or as a sandbox's user with this group. The kernel
 * requires that it may write to this file, and to that of the cgroup to clone into. This gives no
 * other rights: moving other processes here requires the same permission further up. */
static int give_to_zygote(int dir)
{
    if (geteuid() != 0)
        return 0;
    if (fchownat(dir, "cgroup.procs", JAIL_NOBODY, JAIL_NOBODY, 0) < 0)
        return -1;
    return fchmodat(dir, "cgroup.procs", 0664, 0);
}

static int cgroup_furnish(struct cgroups *c)
{
    c->home = openat(c->parent, c->name, GROUP_DIRECTORY);
    if (c->home < 0 || group_put(c->home, "cgroup.subtree_control", "+memory +pids") < 0 ||
        mkdirat(c->home, "zygotes", 0755) < 0)
        return -1;
    c->zygotes = openat(c->home, "zygotes", GROUP_DIRECTORY);
    return c->zygotes < 0 ? -1 : give_to_zygote(c->home);
}

static void remove_doomed(void *arg);

int cgroups_open(struct loop *loop, int root, struct cgroups **out, struct error *err)
{
    struct owner self;
    struct cgroups *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    c->parent = c->home = c->zygotes = -1;
    int rc = cgroup_find_parent(c, root, err);
    if (rc == 0 && !(c->retry = timer_new(loop, remove_doomed, c)))
        rc = error_memory(err);
    if (rc == 0) {
        owner_self(&self);
        group_sweep(c->parent, &self);
        size_t len = strlen(c->path);
        if (group_make(c->parent, &self, c->name, sizeof c->name) < 0 || cgroup_furnish(c) < 0)
            rc = error_set_errno(err, ERROR_UNSUPPORTED, "creating a cgroup in %.120s", c->path);
        snprintf(c->path + len, sizeof c->path - len, "%s", c->name);
    }
    if (rc < 0) {
        cgroups_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

static void cgroup_forget(struct cgroup *g)
{
    close_fd(&g->fd);
    free(g);
}

void cgroups_close(struct cgroups *c)
{
    if (!c)
        return;
    timer_free(c->retry);
    while (c->doomed) {
        struct cgroup *g = c->doomed;
        c->doomed = g->next;
        cgroup_forget(g);
    }
    /* Killed processes take a moment to disappear. */
    for (int i = 0; i < CLOSE_TRIES && c->name[0] && group_remove(c->parent, c->name) < 0; i++)
        usleep(1000);
    close_fd(&c->zygotes);
    close_fd(&c->home);
    close_fd(&c->parent);
    free(c);
}

const char *cgroups_path(const struct cgroups *c)
{
    return c->path;
}

int cgroups_adopt(struct cgroups *c, pid_t zygote, struct error *err)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)zygote);
    if (group_put(c->zygotes, "cgroup.procs", pid) < 0)
        return error_set_errno(
            err, ERROR_ENVIRONMENT, "moving a zygote into the cgroup %.120s", c->path);
    return 0;
}

/* ---- cgroups of sandboxes ---- */

/* Enables the controller `cpu` on demand, because a controller costs every process below it a
 * little. */
bool cgroups_have_weights(struct cgroups *c)
{
    char controllers_here[512];
    if (c->cpu)
        return true;
    file_peek(c->parent, "cgroup.subtree_control", controllers_here, sizeof controllers_here);
    c->cpu = (group_has_word(controllers_here, "cpu") ||
                 group_put(c->parent, "cgroup.subtree_control", "+cpu") == 0) &&
             group_put(c->home, "cgroup.subtree_control", "+cpu") == 0;
    return c->cpu;
}

void cgroup_weigh(struct cgroup *g, unsigned weight)
{
    char text[16];
    snprintf(text, sizeof text, "%u", weight);
    group_put(g->fd, "cpu.weight", text);
}

bool cgroup_freeze(struct cgroup *g, bool on)
{
    return group_put(g->fd, "cgroup.freeze", on ? "1" : "0") == 0;
}

static int set_cpus(struct cgroup *g, double cpus)
{
    char text[64];
    double quota = cpus * CPU_PERIOD_US;
    snprintf(text, sizeof text, "%.0f %d", quota < CPU_QUOTA_MIN_US ? CPU_QUOTA_MIN_US : quota,
        CPU_PERIOD_US);
    return group_put(g->fd, "cpu.max", text);
}

static int set_limits(struct cgroup *g, const struct jail_limits *limits)
{
    char memory[32], processes[32];
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)limits->memory);
    snprintf(processes, sizeof processes, "%llu", (unsigned long long)limits->processes);
    if (group_put(g->fd, "memory.max", memory) < 0 || group_put(g->fd, "pids.max", processes) < 0 ||
        group_put(g->fd, "memory.oom.group", "1") < 0)
        return -1;
    /* Swap would be memory beyond the limit. A kernel without swap does not have the file. */
    if (group_put(g->fd, "memory.swap.max", "0") < 0 && errno != ENOENT)
        return -1;
    if (limits->cpus > 0 && set_cpus(g, limits->cpus) < 0)
        return -1;
    return give_to_zygote(g->fd);
}

int cgroup_new(
    struct cgroups *c, const struct jail_limits *limits, struct cgroup **out, struct error *err)
{
    if (limits->cpus > 0 && !cgroups_have_weights(c))
        return error_set_errno(err, ERROR_UNSUPPORTED,
            "--cpus needs the controller `cpu` of cgroup v2, which %.100s does not get (with "
            "systemd: Delegate=yes)",
            c->path);
    struct cgroup *g = calloc(1, sizeof *g);
    if (!g)
        return error_memory(err);
    *g = (struct cgroup){ .home = c, .fd = -1 };
    snprintf(g->name, sizeof g->name, "sandbox-%u", ++c->last);
    if (mkdirat(c->home, g->name, 0755) == 0)
        g->fd = openat(c->home, g->name, GROUP_DIRECTORY);
    if (g->fd < 0 || set_limits(g, limits) < 0) {
        int rc = error_set_errno(
            err, ERROR_ENVIRONMENT, "limiting a sandbox in the cgroup %.100s", c->path);
        cgroup_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

int cgroup_fd(const struct cgroup *g)
{
    return g->fd;
}

/* False while a killed process still exists, or the clone is in progress. */
static bool cgroup_remove(struct cgroup *g)
{
    if (unlinkat(g->home->home, g->name, AT_REMOVEDIR) == 0 || errno != EBUSY)
        return true;
    group_put(g->fd, "cgroup.kill", "1");
    return false;
}

static void remove_doomed(void *arg)
{
    struct cgroups *c = arg;
    for (struct cgroup **at = &c->doomed; *at;) {
        struct cgroup *g = *at;
        if (!cgroup_remove(g)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        cgroup_forget(g);
    }
    c->retry_ms = c->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : c->retry_ms * 2;
    if (c->doomed)
        timer_start(c->retry, c->retry_ms, 0);
}

void cgroup_free(struct cgroup *g)
{
    if (!g)
        return;
    if (g->fd < 0 || cgroup_remove(g)) {
        cgroup_forget(g);
        return;
    }
    g->next = g->home->doomed;
    g->home->doomed = g;
    g->home->retry_ms = RETRY_MS;
    timer_start(g->home->retry, RETRY_MS, 0);
}

void cgroup_read(const struct cgroup *g, struct cgroup_usage *out)
{
    char text[1024];
    file_peek(g->fd, "memory.peak", text, sizeof text);
    out->memory_peak = strtoull(text, NULL, 10);
    file_peek(g->fd, "cpu.stat", text, sizeof text);
    out->cpu_seconds = (double)text_number_after(text, "usage_usec ") / 1e6;
    file_peek(g->fd, "memory.events", text, sizeof text);
    out->out_of_memory = text_number_after(text, "oom_kill ") > 0;
}
