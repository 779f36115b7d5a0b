/* env/local/cgroup_tree.c: finds the mount of a cgroup tree and manages directories in it. */
#include "env/local/cgroup_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"

enum { HOMES_MAX = 1000 }; /* environments of one process */

/* ---- small files ---- */

int group_put(int dir, const char *file, const char *text)
{
    cleanup_fd int fd = openat(dir, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

static bool group_ends_word(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\0';
}

bool group_has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += len)
        if ((p == text || group_ends_word(p[-1])) && group_ends_word(p[len]))
            return true;
    return false;
}

/* ---- finding the mount ---- */

/* mountinfo encodes a blank as \040, proc(5). */
static void cgroup_tree_unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        bool octal = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3];
        *to = octal ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0')) : *from;
        from += octal ? 4 : 1;
    }
    *to = '\0';
}

/* "cgroup2 SOURCE OPTIONS", or for version 1 "cgroup SOURCE OPTIONS" with the controller among
 * them. */
static bool is_tree(const char *type, const char *controller)
{
    return controller ? strncmp(type, "cgroup ", 7) == 0 && group_has_word(type, controller)
                      : strncmp(type, "cgroup2 ", 8) == 0;
}

/* Finds the mount in the text of mountinfo, and modifies the text. */
static bool find_mount(char *mountinfo, const char *controller, char **root, char **point)
{
    char *rest_of_lines, *rest;
    for (char *line = strtok_r(mountinfo, "\n", &rest_of_lines); line;
         line = strtok_r(NULL, "\n", &rest_of_lines)) {
        const char *type = strstr(line, " - ");
        if (!type || !is_tree(type + 3, controller))
            continue;
        strtok_r(line, " ", &rest); /* mount id, parent's id, device, root, mount point */
        strtok_r(NULL, " ", &rest);
        strtok_r(NULL, " ", &rest);
        *root = strtok_r(NULL, " ", &rest);
        *point = strtok_r(NULL, " ", &rest);
        if (!*root || !*point)
            continue;
        cgroup_tree_unescape(*root);
        cgroup_tree_unescape(*point);
        return true;
    }
    return false;
}

/* The path of this process's cgroup, in the text of /proc/self/cgroup, which is modified. It has
 * lines of NUMBER:CONTROLLERS:PATH; that of version 2 names no controllers. */
static char *own_path(char *text, const char *controller)
{
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        if (line && (controller ? group_has_word(controllers, controller) : !*controllers))
            return line;
    }
    return NULL;
}

/* The part of it below the mount's root, without a leading slash; NULL if the mount does not show
 * it. */
static char *own_below(char *text, const char *controller, const char *root)
{
    char *path = own_path(text, controller);
    if (!path || path[0] != '/' || strncmp(path, "/..", 3) == 0)
        return NULL;
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        return NULL;
    return path + len + (path[len] == '/');
}

static int read_at(int root, const char *path, struct buf *out, struct error *err)
{
    cleanup_fd int fd = openat(root, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_UNSUPPORTED, "reading /%s", path);
    return file_read_fd(fd, path, 1 << 20, out, err);
}

int group_find(int root, const char *controller, struct cgroup_location *out, struct error *err)
{
    const char *tree = controller ? "cgroup v1" : "cgroup v2";
    cleanup_buf struct buf mounts = { 0 }, own = { 0 };
    char *mount_root, *point, *path;
    if (read_at(root, "proc/self/mountinfo", &mounts, err) < 0 ||
        read_at(root, "proc/self/cgroup", &own, err) < 0)
        return -(int)ERROR_UNSUPPORTED;
    if (mounts.len == 0 || !find_mount(mounts.data, controller, &mount_root, &point))
        return error_set(err, ERROR_UNSUPPORTED, "%s is not mounted", tree);
    if (own.len == 0 || !(path = own_below(own.data, controller, mount_root)))
        return error_set(
            err, ERROR_UNSUPPORTED, "%s on %.80s does not show this process's cgroup", tree, point);
    out->mount = openat(root, point[1] ? point + 1 : ".", GROUP_DIRECTORY);
    if (out->mount < 0)
        return error_set_errno(err, ERROR_UNSUPPORTED, "opening %.80s", point);
    out->point = strdup(point);
    out->path = strdup(path);
    return out->point && out->path ? 0 : error_memory(err);
}

void cgroup_location_free(struct cgroup_location *place)
{
    close_fd(&place->mount);
    free(steal(&place->point));
    free(steal(&place->path));
}

/* ---- directories of hosts ---- */

int group_remove(int parent, const char *name)
{
    cleanup_fd int home = openat(parent, name, GROUP_DIRECTORY);
    if (home < 0)
        return 0;
    group_put(home, "cgroup.kill", "1"); /* Linux 5.14 */
    cleanup_listing DIR *children = open_listing(home, ".");
    for (const char *child; (child = next_listed(children));)
        unlinkat(home, child, AT_REMOVEDIR); /* its files cannot be removed */
    return unlinkat(parent, name, AT_REMOVEDIR);
}

void group_sweep(int parent, const struct owner *self)
{
    cleanup_listing DIR *homes = open_listing(parent, ".");
    for (const char *name; (name = next_listed(homes));) {
        struct owner owner = *self; /* boot id: the tree does not survive a reboot */
        long long pid, start, space;
        unsigned n;
        if (sscanf(name, "droste-%lld-%lld-%lld-%u", &pid, &start, &space, &n) != 4)
            continue;
        owner.pid = pid;
        owner.start = start;
        owner.space = space;
        if (owner_is_gone(&owner, self))
            group_remove(parent, name);
    }
}

int group_make(int parent, const struct owner *self, char *name, size_t size)
{
    for (unsigned n = 0; n < HOMES_MAX; n++) {
        snprintf(name, size, "droste-%lld-%lld-%lld-%u", (long long)self->pid,
            (long long)self->start, (long long)self->space, n);
        if (mkdirat(parent, name, 0755) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    name[0] = '\0';
    return -1;
}
