/* jail/compile.c: turns an isolation and its limits into the operations that make the jail.
 *
 * The root directory is prepared once, in the zygote, and each sandbox gets a copy of the mount
 * table. Mounts that came along from another user namespace are locked: the guest's namespace can
 * neither lift nor alter them, whatever it becomes there. Order matters in these places:
 *
 * - the first pivot comes before the binds: the new root is staged on /tmp, and what the host has
 *   below its own /tmp (a venv, say) is visible again below /old only after it;
 * - proc goes in before the old root goes: the kernel allows a fresh proc in the sandbox only where
 *   a whole one can be seen already (mount_too_revealing, fs/namespace.c);
 * - as root, the ids are dropped last in the zygote, after the binds that need root to be found;
 * - what the zygote shows below /tmp (a venv, say) would be hidden by the sandbox's private /tmp:
 *   it waits on /dev/shm meanwhile, and is bound again before a private /dev/shm goes over that;
 * - Landlock forbids to mount, so its domain is entered after the last mount, in the worker;
 * - the zygote loads its part of the filter last, and each sandbox adds its own last of all, after
 *   no-new-privileges, without which a filter cannot be loaded, and the loss of all capabilities.
 *
 * Without namespaces (`landlock`) the guest sees the host's paths, and Landlock says which it may open.
 */
#include "jail/jail.h"

#include <linux/mount.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "jail/filter.h"
#include "jail/landlock.h"

/* <sys/mount.h> and <linux/mount.h> cannot be included together in glibc 2.36. */
#define MS_NOSUID 2
#define MS_NODEV  4
#define MS_NOEXEC 8

enum {
    BIND_SYSTEM = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
    BIND_PROC = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
    BIND_DEVICE = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
};

const struct jail_limits jail_default_limits = {
    .memory = 4ull << 30,
    .processes = 128,
    .open_files = 1024,
    .file_size = 1ull << 30,
    .tmp_size = 256ull << 20,
};

static const struct {
    const char *name;
    bool own_root;
    uint64_t spaces; /* of each sandbox */
} isolations[] = {
    [ISOLATION_AUTO] = { "auto", false, 0 },
    [ISOLATION_FULL] = { "full", true,
        CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS },
    /* The zygote's network, IPC and host name, which the filter keeps out of reach. The user namespace
     * is its own because processes are counted by it, the mounts for its /tmp and /proc. */
    [ISOLATION_LIGHT] = { "light", true, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS },
    [ISOLATION_LANDLOCK] = { "landlock", false, 0 },
    [ISOLATION_PROCESS] = { "process", false, 0 },
};

const char *isolation_name(enum isolation isolation)
{
    return isolations[isolation].name;
}

bool isolation_has_own_root(enum isolation isolation)
{
    return isolations[isolation].own_root;
}

int isolation_parse(const char *word, enum isolation *out, struct error *err)
{
    for (size_t i = 0; i < array_length(isolations); i++) {
        if (strcmp(isolations[i].name, word) != 0)
            continue;
        *out = (enum isolation)i;
        return 0;
    }
    return error_set(err, ERROR_ARGUMENT,
        "isolation '%.40s' is not one of auto, full, light, landlock, process", word);
}

/* A plan under construction. */
struct builder {
    struct buf ops, text;
    enum jail_stage stage;
    bool own_root;
};

static uint32_t add_text(struct builder *b, const char *text)
{
    if (!text)
        return 0;
    size_t at = b->text.len;
    buf_append(&b->text, text, strlen(text) + 1);
    return (uint32_t)at;
}

static uint32_t add_bytes(struct builder *b, const void *bytes, size_t len)
{
    size_t at = b->text.len;
    buf_append(&b->text, bytes, len);
    buf_putc(&b->text, '\0');
    return (uint32_t)at;
}

static struct jail_op *add(struct builder *b, enum jail_op_kind kind, const char *t0,
    const char *t1, uint64_t a, uint64_t value)
{
    struct jail_op op = {
        .kind = (uint16_t)kind,
        .stage = (uint16_t)b->stage,
        .text = { add_text(b, t0), add_text(b, t1), 0 },
        .a = a,
        .b = value,
    };
    static struct jail_op
        nowhere; /* without memory: the builder has failed and says so at the end */
    buf_append(&b->ops, &op, sizeof op);
    return b->ops.failed ? &nowhere : (struct jail_op *)(b->ops.data + b->ops.len) - 1;
}

