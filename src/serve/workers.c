/* serve/workers.c: see workers.h. */
#include "serve/workers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/notify.h"
#include "serve/server.h"

/* ---- mailboxes ---- */

int worker_send_connection(struct server *s, unsigned worker, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    char byte = 'c';
    struct iovec piece = { &byte, 1 };
    struct msghdr message = { .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof control.room };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (s->table->worker[worker].pid == 0)
        return -1;
    return sendmsg(s->links->to[worker], &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* A message without a descriptor: its arrival turns the loop. A full mailbox does that as well. */
void worker_wake(struct server *s, unsigned worker)
{
    (void)send(s->links->to[worker], "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int worker_receive_connection(int mailbox)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd = -1;
    struct iovec piece = { &byte, 1 };
    struct msghdr message = { .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof control.room };
    while (fd < 0) {
        message.msg_controllen = sizeof control.room;
        if (recvmsg(mailbox, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
            return -1;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof fd))
            memcpy(&fd, CMSG_DATA(head), sizeof fd);
    }
    return fd;
}

static const char worker_mark[] = "droste relay";

void worker_relay_address(struct sockaddr *out)
{
    *out = (struct sockaddr){ .sa_family = AF_UNSPEC };
    memcpy(out->sa_data, worker_mark, sizeof worker_mark);
}

bool worker_is_relay(const struct sockaddr *address)
{
    return address->sa_family == AF_UNSPEC &&
           memcmp(address->sa_data, worker_mark, sizeof worker_mark) == 0;
}

/* ---- a worker's beginning ---- */

int worker_inherit(const char *text, struct worker_links *out, struct error *err)
{
    int parent, used = 0;
    *out = (struct worker_links){ 0 };
    if (sscanf(text, "%u:%d:%d:%d:%d%n", &out->index, &parent, &out->listen_fd, &out->table_fd,
            &out->mailbox, &used) != 5 ||
        out->index >= TABLE_WORKERS)
        return error_set(err, ERROR_ARGUMENT, "%s is set by droste serve alone", WORKER_VARIABLE);
    const char *p = text + used;
    for (size_t i = 0; *p == ':' && i < TABLE_WORKERS; i++) {
        char *end;
        out->to[i] = (int)strtol(p + 1, &end, 10);
        fcntl(out->to[i], F_SETFD, FD_CLOEXEC);
        p = end;
    }
    fcntl(out->listen_fd, F_SETFD, FD_CLOEXEC);
    fcntl(out->table_fd, F_SETFD, FD_CLOEXEC);
    fcntl(out->mailbox, F_SETFD, FD_CLOEXEC);
    unsetenv(WORKER_VARIABLE);
    prctl(PR_SET_NAME, "droste-worker");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return error_set(err, ERROR_LOST, "the parent of this worker has ended");
    return 0;
}

/* ---- the parent ---- */

/* A worker that ran so long starts again without a delay. */
enum { WORKERS_STEADY_SECONDS = 60, WORKERS_DELAY_MS = 100, WORKERS_DELAY_MAX_MS = 10000 };

struct worker {
    struct workers *all;
    unsigned index, failures;
    int mailbox[2]; /* read, write */
    uv_process_t process;
    uv_timer_t restart;
    bool runs;
    uint64_t started_ns;
};

struct workers {
    const struct serve_options *options;
    uv_loop_t loop;
    uv_signal_t signals[3];
    uv_timer_t ready_timer;
    struct table *table;
    struct listener listener;
    int table_fd;
    unsigned count;
    struct worker worker[TABLE_WORKERS];
    bool is_ready, is_ending, has_failed;
    char *address;
};

static void worker_start(struct worker *w);

static void worker_on_restart(uv_timer_t *timer)
{
    worker_start(timer->data);
}

static void worker_on_closed(uv_handle_t *handle)
{
    struct worker *w = handle->data;
    struct workers *all = w->all;
    uint64_t delay = WORKERS_DELAY_MS;
    w->runs = false;
    if (all->is_ending) {
        bool one_runs = false;
        for (unsigned i = 0; i < all->count; i++)
            one_runs = one_runs || all->worker[i].runs;
        if (!one_runs)
            uv_stop(&all->loop);
        return;
    }
    for (unsigned i = 1; i < w->failures && delay < WORKERS_DELAY_MAX_MS; i++)
        delay *= 2;
    uv_timer_start(&w->restart, worker_on_restart,
        delay < WORKERS_DELAY_MAX_MS ? delay : WORKERS_DELAY_MAX_MS, 0);
}

static void workers_signal(struct workers *all, int number)
{
    for (unsigned i = 0; i < all->count; i++)
        if (all->worker[i].runs)
            uv_process_kill(&all->worker[i].process, number);
}

static void workers_end(struct workers *all)
{
    bool one_runs = false;
    all->is_ending = true;
    notify_manager("STOPPING=1");
    close_fd(&all->listener.fd); /* the workers close theirs when they drain */
    for (unsigned i = 0; i < all->count; i++) {
        uv_timer_stop(&all->worker[i].restart);
        one_runs = one_runs || all->worker[i].runs;
    }
    workers_signal(all, SIGTERM);
    if (!one_runs)
        uv_stop(&all->loop);
}

static void worker_on_exit(uv_process_t *process, int64_t status, int number)
{
    struct worker *w = process->data;
    struct workers *all = w->all;
    bool was_steady = clock_seconds_since(w->started_ns) > WORKERS_STEADY_SECONDS;
    all->table->worker[w->index].pid = 0;
    all->table->worker[w->index].is_ready = false;
    table_forget(all->table, w->index);
    w->failures = was_steady ? 1 : w->failures + 1;
    if (!all->is_ending) {
        if (!all->is_ready) {
            all->has_failed = true;
            workers_end(all);
        }
        fprintf(stderr,
            "{\"level\": \"error\", \"message\": \"a worker died, and its sandboxes with it\", "
            "\"worker\": %u, \"status\": %d, \"signal\": %d}\n",
            w->index, (int)status, number);
    }
    uv_close((uv_handle_t *)process, worker_on_closed);
}

/* The environment with the description of a worker's links; free it. */
static char **worker_environment(const struct worker *w, struct buf *text)
{
    const struct workers *all = w->all;
    size_t n = 0;
    buf_printf(text, "%s=%u:%d:%d:%d:%d", WORKER_VARIABLE, w->index, (int)getpid(),
        all->listener.fd, all->table_fd, w->mailbox[0]);
    for (unsigned i = 0; i < all->count; i++)
        buf_printf(text, ":%d", all->worker[i].mailbox[1]);
    while (environ[n])
        n++;
    char **out = calloc(n + 2, sizeof *out);
    if (!out || buf_failed(text)) {
        free(out);
        return NULL;
    }
    memcpy(out, environ, n * sizeof *out);
    out[n] = text->data;
    return out;
}

static void worker_start(struct worker *w)
{
    struct workers *all = w->all;
    cleanup_buf struct buf text = { 0 };
    cleanup_free char **environment = worker_environment(w, &text);
    uv_stdio_container_t stdio[3] = { { .flags = UV_IGNORE },
        { .flags = UV_INHERIT_FD, .data.fd = 1 }, { .flags = UV_INHERIT_FD, .data.fd = 2 } };
    const uv_process_options_t options = { .file = "/proc/self/exe",
        .args = all->options->argv,
        .env = environment,
        .exit_cb = worker_on_exit,
        .stdio = stdio,
        .stdio_count = 3,
        .flags = UV_PROCESS_DETACHED }; /* Ctrl-C comes to the parent alone */
    w->process.data = w->restart.data = w;
    w->started_ns = clock_ns();
    all->table->worker[w->index].generation++;
    int rc = environment ? uv_spawn(&all->loop, &w->process, &options) : UV_ENOMEM;
    if (rc == 0) {
        w->runs = true;
        all->table->worker[w->index].pid = w->process.pid;
        return;
    }
    w->failures++;
    uv_timer_start(&w->restart, worker_on_restart, WORKERS_DELAY_MAX_MS, 0);
    fprintf(stderr, "{\"level\": \"error\", \"message\": \"starting worker %u: %s\"}\n", w->index,
        uv_strerror(rc));
}

static void workers_on_ready_timer(uv_timer_t *timer)
{
    struct workers *all = timer->data;
    for (unsigned i = 0; i < all->count; i++)
        if (!all->table->worker[i].is_ready)
            return;
    all->is_ready = true;
    uv_timer_stop(timer);
    notify_manager("READY=1");
    all->options->ready(all->options->arg, all->address);
}

static void workers_on_signal(uv_signal_t *signal, int number)
{
    struct workers *all = signal->data;
    if (number == SIGHUP)
        workers_signal(all, SIGHUP);
    else
        workers_end(all);
}

static int workers_open(struct workers *all, struct error *err)
{
    const struct serve_options *o = all->options;
    if (listen_open(o->listen, o->keys != NULL, &all->listener, err) < 0 ||
        listen_address(all->listener.fd, o->certificate != NULL, &all->address, err) < 0 ||
        table_new(all->count, &all->table, &all->table_fd, err) < 0)
        return -1;
    fcntl(all->listener.fd, F_SETFD, 0);
    fcntl(all->table_fd, F_SETFD, 0);
    for (unsigned i = 0; i < all->count; i++) {
        all->worker[i].all = all;
        all->worker[i].index = i;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, all->worker[i].mailbox) < 0)
            return error_set_errno(err, ERROR_IO, "making a worker's mailbox");
    }
    return 0;
}

static void workers_close_handle(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void workers_close(struct workers *all)
{
    bool listened = all->address != NULL;
    uv_walk(&all->loop, workers_close_handle, NULL);
    uv_run(&all->loop, UV_RUN_DEFAULT);
    uv_loop_close(&all->loop);
    close_fd(&all->listener.fd);
    close_fd(&all->table_fd);
    table_close(all->table);
    if (listened)
        listen_remove(&all->listener, all->options->listen);
    free(all->address);
}

int workers_run(const struct serve_options *options, struct error *err)
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
    struct workers *all = calloc(1, sizeof *all);
    if (!all || uv_loop_init(&all->loop) < 0) {
        free(all);
        return error_memory(err);
    }
    all->options = options;
    all->count = (unsigned)options->workers;
    all->listener.fd = all->table_fd = -1;
    int rc = workers_open(all, err);
    for (size_t i = 0; rc == 0 && i < array_length(numbers); i++) {
        uv_signal_init(&all->loop, &all->signals[i]);
        all->signals[i].data = all;
        uv_signal_start(&all->signals[i], workers_on_signal, numbers[i]);
    }
    for (unsigned i = 0; rc == 0 && i < all->count; i++) {
        uv_timer_init(&all->loop, &all->worker[i].restart);
        worker_start(&all->worker[i]);
    }
    if (rc == 0) {
        uv_timer_init(&all->loop, &all->ready_timer);
        all->ready_timer.data = all;
        uv_timer_start(&all->ready_timer, workers_on_ready_timer, 5, 5);
        uv_run(&all->loop, UV_RUN_DEFAULT);
        if (all->has_failed)
            rc = error_set(err, ERROR_ENVIRONMENT, "a worker did not start; its error is above");
    }
    workers_close(all);
    free(all);
    return rc;
}
