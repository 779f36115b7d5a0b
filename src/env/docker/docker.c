/* env/docker/docker.c: the environment `docker`, also for Podman.
 *
 * A sandbox is a worker of the supervisor, which is its container's main process
 * (env/remote/remote.h). By default each sandbox has its own container. With --reuse container,
 * sandboxes of the same kind share one, and opening another is a fork in it. A container is removed
 * when its last sandbox has been closed; one that may be shared is kept until the environment
 * closes.
 *
 * The first sandbox of each environment starts the removal of containers of dead hosts
 * (env/common/orphans.h).
 */

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "env/docker/container.h"
#include "env/docker/create.h"
#include "env/common/orphans.h"
#include "env/common/owner_labels.h"
#include "env/common/mounts.h"
#include "env/remote/remote.h"
#include "env/common/fair_reading.h"

enum {
    GOODBYE_SECONDS = 15, /* for the daemon to remove the remaining containers */
    COLLECT_SECONDS = 60, /* for each request about orphans */
    WAITING_MAX = 4,      /* empty containers to keep for later sandboxes */
};

/* A container, and the host's resources that it uses. */
struct docker_slot {
    TAILQ_ENTRY(docker_slot) link;
    struct docker *env;
    struct container *container;
    struct mounts mounts;
    /* the body of its create request, equal for containers that can be shared; NULL: not shared */
    char *kind;
    unsigned sandboxes;
};
TAILQ_HEAD(docker_slot_list, docker_slot);

struct docker {
    struct environment_base base;
    struct engine *engine;
    struct quotas *quotas;
    struct fair_reading *fair_reading;
    struct docker_slot_list slots;
    struct orphans orphans;
    struct engine_request *collecting; /* for orphans; NULL: none */
    bool swept;                        /* the collection of orphans was started */
};

/* ---- containers ---- */

static void docker_slot_free(void *arg)
{
    struct docker_slot *h = arg;
    TAILQ_REMOVE(&h->env->slots, h, link);
    mounts_leave(&h->mounts);
    free(h->kind);
    free(h);
}

static void container_notice(void *arg, const char *text)
{
    const struct environment_base *base = &((struct docker_slot *)arg)->env->base;
    if (base->notice)
        base->notice(base->notice_arg, text);
}

static void docker_quota_exceeded(void *arg, enum limit limit)
{
    struct docker_slot *h = arg;
    container_kill(h->container, limit);
}

static int make_container(struct docker_slot *h, const struct sandbox_spec *spec,
    struct json_object *body, struct error *err)
{
    static const struct container_events events = { container_notice, docker_slot_free };
    struct container_plan plan = { .body = body,
        .image = docker_image(spec),
        .may_drop_filter = sandbox_container(spec)->seccomp == SECCOMP_AUTO,
        .pull = sandbox_container(spec)->pull,
        .input_once = engine_is_local(h->env->engine),
        .means = docker_limit_means,
        .fair_reading = h->env->fair_reading };
    return container_open(h->env->base.loop, h->env->engine, &plan, &events, h, &h->container, err);
}

static const char *path_of(struct volume *v)
{
    return v ? volume_path(v) : NULL;
}

static int docker_make_body(struct docker *env, const struct sandbox_spec *spec,
    struct json_object **out, struct error *err)
{
    struct docker_create create = { .spec = spec,
        .loader = remote_loader(),
        .volume = path_of(spec->volume),
        .workspace = spec->workspace ? path_of(workspace_volume(spec->workspace)) : NULL,
        .input_once = engine_is_local(env->engine) };
    return docker_create_body(&create, out, err);
}

static int docker_slot_enter(
    struct docker_slot *h, const struct sandbox_spec *spec, struct error *err)
{
    struct jail_mount place = { 0 };
    uid_t guest = geteuid() == 0 ? JAIL_NOBODY : geteuid();
    mounts_hold(&h->mounts, ISOLATION_CONTAINER, spec);
    return mounts_enter(&h->mounts, h->env->quotas, guest, docker_quota_exceeded, h, &place, err);
}

