/* env/clouds/vm/sweep.c: see sweep.h. The list is asked for, page by page, and then what is an orphan is deleted one by one. */
#include "env/clouds/vm/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "env/common/owner_labels.h"

enum { ANSWER_SECONDS = 60, PAGES_MOST = 1000 };

struct vm_sweep {
    struct vm vm; /* stands for the one that is asked for */
    environment_collected_fn *done;
    void *arg;
    struct list orphans;
    size_t at;
    unsigned removed, pages;
    struct buf cursor; /* of the next page */
    struct rest_request *request;
};

static void sweep_free(struct vm_sweep *s)
{
    s->vm.env->sweep = NULL;
    rest_cancel(s->request);
    list_clear(&s->orphans);
    buf_free(&s->cursor);
    free(s);
}

void vm_sweep_cancel(struct vms *env)
{
    if (env->sweep)
        sweep_free(env->sweep);
}

static void vm_sweep_finish(struct vm_sweep *s, const struct error *why)
{
    environment_collected_fn *done = s->done;
    struct error told = *why;
    void *arg = s->arg;
    unsigned vm_sweep_removed = s->removed;
    sweep_free(s);
    done(arg, vm_sweep_removed, &told);
}

static int vm_sweep_ask(
    struct vm_sweep *s, enum vm_step step, rest_done_fn *done, struct error *err)
{
    const struct vm_provider *provider = s->vm.env->provider;
    struct vm_ask what = { .cursor = s->cursor.len ? buf_text(&s->cursor) : NULL };
    int rc = provider->ask(&s->vm, step, NULL, &what, err);
    struct rest_ask sent = { .method = what.method,
        .path = buf_text(&what.path),
        .body = what.body,
        .tell_header = provider->cursor_header,
        .again = true,
        .seconds = ANSWER_SECONDS,
        .done = done,
        .arg = s };
    if (rc == 0)
        rc = rest_send(s->vm.env->api, &sent, &s->request, err);
    buf_free(&what.path);
    json_object_put(what.body);
    free(what.header);
    return rc;
}

static void vm_sweep_removed(void *arg, const struct rest_answer *answer);

static void vm_sweep_go_on(struct vm_sweep *s)
{
    struct error err = { 0 };
    bool more = s->at < s->orphans.count;
    if (more)
        snprintf(s->vm.id, sizeof s->vm.id, "%s", s->orphans.items[s->at++]);
    if (!more || vm_sweep_ask(s, VM_DELETE, vm_sweep_removed, &err) < 0)
        vm_sweep_finish(s, &err);
}

static void vm_sweep_removed(void *arg, const struct rest_answer *answer)
{
    struct vm_sweep *s = arg;
    s->request = NULL;
    if (answer->error.code != ERROR_NONE && answer->error.code != ERROR_NOT_FOUND) {
        vm_sweep_finish(s, &answer->error);
        return;
    }
    s->removed++;
    vm_sweep_go_on(s);
}

static void vm_sweep_listed(void *arg, const struct rest_answer *answer)
{
    struct vm_sweep *s = arg;
    const struct vm_provider *provider = s->vm.env->provider;
    struct error err = answer->error;
    char id[VM_ID_SIZE];
    s->request = NULL;
    for (size_t i = 0; err.code == ERROR_NONE; i++) {
        cleanup_buf struct buf owner = { 0 }, machine = { 0 };
        if (!provider->listed(answer->body, i, id, &owner, &machine))
            break;
        if (id[0] && owner_labels_are_orphan(buf_text(&owner), buf_text(&machine)))
            list_add(&s->orphans, id, &err);
    }
    buf_clear(&s->cursor);
    bool more = err.code == ERROR_NONE && provider->more(answer, &s->cursor) &&
                !buf_failed(&s->cursor) && ++s->pages < PAGES_MOST;
    if (more && vm_sweep_ask(s, VM_LIST, vm_sweep_listed, &err) == 0)
        return;
    if (err.code != ERROR_NONE)
        vm_sweep_finish(s, &err);
    else
        vm_sweep_go_on(s);
}

int vm_sweep_start(struct vms *env, environment_collected_fn *done, void *arg, struct error *err)
{
    if (env->sweep)
        return error_set(err, ERROR_ARGUMENT, "%s is swept already", env->provider->title);
    struct vm_sweep *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    *s = (struct vm_sweep){ .vm = { .env = env }, .done = done, .arg = arg };
    env->sweep = s;
    int rc = vm_sweep_ask(s, VM_LIST, vm_sweep_listed, err);
    if (rc < 0)
        sweep_free(s);
    return rc;
}
