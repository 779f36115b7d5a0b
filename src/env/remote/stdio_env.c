/* env/remote/stdio_env.c: implements an environment on a transport. Each sandbox has its own
 * supervisor, which ends with it.
 */
#include "env/remote/stdio_env.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "env/remote/remote.h"
#include "env/remote/files.h"
#include "env/common/fair_reading.h"

struct stdio_env {
    struct environment_base base; /* its ops are a copy with this environment's name */
    struct environment_ops ops;
    const struct transport_ops *transport_ops;
    void *arg;
    struct fair_reading *fair_reading;
};

struct transport {
    struct stdio_env *env;
    struct remote *remote;
    void *own; /* NULL: not started */
    /* of the session, which learns of the guest's end after its volume was copied back */
    struct sandbox_events events;
    void *arg;
    bool guest_over;
    struct sandbox_exit how;
    struct sandbox *sandbox;          /* NULL: not opened */
    struct delivery *staged, *volume; /* copies of local directories; NULL: none */
    bool joined, ended;
    struct error failure; /* a failure that the remote reported */
    struct timer *over;   /* defers the end */
};

/* ---- events of the transport ---- */

void transport_joined(struct transport *c)
{
    if (c->ended || c->joined)
        return;
    c->joined = true;
    remote_connected(c->remote);
}

void transport_bytes(struct transport *c, const char *data, size_t len)
{
    if (c->ended || !c->joined)
        return;
    remote_feed(c->remote, data, len);
    if (!c->ended && c->env->transport_ops->pause && !remote_wants_more(c->remote))
        c->env->transport_ops->pause(c->own, true);
}

void transport_cut(struct transport *c)
{
    if (c->ended || !c->joined)
        return;
    c->joined = false;
    remote_disconnected(c->remote);
}

void transport_finished(struct transport *c, const struct error *why)
{
    c->events.finished(c->arg, why);
}

void transport_notice(struct transport *c, const char *text)
{
    const struct environment_base *base = &c->env->base;
    if (base->notice)
        base->notice(base->notice_arg, text);
}

void transport_ended(struct transport *c, const struct error *why)
{
    struct sandbox_exit how = { .error = *why };
    cleanup_buf struct buf output = { 0 };
    if (c->ended)
        return;
    c->ended = true;
    remote_noise(c->remote, &output);
    if (why->code == ERROR_NONE)
        error_set(&how.error, ERROR_LOST,
            "the program at the far end has ended; the cell's outcome is unknown%s%.120s",
            output.len ? ": " : "", buf_text(&output));
    remote_ended(c->remote, &how);
}

/* ---- events of the remote ---- */

static void stdio_env_remote_write(void *arg, const struct iovec *iov, int count)
{
    struct transport *c = arg;
    if (c->own && c->joined)
        c->env->transport_ops->write(c->own, iov, count);
}

static void stdio_env_remote_failed(void *arg, const struct error *why)
{
    struct transport *c = arg;
    c->failure = *why;
    timer_start(c->over, 0, 0);
}

static void stdio_env_remote_more(void *arg)
{
    struct transport *c = arg;
    if (c->own && c->env->transport_ops->pause)
        c->env->transport_ops->pause(c->own, false);
}

static size_t stdio_env_remote_waiting(void *arg)
{
    const struct transport *c = arg;
    return c->own && c->env->transport_ops->waiting ? c->env->transport_ops->waiting(c->own) : 0;
}

static void transport_report_failure(void *arg)
{
    struct transport *c = arg;
    transport_ended(c, &c->failure);
}

/* ---- the interface of environments ---- */

static void transport_free(struct transport *c)
{
    delivery_close(c->staged);
    delivery_close(c->volume);
    c->ended = true;
    if (c->own)
        c->env->transport_ops->end(steal(&c->own));
    timer_free(c->over);
    remote_free(c->remote);
    free(c);
}