/* Takes ownership of the body. */
static int docker_slot_new(struct docker *env, const struct sandbox_spec *spec,
    struct json_object *body, struct docker_slot **out, struct error *err)
{
    struct docker_slot *h = calloc(1, sizeof *h);
    if (!h) {
        json_object_put(body);
        return error_memory(err);
    }
    h->env = env;
    TAILQ_INSERT_TAIL(&env->slots, h, link);
    bool reuse = sandbox_container(spec)->reuse;
    h->kind = reuse ? strdup(json_text(body, NULL)) : NULL;
    int rc = reuse && !h->kind ? error_memory(err) : docker_slot_enter(h, spec, err);
    if (rc == 0)
        rc = make_container(h, spec, body, err);
    else
        json_object_put(body);
    if (rc < 0) {
        docker_slot_free(h);
        return rc;
    }
    *out = h;
    return 0;
}

/* A sharable container is kept when empty, unless it has a volume, which would remain in use. */
static bool docker_slot_may_stay_empty(const struct docker_slot *h)
{
    return h->kind && container_lives(h->container) && !mounts_any(&h->mounts);
}

static void leave_if_empty(struct docker_slot *h)
{
    struct docker *env = h->env;
    unsigned waiting = 0;
    if (h->sandboxes > 0)
        return;
    if (!docker_slot_may_stay_empty(h)) {
        container_leave(h->container);
        return;
    }
    struct docker_slot *other, *next;
    for (other = TAILQ_LAST(&env->slots, docker_slot_list); other; other = next) {
        next = TAILQ_PREV(other, docker_slot_list, link);
        if (other->kind && other->sandboxes == 0 && ++waiting > WAITING_MAX)
            container_leave(other->container);
    }
}

/* A live container of this kind. */
static struct docker_slot *docker_slot_find(struct docker *env, const char *kind)
{
    struct docker_slot *h;
    TAILQ_FOREACH(h, &env->slots, link)
    if (h->kind && strcmp(h->kind, kind) == 0 && container_lives(h->container))
        return h;
    return NULL;
}

static struct docker_slot *docker_slot_of(const struct sandbox *s)
{
    return container_arg(remote_arg(remote_of(s)));
}

/* ---- orphans ---- */

static void docker_orphans_listed(void *arg, const struct engine_answer *answer)
{
    struct docker *env = arg;
    size_t count =
        json_object_is_type(answer->body, json_type_array) ? json_length(answer->body) : 0;
    env->collecting = NULL;
    for (size_t i = 0; i < count; i++) {
        struct json_object *one = json_object_array_get_idx(answer->body, i);
        const char *id = json_get_string(one, "Id", "");
        if (text_is_name(id))
            orphans_note_labels(&env->orphans, id, json_get_typed(one, "Labels", json_type_object));
    }
    orphans_listed(&env->orphans, &answer->error, NULL);
}

static int docker_orphans_list(void *arg, const char *cursor, struct error *err)
{
    struct docker *env = arg;
    struct engine_ask ask = { .method = "GET",
        /* {"label":["droste.owner"]} */
        .path = "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22" LABEL_OWNER "%22%5D%7D",
        .seconds = COLLECT_SECONDS,
        .done = docker_orphans_listed,
        .arg = env };
    return engine_send(env->engine, &ask, &env->collecting, err);
}

/* 409: the daemon is removing it. */
static void docker_orphan_removed(void *arg, const struct engine_answer *answer)
{
    static const struct error gone = { .code = ERROR_NOT_FOUND };
    struct docker *env = arg;
    env->collecting = NULL;
    orphans_removed(&env->orphans, answer->status == 409 ? &gone : &answer->error);
}

static int docker_orphan_remove(void *arg, const char *id, struct error *err)
{
    struct docker *env = arg;
    cleanup_free char *path = text_printf("/containers/%s?force=1&v=1", id);
    struct engine_ask ask = { .method = "DELETE",
        .path = path,
        .seconds = COLLECT_SECONDS,
        .done = docker_orphan_removed,
        .arg = env };
    return path ? engine_send(env->engine, &ask, &env->collecting, err) : error_memory(err);
}

