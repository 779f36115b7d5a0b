/* env/daytona.c: sandboxes of Daytona's. A sandbox has a machine of its own there (daytona_sandbox.h), in which our supervisor
 * runs on a terminal (daytona_terminal.h); the link in wire/ makes a whole stream of what that carries.
 *
 * What a host that was killed has left there, the first sandbox of each environment has removed, and `droste env gc`: by their
 * labels. Whatever remains the service ends itself, by the limits with which it was made (daytona_create.c).
 */
#include "env/daytona.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "env/carried.h"
#include "env/daytona_create.h"
#include "env/daytona_sandbox.h"
#include "env/owner_labels.h"

enum {
    GOODBYE_SECONDS = 15, /* for the service to remove what is left */
    LEASE_SECONDS = 3600, /* of the supervisor, without a word of the host */
    LIST_PAGE = 100,
    PAGES_MOST = 100,
    LIST_SECONDS = 60,
};

/* Where code that was written for Daytona's sandboxes has staged files. */
#define WORKSPACE "/home/daytona/workspace"

struct place {
    TAILQ_ENTRY(place) link;
    struct daytona *env;
    struct daytona_sandbox *sandbox;
    bool ending;
};
TAILQ_HEAD(place_list, place);

/* Removing what others have left. */
struct sweep {
    struct rest_request *request;
    struct list ids;
    size_t next;
    unsigned removed, pages;
    environment_collected_fn *done;
    void *arg;
    bool active;
};

struct daytona {
    struct loop *loop;
    struct daytona_account account;
    struct place_list places;
    struct sweep sweep;
    bool swept; /* or about to be */
};

/* ---- what others have left ---- */

static void swept(struct daytona *env, const struct error *why)
{
    struct sweep *s = &env->sweep;
    environment_collected_fn *done = s->done;
    void *arg = s->arg;
    unsigned removed = s->removed;
    list_clear(&s->ids);
    *s = (struct sweep){ 0 };
    if (done)
        done(arg, removed, why);
}

static void remove_next(struct daytona *env);

static void removed(void *arg, const struct rest_answer *answer)
{
    struct daytona *env = arg;
    env->sweep.request = NULL;
    if (answer->error.code == ERROR_NONE)
        env->sweep.removed++;
    remove_next(env);
}

static int ask(struct daytona *env, const char *method, const char *path, rest_done_fn *done,
    struct error *err)
{
    struct rest_ask what = { .method = method,
        .path = path,
        .again = true,
        .seconds = LIST_SECONDS,
        .done = done,
        .arg = env };
    return rest_send(env->account.api, &what, &env->sweep.request, err);
}

static void remove_next(struct daytona *env)
{
    struct sweep *s = &env->sweep;
    struct error err = { 0 };
    if (s->next == s->ids.count) {
        swept(env, &err);
        return;
    }
    cleanup_free char *path = text_printf("/sandbox/%s", s->ids.items[s->next++]);
    if ((path ? ask(env, "DELETE", path, removed, &err) : error_memory(&err)) < 0)
        swept(env, &err);
}

static void note_orphan(struct sweep *s, struct json_object *o)
{
    struct json_object *labels = json_get_typed(o, "labels", json_type_object);
    const char *id = json_get_string(o, "id", ""), *state = json_get_string(o, "state", "");
    /* What is stopped was kept, or is about to be deleted. */
    if (labels && text_is_name(id) && strcmp(state, "stopped") != 0 &&
        owner_labels_are_orphan(
            json_get_string(labels, LABEL_OWNER, ""), json_get_string(labels, LABEL_MACHINE, "")))
        list_add(&s->ids, id, NULL);
}

static int list_page(struct daytona *env, const char *cursor, struct error *err);

