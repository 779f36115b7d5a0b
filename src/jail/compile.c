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
 * - a volume is bound from /dev/shm, where all of them wait, before anything is mounted over that;
 * - what the zygote shows below /tmp (a venv, say) would be hidden by the sandbox's private /tmp:
 *   it waits on /dev/shm meanwhile, and is bound again before a private /dev/shm goes over that;
 * - Landlock forbids to mount, so its domain is entered after the last mount, in the worker;
 * - the zygote loads its part of the filter last, and each sandbox adds its own last of all, after
 *   no-new-privileges, without which a filter cannot be loaded, and the loss of all capabilities.
 *
 * Without namespaces (`landlock`) the guest sees the host's paths, and Landlock says which it may open.
 */
#include "jail/jail.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "jail/builder.h"
#include "jail/filter.h"
#include "jail/landlock.h"
#include "jail/show.h"

/* Of these the kernel lets a user have so much in all sandboxes and outside of them; timers are among
 * the signals. */
enum { LOCKED_MEMORY = 8 << 20, SIGNALS_PENDING = 1024 };

const struct jail_limits jail_default_limits = {
    .memory = 4ull << 30,
    .processes = 128,
    .open_files = 512, /* see SECURITY.md: the kernel counts those that are on their way by user */
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
    return error_set(err, ERROR_ARGUMENT,
        "isolation '%.40s' is not one of auto, full, light, landlock, process", word);
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
        uint32_t at = kind == JAIL_FILTER ? plan_add_bytes(b, text, op->a) : plan_add_text(b, text);
        struct jail_op *copy = plan_add(b, kind, NULL, NULL, op->a, op->b);
        copy->text[0] = at;
        copy->optional = op->optional;
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
            plan_add(b, JAIL_MASK, files[i], NULL, 0, 0);
}

static int compile_begin_domain(
    struct builder *b, enum isolation isolation, const struct jail_host *host, struct error *err)
{
    int abi = landlock_abi();
    struct landlock_ruleset all = landlock_everything(abi);
    if (isolation == ISOLATION_LANDLOCK && abi < LANDLOCK_SCOPE_ABI)
        return error_set(err, ERROR_UNSUPPORTED,
            "it needs Landlock of ABI %d (Linux 6.12), and this kernel has %s %d",
            LANDLOCK_SCOPE_ABI, abi ? "ABI" : "none:", abi);
    if (abi == 0)
        return 0;
    b->stage = JAIL_WORKER;
    /* An empty network says so in better words: ENETUNREACH. */
    if (b->own_root)
        all.handled_net = 0;
    plan_add(b, JAIL_RULESET, NULL, NULL, all.handled_fs, all.handled_net | all.scoped << 32);
    show_rules(b, host);
    return 0;
}

static int add_filter(
    struct builder *b, enum filter_part part, enum jail_stage stage, struct error *err)
{
    cleanup_buf struct buf filter = { 0 };
    int rc = filter_compile(part, b->own_root, &filter, err);
    if (rc < 0)
        return rc;
    uint32_t at = plan_add_bytes(b, filter.data, filter.len);
    b->stage = stage;
    plan_add(b, JAIL_FILTER, NULL, NULL, filter.len, 0)->text[0] = at;
    return 0;
}

/* Root keeps its eyes for the binds and becomes nobody after; anyone else needs a user namespace to
 * mount at all. The network namespace is empty and shared by all sandboxes of this zygote: a new one
 * each would cost more than everything else together. */
static void make_namespaces(struct builder *b, const struct jail_host *host)
{
    enum { SPACES = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };
    plan_add(b, JAIL_UNSHARE, NULL, NULL, SPACES | (host->uid == 0 ? 0u : CLONE_NEWUSER), 0);
    if (host->uid != 0)
        plan_add(b, JAIL_MAP_SELF, NULL, NULL, 0, 0);
    show_root(b, host);
}

