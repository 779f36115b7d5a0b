/* jail/show_image.c: the root directory of sandboxes with an image.
 *
 * The root is a tmpfs, as without an image. Each entry of the image's root directory is bound into
 * it, read-only, and its links are made again. So the image itself is never written to, and several
 * sandboxes share it. A directory of the image that a mount point is in (/home for /home/user) is
 * made in the tmpfs as well, and its entries are bound. What the sandbox has of its own (/dev,
 * /proc, /sys, /tmp) is left out of the image.
 *
 * The files are not trusted. They are bound while those of the host are in reach, below /old: no
 * link of theirs is followed then (JAIL_GRAFT). The host lists the directories, and follows none
 * either.
 */
#include "jail/show_image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/os/beneath.h"
#include "base/text.h"
#include "jail/landlock.h"
#include "jail/private_root.h"

enum { IMAGE_MOUNTS_MAX = 256, ACCOUNTS_MAX = 256 << 10 };

struct shown_image {
    struct builder *b;
    const struct jail_host *host;
    struct list points; /* paths that the sandbox mounts or makes */
    size_t mounts;
};

static int add_points(struct shown_image *s, struct error *err)
{
    static const char *const always[] = { "/dev", "/proc", "/sys", "/tmp" };
    static const char *const in_private[] = { "/run", "/root", "/var/tmp", PRIVATE_ROOT_HOME,
        PRIVATE_ROOT_TOOLS };
    const struct layout *paths = layout_of(s->host->layout);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_length(always); i++)
        rc = list_add(&s->points, always[i], err);
    for (size_t i = 0; rc == 0 && s->host->private_root && i < array_length(in_private); i++)
        rc = list_add(&s->points, in_private[i], err);
    for (size_t i = 0; rc == 0 && i < array_length(paths->volume); i++) {
        if (s->host->has_volume && paths->volume[i])
            rc = list_add(&s->points, paths->volume[i], err);
        if (rc == 0 && s->host->has_workspace && paths->workspace[i])
            rc = list_add(&s->points, paths->workspace[i], err);
    }
    if (rc == 0 && s->host->devices)
        rc = list_add(&s->points, JAIL_DEVICE_LIBRARIES, err);
    for (size_t i = 0; rc == 0 && i < s->host->read_path_count; i++)
        rc = list_add(&s->points, s->host->read_paths[i], err);
    return rc;
}

/* True if the path is a mount point, or contains one. */
static bool leads_to_point(const struct shown_image *s, const char *path, bool *is_point)
{
    bool leads = false;
    *is_point = false;
    for (size_t i = 0; i < s->points.count; i++) {
        const char *rest = text_below(s->points.items[i], path);
        leads = leads || rest;
        *is_point = *is_point || (rest && !*rest);
    }
    return leads;
}

static int show_image_directory(struct shown_image *s, const char *path, struct error *err);

static int show_image_link(
    struct shown_image *s, int directory, const char *name, const char *target, struct error *err)
{
    char to[4096];
    ssize_t n = readlinkat(directory, name, to, sizeof to - 1);
    if (n <= 0)
        return error_set_errno(err, ERROR_IO, "reading the image's link %.100s", name);
    to[n] = '\0';
    plan_add(s->b, JAIL_SYMLINK, to, target, 0, 0);
    return 0;
}

