/* env/local/zygote_boot.c: starts a zygote: its process, its facts, its plan, and a trial of what
 * its sandboxes execute. Blocks until the zygote works or has failed.
 */
#include "env/local/zygote_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/json/json.h"
#include "base/text.h"
#include "env/common/embedded.h"
#include "env/local/image_start.h"
#include "env/local/interpreter.h"
#include "jail/filter.h"
#include "jail/private_root.h"

enum {
    START_TIMEOUT_MS = 30000,
    PRELOAD_TIMEOUT_MS = 120000, /* with modules to import, which can be large */
    LAST_WORDS_MS = 1000,        /* for a program that has closed the control socket to end */
    NICE_STEP = 10,              /* between the host, which serves all its sandboxes, and them */
};

/* ---- the process ---- */

/* Closes what the host's program left inheritable (posix_spawn has an action for that since glibc
 * 2.34), and runs the embedded guest as a module: in the form precompiled for this version or, if
 * there is none, from its source (scripts/precompile).
 *
 * For one start, the garbage collector is off until the zygote works (guest/python/core/boot.py):
 * there is no garbage yet, and looking for it takes 0.8 ms. A warm zygote whose objects it has seen
 * has clones that write to 20 pages less.
 *
 * Compiling takes 54 ms. A wheel serves many versions, and so has the source beside the library,
 * where pip compiles it like each module that it installs. A copy that equals the embedded source
 * is loaded by CPython's rules, from __pycache__. Bytecode that is missing or stale is written
 * there, if the copy is this user's own. */
static const char loader[] =
    "import gc,marshal,os,sys\n"
    "if sys.argv[1]=='cold': gc.disable()\n"
    "import _frozen_importlib_external as importing\n"
    "def compiled(source,copy,writes):\n"
    " try:\n"
    "  l=importing.SourceFileLoader('droste_guest',copy)\n"
    "  if l.get_data(copy)==source:\n"
    "   import _imp\n"
    "   sys.dont_write_bytecode=not writes or os.stat(copy).st_uid!=os.geteuid()\n"
    "   c=l.get_code('droste_guest')\n"
    "   _imp._fix_co_filename(c,'<droste>')\n"
    "   return c\n"
    " except Exception: pass\n"
    " finally: sys.dont_write_bytecode=True\n"
    " return compile(source,'<droste>','exec')\n"
    "for n in os.listdir('/proc/self/fd'):\n"
    " if int(n)>6:\n"
    "  try: os.close(int(n))\n"
    "  except OSError: pass\n"
    "with os.fdopen(4,'rb') as f:\n"
    " while 1:\n"
    "  g,n=f.read(4),int.from_bytes(f.read(4),'little');s=f.read(n)\n"
    "  if g in(importing.MAGIC_NUMBER,b'text'): break\n"
    "c=compiled(s,sys.argv[3],sys.argv[4]=='writes') if g==b'text' else marshal.loads(s)\n"
    "m=type(os)('droste_guest');m.__file__='<droste>';sys.modules['droste_guest']=m\n"
    "exec(c,m.__dict__);del c,compiled,f,importing,s\n"
    "m.boot(3,5,6,sys.argv[1]=='warm',sys.argv[2]=='huge',sys.argv[5:])\n";

/* The copy of the guest's source beside the library, whether or not there is one. A program that
 * contains the library is named as it was called, which need not be a path: "" then. */
static void guest_copy(struct buf *out)
{
    Dl_info info;
    const char *end = NULL;
    if (dladdr(embedded_guest, &info) && info.dli_fname && info.dli_fname[0] == '/')
        end = strrchr(info.dli_fname, '/');
    if (end)
        buf_append(out, info.dli_fname, (size_t)(end - info.dli_fname));
    buf_printf(out, "%s", end ? "/droste_guest.py" : "");
}

enum { ZYGOTE_BOOT_VARIABLES = 256 };

/* Contains nothing of the caller's environment, which may hold keys. Numeric libraries get one
 * thread, because a zygote must have only one; so must a session that is forked. pyarrow, which
 * pandas imports where it is installed, brings jemalloc, which would free memory in a thread. */