static void listed(void *arg, const struct rest_answer *answer)
{
    struct daytona *env = arg;
    struct sweep *s = &env->sweep;
    struct error err = answer->error;
    s->request = NULL;
    struct json_object *items = json_get_typed(answer->body, "items", json_type_array);
    for (size_t i = 0; items && i < json_length(items); i++)
        note_orphan(s, json_object_array_get_idx(items, i));
    const char *cursor = json_get_string(answer->body, "nextCursor", NULL);
    if (err.code == ERROR_NONE && cursor && ++s->pages < PAGES_MOST) {
        if (list_page(env, cursor, &err) == 0)
            return;
    }
    if (err.code == ERROR_NONE)
        remove_next(env);
    else
        swept(env, &err);
}

/* Those of this machine, whoever's. */
static int list_page(struct daytona *env, const char *cursor, struct error *err)
{
    cleanup_buf struct buf owner = { 0 }, machine = { 0 }, labels = { 0 }, path = { 0 };
    owner_labels(&owner, &machine);
    buf_puts(&labels, "{\"" LABEL_MACHINE "\":");
    json_append_string(&labels, buf_text(&machine), machine.len);
    buf_putc(&labels, '}');
    buf_printf(&path, "/sandbox?limit=%d&labels=", LIST_PAGE);
    rest_escape(&path, buf_text(&labels));
    if (cursor) {
        buf_puts(&path, "&cursor=");
        rest_escape(&path, cursor);
    }
    if (buf_failed(&path) || buf_failed(&labels) || buf_failed(&machine))
        return error_memory(err);
    return ask(env, "GET", path.data, listed, err);
}

static int daytona_collect(
    void *arg, environment_collected_fn *done, void *done_arg, struct error *err)
{
    struct daytona *env = arg;
    env->swept = true;
    env->sweep.done = done;
    env->sweep.arg = done_arg;
    if (env->sweep.active)
        return 0;
    env->sweep.active = true;
    int rc = list_page(env, NULL, err);
    if (rc < 0)
        env->sweep = (struct sweep){ 0 };
    return rc;
}

/* ---- the carrier ---- */

static void place_gone(void *arg)
{
    struct place *p = arg;
    TAILQ_REMOVE(&p->env->places, p, link);
    free(p);
}