static int show_image_entry(
    struct shown_image *s, int directory, const char *above, const char *name, struct error *err)
{
    cleanup_buf struct buf path = { 0 }, source = { 0 }, target = { 0 };
    struct stat st;
    bool is_point;
    buf_printf(&path, "%s/%s", above, name);
    buf_printf(&source, "/old%s%s", s->host->image, buf_text(&path));
    buf_printf(&target, "/new%s", buf_text(&path));
    if (buf_failed(&path) || buf_failed(&source) || buf_failed(&target))
        return error_memory(err);
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, ERROR_IO, "listing the image");
    bool leads = leads_to_point(s, buf_text(&path), &is_point);
    if (is_point || (leads && !S_ISDIR(st.st_mode)))
        return 0;
    if (leads) {
        plan_add(s->b, JAIL_DIRECTORY, buf_text(&target), NULL, 0755, 0);
        return show_image_directory(s, buf_text(&path), err);
    }
    if (S_ISLNK(st.st_mode))
        return show_image_link(s, directory, name, buf_text(&target), err);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return 0;
    plan_add(s->b, JAIL_GRAFT, buf_text(&source), buf_text(&target), BIND_SYSTEM, 0);
    if (++s->mounts <= IMAGE_MOUNTS_MAX)
        return 0;
    return error_set(err, ERROR_UNSUPPORTED,
        "the image's %.100s has too many entries to show one by one: at most %d", above,
        IMAGE_MOUNTS_MAX);
}

static DIR *open_image_directory(const struct shown_image *s, const char *path)
{
    cleanup_fd int top = open(s->host->image, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int fd =
        top < 0 ? -1 : open_beneath(top, path[0] ? path + 1 : ".", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? NULL : open_listing(fd, ".");
}

static int show_image_directory(struct shown_image *s, const char *path, struct error *err)
{
    int rc = 0;
    cleanup_listing DIR *listing = open_image_directory(s, path);
    if (!listing)
        return error_set_errno(err, ERROR_IO, "opening the image's %s at %.200s",
            path[0] ? path : "/", s->host->image);
    for (const char *name; rc == 0 && (name = next_listed(listing));)
        rc = show_image_entry(s, dirfd(listing), path, name, err);
    return rc;
}

/* ---- what the sandbox's user is called ---- */

/* Covers a file of the image, if it has it, with the same one after a line for the guest. */
static int show_accounts(
    struct shown_image *s, const char *path, const char *line, struct error *err)
{
    cleanup_buf struct buf text = { 0 }, from = { 0 }, to = { 0 };
    cleanup_fd int top = open(s->host->image, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int fd = top < 0 ? -1 : open_beneath(top, path + 1, O_RDONLY, 0);
    struct stat st;
    char *own = NULL;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > ACCOUNTS_MAX)
        return 0;
    buf_puts(&text, line);
    if (!buf_reserve(&text, ACCOUNTS_MAX))
        return error_memory(err);
    own = text.data + text.len;
    ssize_t n = read(fd, own, ACCOUNTS_MAX);
    own[n > 0 ? n : 0] = '\0'; /* a file with zero bytes ends there */
    buf_printf(&from, "/%s", strrchr(path, '/') + 1);
    buf_printf(&to, "/new%s", path);
    plan_add(s->b, JAIL_FILE, buf_text(&from), text.data, 0644, 0);
    plan_add(s->b, JAIL_GRAFT, buf_text(&from), buf_text(&to), BIND_SYSTEM, 1);
    return 0;
}

int show_image(struct builder *b, const struct jail_host *host, struct error *err)
{
    struct shown_image s = { .b = b, .host = host };
    int rc = add_points(&s, err);
    if (rc == 0)
        rc = show_image_directory(&s, "", err);
    if (rc == 0)
        rc = show_accounts(&s, "/etc/passwd", "guest:x:1000:1000:guest:/tmp:/bin/sh\n", err);
    if (rc == 0)
        rc = show_accounts(&s, "/etc/group", "guest:x:1000:\n", err);
    list_clear(&s.points);
    return rc;
}

void show_image_rules(struct builder *b)
{
    static const char new[] = "/new";
    size_t count = b->ops.len / sizeof(struct jail_op);
    for (size_t i = 0; i < count; i++) {
        struct jail_op op;
        memcpy(&op, b->ops.data + i * sizeof op, sizeof op);
        cleanup_buf struct buf path = { 0 };
        if (op.kind != JAIL_GRAFT || op.b)
            continue;
        buf_puts(&path, b->text.data + op.text[1] + strlen(new));
        if (!strchr(buf_text(&path) + 1, '/'))
            plan_add(b, JAIL_RULE, buf_text(&path), NULL, LANDLOCK_READ, 0)->optional = 1;
    }
}