static const char *const guest_environment[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp",
    "TMPDIR=/tmp", "USER=guest", "LOGNAME=guest", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TERM=dumb",
    "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1",
    "JE_ARROW_MALLOC_CONF=background_thread:false", NULL };

/* A memory file with these bytes; executable if it holds the helper or the keeper. */
static int memfd_with(const char *name, const void *data, size_t len, struct error *err)
{
    cleanup_fd int fd = (int)memfd_create(name, MFD_CLOEXEC | 0x0010U /* MFD_EXEC, Linux 6.3 */);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || file_write_all(fd, data, len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "creating the memory file '%s'", name);
    return steal_fd(&fd);
}

int zygote_keeper_program(struct error *err)
{
    return memfd_with("keeper", embedded_keeper, embedded_keeper_size, err);
}

struct start_fds {
    int control, source, helper, keeper, errors;
};

static void close_start_fds(struct start_fds *fds)
{
    close_fd(&fds->control);
    close_fd(&fds->source);
    close_fd(&fds->helper);
    close_fd(&fds->keeper);
    close_fd(&fds->errors);
}

/* Moves the descriptors above the numbers that they will have in the new process. */
static int zygote_boot_lift(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, 16);
    if (high < 0)
        return -1;
    close(*fd);
    *fd = high;
    return 0;
}

/* Adds variables whose names are not there yet. */
static void zygote_boot_add_variables(
    const char *const *from, size_t *count, const char *out[ZYGOTE_BOOT_VARIABLES + 1])
{
    for (const char *const *v = from; *v; v++) {
        size_t name = strcspn(*v, "=") + 1, i = 0;
        while (i < *count && strncmp(out[i], *v, name) != 0)
            i++;
        if (i == *count && *count < ZYGOTE_BOOT_VARIABLES)
            out[(*count)++] = *v;
    }
}

/* Those of a private root come first, and then an image's. */
static void zygote_boot_variables(
    const struct zygote *z, bool private_root, const char *out[ZYGOTE_BOOT_VARIABLES + 1])
{
    static const char *const none[] = { NULL };
    size_t count = 0;
    zygote_boot_add_variables(private_root ? private_root_variables : none, &count, out);
    if (z->variables.count > 0)
        zygote_boot_add_variables((const char *const *)z->variables.items, &count, out);
    zygote_boot_add_variables(guest_environment, &count, out);
    out[count] = NULL;
}

/* What starts: the interpreter's arguments and environment. POSIX guarantees that execve(2) and
 * posix_spawn(3) modify neither; their prototypes predate const. */
struct start_words {
    const char *argv[64];
    const char *variables[ZYGOTE_BOOT_VARIABLES + 1];
};

/* `copy` is the path of the copy of the guest's source; no image has one. */
static void zygote_boot_words(const struct zygote *z, const struct sandbox_spec *spec,
    const struct buf *copy, struct start_words *out)
{
    const char *keep = getenv("PYTHONDONTWRITEBYTECODE");
    *out = (struct start_words){ .argv = { z->executable, "-I", "-B", "-c", loader } };
    size_t argc = 5;
    out->argv[argc++] = spec->one_start ? "cold" : "warm";
    out->argv[argc++] = spec->huge_pages ? "huge" : "small";
    out->argv[argc++] = buf_text(copy);
    out->argv[argc++] = keep && *keep ? "reads" : "writes";
    for (size_t i = 0; i < spec->preload_count && argc < array_length(out->argv) - 1; i++)
        out->argv[argc++] = spec->preload[i];
    zygote_boot_variables(z, spec->private_root, out->variables);
}

static int spawn_process(
    struct zygote *z, const struct start_words *words, struct start_fds *fds, struct error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, fds->errors, 2);
    posix_spawn_file_actions_adddup2(&actions, fds->control, ZYGOTE_CONTROL_FD);
    posix_spawn_file_actions_adddup2(&actions, fds->source, ZYGOTE_SOURCE_FD);
    posix_spawn_file_actions_adddup2(&actions, fds->helper, ZYGOTE_HELPER_FD);
    posix_spawn_file_actions_adddup2(&actions, fds->keeper, ZYGOTE_KEEPER_FD);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int rc = posix_spawn(&z->pid, z->executable, &actions, &attributes,
        (char *const *)(uintptr_t)words->argv, (char *const *)(uintptr_t)words->variables);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (rc == 0)
        return 0;
    z->pid = -1;
    errno = rc;
    return error_set_errno(err, ERROR_ENVIRONMENT, "starting '%.100s'", z->executable);
}

