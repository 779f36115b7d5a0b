/* env/clouds/vm/sweep.c: lists and deletes machines for env/common/orphans.h. */
#include "env/clouds/vm/sweep.h"

#include <stdlib.h>

enum { ANSWER_SECONDS = 60 };

static int vm_orphans_ask(struct vms *env, enum vm_step step, const char *id, const char *cursor,
    rest_done_fn *done, struct error *err)
{
    struct vm vm = { .env = env }; /* stands for the machine that the request is about */
    struct vm_ask what = { .cursor = cursor };
    snprintf(vm.id, sizeof vm.id, "%s", id);
    int rc = env->provider->ask(&vm, step, NULL, &what, err);
    struct rest_ask sent = { .method = what.method,
        .path = buf_text(&what.path),
        .body = what.body,
        .tell_header = env->provider->cursor_header,
        .again = true,
        .seconds = ANSWER_SECONDS,
        .done = done,
        .arg = env };
    if (rc == 0)
        rc = rest_send(env->api, &sent, &env->collecting, err);
    buf_free(&what.path);
    json_object_put(what.body);
    free(what.header);
    return rc;
}

static void vm_orphans_listed(void *arg, const struct rest_answer *answer)
{
    struct vms *env = arg;
    const struct vm_provider *provider = env->provider;
    bool good = answer->error.code == ERROR_NONE;
    cleanup_buf struct buf cursor = { 0 };
    char id[VM_ID_SIZE];
    env->collecting = NULL;
    for (size_t i = 0; good; i++) {
        cleanup_buf struct buf owner = { 0 }, machine = { 0 };
        if (!provider->listed(answer->body, i, id, &owner, &machine))
            break;
        orphans_note(&env->orphans, id, buf_text(&owner), buf_text(&machine));
    }
    bool more = good && provider->more(answer, &cursor) && !buf_failed(&cursor);
    orphans_listed(&env->orphans, &answer->error, more ? buf_text(&cursor) : NULL);
}

static int vm_orphans_list(void *arg, const char *cursor, struct error *err)
{
    return vm_orphans_ask(arg, VM_LIST, "", cursor, vm_orphans_listed, err);
}

static void vm_orphan_removed(void *arg, const struct rest_answer *answer)
{
    struct vms *env = arg;
    env->collecting = NULL;
    orphans_removed(&env->orphans, &answer->error);
}

static int vm_orphan_remove(void *arg, const char *id, struct error *err)
{
    return vm_orphans_ask(arg, VM_DELETE, id, NULL, vm_orphan_removed, err);
}

int vm_collect(void *arg, environment_collected_fn *done, void *done_arg, struct error *err)
{
    static const struct orphans_ops ops = { vm_orphans_list, vm_orphan_remove };
    struct vms *env = arg;
    return orphans_collect(&env->orphans, &ops, env, done, done_arg, err);
}
