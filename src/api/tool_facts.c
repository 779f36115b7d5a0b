/* api/tool_facts.c: see tool_facts.h. */
#include "api/tool_facts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json/fields.h"
#include "base/json/json.h"

static const struct kind {
    const char *name;
    const char *in_words;
    bool prepared, called;
} kinds[] = {
    { "source", "the source of tools", true, false },
    { "data", "tool-data", true, false },
    { "program", "the program of tool", false, true },
    { "description", "the description of tool", true, true },
    { "function", "the tool", true, true },
    { "server", "the MCP server", false, true },
};

/* ---- written down ---- */

/* The array is valid JSON after each addition. */
static void begin_next(struct buf *facts)
{
    if (facts->len > 0)
        facts->data[facts->len - 1] = ',';
    else
        buf_putc(facts, '[');
}

static int api_tool_facts_add(struct buf *facts, const char *kind, const char *name,
    const char *path, const char *hash, struct error *err)
{
    cleanup_free char *whole = path ? realpath(path, NULL) : NULL;
    begin_next(facts);
    buf_putc(facts, '{');
    field_string(facts, "kind", kind);
    field_string(facts, "name", name);
    field_string(facts, "path", whole ? whole : path);
    field_string(facts, "sha256", hash);
    buf_puts(facts, "}]");
    return buf_failed(facts) ? error_memory(err) : 0;
}

int tool_facts_add(struct buf *facts, const char *kind, const char *name, const char *path,
    const void *data, size_t len, struct error *err)
{
    char hash[HASH_TEXT_SIZE];
    int rc = hash_sha256(data, len, hash, err);
    return rc < 0 ? rc : api_tool_facts_add(facts, kind, name, path, hash, err);
}

int tool_facts_add_name(struct buf *facts, const char *kind, const char *name, struct error *err)
{
    return api_tool_facts_add(facts, kind, name, NULL, NULL, err);
}

int tool_facts_add_program(struct buf *facts, const char *name, const char *path, struct error *err)
{
    char hash[HASH_TEXT_SIZE];
    cleanup_buf struct buf about = { 0 };
    if (!strchr(path, '/'))
        return api_tool_facts_add(facts, "program", name, NULL, NULL, err);
    int rc = hash_file(path, hash, err);
    if (rc == 0)
        rc = api_tool_facts_add(facts, "program", name, path, hash, err);
    buf_printf(&about, "%s.json", path);
    bool described = access(buf_text(&about), R_OK) == 0;
    if (rc == 0 && described)
        rc = hash_file(buf_text(&about), hash, err);
    if (rc < 0)
        return rc;
    return api_tool_facts_add(facts, "description", name, described ? buf_text(&about) : NULL,
        described ? hash : NULL, err);
}

void tool_facts_add_all(struct buf *facts, const struct buf *others)
{
    if (others->len == 0)
        return;
    begin_next(facts);
    buf_append(facts, others->data + 1, others->len - 1);
}

/* ---- compared ---- */

static const struct kind *kind_of(struct json_object *fact)
{
    const char *name = json_get_string(fact, "kind", "");
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

static bool is_like(struct json_object *a, struct json_object *b)
{
    return strcmp(json_get_string(a, "kind", ""), json_get_string(b, "kind", "")) == 0 &&
           strcmp(json_get_string(a, "name", ""), json_get_string(b, "name", "")) == 0;
}

/* Finds the fact with the same position among those of its kind and name, because two files of
 * tools may have the same name. */
static struct json_object *tool_facts_find(
    struct json_object *now, struct json_object *then, size_t index)
{
    struct json_object *fact = json_object_array_get_idx(then, index);
    size_t before = 0;
    for (size_t i = 0; i < index; i++)
        before += is_like(json_object_array_get_idx(then, i), fact);
    for (size_t i = 0; i < json_object_array_length(now); i++) {
        struct json_object *other = json_object_array_get_idx(now, i);
        if (is_like(other, fact) && before-- == 0)
            return other;
    }
    return NULL;
}

static int check_one(const char *run, const struct kind *kind, struct json_object *was,
    struct json_object *is, struct error *err)
{
    const char *name = json_get_string(was, "name", ""), *path = json_get_string(was, "path", NULL);
    if (!is)
        return error_set(err, ERROR_ARGUMENT,
            "%s '%.64s' of run '%.64s' is missing: add it again, or start a new run",
            kind->in_words, name, run);
    if (strcmp(json_get_string(was, "sha256", ""), json_get_string(is, "sha256", "")) == 0)
        return 0;
    return error_set(err, ERROR_ARGUMENT,
        "%s '%.64s' has changed since run '%.40s' began: restore it, or start a new run%s%s",
        kind->in_words, name, run, path ? ": " : "", path ? path : "");
}

static int tool_facts_parse(const struct buf *facts, struct json_object **out, struct error *err)
{
    const char *text = facts->len > 0 ? buf_text(facts) : "[]";
    int rc = json_parse(text, strlen(text), &json_limits_large, out, err);
    if (rc == 0 && !json_object_is_type(*out, json_type_array))
        rc = error_set(err, ERROR_STORE, "the run's tools in the record are damaged");
    return rc;
}

int tool_facts_check(const struct tool_facts_then *then, const struct buf *now, struct error *err)
{
    cleanup_json struct json_object *were = NULL, *are = NULL;
    int rc = tool_facts_parse(then->json, &were, err);
    if (rc == 0)
        rc = tool_facts_parse(now, &are, err);
    for (size_t i = 0; rc == 0 && i < json_object_array_length(were); i++) {
        struct json_object *was = json_object_array_get_idx(were, i);
        const struct kind *kind = kind_of(was);
        if (kind && ((kind->prepared && then->prepared) || (kind->called && then->called)))
            rc = check_one(then->run, kind, was, tool_facts_find(are, were, i), err);
    }
    return rc;
}
