/* packages/cache.c: see cache.h. */
#include "packages/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/os/tree.h"
#include "base/text.h"
#include "packages/contents.h"

enum {
    ID_DIGITS = 32,
    ID_LEAST = 6,
    NOTE_MAX = 4096,
    NOTE_AGE_S = 60,
    FACTS_MAX = 1 << 20,
    POLL_MS = 50,
    SETS_MAX = 100000,
};

struct package_cache {
    char *path, *building;
    int directory, lock;
};

struct package_set {
    int lock; /* shared */
    char *site, *packages;
    char id[ID_DIGITS + 1];
};

/* ---- errors ---- */

int package_cache_disk_full(const struct package_cache *cache, struct error *err)
{
    struct statvfs fs = { 0 };
    (void)statvfs(cache->path, &fs);
    error_set(err, ERROR_IO,
        "the disk of %.200s is full (%" PRIu64 " MiB are free): free space, remove packages that "
        "are not used with `droste packages gc`, or name another disk with XDG_CACHE_HOME",
        cache->path, (uint64_t)fs.f_bavail * fs.f_frsize >> 20);
    if (err)
        err->sys = ENOSPC;
    return -(int)ERROR_IO;
}

/* The error for a failed call on this path: says what to do if the disk is full. */
static int package_cache_failed(
    const struct package_cache *cache, const char *what, struct error *err)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return package_cache_disk_full(cache, err);
    return error_set_errno(err, ERROR_IO, "%s in %.200s", what, cache->path);
}

/* ---- the directory ---- */

