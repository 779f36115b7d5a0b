/* An environment of one's own: Python over ssh, or by any other command that runs a program and joins its streams.
 *
 *     cc -shared -fPIC -I include -o environment.so examples/environment.c
 *     DROSTE_EXAMPLE_COMMAND="ssh -T somewhere" droste exec --env plugin:./environment.so -c 'print(1 + 1)'
 *
 * The words of DROSTE_EXAMPLE_COMMAND come first, then one that is a line for a shell; without it the line runs here.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "droste_environment.h"

struct own {
    const droste_environment_host *host;
    droste_transport *transport;
    pid_t pid;
    int fd; /* its standard input and output */
    droste_watch *watch;
    char *waiting; /* bytes that its input has not taken yet */
    size_t len;
    int paused, joined;
};

static void look_for(struct own *o)
{
    int events =
        (o->paused ? 0 : DROSTE_READABLE) | (o->len > 0 || !o->joined ? DROSTE_WRITABLE : 0);
    o->host->change(o->watch, events);
}

/* Sends what its input takes; what is left waits. */
static void flush(struct own *o)
{
    ssize_t n = o->len ? send(o->fd, o->waiting, o->len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (n > 0) {
        memmove(o->waiting, o->waiting + n, o->len - (size_t)n);
        o->len -= (size_t)n;
    }
    look_for(o);
}

static void ready(void *arg, int events)
{
    struct own *o = arg;
    char data[65536];
    if (!o->joined) {
        o->joined = 1;
        o->host->joined(o->transport);
    }
    if (events & DROSTE_WRITABLE)
        flush(o);
    ssize_t n = events & DROSTE_READABLE ? recv(o->fd, data, sizeof data, MSG_DONTWAIT) : 1;
    if (n > 0 && (events & DROSTE_READABLE)) {
        o->host->bytes(o->transport, data, (size_t)n);
    } else if (n == 0 || (n < 0 && errno != EAGAIN)) {
        o->host->change(o->watch, 0);
        o->host->ended(o->transport, NULL);
    }
}

/* One word for a shell: in single quotes. */
static void add_quoted(FILE *line, const char *word)
{
    fputc('\'', line);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){ *word, 0 }, line);
    fputs("' ", line);
}

static void run(const droste_environment_spec *spec, int fd)
{
    const char *command = getenv("DROSTE_EXAMPLE_COMMAND");
    char *text = NULL;
    size_t size = 0;
    FILE *line = open_memstream(&text, &size);
    if (command && command[0]) { /* the shell there reads the line again */
        char *far = NULL;
        FILE *inner = open_memstream(&far, &size);
        for (size_t i = 0; spec->words[i]; i++)
            add_quoted(inner, spec->words[i]);
        fclose(inner);
        fprintf(line, "exec %s ", command);
        add_quoted(line, far);
    } else {
        fputs("exec ", line);
        for (size_t i = 0; spec->words[i]; i++)
            add_quoted(line, spec->words[i]);
    }
    fclose(line);
    setsid();
    dup2(fd, 0);
    dup2(fd, 1);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

static int start(const droste_environment_host *host, droste_transport *c,
    const droste_environment_spec *spec, void **own, char *why, size_t why_size)
{
    int pair[2];
    struct own *o = calloc(1, sizeof *o);
    if (!o || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        snprintf(why, why_size, "no socket: %s", strerror(errno));
        free(o);
        return -1;
    }
    *o = (struct own){ .host = host, .transport = c, .fd = pair[0], .pid = fork() };
    if (o->pid == 0)
        run(spec, pair[1]);
    close(pair[1]);
    o->watch = host->watch(c, o->fd, DROSTE_READABLE | DROSTE_WRITABLE, ready, o);
    *own = o;
    return 0;
}

static void write_to(void *own, const char *data, size_t len)
{
    struct own *o = own;
    char *longer = realloc(o->waiting, o->len + len);
    if (!longer)
        return;
    memcpy(longer + o->len, data, len);
    o->waiting = longer;
    o->len += len;
    flush(o);
}

static void set_paused(void *own, int paused)
{
    struct own *o = own;
    o->paused = paused;
    look_for(o);
}

static void end(void *own)
{
    struct own *o = own;
    o->host->unwatch(o->watch);
    close(o->fd);
    kill(-o->pid, SIGKILL);
    waitpid(o->pid, NULL, 0);
    free(o->waiting);
    free(o);
}

const droste_environment droste_environment_v1 = {
    .size = sizeof(droste_environment),
    .name = "command",
    .start = start,
    .write = write_to,
    .pause = set_paused,
    .end = end,
};
