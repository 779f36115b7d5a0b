/* serve/http/routes.c: the routes of all protocols, by which requests are checked, and from which
 * the OpenAPI document is made.
 *
 * Each protocol has a table of its own, in its directory. */
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/http/request.h"

#define JSON "application/json"

const struct route *route_at(size_t index)
{
    for (size_t i = 0; i < serve_protocol_count; i++) {
        if (index < serve_protocols[i]->count)
            return &serve_protocols[i]->rows[index];
        index -= serve_protocols[i]->count;
    }
    return NULL;
}

unsigned route_scopes(const struct route *route)
{
    if (route->scopes)
        return route->scopes;
    return strcmp(route->method, "GET") == 0 ? SCOPE_SANDBOXES | SCOPE_READ : SCOPE_SANDBOXES;
}

/* Copies a component of a path; false if it does not fit. */
static bool route_take(const char *from, size_t len, char *out, size_t size)
{
    if (len == 0 || len >= size)
        return false;
    memcpy(out, from, len);
    out[len] = '\0';
    return true;
}

static bool route_matches(
    const char *pattern, const char *path, char id[SERVE_ID_SIZE], char name[SERVE_NAME_SIZE])
{
    while (*pattern) {
        if (*pattern != '{') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        if (strcmp(pattern, "{rest}") == 0)
            return true;
        size_t n = strncmp(pattern, "{path}", 6) == 0 ? strlen(path) : strcspn(path, "/");
        bool is_id = strncmp(pattern, "{id}", 4) == 0;
        if (!route_take(path, n, is_id ? id : name, is_id ? SERVE_ID_SIZE : SERVE_NAME_SIZE))
            return false;
        path += n;
        pattern = strchr(pattern, '}') + 1;
    }
    return *path == '\0';
}

/* HEAD is for probes, which ask whether the server lives: what needs a key may have an effect, or
 * be a stream. */
static bool route_has_head(const struct route *route)
{
    return strcmp(route->method, "GET") == 0 && route_scopes(route) == SCOPE_NONE;
}

static bool routes_find(struct request *r, const struct routes *of, const char *method,
    const char *path, const char **allowed)
{
    for (size_t i = 0; i < of->count; i++) {
        const struct route *route = &of->rows[i];
        if (!route_matches(route->path, path, r->id, r->name))
            continue;
        r->routes = of;
        *allowed = route->method;
        bool is_head = strcmp(method, "HEAD") == 0 && route_has_head(route);
        if (strcmp(route->method, method) != 0 && !is_head)
            continue;
        r->route = route;
        return true;
    }
    return false;
}

const struct schema *route_schema(const struct server *s, const struct route *route)
{
    for (size_t i = 0; route_at(i); i++)
        if (route_at(i) == route)
            return s->schemas[i];
    return NULL;
}

bool route_has_host(const char *host)
{
    for (size_t i = 0; i < serve_protocol_count; i++)
        if (serve_protocols[i]->has_host && serve_protocols[i]->has_host(host))
            return true;
    return false;
}

void route_methods(const struct routes *of, const char *path, struct buf *out)
{
    char id[SERVE_ID_SIZE], name[SERVE_NAME_SIZE];
    for (size_t i = 0; i < of->count; i++)
        if (route_matches(of->rows[i].path, path, id, name))
            buf_printf(out, "%s%s%s", out->len > 0 ? ", " : "", of->rows[i].method,
                route_has_head(&of->rows[i]) ? ", HEAD" : "");
}

bool route_find(struct request *r, const char *method, const char *path, const char **allowed)
{
    *allowed = NULL;
    for (size_t i = 0; i < serve_protocol_count && !*allowed; i++)
        if (!serve_protocols[i]->claims || serve_protocols[i]->claims(r, path)) {
            if (routes_find(r, serve_protocols[i], method, path, allowed))
                return true;
            if (serve_protocols[i]->claims) { /* it is not another's */
                r->routes = serve_protocols[i];
                r->route = serve_protocols[i]->any;
                return r->route != NULL;
            }
        }
    return false;
}

/* ---- the document ---- */

/* The table has the schema of each parameter; those that say what is meant are required. */
static void openapi_query(struct buf *out, const struct route *route, bool first)
{
    static const char *const required[] = { "path", "snapshot", "to" };
    cleanup_json struct json_object *all = NULL;
    cleanup_free char *text = text_printf("{%s}", route->query ? route->query : "");
    if (!text || json_parse(text, strlen(text), &json_limits_small, &all, NULL) < 0)
        return;
    json_object_object_foreach(all, name, schema)
    {
        bool needed = false;
        for (size_t i = 0; i < array_length(required); i++)
            needed = needed || strcmp(name, required[i]) == 0;
        buf_printf(out, "%s{\"name\": \"%s\", \"in\": \"query\", \"required\": %s, \"schema\": %s}",
            first ? "" : ", ", name, needed ? "true" : "false", json_object_to_json_string(schema));
        first = false;
    }
}