static int docker_collect(
    struct environment *base, environment_collected_fn *done, void *arg, struct error *err)
{
    static const struct orphans_ops ops = { docker_orphans_list, docker_orphan_remove };
    struct docker *env = (struct docker *)base;
    return orphans_collect(&env->orphans, &ops, env, done, arg, err);
}

/* ---- the interface of environments ---- */

static int find_or_make(struct docker *env, const struct sandbox_spec *spec,
    struct docker_slot **out, struct error *err)
{
    struct json_object *body = NULL;
    int rc = docker_make_body(env, spec, &body, err);
    if (rc < 0)
        return rc;
    *out = sandbox_container(spec)->reuse ? docker_slot_find(env, json_text(body, NULL)) : NULL;
    if (!*out)
        return docker_slot_new(env, spec, body, out, err);
    json_object_put(body);
    return 0;
}

static int docker_open_sandbox(struct environment *base, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    struct docker *env = (struct docker *)base;
    struct docker_slot *h = NULL;
    int rc = docker_check(spec, engine_is_local(env->engine), err);
    if (rc == 0)
        rc = find_or_make(env, spec, &h, err);
    if (rc < 0)
        return rc;
    rc = remote_open_sandbox(container_remote(h->container), spec, events, arg, out, err);
    if (rc < 0) {
        leave_if_empty(h);
        return rc;
    }
    h->sandboxes++;
    /* Runs once, in the background: the first cell does not wait for it. */
    if (!env->swept)
        docker_collect(base, NULL, NULL, NULL);
    env->swept = true;
    return 0;
}

static void docker_close(struct sandbox *s)
{
    if (!s)
        return;
    struct docker_slot *h = docker_slot_of(s);
    remote_close_sandbox(s);
    h->sandboxes--;
    leave_if_empty(h);
}

static int docker_open_companion(struct sandbox *of, const struct sandbox_events *events, void *arg,
    struct sandbox **out, struct error *err)
{
    int rc = remote_open_companion(of, events, arg, out, err);
    docker_slot_of(of)->sandboxes += rc == 0;
    return rc;
}

static enum isolation docker_isolation(const struct sandbox *s)
{
    return ISOLATION_CONTAINER;
}

static const char *docker_volume(const struct sandbox *s)
{
    return mounts_volume(&docker_slot_of(s)->mounts);
}

static const char *docker_workspace(const struct sandbox *s)
{
    return mounts_workspace(&docker_slot_of(s)->mounts);
}

static const char *docker_id(const struct sandbox *s)
{
    const char *id = container_id(docker_slot_of(s)->container);
    return id[0] ? id : NULL;
}

static void docker_describe(
    const struct environment *base, const struct sandbox *s, struct buf *out)
{
    const struct docker_slot *h = docker_slot_of(s);
    buf_printf(out, "a container of the daemon at %s%s%s, created with:\n",
        engine_address(((const struct docker *)base)->engine),
        container_id(h->container)[0] ? ": " : "", container_id(h->container));
    container_describe(h->container, out);
}

/* Waits for a limited time until the daemon has removed the remaining containers. */
static void docker_wait_for_removals(struct docker *env)
{
    struct docker_slot *h;
    uint64_t begun = clock_ns();
    TAILQ_FOREACH(h, &env->slots, link)
    container_leave(h->container);
    while (!TAILQ_EMPTY(&env->slots) && clock_seconds_since(begun) < GOODBYE_SECONDS)
        loop_turn(env->base.loop, 1000);
}

static void docker_free(struct environment *base)
{
    struct docker *env = (struct docker *)base;
    struct docker_slot *h;
    engine_cancel(steal(&env->collecting));
    orphans_cancel(&env->orphans);
    docker_wait_for_removals(env);
    while ((h = TAILQ_FIRST(&env->slots))) {
        container_free(h->container);
        docker_slot_free(h);
    }
    engine_close(env->engine);
    quotas_close(env->quotas);
    fair_reading_close(env->fair_reading);
    free(env);
}

