/* env/local/cpu_group.c: Documentation/admin-guide/cgroup-v1 describes the files. */
#include "env/local/cpu_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/local/cgroup_tree.h"

enum { CLOSE_TRIES = 200 }; /* a millisecond each: killed processes take a moment to disappear */

struct cpu_group {
    int parent, home; /* descriptors of directories */
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
    g->parent = g->home = -1;
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
    for (int i = 0; i < CLOSE_TRIES && g->name[0] && group_remove(g->parent, g->name) < 0; i++)
        usleep(1000);
    close_fd(&g->home);
    close_fd(&g->parent);
    free(g);
}

int cpu_group_adopt(struct cpu_group *g, pid_t zygote, struct error *err)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)zygote);
    if (group_put(g->home, "cgroup.procs", pid) < 0)
        return error_set_errno(
            err, ERROR_ENVIRONMENT, "moving a zygote into the cgroup %.90s", g->name);
    return 0;
}
