/* env/remote/bridge.c: runs a bridge program and translates between its messages and transports.
 * The program's output is untrusted: an invalid message ends the program and all its sandboxes. The
 * next sandbox starts it again.
 */
#include "env/remote/bridge.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/os/process.h"
#include "env/common/orphans.h"
#include "env/common/owner_labels.h"
#include "env/remote/bridge_spec.h"
#include "env/remote/stdio_env.h"

enum {
    READ_SIZE = 65536,
    LINE_LIMIT = 65536,
    LONG_LINE_LIMIT = 1 << 20, /* after the greeting: lists of sandboxes are long */
    GOODBYE_MS = 5000,         /* time for it to end everything */
    CLOSED_MS = 900000,        /* time to write back a volume; bridges give up earlier */
    COLLECT_MS = 120000,       /* time for an answer about sandboxes of dead hosts */
    TITLE_MAX = 90,
};

#define VOLUME_MOUNT "/data"

/* One sandbox of the bridge. */
struct bridge_sandbox {
    LIST_ENTRY(bridge_sandbox) link;
    struct bridge *bridge;
    struct transport *transport; /* NULL: closed by its owner */
    int64_t id;
    uint64_t needs; /* features that the program must declare: bits of enum feature */
    bool has_volume;
    bool closing; /* "close" was sent; with a volume it stays until that is written back */
    struct timer *patience;
    char *far_id;
};
LIST_HEAD(bridge_sandbox_list, bridge_sandbox);

struct bridge {
    struct transport_ops ops;
    struct environment *env;
    struct loop *loop;
    struct bridge_program program;
    char *path; /* of a user's bridge; else NULL */
    char title[TITLE_MAX];
    struct feature_state features[FEATURE_COUNT]; /* as declared in the greeting */
    bool heard, can_collect, swept;
    struct process process;
    struct buf line; /* the incomplete line of its output */
    uint64_t left;   /* raw bytes still to come */
    int64_t left_of; /* the sandbox that they are for */
    int64_t last_id;
    struct bridge_sandbox_list sandboxes;
    struct orphans orphans;
    int64_t last_request;          /* the number of the last request about them */
    struct timer *collect_timeout; /* NULL: none is under way */
};

static struct bridge_sandbox *bridge_find(const struct bridge *b, int64_t id)
{
    struct bridge_sandbox *c;
    LIST_FOREACH(c, &b->sandboxes, link)
    if (c->id == id)
        return c;
    return NULL;
}

/* ---- the end of a sandbox ---- */

static void bridge_forget(struct bridge_sandbox *c)
{
    LIST_REMOVE(c, link);
    timer_free(c->patience);
    free(c->far_id);
    free(c);
}

/* Its volume is written back, or that has failed. An error that no caller waits for becomes a
 * notice. */
static void bridge_closed(struct bridge_sandbox *c, const struct error *why)
{
    struct transport *transport = c->transport;
    struct environment_base *base = (struct environment_base *)c->bridge->env;
    struct error cause = *why;
    c->has_volume = false;
    timer_stop(c->patience);
    if (transport) {
        transport_finished(transport, &cause);
        return;
    }
    if (cause.code != ERROR_NONE && base->notice)
        base->notice(base->notice_arg, cause.text);
    bridge_forget(c);
}

static void not_closed_in_time(void *arg)
{
    struct bridge_sandbox *c = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "%s did not confirm that the volume was written back",
        c->bridge->title);
    bridge_closed(c, &why);
}

/* ---- sandboxes of dead hosts ---- */

static void bridge_collected(struct bridge *b, const struct error *why)
{
    timer_free(steal(&b->collect_timeout));
    orphans_end(&b->orphans, why);
}

static void bridge_collect_timed_out(void *arg)
{
    struct bridge *b = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "%s did not list its sandboxes", b->title);
    bridge_collected(b, &why);
}