static void add_mount(
    struct builder *b, const char *type, const char *target, const char *data, uint64_t flags)
{
    uint32_t at = add_text(b, data);
    add(b, JAIL_MOUNT, type, target, flags, 0)->text[2] = at;
}

static void builder_start(struct builder *b)
{
    *b = (struct builder){ 0 };
    buf_append(&b->text, "", 1); /* offset 0 is the empty text */
}

static int builder_finish(
    struct builder *b, uint64_t clone_flags, struct jail_plan **out, struct error *err)
{
    struct jail_plan head = { .clone_flags = clone_flags };
    cleanup_buf struct buf block = { 0 };
    head.count = (uint32_t)(b->ops.len / sizeof(struct jail_op));
    head.size = (uint32_t)(sizeof head + b->ops.len + b->text.len);
    buf_append(&block, &head, sizeof head);
    buf_append(&block, b->ops.data, b->ops.len);
    buf_append(&block, b->text.data, b->text.len);
    bool failed = b->ops.failed || b->text.failed || block.failed;
    buf_free(&b->ops);
    buf_free(&b->text);
    *out = failed ? NULL : (struct jail_plan *)(void *)buf_steal(&block);
    return *out ? 0 : error_memory(err);
}

/* ---- the root directory, once for all sandboxes of a zygote ---- */

static bool is_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_system(const char *path)
{
    static const char *const system_directories[] = { "/usr", "/bin", "/sbin", "/lib", "/lib64" };
    for (size_t i = 0; i < array_length(system_directories); i++)
        if (is_below(path, system_directories[i]))
            return true;
    return false;
}

/* Lets the guest see a path of the host, read-only, under its own name: as a mount in a root of its
 * own, else as a rule. Missing ones are passed over. */
static void show(struct builder *b, const char *path)
{
    if (!b->own_root) {
        add(b, JAIL_RULE, path, NULL, LANDLOCK_READ, 0)->optional = 1;
        return;
    }
    cleanup_buf struct buf source = { 0 }, target = { 0 };
    buf_printf(&source, "/old%s", path);
    buf_printf(&target, "/new%s", path);
    add(b, JAIL_BIND, buf_text(&source), buf_text(&target), BIND_SYSTEM, 0)->optional = 1;
}

/* /bin and its like are links into /usr on most systems, directories on some. */
static void show_system(struct builder *b)
{
    static const char *const roots[] = { "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32" };
    static const char *const files[] = { "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
        "/etc/alternatives", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/python3" };
    show(b, "/usr");
    for (size_t i = 0; i < array_length(roots); i++) {
        char to[256], path[32];
        ssize_t n = b->own_root ? readlink(roots[i], to, sizeof to - 1) : 0;
        if (n <= 0) {
            show(b, roots[i]);
            continue;
        }
        to[n] = '\0';
        snprintf(path, sizeof path, "/new%s", roots[i]);
        add(b, JAIL_SYMLINK, to, path, 0, 0);
    }
    for (size_t i = 0; i < array_length(files); i++)
        show(b, files[i]);
}

/* An interpreter outside /usr: its own directories, not all of its prefix, which may be a home. */
static void show_prefix(struct builder *b, const char *prefix)
{
    static const char *const parts[] = { "bin", "lib", "lib64", "include", "share", "pyvenv.cfg" };
    if (prefix[0] != '/' || prefix[1] == '\0' || is_system(prefix))
        return;
    for (size_t i = 0; i < array_length(parts); i++) {
        cleanup_buf struct buf path = { 0 };
        buf_printf(&path, "%s/%s", prefix, parts[i]);
        show(b, buf_text(&path));
    }
}

/* True if no prefix before this one is the same. */
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
    for (size_t i = 0; i < host->read_path_count; i++)
        show(b, host->read_paths[i]);
}

static const char *const devices[] = { "null", "zero", "full", "random", "urandom" };

