/* mcp_client/stdio.c: an MCP server that is a program, with a message in each line of its standard
 * input and output.
 *
 * Its standard error is read, so that it does not block, and its last line becomes part of the
 * error when the program ends. Lines that are not messages are the client's to judge.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/process.h"
#include "mcp_client/spec.h"
#include "mcp_client/transport.h"

/* READS_AT_ONCE bounds what one turn of the loop takes, so that endless output blocks nothing. */
enum { READ_SIZE = 64 << 10, READS_AT_ONCE = 16, FAREWELL_MS = 300 };

struct stdio {
    struct mcp_transport base; /* first */
    char *name;
    struct process process;
    struct list words, environment;
    struct buf in;  /* incomplete line */
    unsigned depth; /* our frames on the stack; the last one frees a closed one */
    bool closed;
};

static struct stdio *stdio_of(struct mcp_transport *t)
{
    return (struct stdio *)(void *)t;
}

static void stdio_free(struct stdio *s)
{
    if (s->process.pid > 0)
        process_end(&s->process, FAREWELL_MS);
    process_free(&s->process);
    list_clear(&s->words);
    list_clear(&s->environment);
    buf_free(&s->in);
    free(s->name);
    free(s);
}

static void stdio_leave(struct stdio *s)
{
    if (--s->depth == 0 && s->closed)
        stdio_free(s);
}

static void stdio_close(struct mcp_transport *t)
{
    struct stdio *s = stdio_of(t);
    s->closed = true;
    s->depth++;
    stdio_leave(s);
}

/* ---- its output ---- */

static void stdio_lost(struct stdio *s, const struct error *why)
{
    if (!s->closed)
        s->base.events->lost(s->base.arg, MCP_LOSS_CONNECTION, 0, why);
}

static void stdio_take_lines(struct stdio *s)
{
    cleanup_buf struct buf lines = { 0 };
    const char *end = s->in.len ? memrchr(s->in.data, '\n', s->in.len) : NULL;
    if (!end)
        return;
    buf_append(&lines, s->in.data, (size_t)(end + 1 - s->in.data));
    buf_consume(&s->in, (size_t)(end + 1 - s->in.data));
    for (char *at = lines.data; !s->closed && at && at < lines.data + lines.len;) {
        char *newline = memchr(at, '\n', (size_t)(lines.data + lines.len - at));
        size_t len = (size_t)(newline - at);
        if (strspn(at, " \t\r") < len)
            s->base.events->message(s->base.arg, at, len);
        at = newline + 1;
    }
}

/* Reads once; false at the end, and if nothing is there. */
static bool stdio_read(struct stdio *s, struct error *err)
{
    size_t before = s->in.len;
    if (!buf_reserve(&s->in, READ_SIZE)) {
        error_memory(err);
        return false;
    }
    ssize_t n = read(s->process.out, s->in.data + before, READ_SIZE);
    if (n <= 0)
        return false;
    s->in.len += (size_t)n;
    s->in.data[s->in.len] = '\0';
    if (memchr(s->in.data + before, '\n', (size_t)n))
        stdio_take_lines(s);
    else if (s->in.len > MCP_MESSAGE_MAX)
        error_set(err, ERROR_PROTOCOL, "the MCP server '%.64s' wrote a line of more than %zu MiB",
            s->name, MCP_MESSAGE_MAX >> 20);
    return err->code == ERROR_NONE && !s->closed;
}

static void stdio_process_ended(void *arg, int status, int events)
{
    struct stdio *s = arg;
    struct error err = { 0 };
    char words[PROCESS_WORDS_SIZE];
    s->depth++;
    while (stdio_read(s, &err)) /* its last answers may still be in the pipe */
        ;
    if (!s->closed) {
        process_read_complaints(&s->process);
        int how = process_end(&s->process, 0);
        process_last_words(&s->process, words);
        process_forget(&s->process);
        if (err.code == ERROR_NONE && WIFSIGNALED(how))
            error_set(&err, ERROR_LOST, "the MCP server '%.64s' was ended by signal %d%s", s->name,
                WTERMSIG(how), words);
        else if (err.code == ERROR_NONE)
            error_set(&err, ERROR_LOST, "the MCP server '%.64s' ended with exit status %d%s",
                s->name, WEXITSTATUS(how), words);
        stdio_lost(s, &err);
    }
    stdio_leave(s);
}

/* Usually it is about to end, and its exit status says more. */
static void stdio_output_closed(struct stdio *s)
{
    struct error err = { 0 };
    struct pollfd gone = { .fd = s->process.pidfd, .events = POLLIN };
    watch_events(s->process.out_watch, 0);
    if (poll(&gone, 1, FAREWELL_MS) > 0) {
        stdio_process_ended(s, 0, 0);
        return;
    }
    error_set(&err, ERROR_LOST, "the MCP server '%.64s' has closed its output", s->name);
    stdio_lost(s, &err);
}

static void stdio_output_ready(void *arg, int status, int events)
{
    struct stdio *s = arg;
    struct error err = { 0 };
    struct pollfd output = { .fd = s->process.out, .events = POLLIN };
    s->depth++;
    for (unsigned i = 0; i < READS_AT_ONCE && stdio_read(s, &err); i++)
        ;
    if (err.code != ERROR_NONE)
        stdio_lost(s, &err);
    if (!s->closed && poll(&output, 1, 0) > 0 && !(output.revents & POLLIN))
        stdio_output_closed(s);
    stdio_leave(s);
}

/* ---- its input ---- */

static int stdio_send(struct mcp_transport *t, const struct mcp_outgoing *m, struct error *err)
{
    struct stdio *s = stdio_of(t);
    struct buf *out = &s->process.to_send;
    if (out->len + m->len > MCP_MESSAGE_MAX)
        return error_set(
            err, ERROR_IO, "the MCP server '%.64s' does not read what it is sent", s->name);
    buf_append(out, m->text, m->len);
    buf_putc(out, '\n');
    if (buf_failed(out))
        return error_memory(err);
    if (process_send(&s->process) < 0)
        return error_set(err, ERROR_IO, "writing to the MCP server '%.64s'", s->name);
    process_send_now(&s->process);
    return 0;
}

static const struct mcp_transport_ops stdio_ops = { .send = stdio_send, .close = stdio_close };

int mcp_stdio_open(struct loop *loop, const struct mcp_spec *spec,
    const struct mcp_transport_events *events, void *arg, struct mcp_transport **out,
    struct error *err)
{
    struct stdio *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    s->base = (struct mcp_transport){ &stdio_ops, events, arg };
    process_init(&s->process);
    s->name = strdup(spec->name);
    int rc = s->name ? list_add_all(&s->words, &spec->words, err) : error_memory(err);
    if (rc == 0)
        rc = list_add_end(&s->words, err);
    if (rc == 0)
        rc = mcp_spec_environment(spec, &s->environment, err);
    s->process.words = (const char *const *)s->words.items + 1;
    s->process.environment = (const char *const *)s->environment.items;
    if (rc == 0)
        rc = process_start(&s->process, loop, s->words.items[0], "the MCP server ",
            stdio_output_ready, stdio_process_ended, s, err);
    if (rc < 0) {
        stdio_free(s);
        return rc;
    }
    *out = &s->base;
    return 0;
}
