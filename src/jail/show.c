/* jail/show.c: operations that make host paths visible; compile.c explains their order. */
#include "jail/show.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "jail/landlock.h"
#include "jail/show_image.h"

enum {
    BIND_PROC = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
    BIND_DEVICE = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
};

/* ---- host paths ---- */

static bool is_system(const char *path)
{
    static const char *const system_directories[] = { "/usr", "/bin", "/sbin", "/lib", "/lib64" };
    for (size_t i = 0; i < array_length(system_directories); i++)
        if (text_below(path, system_directories[i]))
            return true;
    return false;
}

/* Makes a host path visible read-only as `path`: as a mount in a private root, else as a rule.
 * Missing paths are skipped. */
static void show_at(struct builder *b, const char *path, const char *from)
{
    if (!b->own_root) {
        plan_add(b, JAIL_RULE, path, NULL, LANDLOCK_READ, 0)->optional = 1;
        return;
    }
    cleanup_buf struct buf source = { 0 }, target = { 0 };
    buf_printf(&source, "/old%s", from);
    buf_printf(&target, "/new%s", path);
    plan_add(b, JAIL_BIND, buf_text(&source), buf_text(&target), BIND_SYSTEM, 0)->optional = 1;
}

static void show_show(struct builder *b, const char *path)
{
    show_at(b, path, path);
}

/* The same for a path that may contain links: below /old, an absolute link would lead outside. */
static void show_linked(struct builder *b, const char *path)
{
    cleanup_free char *real = realpath(path, NULL);
    show_at(b, path, real ? real : path);
}

/* /bin and similar directories are links into /usr on most systems. */
static void show_system(struct builder *b)
{
    static const char *const roots[] = { "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32" };
    static const char *const files[] = { "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
        "/etc/alternatives", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/fonts",
        "/etc/python3" };
    show_show(b, "/usr");
    for (size_t i = 0; i < array_length(roots); i++) {
        char to[256], path[32];
        ssize_t n = b->own_root ? readlink(roots[i], to, sizeof to - 1) : 0;
        if (n <= 0) {
            show_show(b, roots[i]);
            continue;
        }
        to[n] = '\0';
        snprintf(path, sizeof path, "/new%s", roots[i]);
        plan_add(b, JAIL_SYMLINK, to, path, 0, 0);
    }
    for (size_t i = 0; i < array_length(files); i++)
        show_show(b, files[i]);
}

/* For an interpreter outside /usr: its own directories, not its whole prefix, which may be a home
 * directory. */
static void show_prefix(struct builder *b, const char *prefix)
{
    static const char *const parts[] = { "bin", "lib", "lib64", "include", "share", "pyvenv.cfg" };
    if (prefix[0] != '/' || prefix[1] == '\0' || is_system(prefix))
        return;
    for (size_t i = 0; i < array_length(parts); i++) {
        cleanup_buf struct buf path = { 0 };
        buf_printf(&path, "%s/%s", prefix, parts[i]);
        show_linked(b, buf_text(&path));
    }
}

/* True if no earlier prefix is the same. */
static bool is_new(const struct jail_host *host, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(host->prefixes[i], host->prefixes[index]) == 0)
            return false;
    return true;
}

static void show_interpreter(struct builder *b, const struct jail_host *host)
{
    for (size_t i = 0; i < host->prefix_count; i++)
        if (is_new(host, i))
            show_prefix(b, host->prefixes[i]);
}

static void show_read_paths(struct builder *b, const struct jail_host *host)
{
    for (size_t i = 0; i < host->read_path_count; i++)
        show_linked(b, host->read_paths[i]);
}

/* ---- devices ---- */

static void show_link(struct builder *b, const char *path, const char *target)
{
    cleanup_buf struct buf link = { 0 };
    buf_printf(&link, "/new%s", path);
    plan_add(b, JAIL_SYMLINK, target, buf_text(&link), 0, 0)->optional = 1;
}

