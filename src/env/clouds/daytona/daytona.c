/* env/clouds/daytona/daytona.c: the environment `daytona`.
 *
 * Each sandbox is a machine at Daytona (sandbox.h), in which the supervisor runs on a terminal
 * (terminal.h). The link (wire/link.h) makes a reliable stream of what the terminal transmits.
 *
 * The first sandbox of each environment, and `droste env gc`, remove the sandboxes of dead hosts,
 * identified by labels. Others end by the limits with which they were created (create.c).
 */

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/clock.h"
#include "base/text.h"
#include "env/remote/stdio_env.h"
#include "env/clouds/daytona/create.h"
#include "env/clouds/daytona/sandbox.h"
#include "env/common/orphans.h"
#include "env/common/owner_labels.h"
#include "net/url.h"

enum {
    GOODBYE_SECONDS = 15, /* for the service to remove the remaining sandboxes */
    LEASE_SECONDS = 3600, /* the supervisor's, without a message from the host */
    LIST_PAGE = 100,
    LIST_SECONDS = 60,
};

/* The directories of a volume that skills for Daytona's sandboxes expect. */
static const char *const memory_directories[] = { "artifacts", "buffers", "knowledge",
    "knowledge/ingested", "knowledge/summaries", "logs", "memories", "memory", "meta", "sessions",
    "skills", "skills/system", "skills/user", "uploads", "workspace", NULL };

const struct layout daytona_layout = {
    .name = "daytona",
    .volume = { "/data", DAYTONA_MEMORY },
    .workspace = { DAYTONA_WORKSPACE, "/workspace" },
    .directories = memory_directories,
};

struct daytona {
    struct loop *loop;
    struct daytona_account account;
    struct orphans orphans;
    struct rest_request *collecting; /* for orphans; NULL: none */
    bool swept;                      /* the collection of orphans was started */
};

/* ---- orphans ---- */

static int daytona_ask(struct daytona *env, const char *method, const char *path,
    rest_done_fn *done, struct error *err)
{
    struct rest_ask what = { .method = method,
        .path = path,
        .again = true,
        .seconds = LIST_SECONDS,
        .done = done,
        .arg = env };
    return rest_send(env->account.api, &what, &env->collecting, err);
}

/* A sandbox that is being deleted, or is changing its state, cannot be deleted now. */
static void daytona_removed(void *arg, const struct rest_answer *answer)
{
    static const struct error gone = { .code = ERROR_NOT_FOUND };
    struct daytona *env = arg;
    bool busy = answer->status == 400 || answer->status == 409;
    env->collecting = NULL;
    orphans_removed(&env->orphans, busy ? &gone : &answer->error);
}

static int daytona_orphan_remove(void *arg, const char *id, struct error *err)
{
    cleanup_free char *path = text_printf("/sandbox/%s", id);
    return path ? daytona_ask(arg, "DELETE", path, daytona_removed, err) : error_memory(err);
}

static void daytona_listed(void *arg, const struct rest_answer *answer)
{
    struct daytona *env = arg;
    env->collecting = NULL;
    struct json_object *items = json_get_typed(answer->body, "items", json_type_array);
    for (size_t i = 0; items && i < json_length(items); i++) {
        struct json_object *one = json_object_array_get_idx(items, i);
        const char *id = json_get_string(one, "id", "");
        /* A stopped one was kept, or will be deleted soon. */
        if (text_is_name(id) && strcmp(json_get_string(one, "state", ""), "stopped") != 0)
            orphans_note_labels(&env->orphans, id, json_get_typed(one, "labels", json_type_object));
    }
    orphans_listed(
        &env->orphans, &answer->error, json_get_string(answer->body, "nextCursor", NULL));
}

/* Lists the sandboxes of this machine, of any host process. */
static int daytona_orphans_list(void *arg, const char *cursor, struct error *err)
{
    cleanup_buf struct buf owner = { 0 }, machine = { 0 }, labels = { 0 }, path = { 0 };
    owner_labels(&owner, &machine);
    buf_putc(&labels, '{');
    field_string(&labels, LABEL_MACHINE, buf_text(&machine));
    buf_putc(&labels, '}');
    buf_printf(&path, "/sandbox?limit=%d&labels=", LIST_PAGE);
    url_escape(&path, buf_text(&labels));
    if (cursor) {
        buf_puts(&path, "&cursor=");
        url_escape(&path, cursor);
    }
    if (buf_failed(&path) || buf_failed(&labels) || buf_failed(&machine))
        return error_memory(err);
    return daytona_ask(arg, "GET", path.data, daytona_listed, err);
}

static int daytona_collect(
    void *arg, environment_collected_fn *done, void *done_arg, struct error *err)
{
    static const struct orphans_ops ops = { daytona_orphans_list, daytona_orphan_remove };
    struct daytona *env = arg;
    env->swept = true;
    return orphans_collect(&env->orphans, &ops, env, done, done_arg, err);
}

/* ---- the interface of transports ---- */

static int daytona_start(void *arg, struct transport *transport, const struct sandbox_spec *spec,
    const char *const *words, void **own, struct error *err)
{
    struct daytona *env = arg;
    int rc = daytona_check(spec, err);
    if (rc == 0)
        rc = daytona_sandbox_start(&env->account, transport, spec, words, own, err);
    if (rc == 0 && !env->swept)
        daytona_collect(env, NULL, NULL, NULL);
    return rc;
}

