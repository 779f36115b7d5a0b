/* jail/compile.c: compiles an isolation level and limits into a plan.
 *
 * The root directory is prepared once, in the zygote, and each sandbox gets a copy of the mount
 * table. Mounts inherited from another user namespace are locked: the guest's namespace can neither
 * remove nor change them, whatever privileges it gains there. Order matters in these places:
 *
 * - The first pivot comes before the binds: the new root is staged on /tmp, and host paths below
 *   /tmp (a venv, say) become visible again below /old only after it.
 * - proc is mounted before the old root is detached: the kernel allows a new proc in the sandbox
 *   only where a complete one is visible already (mount_too_revealing, fs/namespace.c).
 * - As root, the zygote drops its ids last, after the binds, which need root to reach their
 *   sources.
 * - A volume is bound from /dev/shm, where all volumes are mounted, before anything is mounted over
 *   it.
 * - Paths that the zygote shows below /tmp (a venv, say) would be hidden by the sandbox's private
 *   /tmp: they are bound to /dev/shm in between, and back before a private /dev/shm is mounted.
 * - Landlock forbids mounting, so its domain is entered after the last mount, in the worker.
 * - The zygote loads its part of the filter last. Each sandbox loads its own part at the very end,
 *   after no-new-privileges, which loading a filter requires, and after dropping all capabilities.
 *
 * Without namespaces (`landlock`) the guest sees the host's paths, and Landlock decides which of
 * them it may open.
 */
#include "jail/jail.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/suggest.h"
#include "jail/builder.h"
#include "jail/filter.h"
#include "jail/landlock.h"
#include "jail/private_root.h"
#include "jail/show.h"

/* The kernel limits these per user, over all sandboxes and processes outside; timers count as
 * pending signals. */
enum { LOCKED_MEMORY = 8 << 20, SIGNALS_PENDING = 1024 };

const struct jail_limits jail_default_limits = {
    .memory = 4ull << 30,
    .processes = 128,
    .open_files = 512, /* see SECURITY.md: the kernel counts descriptors in transit per user */
    .file_size = 1ull << 30,
    .tmp_size = 256ull << 20,
};

static const struct {
    const char *name;
    bool own_root;
    uint64_t spaces; /* namespaces of each sandbox */
} isolations[] = {
    [ISOLATION_AUTO] = { "auto", false, 0 },
    [ISOLATION_FULL] = { "full", true,
        CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS },
    /* Shares the zygote's network, IPC and UTS namespaces, which the filter puts out of reach. Each
     * sandbox needs its own user namespace, which counts processes, and mount namespace for /tmp
     * and /proc. */
    [ISOLATION_LIGHT] = { "light", true, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS },
    [ISOLATION_LANDLOCK] = { "landlock", false, 0 },
    [ISOLATION_PROCESS] = { "process", false, 0 },
    [ISOLATION_CONTAINER] = { "container", true, 0 },
    [ISOLATION_REMOTE] = { "remote", true, 0 },
    [ISOLATION_CUSTOM] = { "custom", true, 0 },
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
    for (size_t i = 0; i < ISOLATION_CONTAINER; i++) {
        if (strcmp(isolations[i].name, word) != 0)
            continue;
        *out = (enum isolation)i;
        return 0;
    }
    return suggest_refuse(
        "isolation", word, &isolations[0].name, sizeof isolations[0], ISOLATION_CONTAINER, err);
}

/* ---- operations common to all sandboxes of a zygote ---- */

/* Operations of a later stage in the zygote's plan are copied into each sandbox's. */
static void copy_kind(struct builder *b, const struct jail_plan *zygote, enum jail_op_kind kind)
{
    for (uint32_t i = 0; i < zygote->count; i++) {
        const struct jail_op *op = &zygote->ops[i];
        const char *text = jail_plan_text(zygote, op, 0);
        if (op->kind != kind || op->stage == JAIL_ZYGOTE)
            continue;
        uint32_t at = kind == JAIL_FILTER ? plan_add_bytes(b, text, op->a) : plan_add_text(b, text);
        struct jail_op *copy = plan_add(b, kind, NULL, NULL, op->a, op->b);
        copy->text[0] = at;
        copy->optional = op->optional;
    }
}

/* Hides what /proc shows to every user about the host: kernel addresses, keys, interrupts, the
 * kernel's command line, which may contain a secret, and locks, with the inodes of files that the
 * guest cannot see. Files that only root can read need no mask. Missing files are skipped. */
