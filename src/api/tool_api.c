/* api/tool_api.c: see tool_api.h. */
#include "api/tool_api.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/mcp_api.h"
#include "api/packages_install.h"
#include "api/tool_facts.h"
#include "base/loop.h"
#include "base/os/file.h"
#include "broker/tool_call.h"
#include "broker/tool_client.h"
#include "broker/tool_program.h"
#include "broker/tools.h"

enum { SOURCE_MAX = 16 << 20, DATA_MAX = 256 << 20 };

/* ---- the program's ---- */

/* A droste_tool_call is a struct tool_call. */
static struct tool_call *tool_api_inner(droste_tool_call *call)
{
    return (struct tool_call *)(void *)call;
}

void droste_tool_answer(droste_tool_call *call, const char *json, size_t len)
{
    tool_call_answer(tool_api_inner(call), json, len);
}

void droste_tool_answer_values(
    droste_tool_call *call, const char *json, size_t len, const char *values, size_t values_len)
{
    tool_call_answer_values(tool_api_inner(call), json, len, values, values_len);
}

const char *droste_tool_values(const droste_tool_call *call, size_t *len)
{
    return tool_call_values((const struct tool_call *)(const void *)call, len);
}

void droste_tool_fail(droste_tool_call *call, const char *type, const char *message)
{
    tool_call_fail(tool_api_inner(call), type, message);
}

/* An answer from another thread: JSON, or, with a `type`, the message of a failure. */
struct outcome {
    struct post post; /* first, so that both have the same address */
    droste_tool_call *call;
    size_t len;
    char *type;
    char text[];
};

static void tool_api_tell_outcome(struct post *post)
{
    struct outcome *o = (struct outcome *)(void *)post;
    if (o->type)
        droste_tool_fail(o->call, o->type, o->text);
    else
        droste_tool_answer(o->call, o->text, o->len);
    free(o->type);
    free(o);
}

static int post_outcome(droste *d, droste_tool_call *call, const char *type, const char *text,
    size_t len, droste_error *err)
{
    err = api_error(err);
    struct outcome *o = calloc(1, sizeof *o + len + 1);
    char *kind = type ? strdup(type) : NULL;
    if (!o || (type && !kind)) {
        free(o);
        free(kind);
        return error_memory(err);
    }
    o->post.run = tool_api_tell_outcome;
    o->call = call;
    o->len = len;
    o->type = kind;
    memcpy(o->text, text, len);
    loop_post(d->loop, &o->post);
    return 0;
}

int droste_tool_post_answer(
    droste *d, droste_tool_call *call, const char *json, size_t len, droste_error *err)
{
    return post_outcome(d, call, NULL, json, len, err);
}

int droste_tool_post_failure(
    droste *d, droste_tool_call *call, const char *type, const char *message, droste_error *err)
{
    return post_outcome(d, call, type, message, strlen(message), err);
}

int droste_tool_is_cancelled(const droste_tool_call *call)
{
    return tool_call_is_cancelled((const struct tool_call *)(const void *)call);
}

void droste_tool_on_cancel(droste_tool_call *call, droste_tool_cancel_fn *fn, void *arg)
{
    tool_call_on_cancel(tool_api_inner(call), (tool_cancel_fn *)(void (*)(void))fn, arg);
}

static int own_tools(droste *d, struct error *err)
{
    return d->tools ? 0 : tools_new(&d->tools, err);
}

int tool_api_add(struct tools *tools, const char *name, const char *description,
    const char *parameters, bool replaces, droste_tool_fn *fn, void *arg, struct error *err)
{
    struct tool_spec spec = { .name = name,
        .description = description,
        .parameters = parameters,
        .fn = (tool_fn *)(void (*)(void))fn,
        .arg = arg,
        .replaces = replaces };
    return tools_add(tools, &spec, err);
}

int droste_tool_add(droste *d, const char *name, const char *description, const char *parameters,
    droste_tool_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    int rc = own_tools(d, err);
    if (rc == 0)
        rc = tool_api_add(d->tools, name, description, parameters, false, fn, arg, err);
    if (rc == 0)
        rc = tool_facts_add_name(&d->tool_facts, "function", name, err);
    return rc;
}

int droste_tool_data(
    droste *d, const char *name, const char *json, size_t len, droste_error *failure)
{
    return droste_tool_data_values(d, name, json, len, NULL, 0, failure);
}

/* Two containers of one value can differ, for example in the order of a set; its JSON form is what
 * identifies it for a resumed run. */
int droste_tool_data_values(droste *d, const char *name, const char *json, size_t len,
    const void *values, size_t values_len, droste_error *err)
{
    err = api_error(err);
    const struct session_datum datum = { name, values ? values : json, values ? values_len : len,
        values != NULL };
    int rc = own_tools(d, err);
    if (rc == 0 && values)
        rc = json_check(json, len, &json_limits_large, err);
    if (rc == 0)
        rc = tools_add_datum(d->tools, &datum, err);
    if (rc == 0)
        rc = tool_facts_add(&d->tool_facts, "data", name, NULL, json, len, err);
    return rc;
}

