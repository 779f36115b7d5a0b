/* env/local/zygote_client.c: selects an isolation level, and sends clone requests to a zygote.
 *
 * Requests are sent and answered through the loop. Each has one result: a pidfd, or an error.
 *
 * The zygote's writes to the control socket block when it is full; the host's do not. The number of
 * requests in progress is limited so that they and their answers certainly fit; the others wait
 * here.
 *
 * A zygote starts one sandbox after the other, and keeps little more than one processor busy. If
 * there are more, and it has had requests without a pause, it is asked for copies of itself, which
 * share its memory and start sandboxes beside it.
 */
#include "env/local/zygote_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/common/isolation_error.h"

enum {
    UNDER_WAY_MAX = 32, /* the default socket buffers hold about as many plans */
    CROWDED = 32,       /* requests in a row that had to wait, before there is another copy */
};

static void zygote_key_add(struct buf *b, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buf_printf(b, "%s\n", words[i]);
    buf_putc(b, '\n');
}

static char *zygote_spec_key(const struct sandbox_spec *spec)
{
    struct buf b = { 0 };
    zygote_key_add(&b, spec->preload, spec->preload_count);
    zygote_key_add(&b, spec->read_paths, spec->read_path_count);
    buf_printf(&b, "%u-%u %d %d %d %d %d\n%s\n", spec->users.first, spec->users.last,
        spec->one_start, spec->huge_pages, spec->private_root, spec->loopback, spec->epoll,
        spec->rootfs ? spec->rootfs : "");
    buf_printf(&b, "%d %llx\n", spec->devices.nvidia, (unsigned long long)spec->devices.gpus);
    buf_printf(&b, "%s\n", zygote_image_of(spec) ? zygote_image_of(spec) : "");
    if (zygote_volumes_of(spec))
        buf_printf(&b, "%s%s%s %s\n", zygote_volumes_of(spec), spec->volume ? " volume" : "",
            spec->workspace ? " workspace" : "", layout_of(spec->layout)->name);
    return buf_steal(&b);
}

static bool zygote_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Asks the kernel, because the loop may not have run since. The zygote's end of the socket may stay
 * open a little longer, in its standby (guest/zygote/zygote.c). */
static bool is_dead(const struct zygote *z)
{
    siginfo_t ended = { 0 };
    return z->dead || waitid(P_PID, (id_t)z->pid, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 ||
           ended.si_pid != 0;
}

bool zygote_is_gone(const struct zygote *z)
{
    return z->dead && !z->telling;
}

bool zygote_serves(const struct zygote *z, const struct sandbox_spec *spec)
{
    cleanup_free char *spec_key = zygote_spec_key(spec);
    bool isolation = spec->isolation == z->isolation || spec->isolation == z->asked;
    return !is_dead(z) && isolation && zygote_same(spec->python, z->python_setting) &&
           zygote_same(spec_key, z->spec_key);
}

enum isolation zygote_isolation(const struct zygote *z)
{
    return z->isolation;
}

const char *zygote_executable(const struct zygote *z)
{
    return z->executable;
}

bool zygote_is_trusted(const struct zygote *z)
{
    return !z->root;
}

const char *zygote_python(const struct zygote *z)
{
    return z->python;
}

uint64_t zygote_lineage(const struct zygote *z)
{
    return z->lineage;
}

struct scratch_dir *zygote_scratch_dir(const struct zygote *z)
{
    return z->scratch_dir;
}

const struct jail_plan *zygote_plan(const struct zygote *z)
{
    return z->plan;
}

const struct user_range *zygote_users(const struct zygote *z)
{
    return &z->users;
}

void zygote_describe(const struct zygote *z, struct buf *out)
{
    jail_print(z->plan, out);
}

static void free_pending(struct zygote_pending *p)
{
    for (int i = 0; i < ZYGOTE_CLONE_FDS; i++)
        close_fd(&p->fds[i]);
    free(p);
}

/* Removes a request from the list; NULL if it was forgotten. */
static struct zygote_pending *zygote_take(struct zygote *z, uint32_t id)
{
    for (struct zygote_pending **at = &z->first; *at; at = &(*at)->next) {
        struct zygote_pending *found = *at;
        if (found->id != id)
            continue;
        *at = found->next;
        if (z->last == &found->next)
            z->last = at;
        return found;
    }
    return NULL;
}

static void local_zygote_answer(struct zygote *z, uint32_t id, struct zygote_answer *what)
{
    struct zygote_pending *p = zygote_take(z, id);
    if (p) {
        p->fn(p->arg, what);
        free_pending(p);
        return;
    }
    /* The request was forgotten. Its first messages are in the channel already, so it would run
     * alone. */
    if (what->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, what->pidfd, SIGTERM, NULL, 0);
        syscall(SYS_pidfd_send_signal, what->pidfd, SIGCONT, NULL,
            0); /* its guest may have stopped it */
    }
    close_fd(&what->pidfd);
}

