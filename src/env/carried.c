/* env/carried.c: see carried.h. Each sandbox has a supervisor of its own, which ends with it. */
#include "env/carried.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "env/remote.h"
#include "env/remote_files.h"
#include "env/turns.h"

struct carried {
    struct environment_base base; /* its ops are a copy with the name of this one */
    struct environment_ops ops;
    const struct carrier_ops *carrier_ops;
    void *arg;
    struct turns *turns;
};

struct carrier {
    struct carried *env;
    struct remote *remote;
    void *own; /* NULL: not started */
    struct sandbox_events
        events; /* of the session, which hears of its guest's end when its volume is here */
    void *arg;
    bool guest_over;
    struct sandbox_exit how;
    struct sandbox *sandbox;          /* NULL: not opened */
    struct delivery *staged, *volume; /* copies of what is here; NULL: there is none */
    bool joined, ended;
    struct error failure; /* of what the supervisor said */
    struct timer *over;   /* tells the end, from outside of what brought it */
};

/* ---- what the carrier tells ---- */

void carrier_joined(struct carrier *c)
{
    if (c->ended || c->joined)
        return;
    c->joined = true;
    remote_connected(c->remote);
}

void carrier_bytes(struct carrier *c, const char *data, size_t len)
{
    if (c->ended || !c->joined)
        return;
    remote_feed(c->remote, data, len);
    if (!c->ended && c->env->carrier_ops->pause && !remote_wants_more(c->remote))
        c->env->carrier_ops->pause(c->own, true);
}

void carrier_cut(struct carrier *c)
{
    if (c->ended || !c->joined)
        return;
    c->joined = false;
    remote_disconnected(c->remote);
}

void carrier_finished(struct carrier *c, const struct error *why)
{
    c->events.finished(c->arg, why);
}

void carrier_news(struct carrier *c, const char *text)
{
    const struct environment_base *base = &c->env->base;
    if (base->news)
        base->news(base->news_arg, text);
}

void carrier_ended(struct carrier *c, const struct error *why)
{
    struct sandbox_exit how = { .error = *why };
    cleanup_buf struct buf said = { 0 };
    if (c->ended)
        return;
    c->ended = true;
    remote_noise(c->remote, &said);
    if (why->code == ERROR_NONE)
        error_set(&how.error, ERROR_LOST,
            "the program at the far end has ended; what the cell did is not known%s%.120s",
            said.len ? ": " : "", buf_text(&said));
    remote_ended(c->remote, &how);
}

/* ---- what the remote asks for ---- */

static void remote_write(void *arg, const struct iovec *iov, int count)
{
    struct carrier *c = arg;
    if (c->own && c->joined)
        c->env->carrier_ops->write(c->own, iov, count);
}

static void remote_ready(void *arg, struct json_object *facts)
{
}

static void remote_failed(void *arg, const struct error *why)
{
    struct carrier *c = arg;
    c->failure = *why;
    timer_start(c->over, 0, 0);
}

static void remote_more(void *arg)
{
    struct carrier *c = arg;
    if (c->own && c->env->carrier_ops->pause)
        c->env->carrier_ops->pause(c->own, false);
}

static size_t remote_waiting(void *arg)
{
    const struct carrier *c = arg;
    return c->own && c->env->carrier_ops->waiting ? c->env->carrier_ops->waiting(c->own) : 0;
}

static void failure_told(void *arg)
{
    struct carrier *c = arg;
    carrier_ended(c, &c->failure);
}

/* ---- the seam ---- */

static void carrier_free(struct carrier *c)
{
    delivery_close(c->staged);
    delivery_close(c->volume);
    c->ended = true;
    if (c->own)
        c->env->carrier_ops->end(steal(&c->own));
    timer_free(c->over);
    remote_free(c->remote);
    free(c);
}

