/* serve/http/work.c: see work.h. */
#include "serve/http/work.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/http/request.h"

static void work_on_run(uv_work_t *uv)
{
    struct work *w = uv->data;
    w->run(w);
}

static void work_leave(struct work *w)
{
    if (!w->r)
        return;
    w->r->state = NULL;
    w->r->on_gone = NULL;
}

static void work_on_end(uv_work_t *uv, int status)
{
    struct work *w = uv->data;
    work_leave(w);
    w->end(w);
}

static void work_on_gone(struct request *r)
{
    struct work *w = r->state;
    w->r = NULL;
    r->state = NULL;
}

void work_start(struct work *w)
{
    w->uv.data = w;
    if (w->r) {
        w->r->state = w;
        w->r->on_gone = work_on_gone;
    }
    uv_queue_work(&w->server->loop, &w->uv, work_on_run, work_on_end);
}

int work_file(const char *directory)
{
    cleanup_free char *draft = text_printf("%s/.new-XXXXXX", directory);
    int fd = draft ? mkostemp(draft, O_CLOEXEC) : -1;
    if (fd >= 0)
        unlink(draft);
    return fd;
}