static void openapi_parameters(struct buf *out, const struct routes *of, const struct route *route)
{
    static const char *const names[] = { "id", "name", "path" };
    bool first = true;
    buf_puts(out, ", \"parameters\": [");
    for (size_t i = 0; i < array_length(names); i++) {
        char word[16];
        snprintf(word, sizeof word, "{%s}", names[i]);
        if (!strstr(route->path, word))
            continue;
        buf_printf(out,
            "%s{\"name\": \"%s\", \"in\": \"path\", \"required\": true, \"schema\": %s}",
            first ? "" : ", ", names[i],
            strcmp(names[i], "name") == 0 && of->name_schema ? of->name_schema(route->path)
                                                             : "{\"type\": \"string\"}");
        first = false;
    }
    openapi_query(out, route, first);
    buf_puts(out, "]");
}

/* An empty body stands for an object without members. */
static bool openapi_needs_body(const struct route *route)
{
    cleanup_json struct json_object *schema = NULL;
    const char *text = route->schema;
    if (route->body != BODY_JSON || !text)
        return route->body != BODY_STREAM && route->body != BODY_BYTES;
    return json_parse(text, strlen(text), &json_limits_large, &schema, NULL) == 0 &&
           json_length(json_get_typed(schema, "required", json_type_array)) > 0;
}

static void openapi_body(struct buf *out, const struct route *route)
{
    if (route->body == BODY_NONE)
        return;
    buf_printf(out, ", \"requestBody\": {\"required\": %s, \"content\": {\"%s\": {\"schema\": %s}",
        openapi_needs_body(route) ? "true" : "false",
        route->body == BODY_JSON ? JSON
        : route->is_form         ? "multipart/form-data"
                                 : "application/octet-stream",
        route->schema ? route->schema : "{}");
    if (route->body == BODY_BYTES)
        buf_puts(out, ", \"application/json\": {\"schema\": {}}, \"text/plain\": {\"schema\": "
                      "{\"type\": \"string\"}}");
    buf_puts(out, "}}");
}

static void openapi_operation(struct buf *out, const struct routes *of, const struct route *route)
{
    cleanup_buf struct buf summary = { 0 };
    json_append_string(&summary, route->summary, strlen(route->summary));
    for (const char *p = route->method; *p; p++)
        buf_putc(out, (char)(*p - 'A' + 'a'));
    buf_printf(out, "\": {\"summary\": %s", buf_text(&summary));
    openapi_parameters(out, of, route);
    openapi_body(out, route);
    buf_printf(out, ", \"responses\": {\"%d\": {\"description\": \"success\"", route->status);
    if (route->type)
        buf_printf(out, ", \"content\": {\"%s\": {\"schema\": %s}%s}", route->type,
            route->answer ? route->answer : "{}",
            route->streams == route->status ? ", \"text/event-stream\": {}" : "");
    if (route->streams && route->streams != route->status)
        buf_printf(out,
            "}, \"%d\": {\"description\": \"success\", \"content\": {\"text/event-stream\": {}}",
            route->streams);
    buf_puts(out, "}, \"default\": {\"$ref\": \"#/components/responses/Error\"}}}");
}

/* Whether an earlier row of the table has the path. */
static bool openapi_has_path(const struct routes *of, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(of->rows[i].path, of->rows[index].path) == 0)
            return true;
    return false;
}

static void openapi_protocol(struct buf *out, const struct routes *of, bool *is_first)
{
    for (size_t i = 0; i < of->count; i++) {
        const char *path = of->rows[i].path, *before = "";
        if (openapi_has_path(of, i))
            continue;
        buf_printf(out, "%s\"%s\": {", *is_first ? "" : ", ", path);
        *is_first = false;
        for (size_t j = i; j < of->count; j++)
            if (strcmp(of->rows[j].path, path) == 0) {
                buf_printf(out, "%s\"", before);
                openapi_operation(out, of, &of->rows[j]);
                before = ", ";
            }
        buf_puts(out, "}");
    }
}

void serve_openapi(struct buf *out)
{
    buf_printf(out,
        "{\"openapi\": \"3.1.0\", \"info\": {\"title\": \"Droste\", \"version\": \"%s\"}, "
        "\"paths\": {",
        droste_version());
    bool is_first = true;
    for (size_t i = 0; i < serve_protocol_count; i++)
        if (serve_protocols[i]->is_documented)
            openapi_protocol(out, serve_protocols[i], &is_first);
    buf_puts(out,
        "}, \"components\": {\"responses\": {\"Error\": {\"description\": "
        "\"an error\", \"content\": {\"application/json\": {\"schema\": {\"type\": "
        "\"object\", \"required\": [\"error\"], \"properties\": {\"error\": {\"type\": "
        "\"object\", \"required\": [\"code\", \"message\"], \"properties\": {\"code\": "
        "{\"type\": \"string\"}, \"message\": {\"type\": \"string\"}, \"errno\": {\"type\": "
        "\"string\"}}}}}}}}}}}");
}