static int zygote_boot_refuse_image(
    const struct zygote *z, const struct image_start *s, struct error *err)
{
    cleanup_buf struct buf what = { 0 };
    if (s->executes)
        return error_set(err, ERROR_ENVIRONMENT,
            "the image's '%.80s' cannot be executed: %s; is it for this machine, and complete?",
            z->executable, strerror(s->sys));
    jail_print_op(z->plan, s->op, &what);
    return error_set(err, ERROR_UNSUPPORTED, "%.60s: %s", buf_text(&what), strerror(s->sys));
}

static void zygote_boot_lower_priority(const struct zygote *z)
{
    setpriority(PRIO_PROCESS, (id_t)z->pid, getpriority(PRIO_PROCESS, 0) + NICE_STEP);
}

static int spawn_in_image(struct zygote *z, const struct start_words *words, struct start_fds *fds,
    struct cgroups *all, struct error *err)
{
    cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || zygote_boot_lift(&null) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "opening /dev/null");
    struct image_start s = { .plan = z->plan,
        .executable = z->executable,
        .argv = (char *const *)(uintptr_t)words->argv,
        .envp = (char *const *)(uintptr_t)words->variables,
        .fds = { null, null, fds->errors, fds->control, fds->source, fds->helper, fds->keeper },
        .keeper = fds->keeper };
    int rc = image_start_begin(&s, err);
    z->pid = s.pid;
    z->lifeline = s.lifeline;
    if (rc == 0 && s.sys == 0) {
        zygote_boot_lower_priority(z);
        rc = all ? cgroups_adopt(all, z->pid, err) : 0;
        if (rc == 0)
            rc = image_start_finish(&s, err);
    }
    image_start_free(&s);
    if (rc == 0 && s.sys)
        rc = zygote_boot_refuse_image(z, &s, err);
    return rc;
}

static int zygote_boot_spawn(struct zygote *z, const struct sandbox_spec *spec,
    const struct zygote_groups *groups, struct error *err)
{
    cleanup_buf struct buf copy = { 0 };
    struct start_words words;
    struct start_fds fds = { -1, -1, -1, -1, -1 };
    int pair[2] = { -1, -1 }, ends[2] = { -1, -1 };
    int rc = 0;
    fds.source = memfd_with("guest.py", embedded_guest, embedded_guest_size, err);
    fds.helper = memfd_with("zygote.so", embedded_helper, embedded_helper_size, err);
    fds.keeper = zygote_keeper_program(err);
    if (fds.source < 0 || fds.helper < 0 || fds.keeper < 0) {
        rc = -(int)ERROR_ENVIRONMENT;
    } else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
               pipe2(ends, O_CLOEXEC) < 0) {
        rc = error_set_errno(err, ERROR_ENVIRONMENT, "creating the zygote's channels");
    } else {
        z->processes[0].control = pair[0];
        z->errors = ends[0];
    }
    fds.control = pair[1];
    fds.errors = ends[1];
    if (rc == 0 && (zygote_boot_lift(&fds.control) < 0 || zygote_boot_lift(&fds.source) < 0 ||
                       zygote_boot_lift(&fds.helper) < 0 || zygote_boot_lift(&fds.keeper) < 0 ||
                       zygote_boot_lift(&fds.errors) < 0))
        rc = error_set_errno(err, ERROR_ENVIRONMENT, "creating the zygote's channels");
    if (!z->root)
        guest_copy(&copy);
    zygote_boot_words(z, spec, &copy, &words);
    if (rc == 0 && groups->cpu)
        cpu_group_enter(groups->cpu, NULL);
    if (rc == 0)
        rc = z->root ? spawn_in_image(z, &words, &fds, groups->all, err)
                     : spawn_process(z, &words, &fds, err);
    if (groups->cpu)
        cpu_group_leave(groups->cpu);
    close_start_fds(&fds);
    return rc;
}

/* ---- facts about the interpreter ---- */

