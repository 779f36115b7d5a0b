/* api/packages_api.c: the functions of droste/packages.h. */
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "api/packages.h"
#include "base/list.h"

int droste_packages_build(droste *d, int again, const char **path, droste_error *err)
{
    err = api_error(err);
    const struct package_set *set = NULL;
    api_forget_interrupt(d);
    if (!api_packages_are_wanted(&d->settings))
        return error_set(
            err, ERROR_ARGUMENT, "name what to build with --packages or --requirements");
    int rc = api_packages_set(d, &d->settings, again, &set, err);
    if (rc == 0 && path)
        *path = package_set_site(set);
    return rc;
}

struct packages_listing {
    droste_packages_fn *fn;
    void *arg;
};

static int packages_api_show(void *arg, const struct package_set_facts *facts, struct error *err)
{
    const struct packages_listing *l = arg;
    const droste_package_set set = { .id = facts->id,
        .path = facts->site,
        .python = facts->python,
        .packages = facts->packages,
        .bytes = facts->bytes,
        .files = facts->files,
        .made = facts->made,
        .used = facts->used,
        .in_use = facts->in_use,
        .damaged = facts->damaged };
    return l->fn(l->arg, &set) == 0 ? 0 : error_set(err, ERROR_CANCELLED, "the listing was ended");
}

int droste_packages_list(droste *d, droste_packages_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    struct package_cache *cache = NULL;
    struct packages_listing l = { fn, arg };
    int rc = package_cache_open(&cache, err);
    if (rc == 0)
        rc = package_cache_list(cache, packages_api_show, &l, err);
    package_cache_close(cache);
    return rc == -(int)ERROR_CANCELLED ? 0 : rc;
}

int droste_packages_remove(droste *d, const char *id, droste_error *err)
{
    err = api_error(err);
    struct package_cache *cache = NULL;
    api_forget_interrupt(d);
    int rc = package_cache_open(&cache, err);
    if (rc == 0)
        rc = package_cache_lock(cache, api_packages_cancelled, NULL, &d->interrupt_fd, err);
    if (rc == 0)
        rc = package_cache_remove(cache, id, err);
    package_cache_close(cache);
    return rc;
}

struct packages_old {
    struct list ids;
    int64_t before;
    unsigned long long bytes;
};

static int packages_api_find_old(
    void *arg, const struct package_set_facts *facts, struct error *err)
{
    struct packages_old *old = arg;
    if (facts->in_use || (facts->used > old->before && !facts->damaged))
        return 0;
    old->bytes += facts->bytes;
    return list_add(&old->ids, facts->id, err);
}

int droste_packages_gc(
    droste *d, double seconds, unsigned *count, unsigned long long *bytes, droste_error *err)
{
    err = api_error(err);
    struct package_cache *cache = NULL;
    struct packages_old old = { .before = time(NULL) - (int64_t)seconds };
    api_forget_interrupt(d);
    int rc = package_cache_open(&cache, err);
    if (rc == 0)
        rc = package_cache_lock(cache, api_packages_cancelled, NULL, &d->interrupt_fd, err);
    if (rc == 0)
        rc = package_cache_list(cache, packages_api_find_old, &old, err);
    for (size_t i = 0; rc == 0 && i < old.ids.count; i++)
        rc = package_cache_remove(cache, old.ids.items[i], err);
    if (count)
        *count = (unsigned)old.ids.count;
    if (bytes)
        *bytes = old.bytes;
    list_clear(&old.ids);
    package_cache_close(cache);
    return rc;
}