static void mask_proc(struct builder *b)
{
    static const char *const files[] = { "/proc/kallsyms", "/proc/keys", "/proc/key-users",
        "/proc/interrupts", "/proc/timer_list", "/proc/sched_debug", "/proc/config.gz",
        "/proc/cmdline", "/proc/locks" };
    struct stat st;
    b->stage = JAIL_KEEPER;
    for (size_t i = 0; i < array_length(files); i++)
        if (stat(files[i], &st) == 0 && (st.st_mode & S_IROTH))
            plan_add(b, JAIL_MASK, files[i], NULL, 0, 0);
}

static int compile_begin_domain(
    struct builder *b, enum isolation isolation, const struct jail_host *host, struct error *err)
{
    int abi = landlock_abi();
    struct landlock_ruleset all = landlock_everything(abi);
    if (isolation == ISOLATION_LANDLOCK && abi < LANDLOCK_SCOPE_ABI)
        return error_set(err, ERROR_UNSUPPORTED,
            "it needs Landlock with ABI %d (Linux 6.12), but this kernel has %s %d",
            LANDLOCK_SCOPE_ABI, abi ? "ABI" : "none:", abi);
    if (abi == 0)
        return 0;
    b->stage = JAIL_WORKER;
    /* Not needed in an empty network namespace, where ENETUNREACH is the better error. */
    if (b->own_root)
        all.handled_net = 0;
    plan_add(b, JAIL_RULESET, NULL, NULL, all.handled_fs, all.handled_net | all.scoped << 32);
    show_rules(b, host);
    return 0;
}

int jail_compile_filters(
    enum isolation isolation, unsigned more, struct buf out[JAIL_FILTERS], struct error *err)
{
    bool own_root = isolation_has_own_root(isolation);
    if (isolation == ISOLATION_PROCESS)
        return 0;
    int rc = filter_compile(FILTER_ZYGOTE, own_root, more, &out[FILTER_ZYGOTE], err);
    return rc < 0 ? rc : filter_compile(FILTER_GUEST, own_root, 0, &out[FILTER_GUEST], err);
}

static void add_filter(struct builder *b, const struct buf *filter, enum jail_stage stage)
{
    uint32_t at = plan_add_bytes(b, filter->data, filter->len);
    b->stage = stage;
    plan_add(b, JAIL_FILTER, NULL, NULL, filter->len, 0)->text[0] = at;
}

/* The worker's comes first: the zygote's is the last operation of its plan. */
static void add_filters(struct builder *b, const struct buf filters[JAIL_FILTERS])
{
    add_filter(b, &filters[FILTER_GUEST], JAIL_WORKER);
    add_filter(b, &filters[FILTER_ZYGOTE], JAIL_ZYGOTE);
}

static int compile_and_add_filters(struct builder *b, enum isolation isolation, struct error *err)
{
    struct buf filters[JAIL_FILTERS] = { { 0 } };
    int rc = jail_compile_filters(isolation, 0, filters, err);
    if (rc == 0)
        add_filters(b, filters);
    for (size_t i = 0; i < JAIL_FILTERS; i++)
        buf_free(&filters[i]);
    return rc;
}

/* Root keeps its privileges for the binds and becomes nobody afterwards; other users need a user
 * namespace to mount at all. The network namespace is empty and shared by all sandboxes of this
 * zygote, because one for each would cost more than everything else together; those that are to
 * have a loopback network get one each (make_private_mounts). */
static void make_namespaces(struct builder *b, const struct jail_host *host)
{
    enum { SPACES = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };
    plan_add(b, JAIL_UNSHARE, NULL, NULL, SPACES | (host->uid == 0 ? 0u : CLONE_NEWUSER), 0);
    if (host->uid != 0)
        plan_add(b, JAIL_MAP_SELF, NULL, NULL, 0, 0);
}

/* The interpreter of an image is not trusted: what prepares the root directory is a process of the
 * host's, which then gives up its privileges and executes it. It is the first of a pid namespace,
 * so that it sees and signals its own sandboxes only, and has the guest's uid, because a namespace
 * of its own could not map uid 0 of this one (user_namespaces(7)). */
static void make_image_namespaces(struct builder *b, const struct jail_host *host)
{
    enum { SPACES = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID };
    b->stage = JAIL_OUTSIDE;
    if (host->uid != 0) {
        plan_add(b, JAIL_UNSHARE, NULL, NULL, CLONE_NEWUSER, 0);
        plan_add(b, JAIL_MAP_SELF, NULL, NULL, JAIL_INSIDE_UID, JAIL_INSIDE_UID);
    }
    plan_add(b, JAIL_UNSHARE, NULL, NULL, SPACES, 0);
    b->stage = JAIL_ZYGOTE;
}