/* The last line of the interpreter's standard error. */
static void zygote_boot_last_words(int fd, char *out, size_t size)
{
    char text[4096];
    size_t len = 0;
    ssize_t n;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    while (len < sizeof text - 1 && poll(&p, 1, LAST_WORDS_MS) > 0 &&
           (n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)n;
    size_t from = text_last_line(text, &len);
    snprintf(out, size, "%.*s", (int)(len - from), text + from);
}

static int not_a_python(struct zygote *z, struct error *err)
{
    char words[128];
    close_fd(&z->processes[0].control);
    zygote_boot_last_words(z->errors, words, sizeof words);
    return error_set(err, ERROR_ENVIRONMENT,
        "'%.80s' did not start as a Python interpreter%s%s%s; give CPython 3.8 or newer with "
        "--python PATH",
        z->executable, z->preloads ? ", or ended while it imported what preload names" : "",
        words[0] ? ": " : "", words);
}

/* Waits for one event while the zygote starts. */
static int zygote_boot_await(
    struct zygote *z, uint32_t kind, char *data, size_t size, size_t *len, struct error *err)
{
    int limit = z->preloads ? PRELOAD_TIMEOUT_MS : START_TIMEOUT_MS;
    uint64_t start = clock_ns();
    for (;;) {
        struct pollfd p = { .fd = z->processes[0].control, .events = POLLIN };
        int left = limit - (int)(clock_seconds_since(start) * 1000);
        int rc = left > 0 ? poll(&p, 1, left) : 0;
        if (rc < 0 && errno == EINTR)
            continue;
        if (rc <= 0)
            return error_set(err, ERROR_ENVIRONMENT,
                "'%.100s' did not start as a Python interpreter within %d s%s", z->executable,
                limit / 1000, z->preloads ? "; preload fewer modules" : "");
        int fd;
        ssize_t n = zygote_receive(z->processes[0].control, data, size, &fd);
        close_fd(&fd);
        struct zygote_event event;
        if (n < (ssize_t)sizeof event)
            return not_a_python(z, err);
        memcpy(&event, data, sizeof event);
        *len = (size_t)n;
        if (event.kind == kind || event.kind == ZYGOTE_FAILED)
            return 0;
    }
}

static int check_facts(struct zygote *z, struct json_object *facts, struct error *err)
{
    const char *version = json_get_string(facts, "python", "");
    const char *implementation = json_get_string(facts, "implementation", "");
    int major = 0, minor = 0;
    sscanf(version, "%d.%d", &major, &minor);
    if (strcmp(implementation, "cpython") != 0 || major != 3 || minor < 8)
        return error_set(err, ERROR_ENVIRONMENT,
            "'%.100s' is %.20s %.20s; Droste needs CPython 3.8 or newer", z->executable,
            implementation, version);
    snprintf(z->python, sizeof z->python, "CPython %s", version);
    return 0;
}

/* Reports a module that the guest could not preload (preload_all in guest/python/core/boot.py). */
static int check_preload(const struct zygote *z, struct json_object *facts, struct error *err)
{
    struct json_object *refused = json_get_typed(facts, "refused", json_type_object);
    if (!refused)
        return 0;
    int64_t threads = json_get_int(refused, "threads", 0);
    const char *module = json_get_string(refused, "module", "?");
    if (threads > 0)
        return error_set(err, ERROR_ENVIRONMENT,
            "preload '%.40s': importing it starts %d thread%s, which clones of the process would "
            "not have; leave it out, and import it in the code or in setup-code",
            module, (int)threads, threads == 1 ? "" : "s");
    return error_set(err, ERROR_ENVIRONMENT,
        "preload '%.40s': '%.50s' cannot import it: %.60s; install it for that interpreter, or "
        "choose another with --python PATH",
        module, z->executable, json_get_string(refused, "error", ""));
}

static int refuse_isolation(
    struct zygote *z, const struct jail_plan *plan, uint32_t op, int sys, struct error *err)
{
    cleanup_buf struct buf what = { 0 };
    jail_print_op(plan, op, &what);
    return error_set(err, ERROR_UNSUPPORTED, "%.60s: %s", buf_text(&what), strerror(sys));
}

/* True if other users can reach a path, or it does not exist. */
static bool others_can_reach(const char *path)
{
    char part[4096];
    struct stat st;
    size_t len = strnlen(path, sizeof part - 1);
    memcpy(part, path, len);
    for (size_t i = 1; i <= len; i++) {
        if (i < len && path[i] != '/')
            continue;
        part[i] = '\0';
        if (stat(part, &st) < 0)
            return errno == ENOENT;
        if (!(st.st_mode & (S_ISDIR(st.st_mode) ? S_IXOTH : S_IROTH)))
            return false;
        part[i] = path[i];
    }
    return true;
}

/* As root, the guest is nobody. In a private root it is given what it needs, regardless of
 * permissions above; among the host's files, permissions must let it reach the interpreter. */
static int check_reach(const struct zygote *z, const struct jail_host *host, struct error *err)
{
    const char *const *lists[] = { host->prefixes, host->read_paths };
    const size_t counts[] = { host->prefix_count, host->read_path_count };
    if (z->isolation != ISOLATION_LANDLOCK || host->uid != 0)
        return 0;
    for (size_t list = 0; list < array_length(lists); list++)
        for (size_t i = 0; i < counts[list]; i++)
            if (!others_can_reach(lists[list][i]))
                return error_set(err, ERROR_UNSUPPORTED,
                    "as root, the guest runs as the user nobody, which cannot read '%.80s'; make "
                    "it readable for all users, or run as an ordinary user",
                    lists[list][i]);
    return 0;
}

/* Compiles the zygote's plan, with the directories that it reported; of an image's, nothing. */
static int zygote_boot_compile(struct zygote *z, const struct sandbox_spec *spec,
    struct json_object *facts, const struct buf *filters, struct error *err)
{
    const char *prefixes[16];
    struct jail_host host = { .uid = geteuid(),
        .gid = getegid(),
        .prefixes = prefixes,
        .image = z->root,
        .read_paths = spec->read_paths,
        .read_path_count = spec->read_path_count,
        .workdir = z->scratch_dir ? scratch_dir_path(z->scratch_dir) : NULL,
        .volumes = zygote_volumes_of(spec),
        .has_volume = spec->volume != NULL,
        .has_workspace = spec->workspace != NULL,
        .lends_users = z->users.first != 0,
        .layout = spec->layout,
        .private_root = spec->private_root,
        .devices = spec->devices.nvidia ? &z->nvidia.devices : NULL,
        .loopback = spec->loopback,
        .filters = filters };
    struct json_object *list = facts ? json_get_typed(facts, "prefixes", json_type_array) : NULL;
    size_t count = list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < count && i < array_length(prefixes); i++)
        prefixes[host.prefix_count++] = json_object_get_string(json_object_array_get_idx(list, i));
    int rc = check_reach(z, &host, err);
    return rc < 0 ? rc : jail_compile_zygote(z->isolation, &host, &z->plan, err);
}