static void make_devices(struct builder *b)
{
    static const char *const links[][2] = { { "/proc/self/fd", "/new/dev/fd" },
        { "/proc/self/fd/0", "/new/dev/stdin" }, { "/proc/self/fd/1", "/new/dev/stdout" },
        { "/proc/self/fd/2", "/new/dev/stderr" } };
    for (size_t i = 0; i < array_length(devices); i++) {
        char from[32], to[32];
        snprintf(from, sizeof from, "/old/dev/%s", devices[i]);
        snprintf(to, sizeof to, "/new/dev/%s", devices[i]);
        add(b, JAIL_BIND, from, to, BIND_DEVICE, 0);
    }
    for (size_t i = 0; i < array_length(links); i++)
        add(b, JAIL_SYMLINK, links[i][0], links[i][1], 0, 0);
    add(b, JAIL_DIRECTORY, "/new/dev/shm", NULL, 0755, 0);
}

/* Enough of /etc for programs that ask who they are; nothing of the host's. */
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
        add(b, JAIL_FILE, files[i][0], files[i][1], 0644, 0);
}

static void make_root(struct builder *b, const struct jail_host *host)
{
    add(b, JAIL_PRIVATE, NULL, NULL, 0, 0);
    add_mount(b, "tmpfs", "/tmp", "mode=0755,size=1m,nr_inodes=64", MS_NOSUID | MS_NODEV);
    add(b, JAIL_DIRECTORY, "/tmp/old", NULL, 0755, 0);
    add(b, JAIL_DIRECTORY, "/tmp/new", NULL, 0755, 0);
    add(b, JAIL_PIVOT, "/tmp", "old", 0, 0);
    add_mount(b, "tmpfs", "/new", "mode=0755,size=16m,nr_inodes=16k", MS_NOSUID | MS_NODEV);
    show_system(b);
    show_interpreter(b, host);
    make_devices(b);
    make_etc(b);
    add(b, JAIL_DIRECTORY, "/new/tmp", NULL, 0755, 0);
    add(b, JAIL_BIND, "/old/proc", "/new/proc", BIND_PROC, 0);
    add(b, JAIL_READ_ONLY, "/new", NULL, 0, 0);
    add(b, JAIL_PIVOT, "/new", ".", 0, 0);
    add(b, JAIL_DETACH, ".", NULL, 0, 0);
    add(b, JAIL_CHDIR, "/", NULL, 0, 0);
}

/* ---- what is the same for all sandboxes of a zygote ---- */

/* Operations of a later stage in the zygote's plan are copied into each sandbox's. */
static void copy_kind(struct builder *b, const struct jail_plan *zygote, enum jail_op_kind kind)
{
    for (uint32_t i = 0; i < zygote->count; i++) {
        const struct jail_op *op = &zygote->ops[i];
        const char *text = jail_plan_text(zygote, op, 0);
        if (op->kind != kind || op->stage == JAIL_ZYGOTE)
            continue;
        uint32_t at = kind == JAIL_FILTER ? add_bytes(b, text, op->a) : add_text(b, text);
        struct jail_op *copy = add(b, kind, NULL, NULL, op->a, op->b);
        copy->text[0] = at;
        copy->optional = op->optional;
    }
}

static void add_rule(struct builder *b, const char *path, uint64_t rights)
{
    add(b, JAIL_RULE, path, NULL, rights, 0);
}

/* Over a root of its own, a second opinion: reading everywhere, writing where it has its own files. It
 * also ends what siblings in one network namespace could say to each other over abstract sockets. */
static void add_own_rules(struct builder *b, const struct jail_host *host)
{
    add_rule(b, "/", LANDLOCK_READ);
    /* The program that runs already stands in the mounts from before: /proc/self/exe. */
    add_rule(b, "/usr", LANDLOCK_READ);
    for (size_t i = 0; i < host->prefix_count; i++)
        if (host->prefixes[i][0] == '/' && !is_system(host->prefixes[i]) && is_new(host, i))
            add(b, JAIL_RULE, host->prefixes[i], NULL, LANDLOCK_READ, 0)->optional = 1;
    add_rule(b, "/dev", LANDLOCK_DEVICES);
    add_rule(b, "/dev/shm", LANDLOCK_OWN & ~LANDLOCK_EXECUTE);
    add_rule(b, "/tmp", LANDLOCK_OWN);
}