/* The process with the fewest requests. */
static struct zygote_process *zygote_least(struct zygote *z)
{
    struct zygote_process *least = &z->processes[0];
    for (size_t i = 1; i < z->process_count; i++)
        if (z->processes[i].serves && z->processes[i].under_way < least->under_way)
            least = &z->processes[i];
    return least;
}

/* After a failed send: the queue of the process is full, and the next answer means that it no
 * longer is. */
static bool will_have_room(const struct zygote_process *to)
{
    return (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) && to->under_way > 0;
}

/* Sends the waiting requests that the limit allows. */
static void zygote_send_waiting(struct zygote *z)
{
    struct zygote_pending *p = z->first;
    struct zygote_process *to = zygote_least(z);
    while (p && to->under_way < UNDER_WAY_MAX && !z->dead) {
        struct zygote_pending *next = p->next;
        if (!p->sent && zygote_send_clone(to, p) < 0) {
            if (will_have_room(to))
                return;
            struct zygote_answer what = { .pidfd = -1, .sys = errno };
            local_zygote_answer(z, p->id, &what);
            next = z->first; /* the receiver may have changed the list */
        }
        p = next;
        to = zygote_least(z);
    }
}

static void zygote_readable(void *arg, int status, int events);

static int zygote_watch(struct zygote_process *p)
{
    p->watch = watch_new(p->zygote->loop, p->control, zygote_readable, p);
    return p->watch ? watch_events(p->watch, UV_READABLE) : -1;
}

/* Asks for a copy, which counts from then on, also if the zygote then makes none: it is not asked
 * for again. If it could not be asked for, because the queue is full, it is later. */
static void zygote_grow(struct zygote *z)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    struct zygote_process *copy = &z->processes[z->process_count];
    *copy = (struct zygote_process){ .zygote = z, .control = pair[0] };
    if (zygote_watch(copy) == 0 && zygote_send_copy(&z->processes[0], pair[1]) == 0) {
        z->process_count++;
    } else {
        watch_free(copy->watch);
        close(pair[0]);
    }
    close(pair[1]);
}

static void zygote_note_crowd(struct zygote *z)
{
    z->crowded = zygote_least(z)->under_way > 0 ? z->crowded + 1 : 0;
    if (z->crowded < CROWDED || z->process_count == ZYGOTE_PROCESSES_MAX || !zygote_is_trusted(z))
        return;
    z->crowded = 0;
    if ((long)z->process_count < sysconf(_SC_NPROCESSORS_ONLN))
        zygote_grow(z);
}

/* The pid of a pidfd in this namespace, proc(5); -1: the process has ended; 0: it is not a pidfd,
 * or of a process elsewhere. A process cannot make a pidfd of one outside its namespace. */
static pid_t pid_of_pidfd(int fd)
{
    char path[48], text[512];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    cleanup_fd int info = fd < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = info < 0 ? -1 : read(info, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, "\nPid:");
    return at && sscanf(at, "\nPid: %d", &pid) == 1 ? pid : 0;
}