/* Has the zygote execute a plan. */
static int zygote_boot_order(struct zygote *z, enum zygote_request_kind kind,
    const struct jail_plan *plan, struct error *err)
{
    struct zygote_request request = { .kind = kind };
    struct iovec iov[2] = { { &request, sizeof request }, { (void *)(uintptr_t)plan, plan->size } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    struct zygote_event event;
    size_t len;
    if (sendmsg(z->processes[0].control, &m, MSG_NOSIGNAL) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "preparing the sandboxes' root");
    int rc = zygote_boot_await(z, ZYGOTE_DONE, (char *)&event, sizeof event, &len, err);
    return rc == 0 && event.kind == ZYGOTE_FAILED
               ? refuse_isolation(z, plan, event.op, event.sys, err)
               : rc;
}

/* Has the zygote execute its own plan. That of an image was executed before it: it gets an empty
 * one. */
static int zygote_boot_set_up(struct zygote *z, const struct sandbox_spec *spec,
    struct json_object *facts, const struct buf *filters, struct error *err)
{
    const struct jail_plan empty = { .size = sizeof empty };
    if (z->root)
        return zygote_boot_order(z, ZYGOTE_SETUP, &empty, err);
    int rc = zygote_boot_compile(z, spec, facts, filters, err);
    if (rc < 0)
        return rc;
    if (sizeof(struct zygote_request) + z->plan->size > ZYGOTE_MESSAGE_MAX)
        return error_set(err, ERROR_ARGUMENT, "too many --read paths for one sandbox: %zu",
            spec->read_path_count);
    return zygote_boot_order(z, ZYGOTE_SETUP, z->plan, err);
}

static int zygote_boot_greet(
    struct zygote *z, const struct sandbox_spec *spec, const struct buf *filters, struct error *err)
{
    static const struct json_limits limits = { 65536, 8, 5000 };
    cleanup_json struct json_object *facts = NULL;
    cleanup_free char *data = malloc(ZYGOTE_MESSAGE_MAX);
    struct zygote_event hello;
    size_t len = 0;
    if (!data)
        return error_memory(err);
    int rc = zygote_boot_await(z, ZYGOTE_HELLO, data, ZYGOTE_MESSAGE_MAX, &len, err);
    if (rc < 0)
        return rc;
    memcpy(&hello, data, sizeof hello);
    if (hello.kind != ZYGOTE_HELLO || hello.abi != ZYGOTE_ABI)
        return not_a_python(z, err);
    rc = json_parse(data + sizeof hello, len - sizeof hello, &limits, &facts, err);
    if (rc == 0)
        rc = check_facts(z, facts, err);
    if (rc == 0)
        rc = check_preload(z, facts, err);
    return rc < 0 ? rc : zygote_boot_set_up(z, spec, facts, filters, err);
}

/* Tries out what a sandbox does before its code runs, so that whatever this machine denies is
 * reported now, by name, and not by the first session. User namespaces may be forbidden or
 * exhausted, clone3 filtered, mounting proc denied in a container. */
static int zygote_boot_try(struct zygote *z, struct error *err)
{
    cleanup_free struct jail_plan *plan = NULL;
    /* Any user: no guest code runs in it. */
    const struct jail_mount place = {
        .workdir = "/", .user_processes = 1u << 20, .user = z->users.first
    };
    int rc = jail_compile_sandbox(z->isolation, z->plan, &jail_default_limits, &place, &plan, err);
    return rc < 0 ? rc : zygote_boot_order(z, ZYGOTE_TRY, plan, err);
}

/* ---- in an image ---- */

/* An image's environment, without what a sandbox determines. */
static int zygote_boot_take_variables(struct zygote *z, struct error *err)
{
    static const char *const own[] = { "HOME=", "USER=", "LOGNAME=", "TMPDIR=", "TERM=", "SHELL=" };
    const struct list *all = image_variables(z->image);
    bool has_language = false, has_all = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < all->count; i++) {
        size_t k = 0;
        while (k < array_length(own) && strncmp(all->items[i], own[k], strlen(own[k])) != 0)
            k++;
        has_language = has_language || strncmp(all->items[i], "LANG=", 5) == 0;
        has_all = has_all || strncmp(all->items[i], "LC_ALL=", 7) == 0;
        if (k == array_length(own))
            rc = list_add(&z->variables, all->items[i], err);
    }
    if (rc == 0 && has_language && !has_all) /* which would override its LANG */
        rc = list_add(&z->variables, "LC_ALL=", err);
    return rc < 0 ? rc : list_add_end(&z->variables, err);
}