static int start(struct carrier *c, const struct sandbox_spec *spec, struct error *err)
{
    static const struct remote_events events = { remote_write, remote_ready, remote_failed,
        remote_more, remote_waiting };
    static const enum limit_means by_rlimit[LIMIT_COUNT] = { [LIMIT_MEMORY] = LIMIT_BY_RLIMIT,
        [LIMIT_CPU_TIME] = LIMIT_BY_RLIMIT,
        [LIMIT_OPEN_FILES] = LIMIT_BY_RLIMIT,
        [LIMIT_FILE_SIZE] = LIMIT_BY_RLIMIT,
        [LIMIT_VOLUME_SIZE] = LIMIT_BY_HOST,
        [LIMIT_VOLUME_FILES] = LIMIT_BY_HOST };
    const struct carrier_ops *ops = c->env->carrier_ops;
    struct remote_options options = {
        .form = ops->form, .lease = ops->lease, .eof_ends = ops->lease == 0, .turns = c->env->turns
    };
    const char *words[] = { spec->python ? spec->python : "python3", "-u", "-c", remote_loader(),
        NULL };
    memcpy(options.means, ops->means ? ops->means : by_rlimit, sizeof options.means);
    c->over = timer_new(c->env->base.loop, failure_told, c);
    if (!c->over)
        return error_memory(err);
    int rc = remote_open(c->env->base.loop, &options, &events, c, &c->remote, err);
    return rc < 0 ? rc : ops->start(c->env->arg, c, spec, words, &c->own, err);
}

/* What is here and has to be there. */
static int deliver(struct carrier *c, const struct sandbox_spec *spec, struct error *err)
{
    struct carried *env = c->env;
    int rc = 0;
    if (spec->volume)
        rc = delivery_open(env->base.loop, c->remote, &env->ops, spec->volume,
            env->carrier_ops->volume_copy, &c->volume, err);
    if (rc == 0 && spec->workspace)
        rc = delivery_open(env->base.loop, c->remote, &env->ops, workspace_volume(spec->workspace),
            env->carrier_ops->workspace, &c->staged, err);
    return rc;
}

static void volume_fetched(void *arg, const struct sandbox_exit *how)
{
    struct carrier *c = arg;
    if (c->guest_over)
        c->events.ended(c->arg, &c->how);
    else if (how->error.code == ERROR_NONE && how->limit == LIMIT_NONE)
        c->events.settled(c->arg);
    else
        remote_end_sandbox(c->sandbox, how);
}

/* What a guest wrote before its end is there in the next session. */
static void guest_ended(void *arg, const struct sandbox_exit *how)
{
    struct carrier *c = arg;
    c->guest_over = true;
    c->how = *how;
    bool fetching = c->volume && delivery_is_fetching(c->volume);
    if (c->volume && !fetching && delivery_is_there(c->volume) && c->joined && !c->ended)
        fetching = delivery_fetch(c->volume, volume_fetched, c, NULL) == 0;
    if (!fetching)
        c->events.ended(c->arg, how);
}

static bool guest_bytes(void *arg, const char *data, size_t len)
{
    struct carrier *c = arg;
    return c->events.bytes(c->arg, data, len);
}

static void guest_output(void *arg, int stream, const char *data, size_t len)
{
    struct carrier *c = arg;
    c->events.output(c->arg, stream, data, len);
}

static void guest_room(void *arg)
{
    struct carrier *c = arg;
    if (c->events.room)
        c->events.room(c->arg);
}

static bool settle(struct sandbox *s)
{
    struct carrier *c = remote_arg(remote_of(s));
    struct sandbox_exit how = { 0 };
    if (!c->volume)
        return false;
    if (delivery_fetch(c->volume, volume_fetched, c, &how.error) < 0)
        remote_end_sandbox(s, &how);
    return true;
}

/* From then on nothing that the far end still says counts. */
static bool finish(struct sandbox *s)
{
    struct carrier *c = remote_arg(remote_of(s));
    const struct carrier_ops *ops = c->env->carrier_ops;
    if (!c->own || !ops->finish || !ops->finish(c->own))
        return false;
    c->ended = true;
    return true;
}

static int open_sandbox(struct environment *base, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    static const struct sandbox_events own = { guest_bytes, guest_output, guest_ended, NULL,
        guest_room };
    struct carried *env = (struct carried *)base;
    struct carrier *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    c->env = env;
    c->events = *events;
    c->arg = arg;
    int rc = start(c, spec, err);
    if (rc == 0)
        rc = deliver(c, spec, err);
    if (rc == 0)
        rc = remote_open_sandbox(c->remote, &env->ops, spec, &own, c, &c->sandbox, err);
    if (rc < 0)
        carrier_free(c);
    else
        *out = c->sandbox;
    return rc;
}