/* The messages are sent by the caller. */
static int bridge_orphans_list(void *arg, const char *cursor, struct error *err)
{
    struct bridge *b = arg;
    struct buf *out = &b->process.to_send;
    cleanup_buf struct buf owner = { 0 }, machine = { 0 };
    owner_labels(&owner, &machine);
    buf_printf(out, "{\"list\":%lld,\"labels\":{", (long long)++b->last_request);
    field_string(out, LABEL_MACHINE, buf_text(&machine));
    buf_puts(out, "}}\n");
    timer_start(b->collect_timeout, COLLECT_MS, 0);
    return 0;
}

static int bridge_orphan_remove(void *arg, const char *id, struct error *err)
{
    struct bridge *b = arg;
    struct buf *out = &b->process.to_send;
    buf_printf(out, "{\"remove\":%lld", (long long)++b->last_request);
    field_string(out, "id", id);
    buf_puts(out, "}\n");
    timer_start(b->collect_timeout, COLLECT_MS, 0);
    return 0;
}

/* Reads the reason of a failure, if there is one. */
static void bridge_read_error(const struct bridge *b, struct json_object *o, struct error *why)
{
    const char *text = json_get_string(o, "why", NULL);
    if (text)
        error_set(why, error_code_named(json_get_string(o, "kind", NULL), ERROR_ENVIRONMENT),
            "%.60s: %.170s", b->title, text);
}

/* False if the message is not an answer to one of these requests. */
static bool bridge_take_collection(struct bridge *b, struct json_object *o)
{
    int64_t listed = json_get_int(o, "listed", 0), removed = json_get_int(o, "removed", 0);
    struct json_object *sandboxes = json_get_typed(o, "sandboxes", json_type_array);
    struct error why = { 0 };
    if (listed <= 0 && removed <= 0)
        return false;
    if (!b->orphans.ops || (listed > 0 ? listed : removed) != b->last_request)
        return true;
    bridge_read_error(b, o, &why);
    for (size_t i = 0; listed > 0 && i < json_length(sandboxes); i++) {
        struct json_object *one = json_object_array_get_idx(sandboxes, i);
        orphans_note_labels(&b->orphans, json_get_string(one, "id", ""),
            json_get_typed(one, "labels", json_type_object));
    }
    if (listed > 0)
        orphans_listed(&b->orphans, &why, NULL);
    else
        orphans_removed(&b->orphans, &why);
    if (!b->orphans.ops)
        timer_free(steal(&b->collect_timeout));
    return true;
}

/* ---- the life of the program ---- */

/* Ends the program, and with it all its sandboxes. */
static void bridge_give_up(struct bridge *b, const struct error *why)
{
    struct bridge_sandbox *c, *next;
    struct error cause = *why;
    if (b->process.pid > 0)
        process_end(&b->process, 0);
    process_forget(&b->process);
    buf_clear(&b->process.to_send);
    b->process.sent = 0;
    buf_clear(&b->line);
    b->left = 0;
    b->heard = false;
    for (c = LIST_FIRST(&b->sandboxes); c; c = next) {
        next = LIST_NEXT(c, link);
        if (c->closing && c->has_volume)
            bridge_closed(c, &cause);
        else if (!c->closing)
            transport_ended(c->transport, &cause);
    }
    bridge_collected(b, &cause);
}

static void bridge_refuse(struct bridge *b, const char *what)
{
    struct error why = { 0 };
    error_set(&why, ERROR_ENVIRONMENT, "%s %.100s (docs/environments.md)", b->title, what);
    bridge_give_up(b, &why);
}

static void bridge_program_ended(void *arg, int status, int events)
{
    struct bridge *b = arg;
    struct error why = { 0 };
    char words[PROCESS_WORDS_SIZE];
    int how = process_end(&b->process, 0);
    process_read_complaints(&b->process);
    process_last_words(&b->process, words);
    if (WIFSIGNALED(how))
        error_set(&why, ERROR_LOST, "%s died of signal %d%s", b->title, WTERMSIG(how), words);
    else
        error_set(&why, ERROR_LOST, "%s ended with status %d%s", b->title, WEXITSTATUS(how), words);
    b->process.pid = 0;
    bridge_give_up(b, &why);
}

/* ---- messages from the program ---- */

static int64_t id_in(struct json_object *o, const char *key)
{
    return json_get_int(o, key, 0);
}