static bool daytona_settling(const void *arg)
{
    return daytona_sandboxes_end(&((const struct daytona *)arg)->account);
}

/* Waits for a limited time until the service has removed the remaining sandboxes. */
static void daytona_wait_for_removals(struct daytona *env)
{
    uint64_t begun = clock_ns();
    while (!LIST_EMPTY(&env->account.sandboxes) && clock_seconds_since(begun) < GOODBYE_SECONDS)
        loop_turn(env->loop, 1000);
}

static void daytona_free(void *arg)
{
    struct daytona *env = arg;
    struct daytona_sandbox *s;
    rest_cancel(steal(&env->collecting));
    orphans_cancel(&env->orphans);
    daytona_wait_for_removals(env);
    while ((s = LIST_FIRST(&env->account.sandboxes)))
        daytona_sandbox_free(s);
    daytona_account_close(&env->account);
    free(env);
}

static const struct feature_state daytona_features[FEATURE_COUNT] = {
    [FEATURE_STREAM] = FEATURE_YES("a terminal, over a WebSocket"),
    [FEATURE_REATTACH] = FEATURE_YES("for a minute; what was lost is sent again"),
    [FEATURE_SNAPSHOT] = FEATURE_YES("the account's, by name; by default its own"),
    [FEATURE_RESUME] = FEATURE_YES("by id, with its files; variables end with their session"),
    [FEATURE_IDLE] = FEATURE_YES("15 min, from when its host is gone"),
    [FEATURE_IMAGE] = FEATURE_YES("built by the service when it is new"),
    [FEATURE_PULL] = FEATURE_NO("the service fetches images as it likes"),
    [FEATURE_VOLUME] = FEATURE_YES("Daytona's own, at " DAYTONA_MEMORY),
    [FEATURE_WORKSPACE] = FEATURE_YES("sent at the start, to " DAYTONA_WORKSPACE),
    [FEATURE_READ] = FEATURE_NO("the sandbox is on another machine"),
    [FEATURE_NETWORK] = FEATURE_YES("none, or open"),
    [FEATURE_ALLOW] = FEATURE_YES("address ranges and domains"),
    [FEATURE_MEMORY] = FEATURE_YES("of each process; with an image of the sandbox too"),
    [FEATURE_PROCESSES] = FEATURE_NO("the service has no such limit"),
    [FEATURE_CPUS] = FEATURE_YES("with an image; whole ones"),
    [FEATURE_DISK] = FEATURE_YES("with an image; whole gigabytes"),
    [FEATURE_GPUS] = FEATURE_YES("with an image; a number"),
    [FEATURE_USER] = FEATURE_YES("a name of the image's"),
    [FEATURE_SECCOMP] = FEATURE_NO("the provider has its own"),
    [FEATURE_READ_ONLY] = FEATURE_NO("its user can change what the image lets them change"),
    [FEATURE_ROOT] = FEATURE_NO("the sandbox's files are its own"),
    [FEATURE_LABELS] = FEATURE_YES(NULL),
    [FEATURE_REUSE] = FEATURE_NO("each session has a sandbox of its own"),
    [FEATURE_REGION] = FEATURE_YES("DAYTONA_TARGET, where none is named"),
    [FEATURE_APP] = FEATURE_NO(NULL),
    [FEATURE_ISOLATION] = FEATURE_NO("the wall is Daytona's"),
    [FEATURE_DEVICE] = FEATURE_NO("use gpus"),
    FEATURES_OF_REMOTE,
};

static const struct transport_ops daytona_ops = {
    .name = "daytona",
    .features = daytona_features,
    .form = LINK_TEXT,
    .traits = TRAIT_VOLUMES,
    .lease = LEASE_SECONDS,
    .start = daytona_start,
    .write = daytona_sandbox_write,
    .waiting = daytona_sandbox_waiting,
    .pause = daytona_sandbox_pause,
    .end = daytona_sandbox_end,
    .volume = daytona_sandbox_volume,
    .workspace = DAYTONA_WORKSPACE,
    .id = daytona_sandbox_id,
    .settling = daytona_settling,
    .collect = daytona_collect,
    .describe = daytona_sandbox_describe,
    .free = daytona_free,
};

static int daytona_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    struct daytona *env = calloc(1, sizeof *env);
    if (!env)
        return error_memory(err);
    env->loop = loop;
    int rc = daytona_account_open(loop, options->ca_file, &env->account, err);
    if (rc < 0) {
        free(env);
        return rc;
    }
    return stdio_env_open(loop, &daytona_ops, env, out, err);
}

const struct environment_kind daytona_environment = {
    .name = "daytona",
    .about = "sandboxes of Daytona's cloud (DAYTONA_API_KEY)",
    .variables = "DAYTONA_API_KEY DAYTONA_JWT_TOKEN DAYTONA_ORGANIZATION_ID DAYTONA_API_URL "
                 "DAYTONA_API_BASE_URL DAYTONA_TARGET",
    .features = daytona_features,
    .layout = &daytona_layout,
    .keeps_volumes = true,
    .configured = daytona_account_check,
    .open = daytona_open,
};
