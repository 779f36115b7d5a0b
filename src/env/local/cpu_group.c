/* env/local/cpu_group.c: Documentation/admin-guide/cgroup-v1 describes the files. */
#include "env/local/cpu_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/local/cgroup_tree.h"

/* How long killed processes may take to disappear: first, and the longest, each twice the last. */
enum { CLOSE_FIRST_US = 50, CLOSE_LAST_US = CLOSE_FIRST_US << 11 };

struct cpu_group {
    int parent, home; /* descriptors of directories */
    int way_back;     /* of the parent's `tasks` while a thread is in the group; else -1 */
    char name[96];
};

static int cpu_group_make(struct cpu_group *g, const struct cgroup_location *own, struct error *err)
{
    struct owner self;
    owner_self(&self);
    g->parent = openat(own->mount, own->path[0] ? own->path : ".", GROUP_DIRECTORY);
    if (g->parent >= 0) {
        group_sweep(g->parent, &self);
        group_make(g->parent, &self, g->name, sizeof g->name);
    }
    g->home = g->name[0] ? openat(g->parent, g->name, GROUP_DIRECTORY) : -1;
    if (g->home < 0)
        return error_set_errno(err, ERROR_UNSUPPORTED, "creating a cgroup in %.80s", own->point);
    return 0;
}

int cpu_group_open(int root, struct cpu_group **out, struct error *err)
{
    struct cgroup_location own = { .mount = -1 };
    struct cpu_group *g = calloc(1, sizeof *g);
    if (!g)
        return error_memory(err);
    g->parent = g->home = g->way_back = -1;
    int rc = group_find(root, "cpu", &own, err);
    if (rc == 0)
        rc = cpu_group_make(g, &own, err);
    cgroup_location_free(&own);
    if (rc < 0) {
        cpu_group_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void cpu_group_close(struct cpu_group *g)
{
    if (!g)
        return;
    for (useconds_t us = CLOSE_FIRST_US;
         us <= CLOSE_LAST_US && g->name[0] && group_remove(g->parent, g->name) < 0; us *= 2)
        usleep(us);
    close_fd(&g->home);
    close_fd(&g->parent);
    free(g);
}

int cpu_group_enter(struct cpu_group *g, struct error *err)
{
    g->way_back = openat(g->parent, "tasks", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (g->way_back >= 0 && group_put(g->home, "tasks", "0") == 0)
        return 0;
    error_set_errno(err, ERROR_ENVIRONMENT, "entering the cgroup %.90s", g->name);
    close_fd(&g->way_back);
    return -(int)ERROR_ENVIRONMENT;
}

void cpu_group_leave(struct cpu_group *g)
{
    if (g->way_back >= 0)
        (void)!write(g->way_back, "0", 1);
    close_fd(&g->way_back);
}
