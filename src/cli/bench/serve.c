/* cli/bench/serve.c: droste bench serve: the server as its clients see it, over loopback.
 *
 * The server is this program in a process of its own, with a worker for each processor. Requests to
 * /health go through the same library and handlers that do nothing, on the same connection, and
 * stand beside those that use a sandbox.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/spawn.h"
#include "cli/bench/measure.h"

enum { CLIENTS = 64, ID_SIZE = 40 };
/* Sandboxes of each client that live at once. */
enum { KEPT = 20 };

/* ---- the server ---- */

struct bench_server {
    pid_t pid;
    unsigned port;
};

/* In the child. A measurement that is killed takes its server with it: with a thousand sandboxes,
 * that would go on to use the machine. */
static void server_become(const char *workers, int out, pid_t parent)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
        execl("/proc/self/exe", "droste", "serve", "--listen", "127.0.0.1:0", "--keys", "none",
            "--max-sandboxes", "20000", "--workers", workers, (char *)NULL);
    _exit(127);
}

static int server_start(struct bench_server *s, const char *workers, droste_error *err)
{
    char line[128] = "";
    pid_t parent = getpid();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_IO, "starting a server");
    s->pid = fork();
    if (s->pid == 0)
        server_become(workers, ends[1], parent);
    int rc = s->pid < 0 ? -1 : 0;
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    if (rc == 0 &&
        (!fgets(line, sizeof line, out) || sscanf(line, "http://127.0.0.1:%u", &s->port) != 1)) {
        spawn_end(s->pid);
        rc = -1;
    }
    fclose(out);
    return rc < 0 ? error_set(err, ERROR_ENVIRONMENT, "the server did not start") : 0;
}

/* ---- a client ---- */

static int client_open(const struct bench_server *s)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)s->port) };
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close_fd(&fd);
    return -1;
}

/* One request; the answer's body is in `out`, behind its head. Returns the status, or -1. */
static int client_ask(
    int fd, const char *method, const char *path, const char *body, char *out, size_t size)
{
    char request[512];
    size_t have = 0, wanted = SIZE_MAX;
    int n = snprintf(request, sizeof request,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", method, path,
        strlen(body), body);
    if (send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        return -1;
    while (have < wanted && have + 1 < size) {
        ssize_t got = recv(fd, out + have, size - 1 - have, 0);
        if (got <= 0)
            return -1;
        have += (size_t)got;
        out[have] = '\0';
        const char *end = wanted == SIZE_MAX ? strstr(out, "\r\n\r\n") : NULL;
        const char *length = end ? strcasestr(out, "\r\nContent-Length:") : NULL;
        if (end)
            wanted = (size_t)(end + 4 - out) + (length ? strtoul(length + 17, NULL, 10) : 0);
    }
    return (int)strtol(out + 9, NULL, 10);
}

static bool client_create(int fd, char path[ID_SIZE + 32])
{
    char answer[4096];
    char id[ID_SIZE] = "";
    int status = client_ask(fd, "POST", "/v1/sandboxes", "{}", answer, sizeof answer);
    const char *at = status == 201 ? strstr(answer, "\"id\":\"") : NULL;
    if (!at || sscanf(at, "\"id\":\"%39[0-9a-f]", id) != 1)
        return false;
    snprintf(path, ID_SIZE + 32, "/v1/sandboxes/%s", id);
    return true;
}

static bool client_execute(int fd, const char *sandbox)
{
    char answer[8192], path[ID_SIZE + 48];
    snprintf(path, sizeof path, "%s/execute", sandbox);
    return client_ask(fd, "POST", path, "{\"code\": \"x = 1 + 1\"}", answer, sizeof answer) == 200;
}

static bool client_end(int fd, const char *sandbox)
{
    char answer[2048];
    return client_ask(fd, "DELETE", sandbox, "", answer, sizeof answer) == 204;
}

/* ---- one client ---- */

enum {
    SERVE_HEALTH,
    SERVE_CELL,
    SERVE_CREATE,
    SERVE_FORK,
    SERVE_FAILED,
    SERVE_RATE,
    SERVE_RATE_END
};

static unsigned bench_cells(int fd, const char *sandbox, struct series *s, unsigned n)
{
    char answer[1024];
    unsigned failed = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t start = clock_ns();
        failed += client_ask(fd, "GET", "/health", "", answer, sizeof answer) != 200;
        bench_add(&s[SERVE_HEALTH], bench_elapsed_us(start));
        start = clock_ns();
        failed += !client_execute(fd, sandbox);
        bench_add(&s[SERVE_CELL], bench_elapsed_us(start));
    }
    return failed;
}