/* Another user could put code into it, which sessions of this one would run. */
static int check_owner(const struct package_cache *cache, int directory, struct error *err)
{
    struct stat st;
    if (fstat(directory, &st) < 0)
        return package_cache_failed(cache, "looking", err);
    if (st.st_uid == geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return 0;
    return error_set(err, ERROR_PERMISSION,
        "the packages in %.200s belong to user %u, or others may write to them: users do not share "
        "packages; set XDG_CACHE_HOME to a directory of your own",
        cache->path, (unsigned)st.st_uid);
}

static int make_place(const struct package_cache *cache, const char *name, struct error *err)
{
    if (mkdirat(cache->directory, name, 0755) < 0 && errno != EEXIST)
        return package_cache_failed(cache, "making directories", err);
    return 0;
}

static int cache_set_up(struct package_cache *cache, struct error *err)
{
    static const char *const places[] = { "requests", "notes", "sets", "shown", "building" };
    int rc = file_make_directories(cache->path, err);
    if (rc < 0)
        return errno == ENOSPC ? package_cache_disk_full(cache, err) : rc;
    cache->directory = open(cache->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (cache->directory < 0)
        return package_cache_failed(cache, "opening the packages", err);
    rc = check_owner(cache, cache->directory, err);
    /* As root, sandboxes of some isolation levels read it as another user. */
    if (rc == 0 && fchmod(cache->directory, 0755) < 0)
        rc = package_cache_failed(cache, "opening the packages", err);
    for (size_t i = 0; rc == 0 && i < array_length(places); i++)
        rc = make_place(cache, places[i], err);
    if (rc < 0)
        return rc;
    cache->lock = openat(cache->directory, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return cache->lock < 0 ? package_cache_failed(cache, "opening the lock", err) : 0;
}

int package_cache_open(struct package_cache **out, struct error *err)
{
    cleanup_free char *home = NULL;
    struct package_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return error_memory(err);
    cache->directory = cache->lock = -1;
    int rc = file_cache_home(&home, err);
    if (rc == 0) {
        cache->path = text_printf("%s/packages", home);
        cache->building = text_printf("%s/packages/building", home);
        rc = cache->path && cache->building ? cache_set_up(cache, err) : error_memory(err);
    }
    if (rc < 0)
        package_cache_close(cache);
    else
        *out = cache;
    return rc;
}

void package_cache_close(struct package_cache *cache)
{
    if (!cache)
        return;
    close_fd(&cache->lock);
    close_fd(&cache->directory);
    free(cache->path);
    free(cache->building);
    free(cache);
}

const char *package_cache_building(const struct package_cache *cache)
{
    return cache->building;
}

int package_cache_open_shown(
    const struct package_cache *cache, int *out, char **path, struct error *err)
{
    *out = open_beneath(cache->directory, "shown", O_RDONLY | O_DIRECTORY, 0);
    if (*out < 0)
        return package_cache_failed(cache, "opening the packages", err);
    *path = text_printf("%s/shown", cache->path);
    return *path ? 0 : error_memory(err);
}

/* ---- short texts ---- */

static int read_text(struct package_cache *cache, const char *place, const char *name, size_t most,
    struct buf *out, struct error *err)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", place, name);
    cleanup_fd int fd = open_beneath(cache->directory, path, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? 0 : package_cache_failed(cache, "reading a note", err);
    return file_read_fd(fd, path, most, out, err);
}

static int write_text(struct package_cache *cache, const char *place, const char *name,
    const char *text, size_t len, struct error *err)
{
    cleanup_buf struct buf path = { 0 };
    char fresh[17];
    int rc = random_hex(fresh, sizeof fresh - 1, err);
    if (rc < 0)
        return rc;
    buf_printf(&path, "%s/.%s-%s", place, name, fresh);
    if (buf_failed(&path))
        return error_memory(err);
    cleanup_fd int fd =
        open_beneath(cache->directory, buf_text(&path), O_WRONLY | O_CREAT | O_EXCL, 0600);
    cleanup_buf struct buf to = { 0 };
    buf_printf(&to, "%s/%s", place, name);
    if (fd >= 0 && file_write_all(fd, text, len) == 0 && fdatasync(fd) == 0 &&
        renameat(cache->directory, buf_text(&path), cache->directory, buf_text(&to)) == 0)
        return 0;
    rc = package_cache_failed(cache, "writing a note", err);
    unlinkat(cache->directory, buf_text(&path), 0);
    return rc;
}

int package_cache_read_note(
    struct package_cache *cache, const char hash[HASH_TEXT_SIZE], char **out, struct error *err)
{
    struct buf text = { 0 };
    *out = NULL;
    int rc = read_text(cache, "notes", hash, NOTE_MAX, &text, err);
    if (rc == 0 && text.len > 0)
        *out = buf_steal(&text);
    buf_free(&text);
    return rc;
}

int package_cache_write_note(struct package_cache *cache, const char hash[HASH_TEXT_SIZE],
    const char *text, struct error *err)
{
    return write_text(cache, "notes", hash, text, strlen(text), err);
}

/* ---- the lock ---- */

/* Notes are written without the lock: what another process writes now is younger than a minute. */
static void sweep_notes(struct package_cache *cache)
{
    cleanup_listing DIR *listing = open_listing(cache->directory, "notes");
    const char *name;
    struct stat st;
    while ((name = next_listed(listing)))
        if (name[0] == '.' && fstatat(dirfd(listing), name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime < time(NULL) - NOTE_AGE_S)
            unlinkat(dirfd(listing), name, 0);
}

static void sweep_place(struct package_cache *cache, const char *place, const char *prefix)
{
    cleanup_listing DIR *listing = open_listing(cache->directory, place);
    const char *name;
    while ((name = next_listed(listing)))
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            tree_remove(dirfd(listing), name);
}

int package_cache_lock(struct package_cache *cache, bool (*cancelled)(void *arg),
    void (*waits)(void *arg), void *arg, struct error *err)
{
    const struct timespec pause = { 0, POLL_MS * 1000000L };
    bool told = false;
    while (flock(cache->lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return package_cache_failed(cache, "locking the packages", err);
        if (cancelled && cancelled(arg))
            return error_set(
                err, ERROR_CANCELLED, "interrupted while another process was building packages");
        if (!told && waits)
            waits(arg);
        told = true;
        nanosleep(&pause, NULL);
    }
    sweep_place(cache, "building", "");
    sweep_place(cache, "requests", ".");
    sweep_notes(cache);
    return 0;
}

/* ---- sets ---- */

void package_set_drop(struct package_set *set)
{
    if (!set)
        return;
    close_fd(&set->lock);
    free(set->site);
    free(set->packages);
    free(set);
}

const char *package_set_id(const struct package_set *set)
{
    return set->id;
}

const char *package_set_site(const struct package_set *set)
{
    return set->site;
}

const char *package_set_packages(const struct package_set *set)
{
    return set->packages;
}

static bool is_id(const char *text, size_t least)
{
    size_t len = strspn(text, "0123456789abcdef");
    return len >= least && len <= ID_DIGITS && text[len] == '\0';
}

/* Its set.json; NULL if it is damaged. */
static struct json_object *read_facts(struct package_cache *cache, const char *id)
{
    char place[80];
    cleanup_buf struct buf text = { 0 };
    struct json_object *facts = NULL;
    snprintf(place, sizeof place, "sets/%s", id);
    if (read_text(cache, place, "set.json", FACTS_MAX, &text, NULL) < 0 || text.len == 0 ||
        json_parse(text.data, text.len, &json_limits_large, &facts, NULL) < 0)
        return NULL;
    if (json_get_int(facts, "version", 0) == 1)
        return facts;
    json_object_put(facts);
    return NULL;
}

static const char *names_of(struct json_object *facts)
{
    struct json_object *names = facts ? json_get_typed(facts, "packages", json_type_array) : NULL;
    return names ? json_object_to_json_string(names) : "[]";
}

/* Whether the packages are as they were when they were built, as far as directories tell. */
static bool is_whole(
    struct package_cache *cache, const char *id, struct json_object *facts, struct error *err)
{
    char path[80];
    struct package_contents now = { 0 };
    snprintf(path, sizeof path, "sets/%s/site", id);
    cleanup_fd int site = open_beneath(cache->directory, path, O_RDONLY | O_DIRECTORY, 0);
    bool whole = site >= 0 && check_owner(cache, site, err) == 0 &&
                 package_contents_look(site, &now, err) == 0 &&
                 now.files == (uint64_t)json_get_int(facts, "files", -1) &&
                 now.bytes == (uint64_t)json_get_int(facts, "bytes", -1) &&
                 now.stamp >> 1 == (uint64_t)json_get_int(facts, "stamp", -1);
    package_contents_free(&now);
    return whole;
}

/* Locks it shared: -1 if there is none, or it was removed meanwhile. */
static int lock_set(struct package_cache *cache, const char *id, int operation)
{
    char path[80];
    struct stat held, named;
    snprintf(path, sizeof path, "sets/%s/lock", id);
    cleanup_fd int fd = open_beneath(cache->directory, path, O_RDWR, 0);
    if (fd < 0 || flock(fd, operation | LOCK_NB) < 0 || fstat(fd, &held) < 0 ||
        fstatat(cache->directory, path, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
        held.st_ino != named.st_ino)
        return -1;
    return steal_fd(&fd);
}

static int hold_set(
    struct package_cache *cache, const char *id, struct package_set **out, struct error *err)
{
    cleanup_fd int lock = lock_set(cache, id, LOCK_SH);
    cleanup_json struct json_object *facts = lock < 0 ? NULL : read_facts(cache, id);
    if (!facts || !is_whole(cache, id, facts, NULL))
        return 0;
    struct package_set *set = calloc(1, sizeof *set);
    if (!set)
        return error_memory(err);
    (void)futimens(lock, NULL); /* says when it was used last */
    *set = (struct package_set){ .lock = steal_fd(&lock) };
    snprintf(set->id, sizeof set->id, "%s", id);
    set->site = text_printf("%s/sets/%s/site", cache->path, id);
    set->packages = strdup(names_of(facts));
    if (!set->site || !set->packages) {
        package_set_drop(set);
        return error_memory(err);
    }
    *out = set;
    return 0;
}

int package_cache_find(struct package_cache *cache, const char request[HASH_TEXT_SIZE],
    struct package_set **out, struct error *err)
{
    cleanup_buf struct buf id = { 0 };
    *out = NULL;
    int rc = read_text(cache, "requests", request, NOTE_MAX, &id, err);
    if (rc < 0 || !is_id(buf_text(&id), ID_DIGITS))
        return rc;
    return hold_set(cache, buf_text(&id), out, err);
}

/* ---- publishing ---- */

static int put_facts(struct package_cache *cache, const char *place, const char *python,
    const struct package_contents *contents, struct error *err)
{
    cleanup_buf struct buf json = { 0 };
    field_open(&json, NULL, '{');
    field_int(&json, "version", 1);
    field_string(&json, "python", python);
    field_int(&json, "made", time(NULL));
    field_int(&json, "bytes", (int64_t)contents->bytes);
    field_int(&json, "files", (int64_t)contents->files);
    field_int(&json, "stamp", (int64_t)(contents->stamp >> 1));
    field_list(&json, "packages", &contents->names);
    field_close(&json, '}');
    buf_putc(&json, '\n');
    if (buf_failed(&json))
        return error_memory(err);
    int rc = write_text(cache, place, "set.json", json.data, json.len, err);
    return rc < 0 ? rc : write_text(cache, place, "lock", "", 0, err);
}

static int name_contents(const struct package_contents *contents, const char *python,
    char id[ID_DIGITS + 1], struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    char digest[HASH_TEXT_SIZE];
    buf_printf(&text, "1\n%s\n", python);
    for (size_t i = 0; i < contents->names.count; i++)
        buf_printf(&text, "%s\n", contents->names.items[i]);
    buf_puts(&text, contents->digest);
    if (buf_failed(&text))
        return error_memory(err);
    int rc = hash_sha256(text.data, text.len, digest, err);
    snprintf(id, ID_DIGITS + 1, "%.*s", ID_DIGITS, digest);
    return rc;
}

/* Puts sets/ID in its place; one that was damaged makes way. */
static int put_set(struct package_cache *cache, const char *from, const char *id, struct error *err)
{
    cleanup_buf struct buf to = { 0 }, old = { 0 };
    buf_printf(&to, "sets/%s", id);
    buf_printf(&old, "building/old-%s", id);
    if (buf_failed(&to) || buf_failed(&old))
        return error_memory(err);
    if (renameat(cache->directory, buf_text(&to), cache->directory, buf_text(&old)) < 0 &&
        errno != ENOENT)
        return package_cache_failed(cache, "replacing damaged packages", err);
    if (renameat(cache->directory, from, cache->directory, buf_text(&to)) < 0)
        return package_cache_failed(cache, "storing the packages", err);
    tree_remove(cache->directory, buf_text(&old));
    return 0;
}

static int publish_contents(struct package_cache *cache, const char *staged, const char *python,
    char id[ID_DIGITS + 1], struct error *err)
{
    cleanup_buf struct buf place = { 0 }, from = { 0 }, site = { 0 };
    struct package_contents contents = { 0 };
    struct package_set *same = NULL;
    buf_printf(&from, "building/%s", staged);
    buf_printf(&place, "building/set-%s", staged);
    buf_printf(&site, "%s/site", buf_text(&place));
    if (buf_failed(&from) || buf_failed(&site))
        return error_memory(err);
    if (mkdirat(cache->directory, buf_text(&place), 0755) < 0 ||
        renameat(cache->directory, buf_text(&from), cache->directory, buf_text(&site)) < 0)
        return package_cache_failed(cache, "storing the packages", err);
    cleanup_fd int top = open_beneath(cache->directory, buf_text(&site), O_RDONLY | O_DIRECTORY, 0);
    if (top < 0 || fchmod(top, 0755) < 0)
        return package_cache_failed(cache, "storing the packages", err);
    int rc = package_contents_take(top, &contents, err);
    if (rc == 0)
        rc = name_contents(&contents, python, id, err);
    if (rc == 0)
        rc = put_facts(cache, buf_text(&place), python, &contents, err);
    if (rc == 0 && syncfs(top) < 0)
        rc = package_cache_failed(cache, "storing the packages", err);
    if (rc == 0)
        rc = hold_set(cache, id, &same, err);
    if (rc == 0 && !same)
        rc = put_set(cache, buf_text(&place), id, err);
    package_set_drop(same);
    package_contents_free(&contents);
    return rc;
}

int package_cache_publish(struct package_cache *cache, const char request[HASH_TEXT_SIZE],
    const char *staged, const char *facts, struct package_set **out, struct error *err)
{
    char id[ID_DIGITS + 1];
    *out = NULL;
    int rc = publish_contents(cache, staged, facts, id, err);
    sweep_place(cache, "building", "set-");
    if (rc == 0)
        rc = write_text(cache, "requests", request, id, ID_DIGITS, err);
    if (rc == 0)
        rc = hold_set(cache, id, out, err);
    if (rc == 0 && !*out)
        rc = error_set(err, ERROR_IO, "the packages that were just stored cannot be read");
    return rc;
}

/* ---- listing and removing ---- */

struct listed {
    char id[ID_DIGITS + 1];
    int64_t used;
};

static int latest_first(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return x->used < y->used ? 1 : x->used > y->used ? -1 : strcmp(x->id, y->id);
}

static int list_ids(
    struct package_cache *cache, struct listed **out, size_t *count, struct error *err)
{
    size_t room = 0;
    const char *name;
    struct stat st;
    cleanup_listing DIR *listing = open_listing(cache->directory, "sets");
    if (!listing)
        return package_cache_failed(cache, "listing the packages", err);
    while (*count < SETS_MAX && (name = next_listed(listing))) {
        char lock[80];
        if (!is_id(name, ID_DIGITS))
            continue;
        if (!array_room(*out, *count, &room))
            return error_memory(err);
        struct listed *l = &(*out)[(*count)++];
        snprintf(l->id, sizeof l->id, "%s", name);
        snprintf(lock, sizeof lock, "%s/lock", name);
        l->used = fstatat(dirfd(listing), lock, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mtime : 0;
    }
    if (*count > 0)
        qsort(*out, *count, sizeof **out, latest_first);
    return 0;
}

static int visit_set(struct package_cache *cache, const struct listed *l, package_cache_fn *fn,
    void *arg, struct error *err)
{
    cleanup_json struct json_object *facts = read_facts(cache, l->id);
    cleanup_free char *site = text_printf("%s/sets/%s/site", cache->path, l->id);
    if (!site)
        return error_memory(err);
    struct package_set_facts set = { .id = l->id, .site = site, .used = l->used, .python = "?" };
    set.packages = names_of(facts);
    set.damaged = !facts || !is_whole(cache, l->id, facts, NULL);
    if (facts) {
        set.python = json_get_string(facts, "python", "?");
        set.bytes = (uint64_t)json_get_int(facts, "bytes", 0);
        set.files = (uint64_t)json_get_int(facts, "files", 0);
        set.made = json_get_int(facts, "made", 0);
    }
    int lock = lock_set(cache, l->id, LOCK_EX);
    set.in_use = lock < 0 && errno == EWOULDBLOCK;
    close_fd(&lock);
    return fn(arg, &set, err);
}

int package_cache_list(
    struct package_cache *cache, package_cache_fn *fn, void *arg, struct error *err)
{
    cleanup_free struct listed *all = NULL;
    size_t count = 0;
    int rc = list_ids(cache, &all, &count, err);
    for (size_t i = 0; rc >= 0 && i < count; i++)
        rc = visit_set(cache, &all[i], fn, arg, err);
    return rc;
}

static int whole_id(
    struct package_cache *cache, const char *begin, char id[ID_DIGITS + 1], struct error *err)
{
    cleanup_free struct listed *all = NULL;
    size_t count = 0, found = 0;
    int rc = is_id(begin, ID_LEAST) ? list_ids(cache, &all, &count, err) : 0;
    for (size_t i = 0; i < count; i++)
        if (strncmp(all[i].id, begin, strlen(begin)) == 0 && found++ == 0)
            memcpy(id, all[i].id, ID_DIGITS + 1);
    if (rc < 0 || found == 1)
        return rc;
    return error_set(err, ERROR_NOT_FOUND,
        "%s packages have the id '%.64s'; `droste packages ls` lists them",
        found ? "several" : "no", begin);
}

int package_cache_find_id(
    struct package_cache *cache, const char *id, struct package_set **out, struct error *err)
{
    char whole[ID_DIGITS + 1];
    *out = NULL;
    int rc = whole_id(cache, id, whole, err);
    if (rc == 0)
        rc = hold_set(cache, whole, out, err);
    if (rc == 0 && !*out)
        rc = error_set(err, ERROR_NOT_FOUND, "the packages '%.64s' are damaged", id);
    return rc;
}

int package_cache_remove(struct package_cache *cache, const char *id, struct error *err)
{
    char whole[ID_DIGITS + 1], from[80], to[80];
    int rc = whole_id(cache, id, whole, err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = lock_set(cache, whole, LOCK_EX);
    if (lock < 0 && errno == EWOULDBLOCK)
        return error_set(
            err, ERROR_ARGUMENT, "the packages %.12s are in use; end what uses them first", whole);
    snprintf(from, sizeof from, "sets/%s", whole);
    snprintf(to, sizeof to, "building/old-%s", whole);
    if (renameat(cache->directory, from, cache->directory, to) < 0)
        return package_cache_failed(cache, "removing packages", err);
    return tree_remove(cache->directory, to)
               ? 0
               : package_cache_failed(cache, "removing packages", err);
}
