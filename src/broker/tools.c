/* broker/tools.c: the registry of tools. Checks names for all kinds of tools, which share one
 * namespace with Python's built-ins and with contexts.
 */
#include "broker/tools.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "broker/tool_schema.h"
#include "session/names.h"

enum { TEXT_MAX_ = 16000 };

static const struct json_limits schema_limits = { 1 << 20, 32, 20000 };

struct tools {
    struct tool *list;
    size_t count;
    struct session_datum *data;
    size_t datum_count;
    struct session_source *sources;
    size_t source_count;
    struct buf json; /* the list for the guest */
};

/* ---- names ---- */

bool tools_have(const struct tools *t, const char *name)
{
    for (size_t i = 0; t && i < t->datum_count; i++)
        if (strcmp(t->data[i].name, name) == 0)
            return true;
    size_t n = strlen(name);
    for (size_t i = 0; t && i < t->count; i++)
        if (t->list[i].of_server && strncmp(t->list[i].name, name, n) == 0 &&
            t->list[i].name[n] == '.')
            return true;
    return tools_find(t, name) != NULL;
}

static int tools_check_name(
    const struct tools *t, const char *name, bool replaces, struct error *err)
{
    if (!text_is_identifier(name) && !text_is_keyword(name))
        return error_set(err, ERROR_ARGUMENT,
            "'%.70s' is not a valid name for a tool: use at most 64 letters, digits and '_'", name);
    if (guest_name_is_python(name) || (guest_name_is_ours(name) && !replaces))
        return error_set(err, ERROR_ARGUMENT,
            "the name '%s' is reserved by Python or by the guest; give the tool another name",
            name);
    if (tools_have(t, name))
        return error_set(err, ERROR_ARGUMENT, "there are two tools with the name '%s'", name);
    return 0;
}

/* MODULE.FUNCTION, of which tools_add_mcp has made sure that it is not there yet. */
static int tools_check_server_name(const char *name, struct error *err)
{
    static const struct tools none;
    const char *dot = strchr(name, '.');
    cleanup_free char *module = dot ? text_copy(name, (size_t)(dot - name)) : NULL;
    if (dot && !module)
        return error_memory(err);
    if (!dot || !text_is_identifier(dot + 1))
        return error_set(err, ERROR_ARGUMENT, "'%.70s' is not MODULE.FUNCTION", name);
    return tools_check_name(&none, module, false, err);
}

/* ---- the registry ---- */

int tools_new(struct tools **out, struct error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : error_memory(err);
}

static void free_tool(struct tool *tool)
{
    if (tool->release)
        tool->release(tool->arg);
    json_object_put(tool->schema);
    free(tool->name);
    free(tool->description);
    free(tool->returns);
    free(tool->installs);
}

void tools_free(struct tools *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++)
        free_tool(&t->list[i]);
    for (size_t i = 0; i < t->datum_count; i++) {
        free((char *)(uintptr_t)t->data[i].name);
        free((char *)(uintptr_t)t->data[i].data);
    }
    for (size_t i = 0; i < t->source_count; i++) {
        free((char *)(uintptr_t)t->sources[i].name);
        free((char *)(uintptr_t)t->sources[i].code);
    }
    free(t->list);
    free(t->data);
    free(t->sources);
    buf_free(&t->json);
    free(t);
}

/* Grows an array by one; returns false without memory. */
static bool tools_grow(void *array, size_t count, size_t size)
{
    void *grown = reallocarray(*(void **)array, count + 1, size);
    if (grown)
        *(void **)array = grown;
    return grown != NULL;
}

void tools_describe(const struct tool *tool, struct buf *out)
{
    const char *text = tool->description ? tool->description : "";
    field_open(out, NULL, '{');
    field_string(out, "name", tool->name);
    field_text(out, "description", text, strnlen(text, TEXT_MAX_));
    field_json(out, "parameters", tool->schema ? json_text(tool->schema, NULL) : NULL);
    if (tool->of_server)
        field_json(out, "returns", tool->returns ? tool->returns : "{}");
    if (tool->installs)
        field_string(out, "installs", tool->installs);
    field_close(out, '}');
}

/* Appends to the list for the guest. */
static int tools_tell(struct buf *json, const struct tool *tool, struct error *err)
{
    if (json->len > 0)
        json->len--;
    else
        buf_putc(json, '[');
    tools_describe(tool, json);
    buf_putc(json, ']');
    return buf_failed(json) ? error_memory(err) : 0;
}

static int broker_tools_add(
    struct tools *t, const struct tool_spec *spec, struct tool *tool, struct error *err)
{
    const char *parameters = spec->parameters;
    int rc = spec->of_server ? tools_check_server_name(spec->name, err)
                             : tools_check_name(t, spec->name, spec->replaces, err);
    if (rc == 0 && parameters)
        rc = json_parse(parameters, strlen(parameters), &schema_limits, &tool->schema, err);
    if (rc == 0 && parameters)
        rc = tool_schema_check(tool->schema, err);
    if (rc < 0)
        return error_wrap(err, "tool '%.64s'", spec->name);
    tool->name = strdup(spec->name);
    tool->description = spec->description ? strdup(spec->description) : NULL;
    tool->returns = spec->returns ? strdup(spec->returns) : NULL;
    tool->installs = spec->installs ? strdup(spec->installs) : NULL;
    tool->of_server = spec->of_server;
    tool->of_client = spec->of_client;
    if (!tool->name || (spec->description && !tool->description) ||
        (spec->returns && !tool->returns) || (spec->installs && !tool->installs) ||
        !tools_grow(&t->list, t->count, sizeof *t->list))
        return error_memory(err);
    return tools_tell(&t->json, tool, err);
}