/* True if an earlier path leads to the same file. */
static bool show_has_shown(const struct list *paths, size_t count, const char *real)
{
    for (size_t i = 0; i < count; i++) {
        cleanup_free char *other = realpath(paths->items[i], NULL);
        if (other && strcmp(other, real) == 0)
            return true;
    }
    return false;
}

/* Each file once, at its own path, and the other names of it as links. */
static void show_files(struct builder *b, const struct list *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        const char *path = paths->items[i];
        cleanup_free char *real = realpath(path, NULL);
        if (real && !is_system(real) && !show_has_shown(paths, i, real))
            show_show(b, real);
        if (real && !is_system(path) && strcmp(real, path) != 0)
            show_link(b, path, real);
    }
}

/* The same, all in one directory. */
static void show_files_in(struct builder *b, const char *directory, const struct list *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        cleanup_free char *real = realpath(paths->items[i], NULL);
        cleanup_buf struct buf file = { 0 }, link = { 0 };
        if (!real)
            continue;
        buf_printf(&file, "%s%s", directory, strrchr(real, '/'));
        buf_printf(&link, "%s%s", directory, strrchr(paths->items[i], '/'));
        if (!show_has_shown(paths, i, real))
            show_at(b, buf_text(&file), real);
        if (strcmp(buf_text(&file), buf_text(&link)) != 0)
            show_link(b, buf_text(&link), strrchr(real, '/') + 1);
    }
}

static void show_devices(struct builder *b, const struct jail_host *host)
{
    const struct jail_devices *d = host->devices;
    for (size_t i = 0; i < d->files.count; i++) {
        cleanup_buf struct buf from = { 0 }, to = { 0 };
        buf_printf(&from, "/old%s", d->files.items[i]);
        buf_printf(&to, "/new%s", d->files.items[i]);
        plan_add(b, JAIL_BIND, buf_text(&from), buf_text(&to), BIND_DEVICE, 0);
    }
    if (host->image)
        show_files_in(b, JAIL_DEVICE_LIBRARIES, &d->libraries);
    else
        show_files(b, &d->libraries);
    show_files(b, &d->facts);
}

/* ---- a private root ---- */

static const char *const devices[] = { "null", "zero", "full", "random", "urandom" };

static void show_make_devices(struct builder *b)
{
    static const char *const links[][2] = { { "/proc/self/fd", "/new/dev/fd" },
        { "/proc/self/fd/0", "/new/dev/stdin" }, { "/proc/self/fd/1", "/new/dev/stdout" },
        { "/proc/self/fd/2", "/new/dev/stderr" }, { "pts/ptmx", "/new/dev/ptmx" } };
    for (size_t i = 0; i < array_length(devices); i++) {
        char from[32], to[32];
        snprintf(from, sizeof from, "/old/dev/%s", devices[i]);
        snprintf(to, sizeof to, "/new/dev/%s", devices[i]);
        plan_add(b, JAIL_BIND, from, to, BIND_DEVICE, 0);
    }
    for (size_t i = 0; i < array_length(links); i++)
        plan_add(b, JAIL_SYMLINK, links[i][0], links[i][1], 0, 0);
    plan_add(b, JAIL_DIRECTORY, "/new/dev/pts", NULL, 0755, 0);
    plan_add(b, JAIL_DIRECTORY, "/new/dev/shm", NULL, 0755, 0);
}

const struct layout default_layout = {
    .name = "droste", .volume = { "/data" }, .workspace = { "/workspace" }
};

static void show_make_mount_point(struct builder *b, const char *path)
{
    cleanup_buf struct buf target = { 0 };
    buf_printf(&target, "/new%s", path ? path : "");
    if (path)
        plan_add(b, JAIL_DIRECTORY, buf_text(&target), NULL, 0755, 0);
}

/* Mounts all volumes on /dev/shm, which each sandbox covers with its own, so they are not visible
 * there. */
