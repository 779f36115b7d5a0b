/* env/bridge.c: see bridge.h. What the program says is checked like a stranger's: what does not fit ends it, and all
 * sandboxes with it. The next sandbox starts it anew.
 */
#include "env/bridge.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/process.h"
#include "env/carried.h"

enum {
    READ_SIZE = 65536,
    LINE_LIMIT = 65536,
    FAREWELL_MS = 5000, /* for it to end what it has opened */
};

/* One sandbox of it. */
struct crossing {
    LIST_ENTRY(crossing) link;
    struct bridge *bridge;
    struct carrier *carrier;
    int64_t id;
};
LIST_HEAD(crossing_list, crossing);

struct bridge {
    struct carrier_ops ops;
    struct loop *loop;
    char *path;
    struct process process;
    struct buf line; /* of its output, so far */
    uint64_t left;   /* raw bytes that are to come */
    int64_t left_of; /* and for whom */
    int64_t last_id;
    struct crossing_list crossings;
};

static struct crossing *find(const struct bridge *b, int64_t id)
{
    struct crossing *c;
    LIST_FOREACH(c, &b->crossings, link)
    if (c->id == id)
        return c;
    return NULL;
}

/* ---- its life ---- */

/* It is gone, or is to be: so are all of its sandboxes. */
static void give_up(struct bridge *b, const struct error *why)
{
    struct crossing *c;
    struct error told = *why;
    if (b->process.pid > 0)
        process_end(&b->process, 0);
    process_forget(&b->process);
    buf_clear(&b->process.to_send);
    b->process.sent = 0;
    buf_clear(&b->line);
    b->left = 0;
    LIST_FOREACH(c, &b->crossings, link)
    carrier_ended(c->carrier, &told);
}

static void refuse(struct bridge *b, const char *what)
{
    struct error why = { 0 };
    error_set(&why, ERROR_ENVIRONMENT, "bridge:%.80s %.100s (docs/environments.md)", b->path, what);
    give_up(b, &why);
}

static void program_ended(void *arg, int status, int events)
{
    struct bridge *b = arg;
    struct error why = { 0 };
    char words[PROCESS_WORDS_SIZE];
    int how = process_end(&b->process, 0);
    process_read_complaints(&b->process);
    process_last_words(&b->process, words);
    if (WIFSIGNALED(how))
        error_set(
            &why, ERROR_LOST, "bridge:%.80s died of signal %d%s", b->path, WTERMSIG(how), words);
    else
        error_set(&why, ERROR_LOST, "bridge:%.80s ended with status %d%s", b->path,
            WEXITSTATUS(how), words);
    b->process.pid = 0;
    give_up(b, &why);
}

/* ---- what it says ---- */

static int64_t id_in(struct json_object *o, const char *key)
{
    return json_get_int(o, key, 0);
}

static void told_end(struct crossing *c, struct json_object *o)
{
    const char *text = json_get_string(o, "why", NULL);
    struct error why = { 0 };
    if (text)
        error_set(&why, ERROR_ENVIRONMENT, "bridge:%.60s: %.160s", c->bridge->path, text);
    carrier_ended(c->carrier, &why);
}

/* False for what is no message. Of a sandbox that was closed meanwhile nothing is heard. */
static bool take_message(struct bridge *b, struct json_object *o)
{
    struct crossing *c;
    int64_t bytes = json_get_int(o, "bytes", 0);
    if (id_in(o, "read") > 0) {
        b->left = bytes > 0 ? (uint64_t)bytes : 0;
        b->left_of = id_in(o, "read");
        return bytes >= 0;
    }
    if ((c = find(b, id_in(o, "joined"))))
        carrier_joined(c->carrier);
    else if ((c = find(b, id_in(o, "lost"))))
        carrier_cut(c->carrier);
    else if ((c = find(b, id_in(o, "ended"))))
        told_end(c, o);
    return id_in(o, "joined") > 0 || id_in(o, "lost") > 0 || id_in(o, "ended") > 0;
}

static void take_line(struct bridge *b)
{
    cleanup_json struct json_object *o = NULL;
    int rc = json_parse(b->line.data, b->line.len, &json_limits_small, &o, NULL);
    buf_clear(&b->line);
    if (rc < 0 || !json_object_is_type(o, json_type_object) || !take_message(b, o))
        refuse(b, "says what is no message");
}