static unsigned bench_creates(int fd, struct series *s, unsigned n)
{
    char path[ID_SIZE + 32];
    unsigned failed = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t start = clock_ns();
        bool made = client_create(fd, path);
        bool ok = made && client_execute(fd, path);
        bench_add(&s[SERVE_CREATE], bench_elapsed_us(start));
        failed += !ok || !client_end(fd, path);
    }
    return failed;
}

/* ---- many clients ---- */

struct crowd {
    const struct bench_server *server;
    unsigned sandboxes; /* of each client */
    _Atomic unsigned failed;
    char (*paths)[ID_SIZE + 32]; /* of all that live */
    _Atomic unsigned next;
};

/* As fast as it can; beyond KEPT, each takes the place of the client's oldest, which it ends. */
static void *crowd_create(void *arg)
{
    struct crowd *c = arg;
    cleanup_fd int fd = client_open(c->server);
    unsigned first = c->next++ * KEPT;
    for (unsigned i = 0; i < c->sandboxes; i++) {
        char *path = c->paths[first + i % KEPT];
        if (fd < 0 || (path[0] && !client_end(fd, path)) || !client_create(fd, path))
            c->failed++;
    }
    return NULL;
}

static void *crowd_end(void *arg)
{
    struct crowd *c = arg;
    cleanup_fd int fd = client_open(c->server);
    unsigned first = c->next++ * KEPT;
    for (unsigned i = 0; i < KEPT && c->paths[first + i][0]; i++)
        if (fd < 0 || !client_end(fd, c->paths[first + i]))
            c->failed++;
    return NULL;
}

/* Lets all do it at once; the seconds that it took. */
static double crowd_run(struct crowd *c, void *(*what)(void *))
{
    pthread_t threads[CLIENTS];
    uint64_t start = clock_ns();
    c->next = 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        if (pthread_create(&threads[i], NULL, what, c) != 0)
            abort(); /* a measurement without its threads measures nothing */
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    return clock_seconds_since(start);
}

/* None that was created may be left: the list is empty. */
static unsigned bench_crowd(const struct bench_server *server, struct series *s, unsigned n)
{
    struct crowd c = { .server = server, .sandboxes = (n + CLIENTS - 1) / CLIENTS };
    unsigned live = c.sandboxes < KEPT ? c.sandboxes : KEPT;
    char left[256] = "";
    cleanup_free void *paths = calloc((size_t)CLIENTS * KEPT, sizeof *c.paths);
    if (!paths)
        return 1;
    c.paths = paths;
    bench_add(&s[SERVE_RATE], c.sandboxes * CLIENTS / crowd_run(&c, crowd_create));
    bench_add(&s[SERVE_RATE_END], live * CLIENTS / crowd_run(&c, crowd_end));
    cleanup_fd int fd = client_open(server);
    if (client_ask(fd, "GET", "/v1/sandboxes", "", left, sizeof left) != 200 ||
        !strstr(left, "\"sandboxes\":[]"))
        c.failed++;
    return c.failed;
}

int bench_serve(droste *d, struct series *s, unsigned n, droste_error *err)
{
    struct bench_server server = { 0 };
    char workers[16], path[ID_SIZE + 32];
    const char *found = droste_python(d, err);
    cleanup_free char *python = found ? strdup(found) : NULL;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(workers, sizeof workers, "%ld",
        processors < 1    ? 1
        : processors < 16 ? processors
                          : 16);
    if (!python || server_start(&server, workers, err) < 0)
        return -DROSTE_ERROR_ENVIRONMENT;
    cleanup_fd int fd = client_open(&server);
    unsigned failed = !client_create(fd, path);
    failed += bench_cells(fd, path, &s[0], n / 2);
    for (unsigned round = 0; round * 2 < bench_rounds; round++) {
        failed += bench_creates(fd, s, 20);
        bench_bare_forks(&s[SERVE_FORK], python, NULL, 20);
    }
    failed += !client_end(fd, path);
    failed += bench_crowd(&server, s, bench_sessions(n < 640 ? CLIENTS : 640));
    bench_add(&s[SERVE_FAILED], failed);
    spawn_end(server.pid);
    return 0;
}
