/* env/common/quota.c: measures volumes in the background, once for all sandboxes of a volume. */
#include "env/common/quota.h"

#include <stdlib.h>
#include <sys/statfs.h>

#include "base/clock.h"

enum {
    LOOK_MS = 100,
    PIECE_MS = 1,
    PIECE = 1000,       /* entries in a step: two or three milliseconds */
    FIRST_PIECE = 4000, /* entries measured while a start waits */
    PART = 4,           /* measure when the disk has lost a quarter of the remaining quota */
    /* looks until the volume is measured anyway; also a multiple of the time that measuring
     * takes */
    SELDOM = 20,
};

struct quota {
    LIST_ENTRY(quota) link;
    struct quotas *quotas;
    LIST_HEAD(, quota_user) users;
    struct volume *volume;
    struct volume_measuring *measuring;
    struct timer *timer;
    bool under_way, is_measured;
    struct volume_usage used; /* at the last measurement */
    struct statfs then;       /* the disk's figures before it */
    uint64_t began_ns;
    unsigned looks, seldom;
};

struct quotas {
    struct loop *loop;
    LIST_HEAD(, quota) all;
};

static enum limit limit_over(const struct quota *q)
{
    const struct volume_limits *limits = volume_limits_of(q->volume);
    if (q->used.size > limits->size)
        return LIMIT_VOLUME_SIZE;
    return q->used.files > limits->files ? LIMIT_VOLUME_FILES : LIMIT_NONE;
}

static void tell_users(struct quota *q, enum limit limit)
{
    struct quota_user *user, *next;
    for (user = LIST_FIRST(&q->users); user && limit != LIMIT_NONE; user = next) {
        next = LIST_NEXT(user, link);
        user->over(user->arg, limit);
    }
}

/* After an error the next measurement tries again. Tells the users last: one that leaves may free
 * the quota. */
static void quota_measure(struct quota *q, size_t entries)
{
    struct volume_usage used = { 0 };
    if (!q->under_way) {
        (void)!fstatfs(volume_data(q->volume), &q->then);
        q->began_ns = clock_ns();
    }
    int rc = volume_measuring_step(q->measuring, entries, &used, NULL);
    q->under_way = rc == 1;
    timer_start(q->timer, q->under_way ? PIECE_MS : LOOK_MS, 0);
    if (q->under_way)
        return;
    q->is_measured = true;
    q->used = used;
    q->looks = 0;
    q->seldom = SELDOM + (unsigned)(SELDOM * clock_seconds_since(q->began_ns) * 1000 / LOOK_MS);
    tell_users(q, limit_over(q));
}

static bool is_part(uint64_t fuller, uint64_t used, uint64_t limit)
{
    return fuller > 0 && (used >= limit || fuller >= (limit - used) / PART);
}

/* Other writers may have filled the disk: then the measurement finds nothing. */
static bool is_time(struct quota *q)
{
    const struct volume_limits *limits = volume_limits_of(q->volume);
    struct statfs now;
    if (++q->looks >= q->seldom || fstatfs(volume_data(q->volume), &now) < 0)
        return true;
    uint64_t blocks = q->then.f_bfree > now.f_bfree ? q->then.f_bfree - now.f_bfree : 0;
    uint64_t files = q->then.f_ffree > now.f_ffree ? q->then.f_ffree - now.f_ffree : 0;
    return is_part(blocks * (uint64_t)now.f_bsize, q->used.size, limits->size) ||
           is_part(files, q->used.files, limits->files);
}

static void quota_look(void *arg)
{
    struct quota *q = arg;
    if (volume_is_moved(q->volume))
        tell_users(q, LIMIT_VOLUME_LOST);
    else if (q->under_way || is_time(q))
        quota_measure(q, PIECE);
    else
        timer_start(q->timer, LOOK_MS, 0);
}

static void quota_free(struct quota *q)
{
    LIST_REMOVE(q, link);
    timer_free(q->timer);
    volume_measuring_close(q->measuring);
    volume_release(q->volume);
    free(q);
}

static int quota_new(
    struct quotas *quotas, struct volume *volume, struct quota **out, struct error *err)
{
    struct quota *q = calloc(1, sizeof *q);
    if (!q)
        return error_memory(err);
    *q = (struct quota){ .quotas = quotas, .volume = volume_hold(volume) };
    LIST_INSERT_HEAD(&quotas->all, q, link);
    q->timer = timer_new(quotas->loop, quota_look, q);
    int rc = q->timer ? volume_measuring_open(q->volume, &q->measuring, err) : error_memory(err);
    if (rc < 0)
        quota_free(q);
    else
        *out = q;
    return rc;
}

static struct quota *quota_find(const struct quotas *quotas, const struct volume *volume)
{
    struct quota *q;
    LIST_FOREACH(q, &quotas->all, link)
    if (volume_inode(q->volume) == volume_inode(volume) &&
        volume_device(q->volume) == volume_device(volume))
        return q;
    return NULL;
}

int quotas_open(struct loop *loop, struct quotas **out, struct error *err)
{
    struct quotas *quotas = calloc(1, sizeof *quotas);
    if (!quotas)
        return error_memory(err);
    quotas->loop = loop;
    LIST_INIT(&quotas->all);
    *out = quotas;
    return 0;
}

void quotas_close(struct quotas *quotas)
{
    free(quotas);
}

static int too_full(const struct quota *q, struct error *err)
{
    const struct volume_limits *limits = volume_limits_of(q->volume);
    const char *name = volume_name(q->volume);
    if (name[0] == '.') /* a workspace */
        return error_set(err, ERROR_ENVIRONMENT,
            "the workspace holds %llu bytes in %llu files, but only %llu bytes in %llu files are "
            "allowed: raise --workspace-size or --workspace-files",
            (unsigned long long)q->used.size, (unsigned long long)q->used.files,
            (unsigned long long)limits->size, (unsigned long long)limits->files);
    return error_set(err, ERROR_ENVIRONMENT,
        "volume '%s' holds %llu bytes in %llu files, but only %llu bytes in %llu files are "
        "allowed: remove files with `droste volume rm %s PATH`, or raise the limits with `droste "
        "volume limit %s`",
        name, (unsigned long long)q->used.size, (unsigned long long)q->used.files,
        (unsigned long long)limits->size, (unsigned long long)limits->files, name, name);
}

int quotas_join(
    struct quotas *quotas, struct volume *volume, struct quota_user *user, struct error *err)
{
    struct quota *q = quota_find(quotas, volume);
    int rc = q ? 0 : quota_new(quotas, volume, &q, err);
    if (rc < 0)
        return rc;
    if (LIST_EMPTY(&q->users))
        quota_measure(q, FIRST_PIECE);
    if (q->is_measured && limit_over(q) != LIMIT_NONE) {
        rc = too_full(q, err);
        if (LIST_EMPTY(&q->users))
            quota_free(q);
        return rc;
    }
    user->quota = q;
    LIST_INSERT_HEAD(&q->users, user, link);
    return 0;
}

void quotas_leave(struct quota_user *user)
{
    struct quota *q = user->quota;
    if (!q)
        return;
    LIST_REMOVE(user, link);
    user->quota = NULL;
    if (LIST_EMPTY(&q->users))
        quota_free(q);
}
