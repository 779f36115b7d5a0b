/* env/common/users.c: reserves user ids by byte locks on a shared file. */
#include "env/common/users.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/random.h"

/* Between the ids of containers (up to 1879048191, 0x6FFFFFFF) and those of foreign file systems
 * (from 2147352576), see https://systemd.io/UIDS-GIDS. */
enum { DEFAULT_FIRST = 1900000000, DEFAULT_LAST = 1900065535, LEAST = 1000 };

struct users {
    int fd;
    uint32_t next;
    uint32_t *taken;
    size_t count, room;
};

/* ---- the range ---- */

/* True if this user namespace has all of these ids (user_namespaces(7)). */
static bool has_ids(const char *map, const struct user_range *range)
{
    cleanup_buf struct buf text = { 0 };
    unsigned long inside, outside, count;
    if (file_read(map, 65536, &text, NULL) < 0)
        return false;
    for (const char *line = buf_text(&text); line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (sscanf(line, "%lu %lu %lu", &inside, &outside, &count) == 3 && inside <= range->first &&
            range->last - inside < count)
            return true;
    }
    return false;
}

static bool can_give(const struct user_range *range)
{
    return geteuid() == 0 && has_ids("/proc/self/uid_map", range) &&
           has_ids("/proc/self/gid_map", range);
}

int user_range_parse(const char *text, struct user_range *out, struct error *err)
{
    static const struct user_range usual = { DEFAULT_FIRST, DEFAULT_LAST };
    unsigned long first, last;
    char end;
    *out = (struct user_range){ 0 };
    if (!text || !text[0] || strcmp(text, "auto") == 0) {
        if (can_give(&usual))
            *out = usual;
        return 0;
    }
    if (strcmp(text, "shared") == 0)
        return 0;
    if (sscanf(text, "%10lu-%10lu%c", &first, &last, &end) != 2 || first < LEAST || last < first ||
        last > INT32_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "sandbox-users '%.40s': give FIRST-LAST, two user ids from %d to %d, or auto, or "
            "shared",
            text, LEAST, INT32_MAX);
    const struct user_range range = { (uint32_t)first, (uint32_t)last };
    if (geteuid() == 0 && !can_give(&range))
        return error_set(err, ERROR_ARGUMENT,
            "sandbox-users '%.40s': this user namespace does not map these ids "
            "(/proc/self/uid_map); give ids that it maps, or shared",
            text);
    if (geteuid() == 0)
        *out = range;
    return 0;
}

/* ---- the locks ---- */

struct users *users_new(void)
{
    struct users *u = calloc(1, sizeof *u);
    if (u)
        u->fd = -1;
    return u;
}

void users_free(struct users *u)
{
    if (!u)
        return;
    close_fd(&u->fd);
    free(u->taken);
    free(u);
}

void users_forked(struct users *u)
{
    close_fd(&u->fd);
}

/* Uses the first of these files that works. A file that another user has put there is not
 * accepted. */
static int open_locks(void)
{
    static const char *const paths[] = { "/run/droste-users", "/dev/shm/droste-users",
        "/tmp/droste-users" };
    for (size_t i = 0; i < array_length(paths); i++) {
        struct stat st;
        int fd = open(paths[i], O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            (st.st_mode & 077) == 0)
            return fd;
        close_fd(&fd);
    }
    return -1;
}

static int lock_id(int fd, uint32_t id, short type)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = id, .l_len = 1 };
    return fcntl(fd, F_OFD_SETLK, &lock);
}

/* The kernel grants the holder of a lock the same lock again. */
static bool users_is_taken(const struct users *u, uint32_t id)
{
    for (size_t i = 0; i < u->count; i++)
        if (u->taken[i] == id)
            return true;
    return false;
}

/* Hosts start at different ids, so they seldom collide even if they do not see the same file. */
static int users_begin(struct users *u, struct error *err)
{
    if (u->fd >= 0)
        return 0;
    u->fd = open_locks();
    if (u->fd < 0)
        return error_set(err, ERROR_ENVIRONMENT,
            "assigning a user to the sandbox: root cannot create the file droste-users in /run, "
            "/dev/shm or /tmp; make room there, or give --sandbox-users shared");
    return random_bytes(&u->next, sizeof u->next, err);
}

int users_take(struct users *u, const struct user_range *range, uint32_t *out, struct error *err)
{
    *out = 0;
    if (range->first == 0)
        return 0;
    int rc = users_begin(u, err);
    if (rc == 0 && !array_room(u->taken, u->count, &u->room))
        rc = error_memory(err);
    uint32_t count = range->last - range->first + 1;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        uint32_t id = range->first + u->next++ % count;
        if (users_is_taken(u, id) || lock_id(u->fd, id, F_WRLCK) < 0)
            continue;
        u->taken[u->count++] = id;
        *out = id;
        return 0;
    }
    return rc < 0 ? rc
                  : error_set(err, ERROR_ENVIRONMENT,
                        "each of the users %u to %u already has a sandbox; end some, or give a "
                        "larger range with --sandbox-users",
                        range->first, range->last);
}

void users_give_back(struct users *u, uint32_t id)
{
    for (size_t i = 0; id != 0 && i < u->count; i++) {
        if (u->taken[i] != id)
            continue;
        lock_id(u->fd, id, F_UNLCK);
        u->taken[i] = u->taken[--u->count];
        return;
    }
}

/* Each thread has a directory in /proc/PID/task. */
uint64_t users_count_processes(uid_t uid)
{
    uint64_t count = 0;
    struct stat st;
    cleanup_listing DIR *proc = opendir("/proc");
    for (const char *name; (name = next_listed(proc));) {
        char task[300];
        snprintf(task, sizeof task, "%s/task", name);
        if (isdigit((unsigned char)name[0]) && fstatat(dirfd(proc), task, &st, 0) == 0 &&
            st.st_uid == uid && st.st_nlink > 2)
            count += st.st_nlink - 2;
    }
    return count;
}
