/* jail/private_root.c: a writable root directory for one sandbox, instead of the zygote's.
 *
 * It is a tmpfs into which the zygote's root is bound, read-only as it is, so it has the same
 * system directories, and everything else can be created, changed and removed. An overlay would let
 * a guest change those too, but each file that it changes would be copied whole into memory, and
 * overlayfs in user namespaces has been a way into the kernel (CVE-2023-0386, CVE-2023-2640).
 *
 * The root is built on /dev/shm: volumes were bound from there before, and /tmp has paths that the
 * zygote shows. The new proc is mounted while the zygote's is visible (compile.c). /proc is
 * read-only, because the Landlock rule for the whole root would allow more there than the zygote's.
 */
#include "jail/private_root.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

#define NEW       "/dev/shm"
#define MS_RDONLY 1

/* One id has both names: a sandbox has no other. */
static const char *const files[][2] = {
    { NEW "/etc/passwd", "user:x:1000:1000:user:/home/user:/bin/bash\n"
                         "root:x:1000:1000:root:/root:/bin/bash\n"
                         "nobody:x:65534:65534:nobody:/:/sbin/nologin\n" },
    { NEW "/etc/group", "user:x:1000:\nroot:x:1000:\nnogroup:x:65534:\n" },
    { NEW "/etc/hosts", "127.0.0.1 localhost\n" },
    { NEW "/etc/hostname", "droste\n" },
    { NEW "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n" },
};

/* There are no privileges to gain: a program that calls sudo gets what it expects of it otherwise,
 * root's environment and nothing of the caller's. */
static const char sudo_text[] =
    "#!/bin/sh\n"
    "while [ $# -gt 0 ]; do\n"
    "    case $1 in\n"
    "    -u | -g | --user | --group) shift 2 ;;\n"
    "    --) shift; break ;;\n"
    "    -*) shift ;;\n"
    "    *) break ;;\n"
    "    esac\n"
    "done\n"
    "exec env -i HOME=/root USER=root LOGNAME=root SHELL=/bin/bash PATH=\"$PATH\" \\\n"
    "    TERM=\"$TERM\" LANG=\"$LANG\" LC_ALL=\"$LC_ALL\" \"$@\"\n";

const char *const private_root_variables[] = { "PATH=" PRIVATE_ROOT_TOOLS
                                               ":/usr/local/sbin:/usr/local/bin:"
                                               "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=" PRIVATE_ROOT_HOME, "USER=user", "LOGNAME=user", "SHELL=/bin/bash", NULL };

static bool private_root_has_own(const char *path)
{
    static const char *const own[] = { "/dev", "/proc" };
    for (size_t i = 0; i < array_length(own); i++) {
        size_t n = strlen(own[i]);
        if (strncmp(path, own[i], n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return true;
    }
    return false;
}

/* What the zygote has bound or linked below /new is bound or linked again. */
static void private_root_copy(struct builder *b, const struct jail_plan *zygote)
{
    static const char below[] = "/new";
    for (uint32_t i = 0; i < zygote->count; i++) {
        const struct jail_op *op = &zygote->ops[i];
        const char *text = jail_plan_text(zygote, op, 0), *path = jail_plan_text(zygote, op, 1);
        cleanup_buf struct buf to = { 0 };
        bool shown = strncmp(path, below, strlen(below)) == 0;
        if (op->stage != JAIL_ZYGOTE || !shown || private_root_has_own(path + strlen(below)))
            continue;
        path += strlen(below);
        buf_printf(&to, NEW "%s", path);
        if (op->kind == JAIL_BIND || (op->kind == JAIL_GRAFT && !op->b))
            plan_add(b, JAIL_BIND, path, buf_text(&to), BIND_SYSTEM, 0)->optional = op->optional;
        else if (op->kind == JAIL_SYMLINK)
            plan_add(b, JAIL_SYMLINK, text, buf_text(&to), 0, 0);
    }
}

/* `python` and `python3` are the session's interpreter. A link to one outside /usr would lose its
 * virtual environment, so a script starts that. */
static void private_root_add_tools(struct builder *b, const char *python)
{
    static const char *const names[] = { NEW PRIVATE_ROOT_TOOLS "/python",
        NEW PRIVATE_ROOT_TOOLS "/python3" };
    plan_add(b, JAIL_FILE, NEW PRIVATE_ROOT_TOOLS "/sudo", sudo_text, 0755, 0);
    for (size_t i = 0; python && i < array_length(names); i++) {
        cleanup_buf struct buf script = { 0 };
        buf_printf(&script, "#!/bin/sh\nexec '%s' \"$@\"\n", python);
        if (strncmp(python, "/usr/", 5) == 0)
            plan_add(b, JAIL_SYMLINK, python, names[i], 0, 0);
        else
            plan_add(b, JAIL_FILE, names[i], buf_text(&script), 0755, 0);
    }
}

static void private_root_bind(
    struct builder *b, const struct jail_volume *volume, const char *const targets[2])
{
    for (size_t i = 0; volume->path && i < 2 && targets[i]; i++) {
        cleanup_buf struct buf to = { 0 };
        buf_printf(&to, NEW "%s", targets[i]);
        plan_add(b, JAIL_BIND, targets[i], buf_text(&to), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0);
    }
}

void private_root_make(struct builder *b, const struct jail_plan *zygote,
    const struct jail_mount *place, uint64_t size)
{
    static const struct {
        const char *path;
        unsigned mode;
    } directories[] = { { NEW "/tmp", 01777 }, { NEW "/var/tmp", 01777 }, { NEW "/run", 0755 },
        { NEW PRIVATE_ROOT_HOME, 0755 }, { NEW "/root", 0755 }, { NEW "/proc", 0555 } };
    char options[96];
    private_root_size(options, sizeof options, 0755, size);
    plan_add_mount(b, "tmpfs", NEW, options, MS_NOSUID | MS_NODEV);
    /* first, while /dev/shm, which is bound along and then covered, is empty */
    plan_add(b, JAIL_BIND, "/dev", NEW "/dev",
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0);
    private_root_size(options, sizeof options, 01777, size);
    plan_add_mount(b, "tmpfs", NEW "/dev/shm", options, MS_NOSUID | MS_NODEV | MS_NOEXEC);
    for (size_t i = 0; i < array_length(directories); i++)
        plan_add(b, JAIL_DIRECTORY, directories[i].path, NULL, directories[i].mode, 0);
    for (size_t i = 0; i < array_length(files); i++)
        plan_add(b, JAIL_FILE, files[i][0], files[i][1], 0644, 0);
    private_root_copy(b, zygote);
    private_root_add_tools(b, place->python);
    private_root_bind(b, &place->volume, layout_of(place->layout)->volume);
    private_root_bind(b, &place->workspace, layout_of(place->layout)->workspace);
    plan_add_mount(b, "proc", NEW "/proc", NULL, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
    plan_add(b, JAIL_PIVOT, NEW, ".", 0, 0);
    plan_add(b, JAIL_DETACH, ".", NULL, 0, 0);
    plan_add(b, JAIL_CHDIR, "/", NULL, 0, 0);
}

void private_root_size(char *out, size_t size, unsigned mode, uint64_t bytes)
{
    unsigned long long files_most = bytes / 4096 < 1024 ? 1024 : bytes / 4096;
    snprintf(
        out, size, "mode=%o,size=%llu,nr_inodes=%llu", mode, (unsigned long long)bytes, files_most);
}