static struct zygote_answer answer_of(const struct zygote *z, const struct zygote_event *e, int *fd)
{
    struct zygote_answer what = { .pidfd = *fd, .pid = e->pid, .sys = e->sys };
    if (!z->root)
        return what;
    pid_t pid = pid_of_pidfd(*fd);
    if (pid == 0)
        close_fd(fd);
    what.pid = pid > 0 ? pid : 0;
    what.pidfd = *fd;
    return what;
}

static void zygote_on_event(struct zygote_process *from, const struct zygote_event *event, int fd)
{
    struct zygote *z = from->zygote;
    struct zygote_answer what = answer_of(z, event, &fd);
    if (event->kind != ZYGOTE_STARTED && event->kind != ZYGOTE_FAILED) {
        from->serves |= event->kind == ZYGOTE_DONE;
        close_fd(&fd);
        return;
    }
    from->under_way -= from->under_way > 0;
    local_zygote_answer(z, event->id, &what);
    zygote_send_waiting(z);
}

/* Answers the requests that this process had; NULL: all requests. */
static void zygote_fail(struct zygote *z, const struct zygote_process *had)
{
    struct zygote_pending *p = z->first;
    while (p) {
        struct zygote_answer what = { .pidfd = -1, .sys = ESRCH };
        bool concerned = !had || p->sent == had;
        if (concerned)
            local_zygote_answer(z, p->id, &what);
        p = concerned ? z->first : p->next; /* the receiver may have changed the list */
    }
}

/* Without the first one, the zygote is stopped, and so are its copies. */
static void zygote_died(struct zygote_process *ended)
{
    struct zygote *z = ended->zygote;
    watch_events(ended->watch, 0);
    ended->serves = false;
    z->dead |= ended == &z->processes[0];
    zygote_fail(z, z->dead ? NULL : ended);
    zygote_send_waiting(z);
}

static void read_events(struct zygote_process *from)
{
    struct zygote_event event;
    int fd;
    for (;;) {
        ssize_t n = zygote_receive(from->control, &event, sizeof event, &fd);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < (ssize_t)sizeof event) {
            close_fd(&fd);
            zygote_died(from);
            return;
        }
        zygote_on_event(from, &event, fd);
    }
}

static void zygote_readable(void *arg, int status, int events)
{
    struct zygote_process *from = arg;
    struct zygote *z = from->zygote;
    z->telling = true;
    read_events(from);
    z->telling = false;
}

static int check_spec(const struct sandbox_spec *spec, struct error *err)
{
    if (spec->rootfs && zygote_image_of(spec))
        return error_set(
            err, ERROR_ARGUMENT, "rootfs and image exclude each other; use one of them");
    if (spec->preload_count > 48)
        return error_set(err, ERROR_ARGUMENT, "at most 48 modules can be preloaded");
    for (size_t i = 0; i < spec->read_path_count; i++)
        if (spec->read_paths[i][0] != '/')
            return error_set(
                err, ERROR_ARGUMENT, "read path '%.100s' is not absolute", spec->read_paths[i]);
    return 0;
}

static int start_at(struct loop *loop, const struct sandbox_spec *spec, enum isolation isolation,
    const struct zygote_groups *groups, struct zygote **out, struct error *err)
{
    struct zygote *z = calloc(1, sizeof *z);
    if (!z)
        return error_memory(err);
    *z = (struct zygote){ .loop = loop, .pid = -1, .errors = -1, .lifeline = -1 };
    z->processes[0] = (struct zygote_process){ .zygote = z, .control = -1, .serves = true };
    z->process_count = 1;
    z->last = &z->first;
    (void)!getrandom(&z->lineage, sizeof z->lineage, 0); /* 8 bytes always arrive, random(7) */
    z->isolation = isolation;
    z->asked = spec->isolation;
    z->python_setting = spec->python ? strdup(spec->python) : NULL;
    z->spec_key = zygote_spec_key(spec);
    z->preloads = spec->preload_count > 0;
    /* An image's interpreter may not become other users. */
    if (geteuid() == 0 && isolation != ISOLATION_PROCESS && !spec->rootfs && !zygote_image_of(spec))
        z->users = spec->users;
    int rc = zygote_boot(z, spec, groups, err);
    if (rc == 0 && zygote_watch(&z->processes[0]) < 0)
        rc = error_memory(err);
    if (rc < 0) {
        zygote_stop(z);
        return rc;
    }
    *out = z;
    return 0;
}