enum image_fetch zygote_fetch_of(enum container_pull pull)
{
    static const enum image_fetch fetches[] = { [PULL_MISSING] = IMAGE_FETCH_MISSING,
        [PULL_NEVER] = IMAGE_FETCH_NEVER,
        [PULL_ALWAYS] = IMAGE_FETCH_ALWAYS };
    return fetches[pull];
}

static int zygote_boot_unpack(struct zygote *z, const struct sandbox_spec *spec, struct error *err)
{
    const struct image_request request = { zygote_image_of(spec),
        zygote_fetch_of(spec->container->pull), -1 };
    int rc =
        image_open(&request, &z->image, err); /* quick: the session's staging has unpacked it */
    if (rc == 0)
        rc = zygote_boot_take_variables(z, err);
    z->root = rc < 0 ? NULL : realpath(image_root(z->image), NULL);
    return rc < 0 || z->root ? rc : error_set_errno(err, ERROR_IO, "opening the unpacked image");
}

/* The root directory of the image, and the interpreter in it. */
static int zygote_boot_open_image(
    struct zygote *z, const struct sandbox_spec *spec, struct error *err)
{
    int rc = zygote_image_of(spec) ? zygote_boot_unpack(z, spec, err) : 0;
    if (rc < 0)
        return rc;
    if (spec->rootfs)
        z->root = realpath(spec->rootfs, NULL);
    if (!z->root)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO,
            "opening the root file system '%.200s' (--rootfs)", spec->rootfs);
    if (!z->root[1])
        return error_set(err, ERROR_ARGUMENT,
            "--rootfs / is this machine's own root, which sandboxes use without it");
    return interpreter_find_in_image(z->root, spec->python, &z->variables, &z->executable, err);
}