static int stdio_env_start(struct transport *c, const struct sandbox_spec *spec, struct error *err)
{
    static const struct remote_events events = { stdio_env_remote_write, NULL,
        stdio_env_remote_failed, stdio_env_remote_more, stdio_env_remote_waiting };
    static const enum limit_means by_rlimit[LIMIT_COUNT] = { [LIMIT_MEMORY] = LIMIT_BY_RLIMIT,
        [LIMIT_CPU_TIME] = LIMIT_BY_RLIMIT,
        [LIMIT_OPEN_FILES] = LIMIT_BY_RLIMIT,
        [LIMIT_FILE_SIZE] = LIMIT_BY_RLIMIT,
        [LIMIT_VOLUME_SIZE] = LIMIT_BY_HOST,
        [LIMIT_VOLUME_FILES] = LIMIT_BY_HOST };
    const struct transport_ops *ops = c->env->transport_ops;
    struct remote_options options = { .boot.form = ops->form,
        .boot.lease = ops->lease,
        .boot.eof_ends = ops->lease == 0,
        .fair_reading = c->env->fair_reading };
    const char *words[] = { spec->python ? spec->python : "python3", "-u", "-c", remote_loader(),
        NULL };
    memcpy(options.means, by_rlimit, sizeof options.means);
    c->over = timer_new(c->env->base.loop, transport_report_failure, c);
    if (!c->over)
        return error_memory(err);
    int rc = remote_open(c->env->base.loop, &options, &events, c, &c->remote, err);
    return rc < 0 ? rc : ops->start(c->env->arg, c, spec, words, &c->own, err);
}

/* Copies local directories to the far end. */
static int stdio_env_deliver(
    struct transport *c, const struct sandbox_spec *spec, struct error *err)
{
    struct stdio_env *env = c->env;
    int rc = 0;
    if (spec->volume)
        rc = delivery_open(env->base.loop, c->remote, spec->volume, NULL, &c->volume, err);
    if (rc == 0 && spec->workspace)
        rc = delivery_open(env->base.loop, c->remote, workspace_volume(spec->workspace),
            env->transport_ops->workspace, &c->staged, err);
    return rc;
}

static void volume_fetched(void *arg, const struct sandbox_exit *how)
{
    struct transport *c = arg;
    if (c->guest_over)
        c->events.ended(c->arg, &c->how);
    else if (how->error.code == ERROR_NONE && how->limit == LIMIT_NONE)
        c->events.settled(c->arg);
    else
        remote_end_sandbox(c->sandbox, how);
}

/* What a guest wrote before its end must be there in the next session. */
static void guest_ended(void *arg, const struct sandbox_exit *how)
{
    struct transport *c = arg;
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
    struct transport *c = arg;
    return c->events.bytes(c->arg, data, len);
}

static void stdio_env_guest_output(void *arg, int stream, const char *data, size_t len)
{
    struct transport *c = arg;
    c->events.output(c->arg, stream, data, len);
}

static void guest_room(void *arg)
{
    struct transport *c = arg;
    if (c->events.room)
        c->events.room(c->arg);
}

static bool stdio_env_settle(struct sandbox *s)
{
    struct transport *c = remote_arg(remote_of(s));
    struct sandbox_exit how = { 0 };
    if (!c->volume)
        return false;
    if (delivery_fetch(c->volume, volume_fetched, c, &how.error) < 0)
        remote_end_sandbox(s, &how);
    return true;
}

/* From now on all events of the far end are ignored. */
static bool stdio_env_finish(struct sandbox *s)
{
    struct transport *c = remote_arg(remote_of(s));
    const struct transport_ops *ops = c->env->transport_ops;
    if (!c->own || !ops->finish || !ops->finish(c->own))
        return false;
    c->ended = true;
    return true;
}

static int open_sandbox(struct environment *base, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    static const struct sandbox_events own = { guest_bytes, stdio_env_guest_output, guest_ended,
        NULL, guest_room };
    struct stdio_env *env = (struct stdio_env *)base;
    struct transport *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    c->env = env;
    c->events = *events;
    c->arg = arg;
    int rc = stdio_env_start(c, spec, err);
    if (rc == 0)
        rc = stdio_env_deliver(c, spec, err);
    if (rc == 0)
        rc = remote_open_sandbox(c->remote, spec, &own, c, &c->sandbox, err);
    if (rc < 0)
        transport_free(c);
    else
        *out = c->sandbox;
    return rc;
}

