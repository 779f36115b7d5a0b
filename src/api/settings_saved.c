/* api/settings_saved.c: settings as JSON in the record of a run, and back to resume it. */
#include <string.h>
#include <unistd.h>

#include "api/settings.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "mcp_client/spec.h"

static bool is_saved(const struct setting *what)
{
    return !what->option.secret && strcmp(what->option.name, "database") != 0 &&
           strcmp(what->option.name, "secret") != 0; /* a source may be a command */
}

/* Finds a relative path in the value; NULL: there is none. */
static const char *find_relative(const struct setting *what, const char *value)
{
    const char *kind = what->option.value, *name = what->option.name;
    bool of_depth = strcmp(kind, "N=MODEL") == 0;
    if (of_depth || strcmp(kind, "MODEL") == 0) {
        const char *equals = of_depth ? strchr(value, '=') : NULL;
        value = equals ? equals + 1 : value;
        bool replay = strncmp(value, "replay:", 7) == 0, exec = strncmp(value, "exec:", 5) == 0;
        const char *path = value + (replay ? 7 : 5);
        bool relative = (replay || (exec && strchr(path, '/'))) && path[0] != '/';
        return relative ? path : NULL;
    }
    bool named = strcmp(kind, "NAME=FILE") == 0, program = strcmp(kind, "NAME=PROGRAM") == 0;
    if (named || program) {
        const char *path = strchr(value, '=');
        path = path ? path + 1 : value;
        return path[0] != '/' && (named || strchr(path, '/')) ? path : NULL;
    }
    bool is_path = strcmp(kind, "FILE") == 0 || strcmp(kind, "PATH") == 0;
    bool searched = strcmp(name, "python") == 0 && !strchr(value, '/');
    return is_path && !searched && value[0] != '/' ? value : NULL;
}

static void save_text(struct buf *out, const struct setting *what, const char *value)
{
    cleanup_buf struct buf whole = { 0 };
    if (what->offset == offsetof(struct settings, mcp_server)) {
        mcp_spec_write_public(value, &whole);
        json_append_string(out, buf_text(&whole), whole.len);
        return;
    }
    const char *path = find_relative(what, value);
    cleanup_free char *directory = path ? getcwd(NULL, 0) : NULL;
    if (directory) {
        buf_append(&whole, value, (size_t)(path - value));
        buf_printf(&whole, "%s/%s", directory, path);
        value = buf_text(&whole);
    }
    json_append_string(out, value, strlen(value));
}

static void save_list(struct buf *out, const struct setting *what, const struct list *list)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < list->count; i++) {
        buf_puts(out, i ? "," : "");
        save_text(out, what, list->items[i]);
    }
    buf_putc(out, ']');
}

static void save_value(struct buf *out, const struct setting *what, const void *field)
{
    switch (what->type) {
    case TYPE_TEXT:
        save_text(out, what, *(char *const *)field ? *(char *const *)field : "");
        return;
    case TYPE_LIST:
    case TYPE_NAMES:
        save_list(out, what, field);
        return;
    case TYPE_SWITCH:
        buf_puts(out, *(const bool *)field ? "\"yes\"" : "\"no\"");
        return;
    case TYPE_NUMBER:
    case TYPE_SIZE:
        buf_printf(out, "\"%lld\"", (long long)*(const int64_t *)field);
        return;
    case TYPE_DECIMAL:
    case TYPE_SECONDS:
        buf_printf(out, "\"%.17g\"", *(const double *)field);
        return;
    }
}

/* Escapes a text that begins like the name of a file. */
static void save_content(struct buf *out, const char *text)
{
    cleanup_buf struct buf whole = { 0 };
    buf_printf(&whole, "%s%s", text && text[0] == '@' ? "\n" : "", text ? text : "");
    json_append_string(out, buf_text(&whole), whole.len);
}

void settings_save(const struct settings *s, const struct settings_texts *texts, struct buf *out)
{
    buf_putc(out, '{');
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *what = &settings_table[i];
        bool commit = texts->commit && what->offset == offsetof(struct settings, repo_ref);
        if ((!s->given[i] && !commit) || !is_saved(what))
            continue;
        field_key(out, what->option.name);
        if (commit)
            save_content(out, texts->commit);
        else if (what->offset == offsetof(struct settings, template))
            save_content(out, texts->template);
        else if (what->offset == offsetof(struct settings, setup_code))
            save_content(out, texts->setup_code);
        else if (what->offset == offsetof(struct settings, instructions))
            save_content(out, texts->instructions);
        else if (what->offset == offsetof(struct settings, system_prompt))
            save_content(out, texts->system_prompt);
        else if (what->offset == offsetof(struct settings, answer_schema))
            save_content(out, s->answer_schema ? texts->answer_schema : NULL);
        else
            save_value(out, what, (const char *)s + what->offset);
    }
    buf_putc(out, '}');
}

static int restore_one(struct settings *s, const char *name, struct json_object *value,
    const char *source, struct error *err)
{
    if (!json_object_is_type(value, json_type_string))
        return error_set(
            err, ERROR_STORE, "%s: '%.60s' is damaged: expected a text, or a list", source, name);
    return settings_set(s, name, json_object_get_string(value), source, err);
}

int settings_restore_value(struct settings *s, const char *name, struct json_object *value,
    const char *source, struct error *err)
{
    int rc = 0;
    if (!json_object_is_type(value, json_type_array))
        return restore_one(s, name, value, source, err);
    rc = settings_set(s, name, "", source, err); /* clear the list first */
    for (size_t i = 0; rc == 0 && i < json_object_array_length(value); i++)
        rc = restore_one(s, name, json_object_array_get_idx(value, i), source, err);
    return rc;
}

int settings_restore(struct settings *s, const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    int rc = json_parse(json, len, &json_limits_large, &o, err);
    if (rc == 0 && !json_object_is_type(o, json_type_object))
        rc = error_set(err, ERROR_STORE, "the run's settings in the record are damaged");
    if (rc < 0)
        return rc;
    json_object_object_foreach(o, name, value)
    {
        rc = settings_restore_value(s, name, value, "the run's settings", err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A server that is set here, too, has its values of `env` and `headers` here. */
static int settings_take_servers(struct list *list, const struct list *from, struct error *err)
{
    for (size_t i = 0; i < list->count; i++)
        for (size_t k = 0; k < from->count; k++) {
            cleanup_buf struct buf was = { 0 }, is = { 0 };
            mcp_spec_write_public(list->items[i], &was);
            mcp_spec_write_public(from->items[k], &is);
            if (strcmp(buf_text(&was), buf_text(&is)) != 0)
                continue;
            char *copy = strdup(from->items[k]);
            if (!copy)
                return error_memory(err);
            free(list->items[i]);
            list->items[i] = copy;
        }
    return 0;
}

int settings_take_secrets(struct settings *s, const struct settings *from, struct error *err)
{
    int rc = list_add_all(&s->secret, &from->secret, err);
    if (rc == 0)
        rc = settings_take_servers(&s->mcp_server, &from->mcp_server, err);
    for (size_t i = 0; rc == 0 && i < settings_count; i++) {
        const char *value =
            is_saved(&settings_table[i]) || settings_table[i].type != TYPE_TEXT
                ? NULL
                : *(char *const *)(const void *)((const char *)from + settings_table[i].offset);
        if (value)
            rc = setting_set(s, &settings_table[i], value, "here", err);
    }
    return rc;
}
