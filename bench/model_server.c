/* bench/model_server.c: a model server that costs next to nothing: model_server [DELAY_MS]
 *
 * Prints its port on 127.0.0.1, answers every POST with one short chat completion after the delay, and
 * ends when its standard input closes; then it prints how many requests it had, and how many were open
 * at most. One thread over epoll; HTTP/1.1 with connections that stay, and bodies with a length. What a
 * client reaches here is the client's own speed.
 */
#include <errno.h>
#include <netinet/in.h>
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

enum { EVENTS = 256, ROOM = 16384 };

static const char reply[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 182\r\n\r\n"
    "{\"id\":\"x\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
    "\"assistant\",\"content\":\"four\"},\"finish_reason\":\"stop\"}],\"usage\":{"
    "\"prompt_tokens\":9,\"completion_tokens\":1}}";

struct client {
    int fd;
    uint64_t due; /* ns; 0: no request is being answered */
    struct client *next;
    size_t have;   /* bytes of a head */
    uint64_t body; /* bytes of a body that are still to come */
    bool in_body;
    char head[ROOM];
};

static struct {
    int epoll, listener;
    uint64_t delay;               /* ns */
    struct client *first, **last; /* that wait, the soonest first */
    unsigned long requests, open, most;
} server;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void answer(struct client *c)
{
    server.open--;
    c->due = 0;
    if (write(c->fd, reply, sizeof reply - 1) < 0)
        shutdown(c->fd, SHUT_RDWR);
}

static void request_is_whole(struct client *c)
{
    server.requests++;
    if (++server.open > server.most)
        server.most = server.open;
    if (server.delay == 0) {
        answer(c);
        return;
    }
    c->due = now() + server.delay;
    c->next = NULL;
    *server.last = c;
    server.last = &c->next;
}

/* The length of the body, once the head is whole: then true. */
static bool take_head(struct client *c)
{
    c->head[c->have] = '\0';
    char *end = strstr(c->head, "\r\n\r\n"), *field = strcasestr(c->head, "\r\ncontent-length:");
    if (!end)
        return false;
    uint64_t length = field && field < end ? strtoull(field + 17, NULL, 10) : 0;
    size_t behind = c->have - (size_t)(end + 4 - c->head);
    c->body = length > behind ? length - behind : 0;
    c->have = 0;
    return true;
}

/* False where the connection is over. */
static bool read_some(struct client *c)
{
    static char body[1 << 20];
    char *to = c->in_body ? body : c->head + c->have;
    size_t room = c->in_body ? sizeof body : ROOM - 1 - c->have;
    if (c->in_body && room > c->body)
        room = c->body;
    ssize_t n = room > 0 ? read(c->fd, to, room) : 0;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    if (c->in_body) {
        c->body -= (uint64_t)n;
    } else {
        c->have += (size_t)n;
        if (!take_head(c))
            return true;
        c->in_body = true;
    }
    if (c->body == 0) {
        c->in_body = false;
        request_is_whole(c);
    }
    return true;
}

static void forget(struct client *c)
{
    struct client **at = &server.first;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at) {
        *at = c->next;
        server.open--;
        for (server.last = &server.first; *server.last;)
            server.last = &(*server.last)->next;
    }
    close(c->fd);
    free(c);
}

static void take_client(void)
{
    int fd, one = 1;
    while ((fd = accept4(server.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct client *c = calloc(1, sizeof *c);
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!c || epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
            close(fd);
            free(c);
            continue;
        }
        c->fd = fd;
    }
}

static int answer_those_due(void)
{
    uint64_t time = server.first ? now() : 0;
    while (server.first && server.first->due <= time) {
        struct client *c = server.first;
        server.first = c->next;
        if (!server.first)
            server.last = &server.first;
        answer(c);
    }
    return server.first ? (int)((server.first->due - time) / 1000000) + 1 : -1;
}

static int listen_here(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server.listener < 0 || bind(server.listener, (struct sockaddr *)&address, size) < 0 ||
        listen(server.listener, 4096) < 0 ||
        getsockname(server.listener, (struct sockaddr *)&address, &size) < 0)
        return -1;
    printf("%d\n", ntohs(address.sin_port));
    return fflush(stdout);
}

static bool handle(const struct epoll_event *event)
{
    struct client *c = event->data.ptr;
    if (!c)
        return false; /* standard input */
    if ((void *)c == (void *)&server)
        take_client();
    else if (!read_some(c))
        forget(c);
    return true;
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS], input = { .events = EPOLLIN | EPOLLHUP },
                                       arrivals = { .events = EPOLLIN, .data.ptr = &server };
    struct rlimit files;
    bool running = true;
    server.delay = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000000 : 0;
    server.last = &server.first;
    server.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (listen_here() < 0 ||
        epoll_ctl(server.epoll, EPOLL_CTL_ADD, server.listener, &arrivals) < 0 ||
        epoll_ctl(server.epoll, EPOLL_CTL_ADD, STDIN_FILENO, &input) < 0)
        return 1;
    while (running) {
        int n = epoll_wait(server.epoll, events, EVENTS, answer_those_due());
        for (int i = 0; i < n; i++)
            running = handle(&events[i]) && running;
    }
    printf("%lu requests, %lu open at most\n", server.requests, server.most);
    return 0;
}