static const struct feature_state docker_features[FEATURE_COUNT] = {
    [FEATURE_STREAM] = FEATURE_YES("the container's attached streams"),
    [FEATURE_REATTACH] = FEATURE_YES("over TCP, for a minute"),
    [FEATURE_SNAPSHOT] = FEATURE_NO("commit a container to an image, and name that"),
    [FEATURE_RESUME] = FEATURE_NO("a container ends with its session"),
    [FEATURE_IDLE] = FEATURE_NO("a container ends with its session"),
    [FEATURE_IMAGE] = FEATURE_YES("any with CPython 3.8 or newer"),
    [FEATURE_PULL] = FEATURE_YES("missing, always, never"),
    [FEATURE_VOLUME] = FEATURE_YES("at /data, from this machine"),
    [FEATURE_WORKSPACE] = FEATURE_YES("at /workspace"),
    [FEATURE_READ] = FEATURE_YES("mounted at their own paths"),
    [FEATURE_NETWORK] = FEATURE_YES("none by default; host, bridge, or one of the daemon's"),
    [FEATURE_ALLOW] =
        FEATURE_NO("make a network of the daemon's that allows no more, and name that"),
    [FEATURE_MEMORY] = FEATURE_YES("of the container as a whole"),
    [FEATURE_PROCESSES] = FEATURE_YES("of the container as a whole"),
    [FEATURE_CPUS] = FEATURE_YES("of the container as a whole"),
    [FEATURE_DISK] = FEATURE_YES("where the daemon's storage can limit it"),
    [FEATURE_GPUS] = FEATURE_YES("all, a number, or device=ID,..."),
    [FEATURE_DEVICE] = FEATURE_YES("as gpus, which it stands for"),
    [FEATURE_USER] = FEATURE_YES("nobody's if you are root, else yours; or another"),
    [FEATURE_SECCOMP] = FEATURE_YES("Droste's own, by default"),
    [FEATURE_READ_ONLY] = FEATURE_YES("the image's files, by default"),
    [FEATURE_ROOT] = FEATURE_NO("read-only-root no"),
    [FEATURE_LABELS] = FEATURE_YES("the container's"),
    [FEATURE_REUSE] = FEATURE_YES("container"),
    [FEATURE_ISOLATION] = FEATURE_NO("the wall is the container"),
    FEATURES_OF_REMOTE,
};

static const struct environment_ops docker_ops = {
    .name = "docker",
    .traits = TRAIT_SIGNAL | TRAIT_LATE,
    .features = docker_features,
    .open = docker_open_sandbox,
    .open_companion = docker_open_companion,
    .send = remote_send,
    .unread = remote_unread,
    .hold = remote_hold_channel,
    .begin_operation = remote_begin_operation,
    .charge = remote_charge,
    .interrupt = remote_interrupt,
    .is_cut = remote_is_cut,
    .kill = remote_kill,
    .drain = remote_drain,
    .isolation = docker_isolation,
    .usage = remote_usage,
    .volume = docker_volume,
    .workspace = docker_workspace,
    .id = docker_id,
    .collect = docker_collect,
    .describe = docker_describe,
    .close = docker_close,
    .free = docker_free,
};

static int docker_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    struct docker *env = calloc(1, sizeof *env);
    if (!env)
        return error_memory(err);
    env->base = (struct environment_base){ .ops = &docker_ops, .loop = loop };
    TAILQ_INIT(&env->slots);
    int rc = engine_open(loop, &env->engine, err);
    if (rc == 0)
        rc = quotas_open(loop, &env->quotas, err);
    if (rc == 0)
        rc = fair_reading_open(loop, &env->fair_reading, err);
    if (rc < 0) {
        docker_free((struct environment *)env);
        return rc;
    }
    *out = (struct environment *)env;
    return 0;
}

const struct environment_kind docker_environment = {
    .name = "docker",
    .about = "containers of a Docker daemon (DOCKER_HOST)",
    .variables = "DOCKER_HOST DOCKER_TLS_VERIFY DOCKER_CERT_PATH",
    .features = docker_features,
    .configured = engine_configured,
    .open = docker_open,
};