static void show_volumes(struct builder *b, const struct jail_host *host)
{
    cleanup_buf struct buf source = { 0 };
    if (!host->volumes)
        return;
    buf_printf(&source, "/old%s", host->volumes);
    plan_add(
        b, JAIL_BIND, buf_text(&source), "/new/dev/shm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0);
    const struct layout *paths = layout_of(host->layout);
    for (size_t i = 0; i < array_length(paths->volume); i++) {
        if (host->has_volume)
            show_make_mount_point(b, paths->volume[i]);
        if (host->has_workspace)
            show_make_mount_point(b, paths->workspace[i]);
    }
}

/* A minimal /etc for programs that look up their user; nothing of the host's. */
static void make_etc(struct builder *b)
{
    static const char *const files[][2] = {
        { "/new/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\n"
                             "guest:x:1000:1000:guest:/tmp:/bin/sh\n"
                             "nobody:x:65534:65534:nobody:/:/sbin/nologin\n" },
        { "/new/etc/group", "root:x:0:\nguest:x:1000:\nnogroup:x:65534:\n" },
        { "/new/etc/hosts", "127.0.0.1 localhost\n" },
        { "/new/etc/hostname", "droste\n" },
        { "/new/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n" },
    };
    for (size_t i = 0; i < array_length(files); i++)
        plan_add(b, JAIL_FILE, files[i][0], files[i][1], 0644, 0);
}

int show_root(struct builder *b, const struct jail_host *host, struct error *err)
{
    plan_add(b, JAIL_PRIVATE, NULL, NULL, 0, 0);
    plan_add_mount(b, "tmpfs", "/tmp", "mode=0755,size=1m,nr_inodes=64", MS_NOSUID | MS_NODEV);
    plan_add(b, JAIL_DIRECTORY, "/tmp/old", NULL, 0755, 0);
    plan_add(b, JAIL_DIRECTORY, "/tmp/new", NULL, 0755, 0);
    plan_add(b, JAIL_PIVOT, "/tmp", "old", 0, 0);
    plan_add_mount(b, "tmpfs", "/new", "mode=0755,size=16m,nr_inodes=16k", MS_NOSUID | MS_NODEV);
    int rc = host->image ? show_image(b, host, err) : 0;
    if (rc < 0)
        return rc;
    if (!host->image) {
        show_system(b);
        show_interpreter(b, host);
    }
    show_make_devices(b);
    if (host->devices)
        show_devices(b, host);
    show_volumes(b, host);
    if (!host->image)
        make_etc(b);
    show_read_paths(b, host); /* the host's /etc, if requested, over the generated one */
    plan_add(b, JAIL_DIRECTORY, "/new/tmp", NULL, 0755, 0);
    if (host->image) { /* of its own pid namespace, see make_image_namespaces */
        plan_add(b, JAIL_DIRECTORY, "/new/proc", NULL, 0555, 0);
        plan_add_mount(b, "proc", "/new/proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC);
    } else {
        plan_add(b, JAIL_BIND, "/old/proc", "/new/proc", BIND_PROC, 0);
    }
    plan_add(b, JAIL_READ_ONLY, "/new", NULL, 0, 0);
    plan_add(b, JAIL_PIVOT, "/new", ".", 0, 0);
    plan_add(b, JAIL_DETACH, ".", NULL, 0, 0);
    plan_add(b, JAIL_CHDIR, "/", NULL, 0, 0);
    return 0;
}

/* ---- rules ---- */

/* A second layer over a private root: read everywhere, write to its own files. It also prevents
 * sandboxes in one network namespace from communicating over abstract sockets. */
static void add_own_rules(struct builder *b, const struct jail_host *host)
{
    plan_add_rule(b, "/", LANDLOCK_READ);
    /* /proc/self/exe of the running program refers to the earlier mounts. */
    if (host->image)
        show_image_rules(b);
    else
        plan_add_rule(b, "/usr", LANDLOCK_READ);
    for (size_t i = 0; i < host->prefix_count; i++)
        if (host->prefixes[i][0] == '/' && !is_system(host->prefixes[i]) && is_new(host, i))
            plan_add(b, JAIL_RULE, host->prefixes[i], NULL, LANDLOCK_READ, 0)->optional = 1;
    plan_add_rule(b, "/dev", LANDLOCK_DEVICES);
    plan_add_rule(b, "/dev/shm", LANDLOCK_OWN & ~LANDLOCK_EXECUTE);
    plan_add_rule(b, "/tmp", LANDLOCK_OWN);
}

/* Rules among the host's files. In /proc the guest sees itself and general facts about the machine.
 * Not all of /proc/self: its `net`, `mounts` and `cgroup` are the host's, and `task` contains them
 * again. */
static void add_host_rules(struct builder *b, const struct jail_host *host)
{
    static const char *const facts[] = { "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
        "/proc/uptime", "/proc/loadavg", "/proc/version", "/proc/filesystems", "/proc/self/auxv",
        "/proc/self/cmdline", "/proc/self/comm", "/proc/self/environ", "/proc/self/fd",
        "/proc/self/fdinfo", "/proc/self/io", "/proc/self/limits", "/proc/self/maps",
        "/proc/self/smaps", "/proc/self/smaps_rollup", "/proc/self/stat", "/proc/self/statm",
        "/proc/self/status" };
    show_system(b);
    show_interpreter(b, host);
    show_read_paths(b, host);
    for (size_t i = 0; i < array_length(facts); i++)
        show_show(b, facts[i]);
    /* Lists the threads, without access to their directories. */
    plan_add(b, JAIL_RULE, "/proc/self/task", NULL, LANDLOCK_READ_DIR, 0)->optional = 1;
    for (size_t i = 0; i < array_length(devices); i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/%s", devices[i]);
        plan_add_rule(b, path, LANDLOCK_READ_FILE | LANDLOCK_DEVICES);
    }
}

void show_rules(struct builder *b, const struct jail_host *host)
{
    if (b->own_root)
        add_own_rules(b, host);
    else
        add_host_rules(b, host);
}

/* ---- hidden paths ---- */

/* A path that is to be visible at, below or above `place`; NULL: none. */
static const char *find_hidden(const struct jail_host *host, const char *place)
{
    for (size_t i = 0; i < host->prefix_count; i++)
        if (text_below(host->prefixes[i], place))
            return host->prefixes[i];
    for (size_t i = 0; i < host->read_path_count; i++)
        if (text_below(host->read_paths[i], place) || text_below(place, host->read_paths[i]))
            return host->read_paths[i];
    return NULL;
}

/* A sandbox's private directories cannot be host paths, except below /tmp. */
static int check_own(const char *path, struct error *err)
{
    static const char *const own[] = { "/dev", "/proc", "/tmp" };
    for (size_t i = 0; i < array_length(own); i++) {
        bool is_tmp = strcmp(own[i], "/tmp") == 0;
        if (!path[1] || text_below(own[i], path) || (!is_tmp && text_below(path, own[i])))
            return error_set(err, ERROR_ARGUMENT,
                "--read '%.80s' is not possible: the sandbox has its own %s; name files outside "
                "of that directory",
                path, own[i]);
    }
    return 0;
}

int show_check_mount_points(const struct jail_host *host, struct error *err)
{
    const struct layout *paths = layout_of(host->layout);
    const struct {
        bool there;
        const char *what, *const *paths;
    } all[] = { { host->has_volume, "volume", paths->volume },
        { host->has_workspace, "workspace", paths->workspace } };
    for (size_t i = 0; i < host->read_path_count; i++)
        if (check_own(host->read_paths[i], err) < 0)
            return -(int)ERROR_ARGUMENT;
    for (size_t i = 0; i < 2 * array_length(all); i++) {
        const char *place = all[i / 2].paths[i % 2];
        const char *hidden = all[i / 2].there && place ? find_hidden(host, place) : NULL;
        if (hidden)
            return error_set(err, ERROR_ARGUMENT,
                "the %s is mounted at %s, but --read '%.80s' uses this path too; move that "
                "directory, or leave one of them out",
                all[i / 2].what, place, hidden);
    }
    return 0;
}
