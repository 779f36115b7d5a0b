/* serve/jupyter/route.c: the paths below /api, ids, errors in Jupyter's form. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "serve/jupyter/contents.h"
#include "serve/jupyter/jupyter.h"
#include "serve/http/relay.h"
#include "serve/jupyter_schemas.h"

/* ---- what all routes share ---- */

/* The id of a kernel or session names its worker. */
static bool jupyter_claims(struct request *r, const char *path)
{
    char text[JUPYTER_ID_SIZE];
    if (strncmp(path, "/files/", 7) == 0)
        return true;
    if (strcmp(path, "/api") != 0 && strncmp(path, "/api/", 5) != 0)
        return false;
    const char *last = strchr(path + 1, '/');
    last = last ? strchr(last + 1, '/') : NULL;
    r->id[0] = '\0';
    bool is_file = strncmp(path, "/api/contents/", 14) == 0; /* its name may look like an id */
    if (last && !is_file && strcspn(last + 1, "/") == sizeof text - 1) {
        memcpy(text, last + 1, sizeof text - 1);
        text[sizeof text - 1] = '\0';
        if (!jupyter_parse_id(text, r->id))
            r->id[0] = '\0';
    }
    return true;
}

/* A new kernel, or session, is where those of its account are. */
static unsigned jupyter_place(struct request *r)
{
    bool is_new = r->route && r->route->creates;
    return is_new ? relay_place_by(r->server, r->account->key.id) : r->server->worker;
}

static void jupyter_refuse(struct request *r, unsigned status, const char *code, const char *text)
{
    cleanup_buf struct buf out = { 0 };
    buf_putc(&out, '{');
    field_string(&out, "message", text);
    field_string(&out, "reason", code);
    buf_putc(&out, '}');
    request_reply(r, status, "application/json", buf_text(&out), out.len);
}

/* ---- about the server ---- */

static void jupyter_handle_version(struct request *r)
{
    static const char text[] = "{\"version\": \"2.0.0\"}"; /* of the interface */
    request_reply(r, 200, "application/json", text, sizeof text - 1);
}

static void jupyter_handle_me(struct request *r)
{
    const char *name = r->account->key.name[0] ? r->account->key.name : r->account->key.id;
    cleanup_buf struct buf out = { 0 };
    buf_putc(&out, '{');
    field_open(&out, "identity", '{');
    field_string(&out, "username", r->account->key.id);
    field_string(&out, "name", name);
    field_string(&out, "display_name", name);
    field_null(&out, "initials");
    field_null(&out, "avatar_url");
    field_null(&out, "color");
    field_close(&out, '}');
    field_json(&out, "permissions", "{}");
    buf_putc(&out, '}');
    request_reply_written(r, 200, &out);
}

static void jupyter_reply_status(struct request *r, struct json_object *list)
{
    cleanup_buf struct buf out = { 0 };
    cleanup_json struct json_object *kernels = list;
    const char *last = NULL;
    int64_t connections = 0;
    for (size_t i = 0; i < json_length(kernels); i++) {
        struct json_object *k = json_object_array_get_idx(kernels, i);
        const char *active = json_get_string(k, "last_activity", "");
        connections += json_get_int(k, "connections", 0);
        last = !last || strcmp(active, last) > 0 ? active : last;
    }
    buf_putc(&out, '{');
    field_time(&out, "started", r->server->jupyter->started_ms);
    if (last)
        field_string(&out, "last_activity", last);
    else
        field_time(&out, "last_activity", r->server->jupyter->started_ms);
    field_int(&out, "connections", connections);
    field_int(&out, "kernels", (int64_t)json_length(kernels));
    buf_putc(&out, '}');
    request_reply_written(r, 200, &out);
}

static void jupyter_handle_status(struct request *r)
{
    struct json_object *list = json_object_new_array();
    for (struct jupyter_kernel *k = r->server->jupyter->kernels; list && k; k = k->next)
        if (jupyter_kernel_find(r, k->id))
            json_object_array_add(list, jupyter_kernel_json(k));
    relay_gather(r, "kernels", list, jupyter_reply_status);
}

/* ---- the table ---- */