/* Among the host's files. Of /proc the guest sees itself and what the machine is like. */
static void add_host_rules(struct builder *b, const struct jail_host *host)
{
    static const char *const facts[] = { "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
        "/proc/uptime", "/proc/loadavg", "/proc/version", "/proc/filesystems", "/proc/self" };
    show_system(b);
    show_interpreter(b, host);
    for (size_t i = 0; i < array_length(facts); i++)
        show(b, facts[i]);
    for (size_t i = 0; i < array_length(devices); i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/%s", devices[i]);
        add_rule(b, path, LANDLOCK_READ_FILE | LANDLOCK_DEVICES);
    }
}

/* What /proc tells everybody about the host: addresses of its kernel, its keys, its interrupts. What
 * only root can read needs no mask, and what is not there none either. */
static void mask_proc(struct builder *b)
{
    static const char *const files[] = { "/proc/kallsyms", "/proc/keys", "/proc/key-users",
        "/proc/interrupts", "/proc/timer_list", "/proc/sched_debug", "/proc/config.gz" };
    struct stat st;
    b->stage = JAIL_KEEPER;
    for (size_t i = 0; i < array_length(files); i++)
        if (stat(files[i], &st) == 0 && (st.st_mode & S_IROTH))
            add(b, JAIL_MASK, files[i], NULL, 0, 0);
}

static int begin_domain(
    struct builder *b, enum isolation isolation, const struct jail_host *host, struct error *err)
{
    int abi = landlock_abi();
    struct landlock_ruleset all = landlock_everything(abi);
    if (isolation == ISOLATION_LANDLOCK && abi < LANDLOCK_SCOPE_ABI)
        return error_set(err, ERROR_UNSUPPORTED,
            "isolation 'landlock' cannot be had here: it needs Landlock of ABI %d (Linux 6.12), "
            "and this kernel has %s %d; `droste doctor` says what is missing",
            LANDLOCK_SCOPE_ABI, abi ? "ABI" : "none:", abi);
    if (abi == 0)
        return 0;
    b->stage = JAIL_WORKER;
    /* An empty network says so in better words: ENETUNREACH. */
    if (b->own_root)
        all.handled_net = 0;
    add(b, JAIL_RULESET, NULL, NULL, all.handled_fs, all.handled_net | all.scoped << 32);
    if (b->own_root)
        add_own_rules(b, host);
    else
        add_host_rules(b, host);
    return 0;
}

static int add_filter(
    struct builder *b, enum filter_part part, enum jail_stage stage, struct error *err)
{
    cleanup_buf struct buf filter = { 0 };
    int rc = filter_compile(part, b->own_root, &filter, err);
    if (rc < 0)
        return rc;
    uint32_t at = add_bytes(b, filter.data, filter.len);
    b->stage = stage;
    add(b, JAIL_FILTER, NULL, NULL, filter.len, 0)->text[0] = at;
    return 0;
}

/* Root keeps its eyes for the binds and becomes nobody after; anyone else needs a user namespace to
 * mount at all. The network namespace is empty and shared by all sandboxes of this zygote: a new one
 * each would cost more than everything else together. */
static void make_namespaces(struct builder *b, const struct jail_host *host)
{
    enum { SPACES = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };
    add(b, JAIL_UNSHARE, NULL, NULL, SPACES | (host->uid == 0 ? 0u : CLONE_NEWUSER), 0);
    if (host->uid != 0)
        add(b, JAIL_MAP_SELF, NULL, NULL, 0, 0);
    make_root(b, host);
}

