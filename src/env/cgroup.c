/* env/cgroup.c: see cgroup.h.
 *
 * The tree of cgroups belongs to others (systemd, a container's runtime). So the search starts at
 * this process's own cgroup and goes up, and takes the first one that may be divided: it must have
 * the controllers memory and pids, give them to its children or let us say so (which the kernel
 * refuses where processes are in it themselves), and be ours to write. Names carry the host's pid
 * and start, so that what a killed host has left is told from what is in use.
 *
 *   DIRECTORY/droste-PID-START-SPACE-N/zygotes
 *                                     /sandbox-1
 *
 * Everything is done on descriptors of directories, by small reads and writes (cgroups(7), and
 * Documentation/admin-guide/cgroup-v2.rst).
 */
#include "env/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/owner.h"

enum {
    HOMES_MAX = 1000, /* environments of one process */
    RETRY_MS = 2,     /* the first time; then twice as long each time, up to a second */
    RETRY_MAX_MS = 1000,
    CLOSE_TRIES = 200, /* a millisecond each */
    CPU_PERIOD_US = 100000,
    CPU_QUOTA_MIN_US = 1000, /* the kernel takes no less */
};

#define DIRECTORY_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

struct cgroup {
    struct cgroups *home;
    struct cgroup *next; /* of those that are to be removed */
    int fd;
    char name[32];
};

struct cgroups {
    int parent, home, zygotes; /* directories */
    char name[96];
    char path[512];
    bool cpu; /* the controller is switched on for sandboxes */
    unsigned last;
    struct cgroup *doomed;
    struct timer *retry;
    uint64_t retry_ms;
};

/* ---- small files ---- */

/* -1 with errno. */
static int put(int dir, const char *file, const char *text)
{
    cleanup_fd int fd = openat(dir, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

/* The beginning of it; "" where it cannot be read. */
static void get(int dir, const char *file, char *out, size_t size)
{
    cleanup_fd int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n < 0 ? 0 : n] = '\0';
}

/* The number behind a key at the beginning of a line; 0 where there is none. */
static uint64_t number_of(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += len)
        if ((p == text || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\n' || p[len] == '\0'))
            return true;
    return false;
}

/* ---- where cgroups are ---- */

/* mountinfo writes a blank as \040, proc(5). */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        bool octal = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3];
        *to = octal ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0')) : *from;
        from += octal ? 4 : 1;
    }
    *to = '\0';
}

/* Finds the cgroup2 mount in the text of mountinfo, which is cut up for that. */
static bool find_mount(char *mountinfo, char **root, char **point)
{
    char *rest_of_lines, *rest;
    for (char *line = strtok_r(mountinfo, "\n", &rest_of_lines); line;
         line = strtok_r(NULL, "\n", &rest_of_lines)) {
        const char *type = strstr(line, " - ");
        if (!type || strncmp(type + 3, "cgroup2 ", 8) != 0)
            continue;
        strtok_r(line, " ", &rest); /* mount id, parent's id, device, root, mount point */
        strtok_r(NULL, " ", &rest);
        strtok_r(NULL, " ", &rest);
        *root = strtok_r(NULL, " ", &rest);
        *point = strtok_r(NULL, " ", &rest);
        if (!*root || !*point)
            continue;
        unescape(*root);
        unescape(*point);
        return true;
    }
    return false;
}

/* The part of this process's cgroup (of /proc/self/cgroup) that lies below the mount's root, without
 * a leading slash; NULL where the mount does not show it. */
static char *own_below(char *text, const char *root)
{
    char *path = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!path)
        return NULL;
    path = strchr(path, '/');
    if (!path || strncmp(path, "/..", 3) == 0)
        return NULL;
    path[strcspn(path, "\n")] = '\0';
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        return NULL;
    return path + len + (path[len] == '/');
}

/* ---- which of them may be divided ---- */

/* Why one may not, the more telling the later. */
enum refusal {
    REFUSED_NONE,
    REFUSED_GONE,
    REFUSED_CONTROLLERS,
    REFUSED_READ_ONLY,
    REFUSED_OWNER,
    REFUSED_BUSY,
};

static const char *const refusals[] = {
    [REFUSED_GONE] = "this process's cgroup cannot be opened",
    [REFUSED_CONTROLLERS] = "it has no memory and pids controllers for this process (version 1 may "
                            "hold them: boot with systemd.unified_cgroup_hierarchy=1)",
    [REFUSED_READ_ONLY] = "it is mounted read-only, as in a container that was not given a cgroup",
    [REFUSED_OWNER] = "no cgroup that this process is in belongs to this user: start it with "
                      "`systemd-run --user --scope`, or as root",
    [REFUSED_BUSY] = "the cgroups of this user hold processes themselves and cannot be divided: "
                     "start it in a child of a delegated one, as with `systemd-run --user --scope`",
};

static bool gives(int dir, const char *file)
{
    char words[512];
    get(dir, file, words, sizeof words);
    return has_word(words, "memory") && has_word(words, "pids");
}