#define JSON "application/json"
static const struct route jupyter_rows[] = {
    { "GET", "/api", BODY_NONE, NULL, NULL, 200, JSON, NULL, "the version of the interface",
        jupyter_handle_version, SCOPE_NONE },
    { "GET", "/api/", BODY_NONE, NULL, NULL, 200, JSON, NULL, "the same", jupyter_handle_version,
        SCOPE_NONE },
    { "GET", "/api/me", BODY_NONE, NULL, NULL, 200, JSON, NULL, "the key's name",
        jupyter_handle_me },
    { "GET", "/api/status", BODY_NONE, NULL, NULL, 200, JSON, NULL, "how many kernels there are",
        jupyter_handle_status },
    { "GET", "/api/kernelspecs", BODY_NONE, NULL, NULL, 200, JSON, NULL, "the kernels by name",
        jupyter_handle_specs },
    { "GET", "/api/kernelspecs/{name}", BODY_NONE, NULL, NULL, 200, JSON, NULL,
        "describe a kernel by name", jupyter_handle_spec },
    { "GET", "/api/kernels", BODY_NONE, NULL, NULL, 200, JSON, NULL, "list the kernels",
        jupyter_handle_kernels },
    { "POST", "/api/kernels", BODY_JSON, KERNEL, NULL, 201, JSON, NULL, "start a kernel",
        jupyter_handle_kernel_create, 0, true },
    { "GET", "/api/kernels/{name}", BODY_NONE, NULL, NULL, 200, JSON, NULL, "describe a kernel",
        jupyter_handle_kernel_get },
    { "DELETE", "/api/kernels/{name}", BODY_NONE, NULL, NULL, 204, NULL, NULL, "end a kernel",
        jupyter_handle_kernel_end },
    { "POST", "/api/kernels/{name}/interrupt", BODY_BYTES, NULL, NULL, 204, NULL, NULL,
        "interrupt the cell that runs", jupyter_handle_kernel_interrupt },
    { "POST", "/api/kernels/{name}/restart", BODY_BYTES, NULL, NULL, 200, JSON, NULL,
        "give a kernel a new sandbox", jupyter_handle_kernel_restart },
    { "GET", "/api/kernels/{name}/channels", BODY_NONE, NULL, NULL, 101, NULL, NULL,
        "a WebSocket of Jupyter's messages", jupyter_handle_channels, SCOPE_SANDBOXES },
    { "GET", "/api/sessions", BODY_NONE, NULL, NULL, 200, JSON, NULL, "list the open notebooks",
        jupyter_handle_notebooks },
    { "POST", "/api/sessions", BODY_JSON, SESSION, NULL, 201, JSON, NULL,
        "open a notebook with a kernel", jupyter_handle_notebook_create, 0, true },
    { "GET", "/api/sessions/{name}", BODY_NONE, NULL, NULL, 200, JSON, NULL,
        "describe an open notebook", jupyter_handle_notebook_get },
    { "PATCH", "/api/sessions/{name}", BODY_JSON, SESSION, NULL, 200, JSON, NULL,
        "rename an open notebook, or change its kernel", jupyter_handle_notebook_change },
    { "DELETE", "/api/sessions/{name}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "close a notebook with its kernel", jupyter_handle_notebook_end },
    { "GET", "/api/contents", BODY_NONE, NULL, NULL, 200, JSON, NULL, "list the files",
        jupyter_handle_contents },
    { "POST", "/api/contents", BODY_JSON, CONTENT, NULL, 201, JSON, NULL,
        "make a file or directory with a new name", jupyter_handle_contents },
    { "GET", "/api/contents/{rest}", BODY_NONE, NULL, NULL, 200, JSON, NULL,
        "read a file or directory, or list checkpoints", jupyter_handle_contents },
    { "GET", "/files/{rest}", BODY_NONE, NULL, NULL, 200, "application/octet-stream", NULL,
        "download a file", jupyter_handle_contents },
    { "POST", "/api/contents/{rest}", BODY_JSON, CONTENT, NULL, 201, JSON, NULL,
        "make a file or directory with a new name, or a checkpoint, or restore one",
        jupyter_handle_contents },
    { "PUT", "/api/contents/{rest}", BODY_JSON, CONTENT, NULL, 200, JSON, NULL,
        "write a file, or make a directory", jupyter_handle_contents,
        .body_max = CONTENTS_BODY_MAX },
    { "PATCH", "/api/contents/{rest}", BODY_JSON, CONTENT, NULL, 200, JSON, NULL,
        "rename a file or directory", jupyter_handle_contents },
    { "DELETE", "/api/contents/{rest}", BODY_NONE, NULL, NULL, 204, NULL, NULL,
        "remove a file, an empty directory or a checkpoint", jupyter_handle_contents },
};

const struct routes jupyter_routes = { .rows = jupyter_rows,
    .count = array_length(jupyter_rows),
    .claims = jupyter_claims,
    .place = jupyter_place,
    .knows_lost = true,
    .takes_token = true,
    .refuse = jupyter_refuse };

int jupyter_open_directory(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO,
        "opening the directory of notebooks %.200s", path);
}

int jupyter_open(struct server *s, struct error *err)
{
    s->jupyter = calloc(1, sizeof *s->jupyter);
    if (!s->jupyter)
        return error_memory(err);
    s->jupyter->started_ms = clock_wall_ms();
    s->jupyter->notebooks_fd = -1;
    if (!s->options->notebooks)
        return 0;
    int fd = jupyter_open_directory(s->options->notebooks, err);
    s->jupyter->notebooks_fd = fd;
    return fd < 0 ? fd : 0;
}

void jupyter_close(struct server *s)
{
    if (!s->jupyter)
        return;
    while (s->jupyter->kernels)
        jupyter_kernel_end(s->jupyter->kernels, "the server stops");
    jupyter_notebooks_free(s->jupyter);
    close_fd(&s->jupyter->notebooks_fd);
    free(steal(&s->jupyter));
}
