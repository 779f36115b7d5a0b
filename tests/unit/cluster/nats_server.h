/* tests/unit/cluster/nats_server.h: a NATS server of the test's own, with JetStream. */
#pragma once

#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct nats_server {
    pid_t pid; /* 0: it does not run */
    int port;
    char directory[64], url[64];
    const char *config; /* NULL: none */
};

static inline bool nats_server_is_installed(void)
{
    return access("/usr/sbin/nats-server", X_OK) == 0 || access("/usr/bin/nats-server", X_OK) == 0;
}

static inline int nats_server_free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static inline bool nats_server_answers(const struct nats_server *s)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)s->port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return answers;
}

/* Another program may take the port before the server does, which then ends. */
static inline bool nats_server_ended(struct nats_server *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) != s->pid)
        return false;
    s->pid = 0;
    return true;
}

static inline bool nats_server_try(struct nats_server *s)
{
    char port[16];
    snprintf(port, sizeof port, "%d", s->port);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, 1);
        dup2(nothing, 2);
        execlp("nats-server", "nats-server", "-js", "-a", "127.0.0.1", "-p", port, "-sd",
            s->directory, s->config ? "-c" : (char *)NULL, s->config, (char *)NULL);
        _exit(127);
    }
    while (!nats_server_ended(s)) {
        if (nats_server_answers(s))
            return true;
        usleep(20000);
    }
    return false;
}

/* Starts it, again with the same port and directory if it ran before. */
static inline void nats_server_start(struct nats_server *s)
{
    bool is_new = s->port == 0;
    if (is_new) {
        snprintf(s->directory, sizeof s->directory, "/tmp/droste-nats-XXXXXX");
        assert_non_null(mkdtemp(s->directory));
    }
    for (int tries = 0; tries < 20; tries++) {
        if (is_new) {
            s->port = nats_server_free_port();
            snprintf(s->url, sizeof s->url, "nats://127.0.0.1:%d", s->port);
        }
        if (nats_server_try(s))
            return;
        usleep(100000);
    }
    fail_msg("nats-server does not start on port %d", s->port);
}

static inline void nats_server_stop(struct nats_server *s)
{
    if (s->pid == 0)
        return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

static inline int nats_server_remove(
    const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static inline void nats_server_end(struct nats_server *s)
{
    nats_server_stop(s);
    if (s->port)
        nftw(s->directory, nats_server_remove, 16, FTW_DEPTH | FTW_PHYS);
}
