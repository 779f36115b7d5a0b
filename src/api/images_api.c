/* api/images_api.c: the functions of droste/image.h. */
#include "api/api.h"
#include "base/buf.h"
#include "base/json/fields.h"
#include "image/image.h"

struct images_showing {
    droste_image_fn *fn;
    void *arg;
};

static int images_api_show(void *arg, const struct image_facts *facts, struct error *err)
{
    const struct images_showing *s = arg;
    cleanup_buf struct buf names = { 0 };
    field_open(&names, NULL, '[');
    for (size_t i = 0; i < facts->names->count; i++)
        field_string(&names, NULL, facts->names->items[i]);
    field_close(&names, ']');
    if (buf_failed(&names))
        return error_memory(err);
    const droste_image image = { .id = facts->id,
        .path = facts->root,
        .names = buf_text(&names),
        .config = facts->config,
        .bytes = facts->bytes,
        .files = facts->files,
        .made = facts->made,
        .in_use = facts->in_use,
        .damaged = facts->damaged };
    return s->fn(s->arg, &image) == 0 ? 0 : error_set(err, ERROR_CANCELLED, "the visit was ended");
}

int droste_image_visit(
    droste *d, const char *image, droste_image_fn *fn, void *arg, droste_error *err)
{
    struct images_showing s = { fn, arg };
    (void)d;
    int rc = image_visit(image, images_api_show, &s, api_error(err));
    return rc == -(int)ERROR_CANCELLED ? 0 : rc;
}

int droste_image_pull(
    droste *d, const char *name, droste_image_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    struct image *image = NULL;
    api_forget_interrupt(d);
    const struct image_request request = { name, IMAGE_FETCH_ALWAYS, d->interrupt_fd };
    int rc = image_open(&request, &image, err);
    if (rc < 0)
        return rc;
    cleanup_buf struct buf id = { 0 };
    buf_puts(&id, image_id(image));
    image_close(image); /* or it would be in use */
    return buf_failed(&id) ? error_memory(err) : droste_image_visit(d, buf_text(&id), fn, arg, err);
}

int droste_image_remove(droste *d, const char *image, droste_error *err)
{
    (void)d;
    return image_remove(image, api_error(err));
}
