/* env/docker/sweep.c: see sweep.h. */
#include "env/docker/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "env/common/owner_labels.h"

enum { SECONDS = 60, ID_BYTES = 64 };

struct sweep {
    struct engine *engine;
    environment_collected_fn *done;
    void *arg;
    struct engine_request *request;
    struct json_object *found; /* the list of containers */
    size_t at;
    unsigned removed;
    struct error why;
};

static bool docker_sweep_is_orphan(struct json_object *container)
{
    struct json_object *labels = json_get_typed(container, "Labels", json_type_object);
    return owner_labels_are_orphan(
        json_get_string(labels, LABEL_OWNER, ""), json_get_string(labels, LABEL_MACHINE, ""));
}

void sweep_cancel(struct sweep *s)
{
    if (!s)
        return;
    engine_cancel(s->request);
    json_object_put(s->found);
    free(s);
}

static void docker_sweep_finish(struct sweep *s)
{
    environment_collected_fn *done = s->done;
    void *arg = s->arg;
    unsigned removed = s->removed;
    struct error why = s->why;
    sweep_cancel(s);
    done(arg, removed, &why);
}

static void docker_sweep_remove_next(struct sweep *s);

/* One that is gone meanwhile, or that the daemon is removing, is no failure of ours. */
static void removed_one(void *arg, const struct engine_answer *answer)
{
    struct sweep *s = arg;
    s->request = NULL;
    if (answer->error.code == ERROR_NONE)
        s->removed++;
    else if (answer->status != 404 && answer->status != 409 && s->why.code == ERROR_NONE)
        s->why = answer->error;
    docker_sweep_remove_next(s);
}

static void docker_sweep_remove_next(struct sweep *s)
{
    while (s->at < json_length(s->found)) {
        struct json_object *container = json_object_array_get_idx(s->found, s->at++);
        const char *id = json_get_string(container, "Id", "");
        if (!text_is_name(id) || !docker_sweep_is_orphan(container))
            continue;
        cleanup_free char *path = text_printf("/containers/%s?force=1&v=1", id);
        struct engine_ask ask = {
            .method = "DELETE", .path = path, .seconds = SECONDS, .done = removed_one, .arg = s
        };
        if (path && engine_send(s->engine, &ask, &s->request, &s->why) == 0)
            return;
        break;
    }
    docker_sweep_finish(s);
}

static void docker_sweep_listed(void *arg, const struct engine_answer *answer)
{
    struct sweep *s = arg;
    s->request = NULL;
    s->why = answer->error;
    if (json_object_is_type(answer->body, json_type_array))
        s->found = json_object_get(answer->body);
    docker_sweep_remove_next(s);
}

int sweep_start(struct engine *engine, environment_collected_fn *done, void *arg,
    struct sweep **out, struct error *err)
{
    /* {"label":["droste.owner"]} */
    static const char path[] =
        "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22" LABEL_OWNER "%22%5D%7D";
    struct sweep *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    *s = (struct sweep){ .engine = engine, .done = done, .arg = arg };
    struct engine_ask ask = {
        .method = "GET", .path = path, .seconds = SECONDS, .done = docker_sweep_listed, .arg = s
    };
    int rc = engine_send(engine, &ask, &s->request, err);
    if (rc < 0) {
        sweep_cancel(s);
        return rc;
    }
    *out = s;
    return 0;
}