static void bridge_take_closed(struct bridge_sandbox *c, struct json_object *o)
{
    struct error why = { 0 };
    bridge_read_error(c->bridge, o, &why);
    if (c->closing && c->has_volume)
        bridge_closed(c, &why);
}

static void bridge_take_ended(struct bridge_sandbox *c, struct json_object *o)
{
    struct error why = { 0 };
    bridge_read_error(c->bridge, o, &why);
    transport_ended(c->transport, &why);
}

/* A sandbox that is not closing. */
static struct bridge_sandbox *find_open(const struct bridge *b, int64_t id)
{
    struct bridge_sandbox *c = bridge_find(b, id);
    return c && !c->closing ? c : NULL;
}

/* The declared features are known: sandboxes that need others fail with the setting's name. */
static void bridge_check_needs(struct bridge *b)
{
    struct bridge_sandbox *c;
    struct error why = { 0 };
    LIST_FOREACH(c, &b->sandboxes, link)
    if (!c->closing && features_check(b->features, b->program.name, c->needs, &why) < 0)
        transport_ended(c->transport, &why);
}

static void cannot_collect(struct bridge *b)
{
    struct error why = { 0 };
    error_set(&why, ERROR_UNSUPPORTED, "%s does not support listing its sandboxes", b->title);
    bridge_collected(b, &why);
}

/* The first message. A program that starts with another message declares no features. */
static bool take_greeting(struct bridge *b, struct json_object *o)
{
    struct json_object *features = json_get_typed(o, "features", json_type_object);
    bool greets = id_in(o, "bridge") > 0;
    b->heard = true;
    b->can_collect = greets && json_get_bool(o, "collect", false);
    memcpy(b->features, b->program.features, sizeof b->features);
    if (b->program.features == bridge_features)
        bridge_spec_take_features(b->features, greets ? features : NULL);
    bridge_check_needs(b);
    if (b->orphans.ops && !b->can_collect)
        cannot_collect(b);
    return greets;
}

static void bridge_take_text(struct bridge_sandbox *c, bool is_news, const char *text)
{
    if (is_news)
        transport_notice(c->transport, text);
    else if (!c->far_id)
        c->far_id = strdup(text);
}

/* False for an invalid message. Messages about closed sandboxes are ignored. */
static bool bridge_take_message(struct bridge *b, struct json_object *o)
{
    struct bridge_sandbox *c;
    int64_t bytes = json_get_int(o, "bytes", 0);
    if (!b->heard && take_greeting(b, o))
        return true;
    if (id_in(o, "read") > 0) {
        b->left = bytes > 0 ? (uint64_t)bytes : 0;
        b->left_of = id_in(o, "read");
        return bytes >= 0;
    }
    if ((c = find_open(b, id_in(o, "joined"))))
        transport_joined(c->transport);
    else if ((c = find_open(b, id_in(o, "lost"))))
        transport_cut(c->transport);
    else if ((c = find_open(b, id_in(o, "ended"))))
        bridge_take_ended(c, o);
    else if ((c = find_open(b, id_in(o, "notice"))))
        bridge_take_text(c, true, json_get_string(o, "text", ""));
    else if ((c = find_open(b, id_in(o, "id"))))
        bridge_take_text(c, false, json_get_string(o, "text", ""));
    else if ((c = bridge_find(b, id_in(o, "closed"))))
        bridge_take_closed(c, o);
    else if (bridge_take_collection(b, o))
        return process_send(&b->process) == 0;
    return id_in(o, "joined") > 0 || id_in(o, "lost") > 0 || id_in(o, "ended") > 0 ||
           id_in(o, "notice") > 0 || id_in(o, "id") > 0 || id_in(o, "closed") > 0;
}

static void bridge_take_line(struct bridge *b)
{
    cleanup_json struct json_object *o = NULL;
    int rc = json_parse(b->line.data, b->line.len, &json_limits_small, &o, NULL);
    buf_clear(&b->line);
    if (rc < 0 || !json_object_is_type(o, json_type_object) || !bridge_take_message(b, o))
        bridge_refuse(b, "sent a line that is not a message");
}