static int make_zygote(
    struct builder *b, enum isolation isolation, const struct jail_host *host, struct error *err)
{
    bool walled = isolation != ISOLATION_PROCESS;
    b->stage = JAIL_ZYGOTE;
    b->own_root = isolation_has_own_root(isolation);
    int rc = b->own_root ? show_check_places(host, err) : 0;
    if (rc < 0)
        return rc;
    if (b->own_root)
        make_namespaces(b, host);
    else if (host->workdir)
        plan_add(b, JAIL_CHDIR, host->workdir, NULL, 0, 0);
    /* A guest at real-time priority could keep a processor for itself, whose zygote and keeper then could
     * not end it. */
    plan_add(b, JAIL_SCHEDULE, NULL, NULL, 0, 0);
    /* In a user namespace of its own the sandbox can do this itself. */
    if (walled && !b->own_root)
        plan_add(b, JAIL_DROP_BOUND, NULL, NULL, 0, 0);
    if (walled && host->uid == 0)
        plan_add(b, host->lends_users ? JAIL_BECOME_LENDER : JAIL_BECOME, NULL, NULL, JAIL_NOBODY,
            JAIL_NOBODY);
    /* A guest cannot use keys, the filter sees to that; but neither shall it hold the user's. */
    if (walled)
        plan_add(b, JAIL_KEYRING, NULL, NULL, 0, 0)->optional = 1;
    plan_add(b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    if (!walled)
        return 0;
    if (b->own_root)
        mask_proc(b);
    rc = compile_begin_domain(b, isolation, host, err);
    if (rc == 0)
        rc = add_filter(b, FILTER_GUEST, JAIL_WORKER, err);
    return rc < 0 ? rc : add_filter(b, FILTER_ZYGOTE, JAIL_ZYGOTE, err);
}

int jail_compile_zygote(enum isolation isolation, const struct jail_host *host,
    struct jail_plan **out, struct error *err)
{
    struct builder b;
    plan_begin(&b);
    int rc = make_zygote(&b, isolation, host, err);
    if (rc == 0)
        return plan_finish(&b, &(struct jail_plan){ 0 }, out, err);
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

/* A private /tmp, with what the zygote shows there bound again: it waits on /dev/shm meanwhile. */
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

/* Before anything else is mounted over the place where it waits. Where it came as a mount, its
 * second name is one more of that. */
static void mount_volume(struct builder *b, const struct jail_volume *volume, uint64_t which,
    const char *const places[2])
{
    if (volume->path && volume->mapped) {
        plan_add(b, JAIL_ATTACH, NULL, places[0], which, 0);
        if (places[1])
            plan_add(b, JAIL_BIND, places[0], places[1], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0);
        return;
    }
    for (size_t i = 0; volume->path && i < 2 && places[i]; i++) {
        uint32_t target = plan_add_text(b, places[i]);
        plan_add(b, JAIL_VOLUME, "/dev/shm", volume->path, volume->device, volume->inode)->text[2] =
            target;
    }
}

static void make_private_mounts(struct builder *b, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, uint64_t spaces)
{
    char size[96];
    snprintf(size, sizeof size, "mode=1777,size=%llu,nr_inodes=%llu",
        (unsigned long long)limits->tmp_size,
        (unsigned long long)(limits->tmp_size / 4096 < 1024 ? 1024 : limits->tmp_size / 4096));
    plan_add(b, JAIL_MAP_SELF, NULL, NULL, JAIL_INSIDE_UID, JAIL_INSIDE_UID);
    mount_volume(b, &place->volume, 0, layout_paths(place->layout)->volume);
    mount_volume(b, &place->workspace, 1, layout_paths(place->layout)->workspace);
    make_tmp(b, zygote, size);
    plan_add_mount(b, "tmpfs", "/dev/shm", size, MS_NOSUID | MS_NODEV | MS_NOEXEC);
    plan_add_mount(b, "proc", "/proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC);
    copy_kind(b, zygote, JAIL_MASK);
    if (spaces & CLONE_NEWUTS)
        plan_add(b, JAIL_HOSTNAME, "droste", NULL, 0, 0);
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
        { RLIMIT_CORE, 1 }, /* with 0 the kernel still starts a program that it pipes cores to */
        { RLIMIT_MEMLOCK, LOCKED_MEMORY },
        { RLIMIT_SIGPENDING, SIGNALS_PENDING },
    };
    for (size_t i = 0; i < array_length(table); i++)
        plan_add(b, JAIL_LIMIT, NULL, NULL, (uint64_t)table[i].resource, table[i].value);
    if (limits->cpu_time > 0)
        plan_add(b, JAIL_LIMIT, NULL, NULL, RLIMIT_CPU, limits->cpu_time);
    if (processes > 0)
        plan_add(b, JAIL_LIMIT, NULL, NULL, RLIMIT_NPROC, processes);
}

/* The limit counts all processes of the user in the user namespace (Linux 5.14): those of the sandbox,
 * if that has one of its own, else those that were there before as well. */
static uint64_t process_limit(
    enum isolation isolation, const struct jail_limits *limits, const struct jail_mount *place)
{
    if (isolation_has_own_root(isolation))
        return limits->processes;
    return isolation == ISOLATION_LANDLOCK ? place->user_processes + limits->processes : 0;
}

/* It is the guest's own. */
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
        /* No wall of files. But the guest must not stop its keeper, which could end nothing then. */
        if (landlock_abi() >= LANDLOCK_SCOPE_ABI)
            keep_signals_in(b);
        return;
    }
    if (!own_root)
        plan_add_rule(b, place->workdir, LANDLOCK_OWN);
    allow_volume(b, own_root, &place->volume, layout_paths(place->layout)->volume[0]);
    allow_volume(b, own_root, &place->workspace, layout_paths(place->layout)->workspace[0]);
    plan_add(b, JAIL_CONFINE, NULL, NULL, 0, 0);
}

int jail_compile_sandbox(enum isolation isolation, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, struct jail_plan **out,
    struct error *err)
{
    bool own_root = isolation_has_own_root(isolation);
    uint64_t spaces = isolations[isolation].spaces;
    struct builder b;
    plan_begin(&b);
    b.stage = JAIL_KEEPER;
    if (own_root)
        make_private_mounts(&b, zygote, limits, place, spaces);
    plan_add(&b, JAIL_DROP_BOUND, NULL, NULL, 0, 0);
    if (!own_root && landlock_abi() >= LANDLOCK_SCOPE_ABI)
        keep_signals_in(&b);
    b.stage = JAIL_WORKER;
    plan_add(&b, place->shares_session ? JAIL_GROUP : JAIL_SESSION, NULL, NULL, 0, 0);
    plan_add(&b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    compile_confine(&b, own_root, zygote, place);
    limit_worker(&b, limits, process_limit(isolation, limits, place));
    plan_add(&b, JAIL_CHDIR, own_root ? "/tmp" : place->workdir, NULL, 0, 0);
    plan_add(&b, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    copy_kind(&b, zygote, JAIL_FILTER);
    b.stage = JAIL_GUARD;
    plan_add(&b, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    plan_add(&b, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    const struct jail_plan head = {
        .clone_flags = spaces, .user = place->user, .group = place->user
    };
    return plan_finish(&b, &head, out, err);
}