int droste_tool_source(droste *d, const char *name, const char *code, size_t len, droste_error *err)
{
    err = api_error(err);
    int rc = own_tools(d, err);
    if (rc == 0)
        rc = tools_add_source(d->tools, name, code, len, err);
    if (rc == 0)
        rc = tool_facts_add(&d->tool_facts, "source", name, NULL, code, len, err);
    return rc;
}

void droste_tools_clear(droste *d)
{
    tools_free(d->tools);
    d->tools = NULL;
    buf_free(&d->tool_facts);
    d->tool_facts = (struct buf){ 0 };
}

/* ---- the settings' ---- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Collects the tools and their facts (tool_facts.h). */
struct gathering {
    struct tools *tools;
    struct loop *loop;
    struct buf *facts;
};

static int tool_api_add_source(struct gathering *g, const char *path, struct error *err)
{
    const char *name = last_part(path);
    cleanup_buf struct buf code = { 0 };
    int rc = file_read(path, SOURCE_MAX, &code, err);
    if (rc < 0)
        return error_wrap(err, "reading the tools");
    rc = tools_add_source(g->tools, name, buf_text(&code), code.len, err);
    return rc < 0 ? rc
                  : tool_facts_add(g->facts, "source", name, path, buf_text(&code), code.len, err);
}

/* Splits "NAME=REST" and returns REST; NULL with an error. */
static const char *tool_api_split(
    const char *setting, const char *value, struct buf *name, struct error *err)
{
    const char *equals = strchr(value, '=');
    if (!equals || equals == value || !equals[1]) {
        error_set(err, ERROR_ARGUMENT, "%s '%.80s': write NAME=%s", setting, value,
            strcmp(setting, "tool") == 0 ? "PROGRAM" : "FILE");
        return NULL;
    }
    buf_append(name, value, (size_t)(equals - value));
    return equals + 1;
}

static int add_datum(struct gathering *g, const char *value, struct error *err)
{
    cleanup_buf struct buf name = { 0 }, json = { 0 };
    const char *path = tool_api_split("tool-data", value, &name, err), *text;
    if (!path)
        return -(int)ERROR_ARGUMENT;
    int rc = file_read(path, DATA_MAX, &json, err);
    if (rc < 0)
        return error_wrap(err, "reading tool-data '%s'", buf_text(&name));
    text = buf_text(&json);
    rc = tools_add_datum(
        g->tools, &(struct session_datum){ buf_text(&name), text, json.len, false }, err);
    return rc < 0 ? rc
                  : tool_facts_add(g->facts, "data", buf_text(&name), path, text, json.len, err);
}

static int add_program(struct gathering *g, const char *value, struct error *err)
{
    cleanup_buf struct buf name = { 0 };
    const char *path = tool_api_split("tool", value, &name, err);
    if (!path)
        return -(int)ERROR_ARGUMENT;
    int rc = tools_add_program(g->tools, g->loop, buf_text(&name), path, err);
    return rc < 0 ? rc : tool_facts_add_program(g->facts, buf_text(&name), path, err);
}

static int add_each(struct gathering *g, const struct list *list,
    int (*add)(struct gathering *g, const char *value, struct error *err), struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < list->count; i++)
        rc = add(g, list->items[i], err);
    return rc;
}

int api_tools(
    droste *d, const struct settings *s, struct tools **out, struct buf *facts, struct error *err)
{
    *out = NULL;
    if (!d->tools && !s->allow_install &&
        s->tools.count + s->tool_data.count + s->tool.count + s->mcp_server.count == 0 &&
        !s->client_tools)
        return 0;
    int rc = tools_new(out, err);
    struct gathering g = { *out, d->loop, facts };
    tool_facts_add_all(facts, &d->tool_facts);
    if (rc == 0 && d->tools)
        rc = tools_add_all(*out, d->tools, err);
    if (rc == 0)
        rc = api_install_offer(d, s, *out, facts, err);
    if (rc == 0)
        rc = add_each(&g, &s->tool_data, add_datum, err);
    if (rc == 0)
        rc = add_each(&g, &s->tools, tool_api_add_source, err);
    if (rc == 0)
        rc = add_each(&g, &s->tool, add_program, err);
    if (rc == 0)
        rc = api_mcp_open(d, s, facts, err);
    if (rc == 0 && s->client_tools)
        rc = tools_add_client(*out, s->client_tools, err);
    if (rc == 0 && buf_failed(facts))
        rc = error_memory(err);
    if (rc < 0) {
        tools_free(*out);
        *out = NULL;
    }
    return rc;
}