static const char libraries_variable[] = "LD_LIBRARY_PATH=";

/* Where the loader looks for the driver's libraries: an image's before anything of its own, this
 * machine's if ld.so.cache does not have them. */
static int zygote_boot_search(struct zygote *z, struct error *err)
{
    size_t n = sizeof libraries_variable - 1;
    const char *directory = z->root ? JAIL_DEVICE_LIBRARIES : z->nvidia.directory;
    if (!z->root && z->nvidia.cached)
        return 0;
    for (size_t i = 0; i < z->variables.count; i++) {
        char **own = &z->variables.items[i];
        if (strncmp(*own, libraries_variable, n) != 0)
            continue;
        char *both = text_printf("%s%s:%s", libraries_variable, directory, *own + n);
        if (!both)
            return error_memory(err);
        free(*own);
        *own = both;
        return 0;
    }
    return list_take(&z->variables, text_printf("%s%s", libraries_variable, directory), err);
}

static int zygote_boot_find_devices(
    struct zygote *z, const struct sandbox_spec *spec, struct error *err)
{
    if (!spec->devices.nvidia || !isolation_has_own_root(z->isolation)) /* it is refused later */
        return 0;
    int rc = nvidia_find("", &spec->devices, &z->nvidia, err);
    if (rc == 0)
        rc = zygote_boot_search(z, err);
    return rc < 0 ? rc : list_add_end(&z->variables, err);
}

static int zygote_boot_find_interpreter_of(
    struct zygote *z, const struct sandbox_spec *spec, struct error *err)
{
    bool own_files = spec->rootfs || zygote_image_of(spec);
    int rc = own_files ? zygote_boot_open_image(z, spec, err)
                       : interpreter_find(spec->python, &z->executable, err);
    return rc < 0 ? rc : zygote_boot_find_devices(z, spec, err);
}

int zygote_boot(struct zygote *z, const struct sandbox_spec *spec,
    const struct zygote_groups *groups, struct error *err)
{
    struct buf filters[JAIL_FILTERS] = { { 0 } };
    unsigned more = (spec->epoll ? FILTER_EPOLL : 0u) | (spec->devices.nvidia ? FILTER_NVIDIA : 0u);
    bool nobody = geteuid() == 0 && z->isolation != ISOLATION_PROCESS;
    int rc =
        isolation_has_own_root(z->isolation) ? 0 : scratch_dir_new(nobody, &z->scratch_dir, err);
    if (rc == 0)
        rc = zygote_boot_find_interpreter_of(z, spec, err);
    if (rc == 0 && z->root)
        rc = jail_compile_filters(z->isolation, more, filters, err);
    if (rc == 0 && z->root)
        rc = zygote_boot_compile(z, spec, NULL, filters, err);
    if (rc == 0)
        rc = zygote_boot_spawn(z, spec, groups, err);
    if (rc == 0 && !z->root) { /* its sandboxes inherit it */
        zygote_boot_lower_priority(z);
        /* The interpreter starts in the meantime. */
        rc = groups->all ? cgroups_adopt(groups->all, z->pid, err) : 0;
        if (rc == 0)
            rc = jail_compile_filters(z->isolation, more, filters, err);
    }
    if (rc == 0)
        rc = zygote_boot_greet(z, spec, filters, err);
    for (size_t i = 0; i < JAIL_FILTERS; i++)
        buf_free(&filters[i]);
    if (rc == 0 && z->isolation != ISOLATION_PROCESS)
        rc = zygote_boot_try(z, err);
    close_fd(&z->errors);
    nvidia_clear(&z->nvidia);
    return rc;
}
