/* serve/jupyter/sessions.c: /api/sessions: which notebook of a client has which kernel. A notebook
 * server that uses this one as its gateway keeps these itself. */
#include <stdlib.h>
#include <string.h>

#include "serve/jupyter/jupyter.h"

static struct json_object *notebook_json(const struct jupyter_notebook *n)
{
    struct json_object *o = json_object_new_object(), *book = json_object_new_object();
    char id[JUPYTER_ID_SIZE];
    jupyter_print_id(n->id, id);
    bool ok = book && json_put_text(book, "path", n->path) && json_put_text(book, "name", n->name);
    if (ok && o && json_put_text(o, "id", id) && json_put_text(o, "path", n->path) &&
        json_put_text(o, "name", n->name) && json_put_text(o, "type", n->type) &&
        json_put(o, "kernel", jupyter_kernel_json(n->kernel)) &&
        (strcmp(n->type, "notebook") != 0 || json_put(o, "notebook", json_object_get(book)))) {
        json_object_put(book);
        return o;
    }
    json_object_put(book);
    json_object_put(o);
    return NULL;
}

/* The session that the path names; NULL: the request was refused. */
static struct jupyter_notebook *notebook_of(struct request *r)
{
    char id[SERVE_ID_SIZE];
    struct jupyter_notebook *n = NULL;
    if (jupyter_parse_id(r->name, id))
        for (n = r->server->jupyter->notebooks; n && strcmp(n->id, id) != 0;)
            n = n->next;
    if (n && jupyter_kernel_find(r, n->kernel->id))
        return n;
    request_refuse(r, 404, "not_found", "Session not found: %s", r->name);
    return NULL;
}

static bool notebook_set(char **to, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    if (!text)
        return true;
    free(*to);
    *to = copy;
    return copy != NULL;
}

/* Also texts of the old form: {"notebook": {"path"}}. */
static const char *notebook_text(struct request *r, const char *name, const char *fallback)
{
    struct json_object *old = json_get_typed(r->json, "notebook", json_type_object);
    return json_get_string(r->json, name, json_get_string(old, name, fallback));
}

static void notebook_reply_new(struct request *r, const struct jupyter_notebook *n)
{
    char id[JUPYTER_ID_SIZE];
    jupyter_print_id(n->id, id);
    request_reply_json(r, 201, notebook_json(n));
    request_locate(r, "/api/sessions/%s", id);
}

/* The kernel has started, or was there. */
static void notebook_add(struct jupyter_kernel *k, struct request *r)
{
    struct jupyter *j = r->server->jupyter;
    struct jupyter_notebook *n = calloc(1, sizeof *n);
    if (!n || server_make_id(r->server, n->id) < 0 ||
        !notebook_set(&n->path, notebook_text(r, "path", "")) ||
        !notebook_set(&n->name, notebook_text(r, "name", "")) ||
        !notebook_set(&n->type, json_get_string(r->json, "type", "notebook"))) {
        if (n)
            jupyter_notebook_free(n);
        request_refuse_memory(r);
        return;
    }
    n->kernel = k;
    n->next = j->notebooks;
    j->notebooks = n;
    notebook_reply_new(r, n);
}

/* The kernel that is meant by its id. False: there is none, and the request was refused. */
static bool notebook_find_kernel(struct request *r, struct jupyter_kernel **out)
{
    struct json_object *kernel = json_get_typed(r->json, "kernel", json_type_object);
    const char *text = json_get_string(kernel, "id", NULL);
    char id[SERVE_ID_SIZE];
    *out = text && jupyter_parse_id(text, id) ? jupyter_kernel_find(r, id) : NULL;
    if (!text || *out)
        return true;
    request_refuse(r, 404, "not_found", "Kernel does not exist: %.64s", text);
    return false;
}

static const char *notebook_spec(struct request *r)
{
    struct json_object *kernel = json_get_typed(r->json, "kernel", json_type_object);
    return json_get_string(kernel, "name", "python3");
}

void jupyter_handle_notebook_create(struct request *r)
{
    const char *path = notebook_text(r, "path", "");
    struct jupyter_kernel *k;
    for (struct jupyter_notebook *n = r->server->jupyter->notebooks; n; n = n->next)
        if (*path && strcmp(n->path, path) == 0 && n->kernel->owner == r->account) {
            notebook_reply_new(r, n);
            return;
        }
    if (!notebook_find_kernel(r, &k))
        return;
    if (k)
        notebook_add(k, r);
    else
        jupyter_kernel_create(r, notebook_spec(r), notebook_add);
}

void jupyter_handle_notebooks(struct request *r)
{
    struct json_object *list = json_object_new_array();
    for (struct jupyter_notebook *n = r->server->jupyter->notebooks; list && n; n = n->next)
        if (jupyter_kernel_find(r, n->kernel->id))
            json_object_array_add(list, notebook_json(n));
    jupyter_reply_list(r, "sessions", list);
}

void jupyter_handle_notebook_get(struct request *r)
{
    struct jupyter_notebook *n = notebook_of(r);
    if (n)
        request_reply_json(r, 200, notebook_json(n));
}

static void notebook_change(struct jupyter_notebook *n, struct request *r)
{
    if (notebook_set(&n->path, notebook_text(r, "path", NULL)) &&
        notebook_set(&n->name, notebook_text(r, "name", NULL)) &&
        notebook_set(&n->type, json_get_string(r->json, "type", NULL)))
        request_reply_json(r, 200, notebook_json(n));
    else
        request_refuse_memory(r);
}

/* A new kernel instead of the old one, which ends. */
static void notebook_switch(struct jupyter_kernel *k, struct request *r)
{
    struct jupyter_notebook *n = notebook_of(r); /* it may have ended meanwhile */
    if (!n) {
        jupyter_kernel_end(k, "its session has ended");
        return;
    }
    struct jupyter_kernel *old = n->kernel;
    n->kernel = k;
    notebook_change(n, r);
    if (old != k)
        jupyter_kernel_end(old, "its notebook has another kernel");
}

void jupyter_handle_notebook_change(struct request *r)
{
    struct jupyter_notebook *n = notebook_of(r);
    struct json_object *kernel = json_get_typed(r->json, "kernel", json_type_object);
    struct jupyter_kernel *k = NULL;
    if (!n || !notebook_find_kernel(r, &k))
        return;
    if (k)
        notebook_switch(k, r);
    else if (json_get_string(kernel, "name", NULL))
        jupyter_kernel_create(r, notebook_spec(r), notebook_switch);
    else
        notebook_change(n, r);
}

void jupyter_handle_notebook_end(struct request *r)
{
    struct jupyter_notebook *n = notebook_of(r);
    if (!n)
        return;
    jupyter_kernel_end(n->kernel, "its notebook was closed");
    request_reply(r, 204, NULL, NULL, 0);
}