int tools_add(struct tools *t, const struct tool_spec *spec, struct error *err)
{
    struct tool tool = { .fn = spec->fn,
        .arg = spec->arg,
        .release = spec->release,
        .hold = spec->hold,
        .seconds = spec->seconds,
        .again = spec->again };
    int rc = broker_tools_add(t, spec, &tool, err);
    if (rc < 0)
        free_tool(&tool);
    else
        t->list[t->count++] = tool;
    return rc;
}

bool tools_remove(struct tools *t, const char *name)
{
    size_t at = 0;
    while (at < t->count && strcmp(t->list[at].name, name) != 0)
        at++;
    if (at == t->count)
        return false;
    free_tool(&t->list[at]);
    memmove(&t->list[at], &t->list[at + 1], (--t->count - at) * sizeof *t->list);
    buf_clear(&t->json);
    for (size_t i = 0; i < t->count; i++)
        tools_tell(&t->json, &t->list[i], NULL);
    return true;
}

int tools_add_datum(struct tools *t, const struct session_datum *datum, struct error *err)
{
    int rc = tools_check_name(t, datum->name, false, err);
    if (rc == 0 && !datum->typed)
        rc = json_check(datum->data, datum->len, &json_limits_large, err);
    if (rc < 0)
        return error_wrap(err, "tool-data '%.64s'", datum->name);
    struct session_datum own = *datum;
    own.name = strdup(datum->name);
    own.data = text_copy(datum->data, datum->len);
    if (!own.name || !own.data || !tools_grow(&t->data, t->datum_count, sizeof *t->data)) {
        free((char *)(uintptr_t)own.name);
        free((char *)(uintptr_t)own.data);
        return error_memory(err);
    }
    t->data[t->datum_count++] = own;
    return 0;
}

/* Sets the name for tracebacks. */
static int broker_tools_add_source(
    struct tools *t, const char *name, const char *code, size_t len, struct error *err)
{
    struct session_source source = { strdup(name), text_copy(code, len), len };
    if (!source.name || !source.code ||
        !tools_grow(&t->sources, t->source_count, sizeof *t->sources)) {
        free((char *)(uintptr_t)source.name);
        free((char *)(uintptr_t)source.code);
        return error_memory(err);
    }
    t->sources[t->source_count++] = source;
    return 0;
}

int tools_add_source(
    struct tools *t, const char *name, const char *code, size_t len, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    size_t bad = 0;
    if (!text_is_utf8(code, len, &bad))
        return error_set(
            err, ERROR_ARGUMENT, "the tools of %.100s are not UTF-8 at byte %zu", name, bad);
    buf_puts(&shown, "<tools ");
    text_append_visible(&shown, name, strlen(name));
    buf_putc(&shown, '>');
    return broker_tools_add_source(t, buf_text(&shown), code, len, err);
}

static int add_copy(struct tools *t, const struct tool *tool, struct error *err)
{
    struct tool_spec spec = { .name = tool->name,
        .description = tool->description,
        .parameters = tool->schema ? json_text(tool->schema, NULL) : NULL,
        .fn = tool->fn,
        .arg = tool->arg,
        .returns = tool->returns,
        .of_server = tool->of_server,
        .of_client = tool->of_client,
        .hold = tool->hold,
        .release = tool->hold ? tool->release : NULL,
        .seconds = tool->seconds,
        .installs = tool->installs,
        .again = tool->again,
        .replaces = true }; /* its name was accepted when it was added */
    if (tool->hold)
        tool->hold(tool->arg);
    return tools_add(t, &spec, err);
}

int tools_add_all(struct tools *t, const struct tools *from, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->count; i++)
        rc = add_copy(t, &from->list[i], err);
    for (size_t i = 0; rc == 0 && i < from->datum_count; i++)
        rc = tools_add_datum(t, &from->data[i], err);
    for (size_t i = 0; rc == 0 && i < from->source_count; i++) {
        const struct session_source *source = &from->sources[i];
        rc = broker_tools_add_source(t, source->name, source->code, source->len, err);
    }
    return rc;
}

const struct tool *tools_find(const struct tools *t, const char *name)
{
    for (size_t i = 0; t && i < t->count; i++)
        if (strcmp(t->list[i].name, name) == 0)
            return &t->list[i];
    return NULL;
}

bool tools_are_of_client(const struct tools *t, const char *name)
{
    const struct tool *tool = tools_find(t, name);
    return tool && tool->of_client;
}

void tools_offer(const struct tools *t, struct session_options *o)
{
    o->tools = t && t->count > 0 ? buf_text(&t->json) : NULL;
    o->data = t ? t->data : NULL;
    o->datum_count = t ? t->datum_count : 0;
    o->sources = t ? t->sources : NULL;
    o->source_count = t ? t->source_count : 0;
}