/* The controllers below a directory are on, or can be switched on. */
static enum refusal check_place(int dir)
{
    if (!gives(dir, "cgroup.controllers"))
        return REFUSED_CONTROLLERS;
    if (faccessat(dir, ".", W_OK, AT_EACCESS) < 0 ||
        faccessat(dir, "cgroup.procs", W_OK, AT_EACCESS) < 0)
        return errno == EROFS ? REFUSED_READ_ONLY : REFUSED_OWNER;
    if (gives(dir, "cgroup.subtree_control") ||
        put(dir, "cgroup.subtree_control", "+memory +pids") == 0)
        return REFUSED_NONE;
    return errno == EACCES || errno == EPERM ? REFUSED_OWNER : REFUSED_BUSY;
}

/* Goes from `path` upwards, which is cut on the way. Returns the directory, or -1 with why. */
static int climb(int mount, char *path, enum refusal *why)
{
    *why = REFUSED_GONE;
    for (;;) {
        cleanup_fd int dir = openat(mount, path[0] ? path : ".", DIRECTORY_FLAGS);
        enum refusal refusal = dir < 0 ? REFUSED_GONE : check_place(dir);
        if (refusal == REFUSED_NONE)
            return steal_fd(&dir);
        *why = refusal > *why ? refusal : *why;
        char *slash = strrchr(path, '/');
        if (!path[0])
            return -1;
        *(slash ? slash : path) = '\0';
    }
}

static int read_at(int root, const char *path, struct buf *out, struct error *err)
{
    cleanup_fd int fd = openat(root, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_UNSUPPORTED, "reading /%s", path);
    return file_read_fd(fd, path, 1 << 20, out, err);
}

static int find_place(struct cgroups *c, int root, struct error *err)
{
    cleanup_buf struct buf mounts = { 0 }, own = { 0 };
    char *mount_root, *point, *path;
    enum refusal why;
    if (read_at(root, "proc/self/mountinfo", &mounts, err) < 0 ||
        read_at(root, "proc/self/cgroup", &own, err) < 0)
        return -(int)ERROR_UNSUPPORTED;
    if (mounts.len == 0 || !find_mount(mounts.data, &mount_root, &point))
        return error_set(err, ERROR_UNSUPPORTED, "cgroup v2 is not mounted");
    if (own.len == 0 || !(path = own_below(own.data, mount_root)))
        return error_set(err, ERROR_UNSUPPORTED,
            "cgroup v2 on %.80s does not show this process's cgroup", point);
    cleanup_fd int mount = openat(root, point[1] ? point + 1 : ".", DIRECTORY_FLAGS);
    c->parent = mount < 0 ? -1 : climb(mount, path, &why);
    if (mount >= 0 && c->parent < 0)
        return error_set(err, ERROR_UNSUPPORTED, "cgroup v2 on %.60s: %s", point, refusals[why]);
    if (mount < 0)
        return error_set_errno(err, ERROR_UNSUPPORTED, "opening %.80s", point);
    snprintf(c->path, sizeof c->path, "%s/%s%s", point, path, path[0] ? "/" : "");
    return 0;
}

/* ---- this environment's directory ---- */

/* Removes a directory of ours with its children. 0, or -1 where a process is still in it. */
static int remove_home(int parent, const char *name)
{
    cleanup_fd int home = openat(parent, name, DIRECTORY_FLAGS);
    if (home < 0)
        return 0;
    put(home, "cgroup.kill", "1"); /* Linux 5.14 */
    int again = fcntl(home, F_DUPFD_CLOEXEC, 0);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir)
        close_fd(&again);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            unlinkat(home, e->d_name, AT_REMOVEDIR);
    if (dir)
        closedir(dir);
    return unlinkat(parent, name, AT_REMOVEDIR);
}

/* What is still busy is left to the next start. */
static void remove_leftovers(int parent, const struct owner *self)
{
    int again = openat(parent, ".", DIRECTORY_FLAGS);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir) {
        close_fd(&again);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        struct owner owner = *self; /* of the same boot: the tree does not outlive it */
        long long pid, start, space;
        unsigned n;
        if (sscanf(e->d_name, "droste-%lld-%lld-%lld-%u", &pid, &start, &space, &n) != 4)
            continue;
        owner.pid = pid;
        owner.start = start;
        owner.space = space;
        if (owner_is_gone(&owner, self))
            remove_home(parent, e->d_name);
    }
    closedir(dir);
}