static void bridge_take(struct bridge *b, const char *data, size_t len)
{
    while (len > 0 && b->process.pid > 0) {
        size_t n = len;
        if (b->left > 0) {
            struct bridge_sandbox *c = find_open(b, b->left_of);
            n = b->left < len ? (size_t)b->left : len;
            b->left -= n;
            if (c)
                transport_bytes(c->transport, data, n);
        } else {
            const char *newline = memchr(data, '\n', len);
            n = newline ? (size_t)(newline - data) + 1 : len;
            buf_append(&b->line, data, n);
            if (buf_failed(&b->line) ||
                b->line.len > (b->heard ? (size_t)LONG_LINE_LIMIT : LINE_LIMIT))
                bridge_refuse(b, "sent a line that is too long");
            else if (newline)
                bridge_take_line(b);
        }
        data += n;
        len -= n;
    }
}

static void bridge_output_ready(void *arg, int status, int events)
{
    struct bridge *b = arg;
    char data[READ_SIZE];
    ssize_t n = read(b->process.out, data, sizeof data);
    if (n > 0)
        bridge_take(b, data, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        watch_events(b->process.out_watch, 0); /* the process's exit reports the end */
}

/* ---- messages to the program ---- */

static void bridge_tell(struct bridge *b, const char *key, int64_t id)
{
    if (b->process.pid == 0)
        return;
    buf_printf(&b->process.to_send, "{\"%s\":%lld}\n", key, (long long)id);
    process_send(&b->process);
}

static void bridge_write(void *own, const struct iovec *iov, int count)
{
    struct bridge_sandbox *c = own;
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
    struct bridge_sandbox *c = own;
    bridge_tell(c->bridge, paused ? "pause" : "resume", c->id);
}

static void close_far_end(struct bridge_sandbox *c)
{
    if (c->closing)
        return;
    c->closing = true;
    bridge_tell(c->bridge, "close", c->id);
    process_send_now(&c->bridge->process);
    c->has_volume = c->has_volume && c->bridge->process.pid > 0;
    if (c->has_volume)
        timer_start(c->patience, CLOSED_MS, 0);
}

static bool bridge_finish(void *own)
{
    struct bridge_sandbox *c = own;
    close_far_end(c);
    return c->has_volume;
}

static void bridge_end(void *own)
{
    struct bridge_sandbox *c = own;
    close_far_end(c);
    c->transport = NULL;
    if (!c->has_volume)
        bridge_forget(c);
}

/* A volume is being written back. */
static bool bridge_settling(const void *arg)
{
    const struct bridge *b = arg;
    const struct bridge_sandbox *c;
    LIST_FOREACH(c, &b->sandboxes, link)
    if (c->closing && c->has_volume && !c->transport)
        return true;
    return false;
}

/* ---- starting the program ---- */

static int bridge_run_program(struct bridge *b, struct error *err)
{
    if (b->process.pid > 0)
        return 0;
    b->process.words = b->program.words;
    int rc = process_start(&b->process, b->loop, b->program.path, b->program.label,
        bridge_output_ready, bridge_program_ended, b, err);
    if (rc < 0 || !b->program.source)
        return rc;
    buf_append(&b->process.to_send, b->program.source, b->program.source_len);
    return process_send(&b->process) < 0 ? error_memory(err) : 0;
}

static int bridge_collect(
    void *arg, environment_collected_fn *done, void *done_arg, struct error *err)
{
    static const struct orphans_ops ops = { bridge_orphans_list, bridge_orphan_remove };
    struct bridge *b = arg;
    int rc = bridge_run_program(b, err);
    if (rc == 0 && !b->collect_timeout &&
        !(b->collect_timeout = timer_new(b->loop, bridge_collect_timed_out, b)))
        rc = error_memory(err);
    if (rc == 0)
        rc = orphans_collect(&b->orphans, &ops, b, done, done_arg, err);
    if (rc == 0)
        process_send(&b->process);
    return rc;
}

/* ---- the interface of transports ---- */

static void bridge_write_open(
    struct bridge_sandbox *c, const struct sandbox_spec *spec, const char *const *words)
{
    bridge_spec_write(
        &c->bridge->process.to_send, c->id, spec, words, c->bridge->program.keeps_volumes);
    process_send(&c->bridge->process);
}

static int bridge_start(void *arg, struct transport *transport, const struct sandbox_spec *spec,
    const char *const *words, void **own, struct error *err)
{
    struct bridge *b = arg;
    int rc = bridge_run_program(b, err);
    if (rc < 0)
        return rc;
    struct bridge_sandbox *c = calloc(1, sizeof *c);
    struct timer *patience = c ? timer_new(b->loop, not_closed_in_time, c) : NULL;
    if (!patience) {
        free(c);
        return error_memory(err);
    }
    *c = (struct bridge_sandbox){ .bridge = b,
        .transport = transport,
        .id = ++b->last_id,
        .patience = patience,
        .needs = bridge_spec_needs(spec),
        .has_volume = b->program.keeps_volumes && sandbox_container(spec)->volume };
    LIST_INSERT_HEAD(&b->sandboxes, c, link);
    bridge_write_open(c, spec, words);
    if (b->program.sweeps && !b->swept)
        bridge_collect(b, NULL, NULL, NULL);
    b->swept = true;
    *own = c;
    return 0;
}

static const char *bridge_volume(void *own)
{
    const struct bridge_sandbox *c = own;
    return c && c->has_volume ? VOLUME_MOUNT : NULL;
}

static const char *bridge_id(void *own)
{
    const struct bridge_sandbox *c = own;
    return c ? c->far_id : NULL;
}

/* Closes its input and gives it some time to end the remote sandboxes. */
static void bridge_free(void *arg)
{
    struct bridge *b = arg;
    struct bridge_sandbox *c;
    struct pollfd gone = { .fd = b->process.pidfd, .events = POLLIN };
    orphans_cancel(&b->orphans);
    timer_free(b->collect_timeout);
    if (b->process.pid > 0) {
        close_fd(&b->process.in);
        (void)poll(&gone, 1, b->program.goodbye_ms);
        process_end(&b->process, 0);
    }
    process_free(&b->process);
    while ((c = LIST_FIRST(&b->sandboxes)))
        bridge_forget(c);
    buf_free(&b->line);
    free(b->path);
    free(b);
}

/* Takes ownership of `path`, also on failure. */
static int open_program(struct loop *loop, const struct bridge_program *program, char *path,
    struct environment **out, struct error *err)
{
    struct bridge *b = calloc(1, sizeof *b);
    if (!b) {
        free(path);
        return error_memory(err);
    }
    *b = (struct bridge){ .loop = loop, .program = *program, .path = path };
    memcpy(b->features, program->features, sizeof b->features);
    process_init(&b->process);
    LIST_INIT(&b->sandboxes);
    snprintf(b->title, sizeof b->title, "%s%s%s", program->name, path ? ":" : "", path ? path : "");
    b->ops = (struct transport_ops){ .name = program->name,
        .features = b->features,
        .traits = program->keeps_volumes ? TRAIT_VOLUMES : 0,
        .start = bridge_start,
        .write = bridge_write,
        .pause = bridge_pause,
        .end = bridge_end,
        .finish = bridge_finish,
        .settling = bridge_settling,
        .volume = bridge_volume,
        .id = bridge_id,
        .collect = bridge_collect,
        .free = bridge_free };
    int rc = stdio_env_open(loop, &b->ops, b, out, err);
    if (rc == 0)
        b->env = *out;
    return rc;
}

int bridge_open(struct loop *loop, const char *path, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    char *own = strdup(path);
    if (!own)
        return error_memory(err);
    struct bridge_program program = { .name = "bridge",
        .label = "bridge:",
        .path = own,
        .features = bridge_features,
        .goodbye_ms = GOODBYE_MS };
    return open_program(loop, &program, own, out, err);
}

int bridge_open_program(struct loop *loop, const struct bridge_program *program,
    struct environment **out, struct error *err)
{
    return open_program(loop, program, NULL, out, err);
}