static void close_sandbox(struct sandbox *s)
{
    if (!s)
        return;
    struct carrier *c = remote_arg(remote_of(s));
    remote_close_sandbox(s);
    carrier_free(c);
}

static enum isolation isolation_of(const struct sandbox *s)
{
    return ISOLATION_REMOTE;
}

static const char *volume_of(const struct sandbox *s)
{
    const struct carrier *c = remote_arg(remote_of(s));
    if (c->volume)
        return delivery_place(c->volume);
    return c->env->carrier_ops->volume ? c->env->carrier_ops->volume(c->own) : NULL;
}

static const char *workspace_of(const struct sandbox *s)
{
    const struct carrier *c = remote_arg(remote_of(s));
    return c->staged ? delivery_place(c->staged) : NULL;
}

static const char *id_of(const struct sandbox *s)
{
    const struct carrier *c = remote_arg(remote_of(s));
    return c->env->carrier_ops->id ? c->env->carrier_ops->id(c->own) : NULL;
}

static void describe(const struct environment *base, const struct sandbox *s, struct buf *out)
{
    const struct carrier *c = s ? remote_arg(remote_of(s)) : NULL;
    if (c && c->env->carrier_ops->describe)
        c->env->carrier_ops->describe(c->own, out);
}

static int collect(
    struct environment *base, environment_collected_fn *done, void *arg, struct error *err)
{
    struct carried *env = (struct carried *)base;
    return env->carrier_ops->collect(env->arg, done, arg, err);
}

static bool settling(const struct environment *base)
{
    const struct carried *env = (const struct carried *)base;
    return env->carrier_ops->settling && env->carrier_ops->settling(env->arg);
}

static void free_environment(struct environment *base)
{
    struct carried *env = (struct carried *)base;
    if (env->carrier_ops->free)
        env->carrier_ops->free(env->arg);
    turns_close(env->turns);
    free(env);
}

/* Of who is told of a spec no more than the program that it is to start. */
static const struct powers
    plain_powers = { .of = {
                         [POWER_STREAM] = POWER_YES("its standard streams"),
                         [POWER_REATTACH] = POWER_YES("if it says that it is joined again"),
                         [POWER_VOLUME] =
                             POWER_YES("a copy of this machine's, brought back after each cell"),
                         [POWER_WORKSPACE] = POWER_YES("sent at the start"),
                         [POWER_MEMORY] = POWER_YES("of each process"),
                         [POWER_PROCESSES] = POWER_YES("it is told"),
                         [POWER_PRELOAD] = POWER_YES("in the worker, before the session"),
                     } };

int carried_open(struct loop *loop, const struct carrier_ops *ops, void *arg,
    struct environment **out, struct error *err)
{
    struct carried *env = calloc(1, sizeof *env);
    struct turns *turns = NULL;
    if (!env || turns_open(loop, &turns, err) < 0) {
        free(env);
        if (ops->free)
            ops->free(arg);
        return error_memory(err);
    }
    *env = (struct carried){ .carrier_ops = ops, .arg = arg, .turns = turns };
    env->ops = (struct environment_ops){
        .name = ops->name,
        .traits = TRAIT_SIGNAL | TRAIT_LATE | ops->traits,
        .powers = ops->powers ? ops->powers : &plain_powers,
        .open = open_sandbox,
        .send = remote_send,
        .unread = remote_unread,
        .hold = remote_hold_channel,
        .attend = remote_attend,
        .settle = settle,
        .finish = finish,
        .interrupt = remote_interrupt,
        .is_cut = remote_is_cut,
        .kill = remote_kill,
        .drain = remote_drain,
        .isolation = isolation_of,
        .usage = remote_usage,
        .volume = volume_of,
        .workspace = workspace_of,
        .id = id_of,
        .collect = ops->collect ? collect : NULL,
        .settling = settling,
        .describe = describe,
        .close = close_sandbox,
        .free = free_environment,
    };
    env->base = (struct environment_base){ .ops = &env->ops, .loop = loop };
    *out = (struct environment *)env;
    return 0;
}
