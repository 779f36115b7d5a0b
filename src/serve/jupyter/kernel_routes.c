/* serve/jupyter/kernel_routes.c: /api/kernels and /api/kernelspecs. */
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "serve/http/relay.h"
#include "serve/jupyter/jupyter.h"

/* ---- specifications ---- */

/* "python3" is what notebooks name, and clients ask for by default; "droste" is the name of the
 * kernel that `droste jupyter install` adds. */
static const struct {
    const char *name, *title;
} kernel_specs[] = { { "python3", "Python 3 (Droste)" }, { "droste", "Python (Droste)" } };

/* The kernel's own name for the specification; NULL: there is none of this name. */
static const char *spec_named(const char *name)
{
    for (size_t i = 0; i < array_length(kernel_specs); i++)
        if (strcmp(kernel_specs[i].name, name) == 0)
            return kernel_specs[i].name;
    return NULL;
}

static void kernel_put_spec(struct buf *out, const char *key, size_t i)
{
    static const char *const no_words[] = { NULL };
    field_open(out, key, '{');
    field_string(out, "name", kernel_specs[i].name);
    field_open(out, "spec", '{');
    field_strings(out, "argv", no_words);
    field_string(out, "display_name", kernel_specs[i].title);
    field_string(out, "language", "python");
    field_string(out, "interrupt_mode", "message");
    field_json(out, "env", "{}");
    field_json(out, "metadata", "{\"debugger\": false}");
    field_close(out, '}');
    field_json(out, "resources", "{}");
    field_close(out, '}');
}

void jupyter_handle_specs(struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    buf_putc(&out, '{');
    field_string(&out, "default", kernel_specs[0].name);
    field_open(&out, "kernelspecs", '{');
    for (size_t i = 0; i < array_length(kernel_specs); i++)
        kernel_put_spec(&out, kernel_specs[i].name, i);
    buf_puts(&out, "}}");
    request_reply_written(r, 200, &out);
}

void jupyter_handle_spec(struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    for (size_t i = 0; i < array_length(kernel_specs); i++)
        if (strcmp(kernel_specs[i].name, r->name) == 0) {
            kernel_put_spec(&out, NULL, i);
            request_reply_written(r, 200, &out);
            return;
        }
    request_refuse(r, 404, "not_found", "there is no kernelspec '%s'", r->name);
}

/* ---- kernels ---- */

static void kernel_reply_gathered(struct request *r, struct json_object *list)
{
    request_reply_json(r, 200, list);
}

void jupyter_reply_list(struct request *r, const char *name, struct json_object *own)
{
    relay_gather(r, name, own, kernel_reply_gathered);
}

void jupyter_kernel_create(
    struct request *r, const char *name, void (*ready)(struct jupyter_kernel *k, struct request *r))
{
    const char *spec = spec_named(name ? name : kernel_specs[0].name);
    if (spec)
        jupyter_kernel_start(r, spec, &jupyter_requests, ready);
    else
        request_refuse(r, 404, "not_found", "there is no kernelspec '%.64s'", name);
}

static void kernel_reply_new(struct jupyter_kernel *k, struct request *r)
{
    char id[JUPYTER_ID_SIZE];
    jupyter_print_id(k->id, id);
    request_reply_json(r, 201, jupyter_kernel_json(k));
    request_locate(r, "/api/kernels/%s", id);
}

void jupyter_handle_kernel_create(struct request *r)
{
    jupyter_kernel_create(r, json_get_string(r->json, "name", NULL), kernel_reply_new);
}

void jupyter_handle_kernels(struct request *r)
{
    struct json_object *list = json_object_new_array();
    for (struct jupyter_kernel *k = r->server->jupyter->kernels; list && k; k = k->next)
        if (!k->waiting_is_new && jupyter_kernel_find(r, k->id))
            json_object_array_add(list, jupyter_kernel_json(k));
    jupyter_reply_list(r, "kernels", list);
}

void jupyter_handle_kernel_get(struct request *r)
{
    struct jupyter_kernel *k = jupyter_kernel_of(r);
    if (k)
        request_reply_json(r, 200, jupyter_kernel_json(k));
}

void jupyter_handle_kernel_end(struct request *r)
{
    struct jupyter_kernel *k = jupyter_kernel_of(r);
    if (!k)
        return;
    jupyter_kernel_end(k, "the kernel was shut down");
    request_reply(r, 204, NULL, NULL, 0);
}

void jupyter_handle_kernel_interrupt(struct request *r)
{
    struct jupyter_kernel *k = jupyter_kernel_of(r);
    if (!k)
        return;
    jupyter_kernel_interrupt(k);
    request_reply(r, 204, NULL, NULL, 0);
}

static void kernel_restart_on_gone(struct request *r)
{
    struct jupyter_kernel *k = r->state;
    k->waiting = NULL;
    r->state = NULL;
}

void jupyter_handle_kernel_restart(struct request *r)
{
    struct jupyter_kernel *k = jupyter_kernel_of(r);
    if (!k)
        return;
    if (k->waiting) {
        request_refuse(r, 409, "busy", "the kernel is restarting already");
        return;
    }
    k->waiting = r;
    r->state = k;
    r->on_gone = kernel_restart_on_gone;
    jupyter_kernel_restart(k, true);
}
