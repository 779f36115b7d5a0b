/* env/local/cpu_share.c: see cpu_share.h. */
#include "env/local/cpu_share.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/local/cgroup_tree.h"

enum { CLOSE_TRIES = 200 }; /* a millisecond each: killed processes take a moment to be gone */

/* The file, the usual number and one as small as the lowest niceness has; sched(7), and Documentation/admin-guide. */
struct weight {
    const char *file, *usual, *least;
};
static const struct weight version_1 = { "cpu.shares", "1024", "15" };
static const struct weight version_2 = { "cpu.weight", "100", "1" };

struct cpu_share {
    const struct weight *weight;
    int home;
    char name[96]; /* "": the directory is the groups' */
};

/* In the group that this process is in, so that it counts as much as before beside all others. */
static int make_home(struct cpu_share *s, const struct group_place *place, struct error *err)
{
    struct owner self;
    owner_self(&self);
    cleanup_fd int parent =
        openat(place->mount, place->path[0] ? place->path : ".", GROUP_DIRECTORY);
    if (parent >= 0) {
        group_sweep(parent, &self);
        group_make(parent, &self, s->name, sizeof s->name);
    }
    s->home = s->name[0] ? openat(parent, s->name, GROUP_DIRECTORY) : -1;
    if (s->name[0] && s->home < 0)
        group_remove(parent, s->name);
    if (s->home < 0)
        return error_set_errno(
            err, ERROR_UNSUPPORTED, "making a control group in %.80s", place->point);
    return 0;
}

static int find_home(struct cpu_share *s, int root, struct error *err)
{
    struct group_place place = { .mount = -1 };
    int rc = group_find(root, "cpu", &place, err);
    if (rc == 0)
        rc = make_home(s, &place, err);
    group_place_free(&place);
    return rc;
}

int cpu_share_open(int root, struct cgroups *groups, struct cpu_share **out, struct error *err)
{
    struct cpu_share *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    *s = (struct cpu_share){ .weight = &version_2, .home = groups ? cgroups_weigh(groups) : -1 };
    if (s->home < 0) {
        s->weight = &version_1;
        int rc = find_home(s, root, err);
        if (rc < 0) {
            cpu_share_close(s);
            return rc;
        }
    }
    *out = s;
    return 0;
}

void cpu_share_close(struct cpu_share *s)
{
    if (!s)
        return;
    cleanup_fd int parent =
        s->name[0] && s->home >= 0 ? openat(s->home, "..", GROUP_DIRECTORY) : -1;
    for (int i = 0; i < CLOSE_TRIES && parent >= 0 && group_remove(parent, s->name) < 0; i++)
        usleep(1000);
    close_fd(&s->home);
    free(s);
}

int cpu_share_adopt(struct cpu_share *s, pid_t zygote, struct error *err)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)zygote);
    if (s->name[0] && group_put(s->home, "cgroup.procs", pid) < 0)
        return error_set_errno(
            err, ERROR_ENVIRONMENT, "moving a zygote into the control group %s", s->name);
    return 0;
}

bool cpu_share_divides(const struct cpu_share *s)
{
    return !s->name[0];
}

void cpu_share_lower(struct cpu_share *s, bool last)
{
    group_put(s->home, s->weight->file, last ? s->weight->least : s->weight->usual);
}
