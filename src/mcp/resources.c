/* mcp/resources.c: resources: the record of the runs that the client has asked for. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "mcp/run.h"

enum { RESOURCE_MAX = 64 << 20 };

/* Answers {KEY: list}, and takes the list. */
static void answer_list(struct mcp_call *c, const char *key, struct json_object *list)
{
    struct json_object *o = list ? json_object_new_object() : NULL;
    if (!o)
        json_object_put(list);
    else if (!json_put(o, key, list)) {
        json_object_put(o);
        o = NULL;
    }
    mcp_call_answer(c, o);
}

static struct json_object *resource_describe(const struct mcp_run *run)
{
    struct json_object *o = json_object_new_object();
    char uri[sizeof RUN_URI + DROSTE_RUN_ID_SIZE];
    snprintf(uri, sizeof uri, RUN_URI "%s", run->id);
    if (o && json_put_text(o, "uri", uri) && json_put_text(o, "name", run->id) &&
        json_put_text(o, "title", run->question) &&
        json_put_text(o, "description", "The record of a run: each step as a line of JSON.") &&
        json_put_text(o, "mimeType", "application/jsonl"))
        return o;
    json_object_put(o);
    return NULL;
}

void mcp_resources_list(struct mcp_call *c)
{
    struct json_object *list = json_object_new_array();
    for (struct mcp_run *run = c->peer->mcp->runs; list && run; run = run->next) {
        struct json_object *item = run->id[0] ? resource_describe(run) : NULL;
        if (item)
            json_object_array_add(list, item);
    }
    const struct mcp_extension *more = c->peer->mcp->server->extension;
    if (more && list)
        mcp_list_append(list, more->resources);
    answer_list(c, "resources", list);
}

void mcp_resources_templates(struct mcp_call *c)
{
    static const char text[] =
        "[{\"uriTemplate\": \"" RUN_URI "{run}\", \"name\": \"run\", \"title\": \"The record of a "
        "run\", \"description\": \"Each step of a run that `ask` made, as a line of JSON: the "
        "model's replies, the code, its output, the calls and their cost.\", \"mimeType\": "
        "\"application/jsonl\"}]";
    struct json_object *list = NULL;
    json_parse(text, sizeof text - 1, &json_limits_small, &list, NULL);
    const struct mcp_extension *more = c->peer->mcp->server->extension;
    if (more && list)
        mcp_list_append(list, more->templates);
    answer_list(c, "resourceTemplates", list);
}

/* The whole export of a run, whose length is *len (free); NULL with *err. */
static char *run_export(struct mcp *mcp, const char *id, size_t *len, droste_error *err)
{
    droste_record *record = NULL;
    struct error why;
    struct stat st;
    cleanup_fd int fd = file_memfd("run", &why);
    char *text = NULL;
    if (fd < 0 || droste_record_open(mcp->server->d, &record, err) < 0 || !record)
        return NULL;
    droste_export what = { .runs = &id, .count = 1, .format = DROSTE_EXPORT_JSONL };
    if (droste_record_export_fd(record, &what, fd, err) == 0 && fstat(fd, &st) == 0 &&
        st.st_size <= RESOURCE_MAX && (text = malloc((size_t)st.st_size + 1)) &&
        pread(fd, text, (size_t)st.st_size, 0) == st.st_size) {
        *len = (size_t)st.st_size;
        text[*len] = '\0';
    } else {
        free(steal(&text));
    }
    droste_record_close(record);
    return text;
}

void mcp_resources_read(struct mcp_call *c)
{
    struct mcp *mcp = c->peer->mcp;
    const char *uri = json_get_string(c->params, "uri", NULL);
    const char *id =
        uri && strncmp(uri, RUN_URI, sizeof RUN_URI - 1) == 0 ? uri + sizeof RUN_URI - 1 : NULL;
    struct mcp_run *run = mcp->runs;
    while (run && (!id || strcmp(run->id, id) != 0))
        run = run->next;
    if (!uri) {
        mcp_call_fail(c, RPC_PARAMS, "resources/read needs `uri`");
        return;
    }
    const struct mcp_extension *more = mcp->server->extension;
    if (more && more->read && more->read(c, uri))
        return;
    if (!run || !id || !id[0]) {
        struct json_object *data = json_object_new_object();
        if (data)
            json_put_text(data, "uri", uri);
        mcp_call_fail_with(
            c, c->is_stateless ? RPC_PARAMS : RPC_NO_RESOURCE, data, "there is no such resource");
        return;
    }
    droste_error err = { .text = "the record has no such run, or it is too large" };
    size_t len = 0;
    cleanup_free char *text = run_export(mcp, id, &len, &err);
    if (!text) {
        mcp_call_fail(c, RPC_INTERNAL, "%s", err.text);
        return;
    }
    struct json_object *list = json_object_new_array(), *item = json_object_new_object();
    if (list && item && json_put_text(item, "uri", uri) &&
        json_put_text(item, "mimeType", "application/jsonl") &&
        json_put_string(item, "text", text, len))
        json_object_array_add(list, item);
    else
        json_object_put(item);
    answer_list(c, "contents", list);
}