/* True if the level can do what is asked. */
static int check_own_root(enum isolation isolation, const struct jail_host *host, struct error *err)
{
    if (isolation_has_own_root(isolation))
        return 0;
    if (host->image)
        return error_set(err, ERROR_UNSUPPORTED,
            "an image (--image, --rootfs) needs a mount namespace, so isolation full or light");
    if (host->private_root)
        return error_set(err, ERROR_UNSUPPORTED,
            "a private root (--root private) needs a mount namespace, so isolation full or light");
    if (host->devices)
        return error_set(err, ERROR_UNSUPPORTED,
            "a device (--device) needs a mount namespace, so isolation full or light");
    if (host->loopback)
        return error_set(err, ERROR_UNSUPPORTED,
            "a loopback network (--loopback yes, --allow-net) needs a network namespace, so isolation "
            "full or light");
    return 0;
}

static int make_zygote(
    struct builder *b, enum isolation isolation, const struct jail_host *host, struct error *err)
{
    bool confined = isolation != ISOLATION_PROCESS;
    b->stage = JAIL_ZYGOTE;
    b->own_root = isolation_has_own_root(isolation);
    int rc = check_own_root(isolation, host, err);
    if (rc == 0 && b->own_root)
        rc = show_check_mount_points(host, err);
    if (rc < 0)
        return rc;
    if (host->image)
        make_image_namespaces(b, host);
    else if (b->own_root)
        make_namespaces(b, host);
    if (b->own_root)
        rc = show_root(b, host, err);
    if (rc < 0)
        return rc;
    else if (host->workdir)
        plan_add(b, JAIL_CHDIR, host->workdir, NULL, 0, 0);
    /* A guest at real-time priority could monopolise a processor, and its zygote and keeper could
     * not end it. */
    plan_add(b, JAIL_SCHEDULE, NULL, NULL, 0, 0);
    /* With its own user namespace, the sandbox does this itself. */
    if (confined && (!b->own_root || host->image))
        plan_add(b, JAIL_DROP_BOUND, NULL, NULL, 0, 0);
    if (confined && host->uid == 0)
        plan_add(b, host->lends_users ? JAIL_BECOME_LENDER : JAIL_BECOME, NULL, NULL, JAIL_NOBODY,
            JAIL_NOBODY);
    /* The filter denies keyring calls to guests; this also detaches the user's session keyring. */
    if (confined)
        plan_add(b, JAIL_KEYRING, NULL, NULL, 0, 0)->optional = 1;
    plan_add(b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    if (host->image)
        plan_add(b, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    if (!confined)
        return 0;
    if (b->own_root)
        mask_proc(b);
    rc = compile_begin_domain(b, isolation, host, err);
    if (rc < 0 || !host->filters)
        return rc < 0 ? rc : compile_and_add_filters(b, isolation, err);
    add_filters(b, host->filters);
    return 0;
}

int jail_compile_zygote(enum isolation isolation, const struct jail_host *host,
    struct jail_plan **out, struct error *err)
{
    struct builder b;
    plan_begin(&b);
    int rc = make_zygote(&b, isolation, host, err);
    if (rc == 0)
        return plan_finish(&b,
            &(struct jail_plan){ .private_root = host->private_root,
                .loopback = host->loopback,
                .devices = host->devices != NULL },
            out, err);
    buf_free(&b.ops);
    buf_free(&b.text);
    return rc;
}

/* ---- one sandbox ---- */

/* Without a pid namespace nothing ends with the keeper: it must kill the guest's processes, and
 * walking the tree of a fork bomb loses the race. An outer Landlock domain around the worker's
 * blocks signals to processes outside, so one kill(2) of all processes reaches exactly the guest's,
 * at once. A domain denies moving files between directories unless it grants that. */
static void keep_signals_in(struct builder *b)
{
    plan_add(b, JAIL_RULESET, NULL, NULL, LANDLOCK_REFER, (uint64_t)LANDLOCK_SCOPE_SIGNALS << 32);
    plan_add_rule(b, "/", LANDLOCK_REFER);
    plan_add(b, JAIL_CONFINE, NULL, NULL, 0, 0);
}

/* "venv/lib" if the operation shows /tmp/venv/lib; else NULL. */
static const char *shown_below_tmp(const struct jail_plan *zygote, const struct jail_op *op)
{
    static const char tmp[] = "/new/tmp/";
    const char *target = jail_plan_text(zygote, op, 1);
    bool shown = op->kind == JAIL_BIND && strncmp(target, tmp, strlen(tmp)) == 0;
    return shown ? target + strlen(tmp) : NULL;
}

/* Mounts a private /tmp, and binds what the zygote shows there again, by way of /dev/shm. */
static void make_tmp(struct builder *b, const struct jail_plan *zygote, const char *size)
{
    bool waits = false;
    for (uint32_t i = 0; i < zygote->count; i++)
        waits = waits || shown_below_tmp(zygote, &zygote->ops[i]);
    if (waits)
        plan_add(b, JAIL_BIND, "/tmp", "/dev/shm", BIND_SYSTEM, 0);
    plan_add_mount(b, "tmpfs", "/tmp", size, MS_NOSUID | MS_NODEV);
    for (uint32_t i = 0; i < zygote->count; i++) {
        const char *name = shown_below_tmp(zygote, &zygote->ops[i]);
        cleanup_buf struct buf from = { 0 }, to = { 0 };
        if (!name)
            continue;
        buf_printf(&from, "/dev/shm/%s", name);
        buf_printf(&to, "/tmp/%s", name);
        plan_add(b, JAIL_BIND, buf_text(&from), buf_text(&to), BIND_SYSTEM, 0)->optional = 1;
    }
}

/* Must precede any mount over the volumes' staging directory. If the volume is an id-mapped mount,
 * its second name is bound from the first. */
static void mount_volume(struct builder *b, const struct jail_volume *volume, uint64_t which,
    const char *const targets[2])
{
    if (volume->path && volume->mapped) {
        plan_add(b, JAIL_ATTACH, NULL, targets[0], which, 0);
        if (targets[1])
            plan_add(b, JAIL_BIND, targets[0], targets[1], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0);
        return;
    }
    for (size_t i = 0; volume->path && i < 2 && targets[i]; i++) {
        uint32_t target = plan_add_text(b, targets[i]);
        plan_add(b, JAIL_VOLUME, "/dev/shm", volume->path, volume->device, volume->inode)->text[2] =
            target;
    }
}

static void make_private_mounts(struct builder *b, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, uint64_t spaces)
{
    char size[96];
    private_root_size(size, sizeof size, 01777, limits->tmp_size);
    plan_add(b, JAIL_MAP_SELF, NULL, NULL, JAIL_INSIDE_UID, JAIL_INSIDE_UID);
    if (spaces & CLONE_NEWNET)
        plan_add(b, JAIL_LOOPBACK, NULL, NULL, 0, 0);
    if (spaces & CLONE_NEWNET && place->proxy_port)
        plan_add(b, JAIL_LISTEN, NULL, NULL, place->proxy_port, 0);
    mount_volume(b, &place->volume, 0, layout_of(place->layout)->volume);
    mount_volume(b, &place->workspace, 1, layout_of(place->layout)->workspace);
    if (zygote->private_root) {
        private_root_make(b, zygote, place, limits->tmp_size);
    } else {
        make_tmp(b, zygote, size);
        plan_add_mount(b, "tmpfs", "/dev/shm", size, MS_NOSUID | MS_NODEV | MS_NOEXEC);
        plan_add_mount(b, "proc", "/proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC);
    }
    copy_kind(b, zygote, JAIL_MASK);
    if (spaces & CLONE_NEWUTS)
        plan_add(b, JAIL_HOSTNAME, "droste", NULL, 0, 0);
}

/* A device reads and writes memory that is locked: as much of it as the sandbox may have. */
static void limit_worker(struct builder *b, const struct jail_plan *zygote,
    const struct jail_limits *limits, uint64_t processes)
{
    uint64_t locked = limits->memory ? limits->memory : RLIM_INFINITY;
    const struct {
        int resource;
        uint64_t value;
    } table[] = {
        { RLIMIT_DATA, limits->memory },
        { RLIMIT_NOFILE, limits->open_files },
        { RLIMIT_FSIZE, limits->file_size },
        { RLIMIT_CORE, 1 }, /* with 0 the kernel still runs a program that it pipes core dumps to */
        { RLIMIT_MEMLOCK, zygote->devices ? locked : LOCKED_MEMORY },
        { RLIMIT_SIGPENDING, SIGNALS_PENDING },
    };
    for (size_t i = 0; i < array_length(table); i++)
        plan_add(b, JAIL_LIMIT, NULL, NULL, (uint64_t)table[i].resource, table[i].value);
    if (limits->cpu_time > 0)
        plan_add(b, JAIL_LIMIT, NULL, NULL, RLIMIT_CPU, limits->cpu_time);
    if (processes > 0)
        plan_add(b, JAIL_LIMIT, NULL, NULL, RLIMIT_NPROC, processes);
}

/* The limit counts all processes of the user in the user namespace (Linux 5.14): those of the
 * sandbox if it has its own, otherwise also those that existed before. */
static uint64_t process_limit(
    enum isolation isolation, const struct jail_limits *limits, const struct jail_mount *place)
{
    if (isolation_has_own_root(isolation))
        return limits->processes;
    return isolation == ISOLATION_LANDLOCK ? place->user_processes + limits->processes : 0;
}

/* The guest has full access to its own volume. */
static void allow_volume(
    struct builder *b, bool own_root, const struct jail_volume *volume, const char *at)
{
    if (volume->path)
        plan_add(b, JAIL_RULE, own_root ? at : volume->path, NULL, LANDLOCK_OWN, volume->inode);
}

static void compile_confine(struct builder *b, bool own_root, const struct jail_plan *zygote,
    const struct jail_mount *place)
{
    size_t before = b->ops.len;
    copy_kind(b, zygote, JAIL_RULESET);
    copy_kind(b, zygote, JAIL_RULE);
    if (b->ops.len == before) {
        /* No file rules, but the guest must not be able to stop its keeper, which then could not
         * end anything. */
        if (landlock_abi() >= LANDLOCK_SCOPE_ABI)
            keep_signals_in(b);
        return;
    }
    if (!own_root)
        plan_add_rule(b, place->workdir, LANDLOCK_OWN);
    if (zygote->private_root)
        plan_add_rule(b, "/", LANDLOCK_OWN);
    allow_volume(b, own_root, &place->volume, layout_of(place->layout)->volume[0]);
    allow_volume(b, own_root, &place->workspace, layout_of(place->layout)->workspace[0]);
    plan_add(b, JAIL_CONFINE, NULL, NULL, 0, 0);
}

/* Terminals are mounted for the first process beside a sandbox, not at each start: only commands
 * need them, and the mount takes 25 µs. The kernel counts them for all users (kernel.pty.max, 4096,
 * of which 1024 are reserved for the host's own), hence `max`. */
static void join_sandbox(struct builder *b, uint64_t spaces)
{
    plan_add(b, JAIL_JOIN, NULL, NULL, spaces, 0);
    uint32_t options = plan_add_text(b, "newinstance,mode=0600,ptmxmode=0666,max=64");
    plan_add(b, JAIL_TERMINALS, "/dev/pts", NULL, 0, 0)->text[2] = options;
}

/* `beside`: in the namespaces of a sandbox that exists. The guest has the same uid there: what is
 * beside it hides before it gives up its capabilities, because its filter comes later. */
static int compile_in(enum isolation isolation, bool beside, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, struct jail_plan **out,
    struct error *err)
{
    bool own_root = isolation_has_own_root(isolation);
    uint64_t spaces = isolations[isolation].spaces | (zygote->loopback ? CLONE_NEWNET : 0u);
    struct builder b;
    plan_begin(&b);
    b.stage = JAIL_KEEPER;
    if (own_root && beside)
        join_sandbox(&b, spaces);
    else if (own_root)
        make_private_mounts(&b, zygote, limits, place, spaces);
    plan_add(&b, JAIL_DROP_BOUND, NULL, NULL, 0, 0);
    if (!own_root && landlock_abi() >= LANDLOCK_SCOPE_ABI)
        keep_signals_in(&b);
    b.stage = JAIL_WORKER;
    if (beside)
        plan_add(&b, JAIL_HIDE, NULL, NULL, 0, 0);
    plan_add(&b, place->shares_session ? JAIL_GROUP : JAIL_SESSION, NULL, NULL, 0, 0);
    plan_add(&b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    compile_confine(&b, own_root, zygote, place);
    limit_worker(&b, zygote, limits, process_limit(isolation, limits, place));
    plan_add(&b, JAIL_CHDIR,
        zygote->private_root ? PRIVATE_ROOT_HOME
        : own_root           ? "/tmp"
                             : place->workdir,
        NULL, 0, 0);
    plan_add(&b, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    copy_kind(&b, zygote, JAIL_FILTER);
    b.stage = JAIL_GUARD;
    plan_add(&b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    plan_add(&b, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    const struct jail_plan head = {
        .clone_flags = beside ? 0 : spaces, .user = place->user, .group = place->user
    };
    return plan_finish(&b, &head, out, err);
}

int jail_compile_sandbox(enum isolation isolation, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, struct jail_plan **out,
    struct error *err)
{
    return compile_in(isolation, false, zygote, limits, place, out, err);
}

int jail_compile_companion(enum isolation isolation, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, struct jail_plan **out,
    struct error *err)
{
    return compile_in(isolation, true, zygote, limits, place, out, err);
}