static int daytona_start(void *arg, struct carrier *carrier, const struct sandbox_spec *spec,
    const char *const *words, void **own, struct error *err)
{
    struct daytona *env = arg;
    int rc = daytona_check(spec, err);
    if (rc < 0)
        return rc;
    struct place *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    p->env = env;
    rc = daytona_sandbox_open(&env->account, carrier, spec, words, place_gone, p, &p->sandbox, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    TAILQ_INSERT_TAIL(&env->places, p, link);
    if (!env->swept)
        daytona_collect(env, NULL, NULL, NULL);
    *own = p;
    return 0;
}

static void daytona_write(void *own, const struct iovec *iov, int count)
{
    daytona_sandbox_write(((struct place *)own)->sandbox, iov, count);
}

static size_t daytona_waiting(void *own)
{
    return daytona_sandbox_waiting(((struct place *)own)->sandbox);
}

static void daytona_pause(void *own, bool paused)
{
    daytona_sandbox_pause(((struct place *)own)->sandbox, paused);
}

static void daytona_end(void *own)
{
    struct place *p = own;
    p->ending = true;
    daytona_sandbox_end(p->sandbox);
}

static const char *daytona_volume(void *own)
{
    return daytona_sandbox_volume(((struct place *)own)->sandbox);
}

static const char *daytona_id(void *own)
{
    return daytona_sandbox_id(((struct place *)own)->sandbox);
}

static void daytona_describe(void *own, struct buf *out)
{
    daytona_sandbox_describe(((struct place *)own)->sandbox, out);
}

static bool daytona_settling(const void *arg)
{
    const struct daytona *env = arg;
    const struct place *p;
    TAILQ_FOREACH(p, &env->places, link)
    if (p->ending)
        return true;
    return false;
}

/* Waits until the service has removed what is left; not for ever. */
static void see_them_off(struct daytona *env)
{
    uint64_t begun = clock_ns();
    while (!TAILQ_EMPTY(&env->places) && clock_seconds_since(begun) < GOODBYE_SECONDS)
        if (loop_turn(env->loop, 1000, NULL) < 0)
            break;
}

static void daytona_free(void *arg)
{
    struct daytona *env = arg;
    struct place *p;
    rest_cancel(steal(&env->sweep.request));
    list_clear(&env->sweep.ids);
    see_them_off(env);
    while ((p = TAILQ_FIRST(&env->places))) {
        daytona_sandbox_free(p->sandbox);
        place_gone(p);
    }
    daytona_account_close(&env->account);
    free(env);
}

const struct powers
    daytona_powers = { .of = {
                           [POWER_STREAM] = POWER_YES("a terminal, over a WebSocket"),
                           [POWER_REATTACH] =
                               POWER_YES("for a minute; what was lost is sent again"),
                           [POWER_SNAPSHOT] =
                               POWER_YES("the account's, by name; by default its own"),
                           [POWER_RESUME] =
                               POWER_YES("by id, with its files; variables end with their session"),
                           [POWER_IDLE] = POWER_YES("15 min, from when its host is gone"),
                           [POWER_IMAGE] = POWER_YES("built by the service when it is new"),
                           [POWER_PULL] = POWER_NO("the service fetches images as it likes"),
                           [POWER_VOLUME] = POWER_YES("Daytona's own, at " DAYTONA_MEMORY),
                           [POWER_WORKSPACE] = POWER_YES("sent at the start, to " WORKSPACE),
                           [POWER_READ] = POWER_NO("the sandbox is on another machine"),
                           [POWER_NETWORK] = POWER_YES("none, or open"),
                           [POWER_ALLOW] = POWER_YES("address ranges and domains"),
                           [POWER_MEMORY] =
                               POWER_YES("of each process; with an image of the sandbox too"),
                           [POWER_PROCESSES] = POWER_NO("the service has no such limit"),
                           [POWER_CPUS] = POWER_YES("with an image; whole ones"),
                           [POWER_DISK] = POWER_YES("with an image; whole gigabytes"),
                           [POWER_GPUS] = POWER_YES("with an image; a number"),
                           [POWER_USER] = POWER_YES("a name of the image's"),
                           [POWER_READ_ONLY] =
                               POWER_NO("its user can change what the image lets them change"),
                           [POWER_LABELS] = POWER_YES(NULL),
                           [POWER_REUSE] = POWER_NO("each session has a sandbox of its own"),
                           [POWER_REGION] = POWER_YES("DAYTONA_TARGET, where none is named"),
                           [POWER_APP] = POWER_NO(NULL),
                           [POWER_ISOLATION] = POWER_NO("the wall is Daytona's"),
                           [POWER_PRELOAD] = POWER_YES("in the worker, before the session"),
                       } };

static const struct carrier_ops daytona_ops = {
    .name = "daytona",
    .powers = &daytona_powers,
    .form = LINK_TEXT,
    .traits = TRAIT_VOLUMES,
    .lease = LEASE_SECONDS,
    .start = daytona_start,
    .write = daytona_write,
    .waiting = daytona_waiting,
    .pause = daytona_pause,
    .end = daytona_end,
    .volume = daytona_volume,
    .workspace = WORKSPACE,
    .id = daytona_id,
    .settling = daytona_settling,
    .collect = daytona_collect,
    .describe = daytona_describe,
    .free = daytona_free,
};

int daytona_configured(struct error *err)
{
    return daytona_account_check(err);
}

int daytona_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    struct daytona *env = calloc(1, sizeof *env);
    if (!env)
        return error_memory(err);
    env->loop = loop;
    TAILQ_INIT(&env->places);
    int rc = daytona_account_open(loop, options->ca_file, &env->account, err);
    if (rc < 0) {
        free(env);
        return rc;
    }
    return carried_open(loop, &daytona_ops, env, out, err);
}
