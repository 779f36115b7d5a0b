/* serve/native/contexts.c: see contexts.h. */
#include "serve/native/contexts.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/openai/file_store.h"
#include "serve/http/idempotency.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"

static const char context_prefix[] = "file-";

static void context_put(struct buf *out, struct json_object *o)
{
    field_open(out, NULL, '{');
    field_string(out, "id", json_get_string(o, "id", ""));
    field_string(out, "name", json_get_string(o, "filename", ""));
    field_int(out, "size", json_get_int(o, "bytes", 0));
    field_int(out, "created_ms", json_get_int(o, "created_at", 0) * 1000);
    field_close(out, '}');
}

static void context_look_elsewhere(struct request *r, const char *id)
{
    if (!file_store_is_id(id, context_prefix) || !relay_on_node(r))
        nodes_refuse_absent(r, "context", id, "stores");
}

char *contexts_path(struct request *r, const char *id)
{
    char *path = file_store_path(r, id);
    if (!path && !r->reply)
        context_look_elsewhere(r, id);
    return path;
}

char *contexts_directory(struct request *r)
{
    cleanup_fd int fd = file_store_open(r); /* makes it */
    char *path = fd < 0 ? NULL : file_store_directory(r, NULL);
    if (fd >= 0 && !path)
        request_refuse_memory(r);
    return path;
}

bool contexts_have(const char *directory, const char *id)
{
    cleanup_fd int fd = file_store_is_id(id, context_prefix)
                            ? open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                            : -1;
    cleanup_json struct json_object *object = fd < 0 ? NULL : file_store_read(fd, id);
    return object != NULL;
}

/* ---- one that comes in ---- */

static void context_reply(struct request *r, struct json_object *object)
{
    cleanup_buf struct buf out = { 0 };
    context_put(&out, object);
    request_reply_written(r, (unsigned)r->route->status, &out);
    request_locate(r, "/v1/contexts/%s", json_get_string(object, "id", ""));
}

static void context_store(struct intake *in)
{
    intake_keep(in,
        file_store_object(
            in->id, request_query(in->r, "name", "context"), "user_data", in->bytes, 0),
        context_reply);
}

void handle_context_create(struct request *r)
{
    const char *name = request_query(r, "name", "context");
    if (!name)
        return;
    if (strlen(name) > 255 || !text_is_utf8(name, strlen(name), NULL))
        request_refuse(r, 400, "argument", "name is a text of at most 255 bytes");
    else if (idempotency_begin(r)) /* before the body, which is not compared */
        intake_begin_plain(r, context_prefix, context_store);
}

/* ---- the others ---- */

void handle_context_list(struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    cleanup_fd int directory = file_store_open(r);
    if (directory < 0)
        return;
    cleanup_json struct json_object *all = file_store_list(directory, context_prefix);
    field_open(&out, NULL, '[');
    for (size_t i = 0; i < json_length(all); i++)
        context_put(&out, json_object_array_get_idx(all, i));
    field_close(&out, ']');
    struct json_object *list = NULL;
    if (all)
        (void)json_parse_written(&out, &list, NULL);
    relay_gather_shared(r, "contexts", list, NULL);
}

/* The one that the request names; NULL: the request was refused. */
static struct json_object *context_of(struct request *r, int *directory)
{
    *directory = file_store_open(r);
    if (*directory < 0)
        return NULL;
    struct json_object *o =
        file_store_is_id(r->id, context_prefix) ? file_store_read(*directory, r->id) : NULL;
    if (!o)
        context_look_elsewhere(r, r->id);
    return o;
}

void handle_context_get(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *o = context_of(r, &directory);
    cleanup_buf struct buf out = { 0 };
    if (!o)
        return;
    context_put(&out, o);
    request_reply_written(r, 200, &out);
}

void handle_context_delete(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *o = context_of(r, &directory);
    if (!o)
        return;
    file_store_remove(directory, r->id);
    request_reply(r, 204, NULL, NULL, 0);
}