static int make_zygote(
    struct builder *b, enum isolation isolation, const struct jail_host *host, struct error *err)
{
    bool walled = isolation != ISOLATION_PROCESS;
    b->stage = JAIL_ZYGOTE;
    b->own_root = isolation_has_own_root(isolation);
    if (b->own_root)
        make_namespaces(b, host);
    else if (host->workdir)
        add(b, JAIL_CHDIR, host->workdir, NULL, 0, 0);
    /* In a user namespace of its own the sandbox can do this itself. */
    if (walled && !b->own_root)
        add(b, JAIL_DROP_BOUND, NULL, NULL, 0, 0);
    if (walled && host->uid == 0)
        add(b, JAIL_BECOME, NULL, NULL, JAIL_NOBODY, JAIL_NOBODY);
    /* A guest cannot use keys, the filter sees to that; but neither shall it hold the user's. */
    if (walled)
        add(b, JAIL_KEYRING, NULL, NULL, 0, 0)->optional = 1;
    add(b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    if (!walled)
        return 0;
    if (b->own_root)
        mask_proc(b);
    int rc = begin_domain(b, isolation, host, err);
    if (rc == 0)
        rc = add_filter(b, FILTER_GUEST, JAIL_WORKER, err);
    return rc < 0 ? rc : add_filter(b, FILTER_ZYGOTE, JAIL_ZYGOTE, err);
}

int jail_compile_zygote(enum isolation isolation, const struct jail_host *host,
    struct jail_plan **out, struct error *err)
{
    struct builder b;
    builder_start(&b);
    int rc = make_zygote(&b, isolation, host, err);
    if (rc == 0)
        return builder_finish(&b, 0, out, err);
    buf_free(&b.ops);
    buf_free(&b.text);
    return rc;
}

/* ---- one sandbox ---- */

/* Without a pid namespace nothing ends with the keeper: it has to kill the guest's processes, and
 * walking the tree of a fork bomb loses the race. In a domain that keeps signals in, around that of
 * the worker, one kill(2) of all reaches the guest's processes, all at once, and no others. A domain
 * forbids to move files between directories unless it says that one may. */
static void keep_signals_in(struct builder *b)
{
    add(b, JAIL_RULESET, NULL, NULL, LANDLOCK_REFER, (uint64_t)LANDLOCK_SCOPE_SIGNALS << 32);
    add_rule(b, "/", LANDLOCK_REFER);
    add(b, JAIL_CONFINE, NULL, NULL, 0, 0);
}

/* "venv/lib" if the operation shows /tmp/venv/lib; else NULL. */
static const char *shown_below_tmp(const struct jail_plan *zygote, const struct jail_op *op)
{
    static const char tmp[] = "/new/tmp/";
    const char *target = jail_plan_text(zygote, op, 1);
    bool shown = op->kind == JAIL_BIND && strncmp(target, tmp, strlen(tmp)) == 0;
    return shown ? target + strlen(tmp) : NULL;
}

/* A private /tmp, with what the zygote shows there bound again: it waits on /dev/shm meanwhile. */
static void make_tmp(struct builder *b, const struct jail_plan *zygote, const char *size)
{
    bool waits = false;
    for (uint32_t i = 0; i < zygote->count; i++)
        waits = waits || shown_below_tmp(zygote, &zygote->ops[i]);
    if (waits)
        add(b, JAIL_BIND, "/tmp", "/dev/shm", BIND_SYSTEM, 0);
    add_mount(b, "tmpfs", "/tmp", size, MS_NOSUID | MS_NODEV);
    for (uint32_t i = 0; i < zygote->count; i++) {
        const char *name = shown_below_tmp(zygote, &zygote->ops[i]);
        cleanup_buf struct buf from = { 0 }, to = { 0 };
        if (!name)
            continue;
        buf_printf(&from, "/dev/shm/%s", name);
        buf_printf(&to, "/tmp/%s", name);
        add(b, JAIL_BIND, buf_text(&from), buf_text(&to), BIND_SYSTEM, 0)->optional = 1;
    }
}

static void make_private_mounts(struct builder *b, const struct jail_plan *zygote,
    const struct jail_limits *limits, uint64_t spaces)
{
    char size[96];
    snprintf(size, sizeof size, "mode=1777,size=%llu,nr_inodes=%llu",
        (unsigned long long)limits->tmp_size,
        (unsigned long long)(limits->tmp_size / 4096 < 1024 ? 1024 : limits->tmp_size / 4096));
    add(b, JAIL_MAP_SELF, NULL, NULL, JAIL_INSIDE_UID, JAIL_INSIDE_UID);
    make_tmp(b, zygote, size);
    add_mount(b, "tmpfs", "/dev/shm", size, MS_NOSUID | MS_NODEV | MS_NOEXEC);
    add_mount(b, "proc", "/proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC);
    copy_kind(b, zygote, JAIL_MASK);
    if (spaces & CLONE_NEWUTS)
        add(b, JAIL_HOSTNAME, "droste", NULL, 0, 0);
}

static void limit_worker(struct builder *b, const struct jail_limits *limits, uint64_t processes)
{
    const struct {
        int resource;
        uint64_t value;
    } table[] = {
        { RLIMIT_DATA, limits->memory },
        { RLIMIT_NOFILE, limits->open_files },
        { RLIMIT_FSIZE, limits->file_size },
        { RLIMIT_CORE, 0 },
    };
    for (size_t i = 0; i < array_length(table); i++)
        add(b, JAIL_LIMIT, NULL, NULL, (uint64_t)table[i].resource, table[i].value);
    if (limits->cpu_time > 0)
        add(b, JAIL_LIMIT, NULL, NULL, RLIMIT_CPU, limits->cpu_time);
    if (processes > 0)
        add(b, JAIL_LIMIT, NULL, NULL, RLIMIT_NPROC, processes);
}

/* The limit counts all processes of the user in the user namespace (Linux 5.14): those of the sandbox,
 * if that has one of its own, else those that were there before as well. */
static uint64_t process_limit(
    enum isolation isolation, const struct jail_limits *limits, const struct jail_place *place)
{
    if (isolation_has_own_root(isolation))
        return limits->processes;
    return isolation == ISOLATION_LANDLOCK ? place->user_processes + limits->processes : 0;
}

static void confine(struct builder *b, const struct jail_plan *zygote, const char *workdir)
{
    size_t before = b->ops.len;
    copy_kind(b, zygote, JAIL_RULESET);
    copy_kind(b, zygote, JAIL_RULE);
    if (b->ops.len == before) {
        /* No wall of files. But the guest must not stop its keeper, which could end nothing then. */
        if (landlock_abi() >= LANDLOCK_SCOPE_ABI)
            keep_signals_in(b);
        return;
    }
    if (workdir)
        add_rule(b, workdir, LANDLOCK_OWN);
    add(b, JAIL_CONFINE, NULL, NULL, 0, 0);
}

int jail_compile_sandbox(enum isolation isolation, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_place *place, struct jail_plan **out,
    struct error *err)
{
    bool own_root = isolation_has_own_root(isolation);
    uint64_t spaces = isolations[isolation].spaces;
    struct builder b;
    builder_start(&b);
    b.stage = JAIL_KEEPER;
    if (own_root)
        make_private_mounts(&b, zygote, limits, spaces);
    add(&b, JAIL_DROP_BOUND, NULL, NULL, 0, 0);
    if (!own_root && landlock_abi() >= LANDLOCK_SCOPE_ABI)
        keep_signals_in(&b);
    b.stage = JAIL_WORKER;
    add(&b, JAIL_SESSION, NULL, NULL, 0, 0);
    add(&b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    confine(&b, zygote, own_root ? NULL : place->workdir);
    limit_worker(&b, limits, process_limit(isolation, limits, place));
    add(&b, JAIL_CHDIR, own_root ? "/tmp" : place->workdir, NULL, 0, 0);
    add(&b, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    copy_kind(&b, zygote, JAIL_FILTER);
    b.stage = JAIL_GUARD;
    add(&b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    add(&b, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    return builder_finish(&b, spaces, out, err);
}

/* ---- words ---- */

static const char *const op_names[JAIL_OP_COUNT] = {
    [JAIL_UNSHARE] = "unshare",
    [JAIL_MAP_SELF] = "map ids",
    [JAIL_BECOME] = "become",
    [JAIL_PRIVATE] = "make mounts private",
    [JAIL_MOUNT] = "mount",
    [JAIL_BIND] = "bind",
    [JAIL_READ_ONLY] = "make read-only",
    [JAIL_DIRECTORY] = "directory",
    [JAIL_FILE] = "file",
    [JAIL_SYMLINK] = "symlink",
    [JAIL_PIVOT] = "pivot root",
    [JAIL_DETACH] = "detach",
    [JAIL_CHDIR] = "change directory",
    [JAIL_HOSTNAME] = "host name",
    [JAIL_LIMIT] = "limit",
    [JAIL_SESSION] = "new session",
    [JAIL_DROP_BOUND] = "drop the bounding set",
    [JAIL_DROP_CAPS] = "drop all capabilities",
    [JAIL_NO_NEW_PRIVS] = "no new privileges",
    [JAIL_KEYRING] = "new session keyring",
    [JAIL_MASK] = "mask",
    [JAIL_RULESET] = "Landlock domain",
    [JAIL_RULE] = "allow",
    [JAIL_CONFINE] = "enter the Landlock domain",
    [JAIL_FILTER] = "filter system calls",
};

static const struct {
    uint64_t flag;
    const char *name;
} namespaces[] = {
    { CLONE_NEWUSER, "user" },
    { CLONE_NEWPID, "pid" },
    { CLONE_NEWNS, "mount" },
    { CLONE_NEWNET, "network" },
    { CLONE_NEWIPC, "ipc" },
    { CLONE_NEWUTS, "uts" },
};

static const struct {
    uint64_t resource;
    const char *name;
} limit_names[] = {
    { RLIMIT_DATA, "memory" },
    { RLIMIT_NOFILE, "open files" },
    { RLIMIT_FSIZE, "file size" },
    { RLIMIT_CORE, "core" },
    { RLIMIT_NPROC, "processes" },
    { RLIMIT_CPU, "cpu time" },
};

static void print_namespaces(struct buf *out, uint64_t flags)
{
    for (size_t i = 0; i < array_length(namespaces); i++)
        if (flags & namespaces[i].flag)
            buf_printf(out, " %s", namespaces[i].name);
}

static void print_numbers(const struct jail_op *op, struct buf *out)
{
    unsigned long long a = op->a, b = op->b;
    switch ((enum jail_op_kind)op->kind) {
    case JAIL_UNSHARE:
        print_namespaces(out, op->a);
        break;
    case JAIL_MAP_SELF:
    case JAIL_BECOME:
        buf_printf(out, " uid %llu gid %llu", a, b);
        break;
    case JAIL_LIMIT:
        for (size_t i = 0; i < array_length(limit_names); i++)
            if (limit_names[i].resource == op->a)
                buf_printf(out, " %s to %llu", limit_names[i].name, b);
        break;
    case JAIL_BIND:
        buf_puts(out, op->a & MOUNT_ATTR_RDONLY ? " read-only" : "");
        break;
    case JAIL_RULESET:
        if (op->b >> 32 == LANDLOCK_SCOPE_SIGNALS)
            buf_puts(out, " over signals");
        else
            buf_printf(out, " over files%s%s", (uint32_t)op->b ? ", TCP" : "",
                op->b >> 32 ? ", abstract sockets, signals" : "");
        break;
    case JAIL_RULE:
        buf_puts(out, op->a == LANDLOCK_REFER       ? " to be moved in"
                      : op->a & LANDLOCK_MAKE_REG   ? " as its own"
                      : op->a & LANDLOCK_WRITE_FILE ? " to be written"
                                                    : " to be read");
        break;
    case JAIL_FILTER:
        buf_printf(out, " (%llu instructions)", a / 8);
        break;
    default:
        break;
    }
}

void jail_print_op(const struct jail_plan *plan, uint32_t index, struct buf *out)
{
    if (index >= plan->count) {
        buf_puts(out, "clone");
        return;
    }
    const struct jail_op *op = &plan->ops[index];
    const char *t0 = jail_plan_text(plan, op, 0), *t1 = jail_plan_text(plan, op, 1);
    buf_puts(out, op_names[op->kind]);
    if (t0[0] && op->kind != JAIL_FILTER)
        buf_printf(out, " %s", t0);
    if (t1[0] && op->kind != JAIL_FILE)
        buf_printf(out, " on %s", t1);
    if (jail_plan_text(plan, op, 2)[0])
        buf_printf(out, " (%s)", jail_plan_text(plan, op, 2));
    print_numbers(op, out);
}

void jail_print(const struct jail_plan *plan, struct buf *out)
{
    static const char *const stages[] = { "zygote", "keeper", "worker", "guard" };
    if (plan->clone_flags) {
        buf_puts(out, "    clone with new namespaces:");
        print_namespaces(out, plan->clone_flags);
        buf_putc(out, '\n');
    }
    for (uint32_t i = 0; i < plan->count; i++) {
        buf_printf(out, "%3u %-6s ", i, stages[plan->ops[i].stage]);
        jail_print_op(plan, i, out);
        buf_puts(out, plan->ops[i].optional ? ", if it is there\n" : "\n");
    }
}