static void take(struct bridge *b, const char *data, size_t len)
{
    while (len > 0 && b->process.pid > 0) {
        size_t n = len;
        if (b->left > 0) {
            struct crossing *c = find(b, b->left_of);
            n = b->left < len ? (size_t)b->left : len;
            b->left -= n;
            if (c)
                carrier_bytes(c->carrier, data, n);
        } else {
            const char *newline = memchr(data, '\n', len);
            n = newline ? (size_t)(newline - data) + 1 : len;
            buf_append(&b->line, data, n);
            if (buf_failed(&b->line) || b->line.len > LINE_LIMIT)
                refuse(b, "says a line without an end");
            else if (newline)
                take_line(b);
        }
        data += n;
        len -= n;
    }
}

static void output_ready(void *arg, int status, int events)
{
    struct bridge *b = arg;
    char data[READ_SIZE];
    ssize_t n = read(b->process.out, data, sizeof data);
    if (n > 0)
        take(b, data, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        watch_events(b->process.out_watch, 0); /* its end is told by its process */
}

/* ---- what it is told ---- */

static void tell(struct bridge *b, const char *key, int64_t id)
{
    if (b->process.pid == 0)
        return;
    buf_printf(&b->process.to_send, "{\"%s\":%lld}\n", key, (long long)id);
    process_send(&b->process);
}

static void bridge_write(void *own, const struct iovec *iov, int count)
{
    struct crossing *c = own;
    struct process *p = &c->bridge->process;
    size_t len = 0;
    if (p->pid == 0)
        return;
    for (int i = 0; i < count; i++)
        len += iov[i].iov_len;
    buf_printf(&p->to_send, "{\"write\":%lld,\"bytes\":%zu}\n", (long long)c->id, len);
    for (int i = 0; i < count; i++)
        buf_append(&p->to_send, iov[i].iov_base, iov[i].iov_len);
    process_send(p);
}

static void bridge_pause(void *own, bool paused)
{
    struct crossing *c = own;
    tell(c->bridge, paused ? "pause" : "resume", c->id);
}

static void bridge_end(void *own)
{
    struct crossing *c = own;
    tell(c->bridge, "close", c->id);
    LIST_REMOVE(c, link);
    free(c);
}

static int run_program(struct bridge *b, struct error *err)
{
    if (b->process.pid > 0)
        return 0;
    return process_start(
        &b->process, b->loop, b->path, "bridge:", output_ready, program_ended, b, err);
}

static void tell_open(struct crossing *c, const struct sandbox_spec *spec, const char *const *words)
{
    struct buf *out = &c->bridge->process.to_send;
    buf_printf(out, "{\"open\":%lld,\"words\":[", (long long)c->id);
    for (size_t i = 0; words[i]; i++) {
        buf_puts(out, i ? "," : "");
        json_append_string(out, words[i], strlen(words[i]));
    }
    buf_printf(out, "],\"memory\":%llu,\"processes\":%llu}\n",
        (unsigned long long)spec->limits.memory, (unsigned long long)spec->limits.processes);
    process_send(&c->bridge->process);
}

static int bridge_start(void *arg, struct carrier *carrier, const struct sandbox_spec *spec,
    const char *const *words, void **own, struct error *err)
{
    struct bridge *b = arg;
    int rc = run_program(b, err);
    if (rc < 0)
        return rc;
    struct crossing *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    *c = (struct crossing){ .bridge = b, .carrier = carrier, .id = ++b->last_id };
    LIST_INSERT_HEAD(&b->crossings, c, link);
    tell_open(c, spec, words);
    *own = c;
    return 0;
}

/* Its input ends, and it has a while to end what is far away. */
static void bridge_free(void *arg)
{
    struct bridge *b = arg;
    struct pollfd gone = { .fd = b->process.pidfd, .events = POLLIN };
    if (b->process.pid > 0) {
        close_fd(&b->process.in);
        (void)poll(&gone, 1, FAREWELL_MS);
        process_end(&b->process, 0);
    }
    process_free(&b->process);
    buf_free(&b->line);
    free(b->path);
    free(b);
}

int bridge_open(struct loop *loop, const char *path, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    struct bridge *b = calloc(1, sizeof *b);
    if (!b)
        return error_memory(err);
    *b = (struct bridge){ .loop = loop };
    process_init(&b->process);
    LIST_INIT(&b->crossings);
    b->path = strdup(path);
    b->ops = (struct carrier_ops){ .name = "bridge",
        .start = bridge_start,
        .write = bridge_write,
        .pause = bridge_pause,
        .end = bridge_end,
        .free = bridge_free };
    if (!b->path) {
        bridge_free(b);
        return error_memory(err);
    }
    return carried_open(loop, &b->ops, b, out, err);
}
