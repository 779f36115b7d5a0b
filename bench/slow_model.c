/* bench/slow_model.c: a model server that answers everything after so many milliseconds.
 *
 *     slow_model MILLISECONDS CALLS
 *
 * It speaks as much of OpenAI's chat completions over HTTP/1.1 as bench/batch needs: whole answers
 * on connections that stay. A request with a system message comes from a run; its answer is code
 * that asks CALLS times and submits the sum of the answers. Every other request is answered with
 * "1". All requests wait equally long, so a queue is enough to schedule the answers. The program
 * prints its port at the start, and its figures when its standard input ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FDS_MAX = 1 << 16, ROOM = 1 << 17, EVENTS = 256 };

struct connection {
    char *in;
    size_t len;
    unsigned turn; /* of its uses: an answer for one that is gone goes nowhere */
};

struct owed {
    uint64_t due_ns;
    int fd;
    unsigned turn;
    bool root;
};

static struct connection connections[FDS_MAX];
static struct owed *queue;
static size_t first, count, room;
static uint64_t delay_ns, answered, most;
static char root_reply[1024], plain_reply[512];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void make_reply(char *out, size_t size, const char *content)
{
    char body[800];
    int len = snprintf(body, sizeof body,
        "{\"id\":\"x\",\"object\":\"chat.completion\",\"model\":\"slow\",\"choices\":[{\"index\":0,"
        "\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10}}",
        content);
    snprintf(out, size,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len,
        body);
}

static void owe(int fd, bool root)
{
    if (count == room) {
        struct owed *bigger = calloc(room ? 2 * room : 1024, sizeof *bigger);
        if (!bigger)
            die("calloc");
        for (size_t i = 0; i < count; i++)
            bigger[i] = queue[(first + i) % room];
        free(queue);
        queue = bigger;
        room = room ? 2 * room : 1024;
        first = 0;
    }
    queue[(first + count++) % room] =
        (struct owed){ now_ns() + delay_ns, fd, connections[fd].turn, root };
    most = count > most ? count : most;
}

static void answer_due(void)
{
    uint64_t now = now_ns();
    for (; count > 0 && queue[first].due_ns <= now; first = (first + 1) % room, count--) {
        const struct owed *o = &queue[first];
        const char *reply = o->root ? root_reply : plain_reply;
        size_t len = strlen(reply);
        if (o->turn != connections[o->fd].turn)
            continue;
        answered++;
        if (write(o->fd, reply, len) != (ssize_t)len)
            fprintf(stderr, "slow_model: an answer was not taken whole\n");
    }
}

static void hang_up(int fd)
{
    free(connections[fd].in);
    connections[fd] = (struct connection){ .turn = connections[fd].turn + 1 };
    close(fd);
}

/* A whole request at the beginning of what came, taken; 0: there is none yet. */
static bool take_request(int fd)
{
    struct connection *c = &connections[fd];
    char *end = c->len ? memmem(c->in, c->len, "\r\n\r\n", 4) : NULL;
    if (!end)
        return false;
    *end = '\0';
    const char *length = strcasestr(c->in, "\nContent-Length:");
    size_t head = (size_t)(end + 4 - c->in), body = length ? strtoul(length + 16, NULL, 10) : 0;
    *end = '\r';
    if (c->len < head + body)
        return false;
    owe(fd, memmem(c->in + head, body, "\"system\"", 8) != NULL);
    memmove(c->in, c->in + head + body, c->len - head - body);
    c->len -= head + body;
    return true;
}

static void read_from(int fd)
{
    struct connection *c = &connections[fd];
    if (!c->in && !(c->in = malloc(ROOM + 1)))
        die("malloc");
    ssize_t n = read(fd, c->in + c->len, ROOM - c->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        hang_up(fd);
        return;
    }
    c->len += (size_t)n;
    c->in[c->len] = '\0';
    while (take_request(fd))
        ;
    if (c->len == 0) {
        free(c->in);
        c->in = NULL;
    }
}

static int listen_here(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        die("listening");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void accept_all(int poll, int listener)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
        if (fd >= FDS_MAX) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    }
}

static void tell_figures(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"answered\":%llu,\"most_at_once\":%llu,\"cpu_seconds\":%.3f}\n",
        (unsigned long long)answered, (unsigned long long)most,
        (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
            (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
}

static void raise_descriptors(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

/* Milliseconds until the next answer is due; -1 if no request waits. */
static int pause_ms(void)
{
    uint64_t now = now_ns();
    if (count == 0)
        return -1;
    return queue[first].due_ns <= now ? 0 : (int)((queue[first].due_ns - now + 999999) / 1000000);
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS], event = { .events = EPOLLIN };
    char code[400];
    if (argc != 3)
        return 2;
    delay_ns = strtoull(argv[1], NULL, 10) * 1000000;
    snprintf(code, sizeof code,
        "```repl\\nSUBMIT(answer=sum(int(llm_query('one')) for _ in range(%lu)))\\n```",
        strtoul(argv[2], NULL, 10));
    make_reply(root_reply, sizeof root_reply, code);
    make_reply(plain_reply, sizeof plain_reply, "1");
    raise_descriptors();
    int listener = listen_here(), poll = epoll_create1(EPOLL_CLOEXEC);
    event.data.fd = listener;
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = STDIN_FILENO;
    epoll_ctl(poll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        int n = epoll_wait(poll, events, EVENTS, pause_ms());
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == STDIN_FILENO) {
                tell_figures();
                return 0;
            }
            if (fd == listener)
                accept_all(poll, listener);
            else
                read_from(fd);
        }
        answer_due();
    }
}