static int make_home(struct cgroups *c, const struct owner *self)
{
    for (unsigned n = 0; n < HOMES_MAX; n++) {
        snprintf(c->name, sizeof c->name, "droste-%lld-%lld-%lld-%u", (long long)self->pid,
            (long long)self->start, (long long)self->space, n);
        if (mkdirat(c->parent, c->name, 0755) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    c->name[0] = '\0';
    return -1;
}

/* A zygote of root's has become nobody when it clones, and the kernel asks for its permission for
 * this file, and for the one of the cgroup that it clones into. Nobody gains by it: to move a process
 * in from anywhere else takes the same permission further up. */
static int give_to_zygote(int dir)
{
    return geteuid() == 0 ? fchownat(dir, "cgroup.procs", JAIL_NOBODY, JAIL_NOBODY, 0) : 0;
}

static int furnish(struct cgroups *c)
{
    c->home = openat(c->parent, c->name, DIRECTORY_FLAGS);
    if (c->home < 0 || put(c->home, "cgroup.subtree_control", "+memory +pids") < 0 ||
        mkdirat(c->home, "zygotes", 0755) < 0)
        return -1;
    c->zygotes = openat(c->home, "zygotes", DIRECTORY_FLAGS);
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
    int rc = find_place(c, root, err);
    if (rc == 0 && !(c->retry = timer_new(loop, remove_doomed, c)))
        rc = error_memory(err);
    if (rc == 0) {
        owner_self(&self);
        remove_leftovers(c->parent, &self);
        size_t len = strlen(c->path);
        if (make_home(c, &self) < 0 || furnish(c) < 0)
            rc = error_set_errno(err, ERROR_UNSUPPORTED, "making a cgroup in %.120s", c->path);
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
    /* Killed processes take a moment to be gone. */
    for (int i = 0; i < CLOSE_TRIES && c->name[0] && remove_home(c->parent, c->name) < 0; i++)
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
    if (put(c->zygotes, "cgroup.procs", pid) < 0)
        return error_set_errno(
            err, ERROR_ENVIRONMENT, "moving a zygote into the cgroup %.120s", c->path);
    return 0;
}

/* ---- one sandbox ---- */

/* Only when somebody asks for it: a controller costs every process below it a little. */
static int switch_cpu_on(struct cgroups *c, struct error *err)
{
    if (c->cpu)
        return 0;
    char given[512];
    get(c->parent, "cgroup.subtree_control", given, sizeof given);
    if ((!has_word(given, "cpu") && put(c->parent, "cgroup.subtree_control", "+cpu") < 0) ||
        put(c->home, "cgroup.subtree_control", "+cpu") < 0)
        return error_set_errno(err, ERROR_UNSUPPORTED,
            "--cpus needs the controller `cpu` of cgroup v2, which %.100s does not get (with "
            "systemd: Delegate=yes)",
            c->path);
    c->cpu = true;
    return 0;
}

static int set_cpus(struct cgroup *g, double cpus)
{
    char text[64];
    double quota = cpus * CPU_PERIOD_US;
    snprintf(text, sizeof text, "%.0f %d", quota < CPU_QUOTA_MIN_US ? CPU_QUOTA_MIN_US : quota,
        CPU_PERIOD_US);
    return put(g->fd, "cpu.max", text);
}

static int set_limits(struct cgroup *g, const struct jail_limits *limits)
{
    char memory[32], processes[32];
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)limits->memory);
    snprintf(processes, sizeof processes, "%llu", (unsigned long long)limits->processes);
    if (put(g->fd, "memory.max", memory) < 0 || put(g->fd, "pids.max", processes) < 0 ||
        put(g->fd, "memory.oom.group", "1") < 0)
        return -1;
    /* Swap would be memory beyond the limit. A kernel without swap does not have the file. */
    if (put(g->fd, "memory.swap.max", "0") < 0 && errno != ENOENT)
        return -1;
    if (limits->cpus > 0 && set_cpus(g, limits->cpus) < 0)
        return -1;
    return give_to_zygote(g->fd);
}

int cgroup_new(
    struct cgroups *c, const struct jail_limits *limits, struct cgroup **out, struct error *err)
{
    int rc = limits->cpus > 0 ? switch_cpu_on(c, err) : 0;
    if (rc < 0)
        return rc;
    struct cgroup *g = calloc(1, sizeof *g);
    if (!g)
        return error_memory(err);
    *g = (struct cgroup){ .home = c, .fd = -1 };
    snprintf(g->name, sizeof g->name, "sandbox-%u", ++c->last);
    if (mkdirat(c->home, g->name, 0755) == 0)
        g->fd = openat(c->home, g->name, DIRECTORY_FLAGS);
    if (g->fd < 0 || set_limits(g, limits) < 0) {
        rc = error_set_errno(
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

/* False while a process that was killed is not gone yet, or the clone is still under way. */
static bool cgroup_remove(struct cgroup *g)
{
    if (unlinkat(g->home->home, g->name, AT_REMOVEDIR) == 0 || errno != EBUSY)
        return true;
    put(g->fd, "cgroup.kill", "1");
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
    get(g->fd, "memory.peak", text, sizeof text);
    out->memory_peak = strtoull(text, NULL, 10);
    get(g->fd, "cpu.stat", text, sizeof text);
    out->cpu_seconds = (double)number_of(text, "usage_usec") / 1e6;
    get(g->fd, "memory.events", text, sizeof text);
    out->out_of_memory = number_of(text, "oom_kill") > 0;
}
