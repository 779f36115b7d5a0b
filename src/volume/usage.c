/* volume/usage.c: measures a volume in steps, while guests and the host go on.
 *
 * A file with several links counts for each of them: this needs no memory, links outside of the
 * volume (which a guest can create at `landlock`) hide nothing, and a copy would take as much. What
 * guests move meanwhile may be missed, and is counted the next time.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/tree.h"
#include "volume/internal.h"

struct volume_measuring {
    const struct volume *v;
    struct tree_walk *walk;
    struct volume_usage sum;
};

static int count_entry(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    struct volume_measuring *m = arg;
    if (visit != TREE_ENTRY)
        return 0;
    m->sum.size += (uint64_t)place->st->st_blocks * 512;
    m->sum.files++;
    return 0;
}

static bool usage_is_over(const struct volume_measuring *m)
{
    return m->sum.size > m->v->limits.size || m->sum.files > m->v->limits.files;
}

int volume_measuring_open(const struct volume *v, struct volume_measuring **out, struct error *err)
{
    struct volume_measuring *m = calloc(1, sizeof *m);
    if (!m)
        return error_memory(err);
    m->v = v;
    *out = m;
    return 0;
}

void volume_measuring_close(struct volume_measuring *m)
{
    if (m)
        tree_walk_close(m->walk);
    free(m);
}

static int count_some(struct volume_measuring *m, int top, size_t entries, struct error *err)
{
    int rc = 0;
    if (!m->walk) {
        m->sum = (struct volume_usage){ 0 };
        rc = tree_walk_open(top, count_entry, m, &m->walk, err);
    }
    if (rc == 0)
        rc = tree_walk_step(m->walk, entries, err);
    if (rc < 0 && err->sys == ESTALE)
        rc = 0; /* up to here */
    return rc;
}

int volume_measuring_step(
    struct volume_measuring *m, size_t entries, struct volume_usage *out, struct error *err)
{
    struct error why = { 0 };
    int rc = count_some(m, m->v->data, entries, &why);
    if (rc == 1 && usage_is_over(m))
        rc = 0;
    if (rc == 1)
        return 1;
    tree_walk_close(steal(&m->walk));
    *out = m->sum;
    if (rc < 0 && err)
        *err = why;
    return rc < 0 ? error_wrap(err, "measuring volume '%s'", m->v->name) : 0;
}

static int usage_measure(
    const struct volume *v, int top, struct volume_usage *out, struct error *err)
{
    struct volume_measuring m = { .v = v };
    struct error why = { 0 };
    int rc = count_some(&m, top, SIZE_MAX, &why);
    tree_walk_close(m.walk);
    *out = m.sum;
    if (rc < 0 && err)
        *err = why;
    return rc < 0 ? error_wrap(err, "measuring volume '%s'", v->name) : 0;
}

int volume_measure(const struct volume *v, struct volume_usage *out, struct error *err)
{
    return usage_measure(v, v->data, out, err);
}

int volume_snapshot_measure(
    const struct volume *v, const char *name, struct volume_usage *out, struct error *err)
{
    cleanup_fd int top = snapshot_open(v, name, err);
    return top < 0 ? top : usage_measure(v, top, out, err);
}