static void close_sandbox(struct sandbox *s)
{
    if (!s)
        return;
    struct transport *c = remote_arg(remote_of(s));
    bool beside = s != c->sandbox;
    remote_close_sandbox(s);
    if (!beside)
        transport_free(c);
}

static enum isolation isolation_of(const struct sandbox *s)
{
    return ISOLATION_REMOTE;
}

static const char *volume_of(const struct sandbox *s)
{
    const struct transport *c = remote_arg(remote_of(s));
    if (c->volume)
        return delivery_directory(c->volume);
    return c->env->transport_ops->volume ? c->env->transport_ops->volume(c->own) : NULL;
}

static const char *workspace_of(const struct sandbox *s)
{
    const struct transport *c = remote_arg(remote_of(s));
    return c->staged ? delivery_directory(c->staged) : NULL;
}

static const char *id_of(const struct sandbox *s)
{
    const struct transport *c = remote_arg(remote_of(s));
    return c->env->transport_ops->id ? c->env->transport_ops->id(c->own) : NULL;
}

static void stdio_env_describe(
    const struct environment *base, const struct sandbox *s, struct buf *out)
{
    const struct transport *c = s ? remote_arg(remote_of(s)) : NULL;
    if (c && c->env->transport_ops->describe)
        c->env->transport_ops->describe(c->own, out);
}

static int stdio_env_collect(
    struct environment *base, environment_collected_fn *done, void *arg, struct error *err)
{
    struct stdio_env *env = (struct stdio_env *)base;
    return env->transport_ops->collect(env->arg, done, arg, err);
}

static bool stdio_env_settling(const struct environment *base)
{
    const struct stdio_env *env = (const struct stdio_env *)base;
    return env->transport_ops->settling && env->transport_ops->settling(env->arg);
}

static void free_environment(struct environment *base)
{
    struct stdio_env *env = (struct stdio_env *)base;
    if (env->transport_ops->free)
        env->transport_ops->free(env->arg);
    fair_reading_close(env->fair_reading);
    free(env);
}

int stdio_env_open(struct loop *loop, const struct transport_ops *ops, void *arg,
    struct environment **out, struct error *err)
{
    struct stdio_env *env = calloc(1, sizeof *env);
    struct fair_reading *fair_reading = NULL;
    if (!env || fair_reading_open(loop, &fair_reading, err) < 0) {
        free(env);
        if (ops->free)
            ops->free(arg);
        return error_memory(err);
    }
    *env = (struct stdio_env){ .transport_ops = ops, .arg = arg, .fair_reading = fair_reading };
    env->ops = (struct environment_ops){
        .name = ops->name,
        .traits = TRAIT_SIGNAL | TRAIT_LATE | ops->traits,
        .features = ops->features,
        .open = open_sandbox,
        .open_companion = remote_open_companion,
        .send = remote_send,
        .unread = remote_unread,
        .hold = remote_hold_channel,
        .begin_operation = remote_begin_operation,
        .charge = remote_charge,
        .settle = stdio_env_settle,
        .finish = stdio_env_finish,
        .interrupt = remote_interrupt,
        .is_cut = remote_is_cut,
        .kill = remote_kill,
        .drain = remote_drain,
        .isolation = isolation_of,
        .usage = remote_usage,
        .volume = volume_of,
        .workspace = workspace_of,
        .id = id_of,
        .collect = ops->collect ? stdio_env_collect : NULL,
        .settling = stdio_env_settling,
        .describe = stdio_env_describe,
        .close = close_sandbox,
        .free = free_environment,
    };
    env->base = (struct environment_base){ .ops = &env->ops, .loop = loop };
    *out = (struct environment *)env;
    return 0;
}
