/* packages/shown.c: see shown.h. */
#include "packages/shown.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/random.h"
#include "base/os/tree.h"
#include "base/text.h"

enum { NAME_SIZE = 17, FRESH_MODE = 0700, SEARCHED_MODE = 0311 };

struct shown_users {
    struct shown_users *next;
    unsigned count;
    char id[HASH_TEXT_SIZE];
};

struct package_shown {
    pthread_mutex_t lock_of_users;
    struct shown_users *users; /* of each set that was added */
    char *path;
    char name[NAME_SIZE];
    int all, own, lock; /* directory of all of them; this one */
};

const char *package_shown_path(const struct package_shown *shown)
{
    return shown->path;
}

/* ---- the directory ---- */

/* Removes those whose lock is free; the caller has locked the directory of all. */
static void shown_sweep(int all)
{
    cleanup_listing DIR *listing = open_listing(all, ".");
    const char *name;
    while ((name = next_listed(listing))) {
        char path[300];
        snprintf(path, sizeof path, "%s/lock", name);
        cleanup_fd int lock = open_beneath(all, path, O_RDWR, 0);
        if (lock >= 0 ? flock(lock, LOCK_EX | LOCK_NB) == 0 : errno == ENOENT)
            tree_remove(all, name);
    }
}

static int shown_make(struct package_shown *shown, struct error *err)
{
    int rc = random_hex(shown->name, NAME_SIZE - 1, err);
    if (rc < 0)
        return rc;
    if (mkdirat(shown->all, shown->name, FRESH_MODE) < 0 ||
        (shown->own = open_beneath(shown->all, shown->name, O_RDONLY | O_DIRECTORY, 0)) < 0 ||
        (shown->lock = openat(shown->own, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0 ||
        flock(shown->lock, LOCK_EX | LOCK_NB) < 0 || fchmod(shown->own, SEARCHED_MODE) < 0)
        return error_set_errno(err, ERROR_IO, "making a directory in %s", shown->path);
    return 0;
}

int package_shown_open(
    const struct package_cache *cache, struct package_shown **out, struct error *err)
{
    struct package_shown *shown = calloc(1, sizeof *shown);
    if (!shown)
        return error_memory(err);
    *shown = (struct package_shown){
        .lock_of_users = PTHREAD_MUTEX_INITIALIZER, .all = -1, .own = -1, .lock = -1
    };
    int rc = package_cache_open_shown(cache, &shown->all, &shown->path, err);
    if (rc == 0 && flock(shown->all, LOCK_EX) < 0)
        rc = error_set_errno(err, ERROR_IO, "locking %s", shown->path);
    if (rc == 0) {
        shown_sweep(shown->all);
        rc = shown_make(shown, err);
        flock(shown->all, LOCK_UN);
    }
    char *whole = rc == 0 ? text_printf("%s/%s", shown->path, shown->name) : NULL;
    if (rc == 0 && !whole)
        rc = error_memory(err);
    free(shown->path);
    shown->path = whole;
    if (rc < 0)
        package_shown_close(shown);
    else
        *out = shown;
    return rc;
}

void package_shown_close(struct package_shown *shown)
{
    if (!shown)
        return;
    if (shown->own >= 0)
        tree_remove(shown->all, shown->name);
    close_fd(&shown->lock);
    close_fd(&shown->own);
    close_fd(&shown->all);
    for (struct shown_users *next; shown->users; shown->users = next) {
        next = shown->users->next;
        free(shown->users);
    }
    pthread_mutex_destroy(&shown->lock_of_users);
    free(shown->path);
    free(shown);
}

/* ---- a set ---- */

/* Links an entry below `to`, which has the same directories. */
static int shown_visit(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    const int *to = arg;
    if (visit != TREE_ENTRY)
        return 0;
    cleanup_free char *path = text_printf("%s%s", place->path, place->name);
    if (!path)
        return error_memory(err);
    int rc = S_ISDIR(place->st->st_mode) ? mkdirat(*to, path, 0755)
                                         : linkat(place->at, place->name, *to, path, 0);
    return rc < 0 ? error_set_errno(err, ERROR_IO, "linking the package's file '%.100s'", path) : 0;
}

/* All links are made under another name, because a session may look for the id at any time. */
static int shown_link(int from, int own, const char *fresh, struct error *err)
{
    cleanup_fd int to =
        mkdirat(own, fresh, 0755) < 0 ? -1 : open_beneath(own, fresh, O_RDONLY | O_DIRECTORY, 0);
    if (to < 0)
        return error_set_errno(err, ERROR_IO, "making a directory for packages");
    return tree_walk(from, shown_visit, &to, err);
}

/* With the lock. NULL: out of memory. */
static struct shown_users *shown_find(struct package_shown *shown, const char *id)
{
    struct shown_users *users = shown->users;
    while (users && strcmp(users->id, id) != 0)
        users = users->next;
    if (users || !(users = calloc(1, sizeof *users)))
        return users;
    snprintf(users->id, sizeof users->id, "%s", id);
    users->next = shown->users;
    shown->users = users;
    return users;
}

static int shown_put(
    const struct package_shown *shown, const struct package_set *set, struct error *err)
{
    char fresh[NAME_SIZE];
    const char *id = package_set_id(set);
    if (faccessat(shown->own, id, F_OK, 0) == 0)
        return 0;
    cleanup_fd int from = open(package_set_site(set), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0)
        return error_set_errno(err, ERROR_IO, "opening the packages %s", id);
    int rc = random_hex(fresh, sizeof fresh - 1, err);
    if (rc < 0)
        return rc;
    rc = shown_link(from, shown->own, fresh, err);
    if (rc == 0 && renameat(shown->own, fresh, shown->own, id) < 0 && errno != EEXIST &&
        errno != ENOTEMPTY)
        rc = error_set_errno(err, ERROR_IO, "showing the packages %s", id);
    tree_remove(shown->own, fresh);
    return rc;
}

/* The user is counted first: from then on nobody removes the files. */
int package_shown_add(struct package_shown *shown, const struct package_set *set, struct error *err)
{
    pthread_mutex_lock(&shown->lock_of_users);
    struct shown_users *users = shown_find(shown, package_set_id(set));
    if (users)
        users->count++;
    pthread_mutex_unlock(&shown->lock_of_users);
    int rc = users ? shown_put(shown, set, err) : error_memory(err);
    if (rc < 0 && users)
        package_shown_remove(shown, set);
    return rc;
}

/* The files leave their name with the lock, so that the next user makes them again. */
void package_shown_remove(struct package_shown *shown, const struct package_set *set)
{
    char old[NAME_SIZE];
    bool moved = false;
    const char *id = package_set_id(set);
    pthread_mutex_lock(&shown->lock_of_users);
    struct shown_users *users = shown_find(shown, id);
    if (users && users->count > 0 && --users->count == 0 &&
        random_hex(old, sizeof old - 1, NULL) == 0)
        moved = renameat(shown->own, id, shown->own, old) == 0;
    pthread_mutex_unlock(&shown->lock_of_users);
    if (moved)
        tree_remove(shown->own, old);
}