/* Starts a zygote at the strongest level that works. */
static int start_strongest(struct loop *loop, const struct sandbox_spec *spec,
    const struct zygote_groups *groups, struct zygote **out, struct error *err)
{
    struct error why[ISOLATION_AUTO_LEVELS] = { 0 };
    for (size_t i = 0; i < ISOLATION_AUTO_LEVELS; i++) {
        int rc = start_at(loop, spec, isolation_auto_levels[i], groups, out, &why[i]);
        if (rc == -(int)ERROR_UNSUPPORTED)
            continue;
        if (rc < 0 && err)
            *err = why[i];
        return rc;
    }
    return isolation_error_all(why, err);
}

int zygote_start(struct loop *loop, const struct sandbox_spec *spec,
    const struct zygote_groups *groups, struct zygote **out, struct error *err)
{
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    if (spec->isolation == ISOLATION_AUTO)
        return start_strongest(loop, spec, groups, out, err);
    rc = start_at(loop, spec, spec->isolation, groups, out, err);
    return rc == -(int)ERROR_UNSUPPORTED ? isolation_error(spec->isolation, err) : rc;
}

int zygote_clone(struct zygote *z, const struct jail_plan *plan, int fds[ZYGOTE_CLONE_FDS],
    const int extra[ZYGOTE_EXTRA_COUNT], uint64_t tag, zygote_fn *fn, void *arg, uint32_t *id,
    struct error *err)
{
    if (z->dead)
        return error_set(err, ERROR_ENVIRONMENT,
            "the zygote that starts this kind of sandbox has "
            "died");
    struct zygote_pending *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    *p = (struct zygote_pending){
        .id = ++z->last_id, .tag = tag, .fn = fn, .arg = arg, .plan = plan
    };
    memcpy(p->fds, fds, sizeof p->fds);
    memcpy(p->extra, extra, sizeof p->extra);
    zygote_note_crowd(z);
    struct zygote_process *to = zygote_least(z);
    if (to->under_way < UNDER_WAY_MAX && zygote_send_clone(to, p) < 0 && !will_have_room(to)) {
        free(p); /* the caller keeps the descriptors */
        return error_set_errno(err, ERROR_ENVIRONMENT, "asking the zygote for a sandbox");
    }
    for (int i = 0; i < ZYGOTE_CLONE_FDS; i++)
        fds[i] = -1;
    *z->last = p;
    z->last = &p->next;
    *id = p->id;
    return 0;
}

void zygote_forget(struct zygote *z, uint32_t id)
{
    struct zygote_pending *p = zygote_take(z, id);
    if (p)
        free_pending(p);
}

void zygote_stop(struct zygote *z)
{
    if (!z)
        return;
    for (size_t i = 0; i < z->process_count; i++) {
        watch_free(z->processes[i].watch);
        close_fd(&z->processes[i].control);
    }
    close_fd(&z->errors);
    close_fd(&z->lifeline);
    if (z->pid > 0) {
        kill(z->pid, SIGKILL); /* not reaped yet, so the pid cannot have been reused */
        while (waitpid(z->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    while (z->first)
        zygote_forget(z, z->first->id);
    image_close(z->image);
    free(z->root);
    list_clear(&z->variables);
    free(z->python_setting);
    free(z->executable);
    free(z->spec_key);
    free(z->plan);
    scratch_dir_release(z->scratch_dir);
    free(z);
}
