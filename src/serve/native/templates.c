/* serve/native/templates.c: see templates.h. */
#include "serve/native/templates.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "serve/http/relay.h"
#include "serve/native/recipes.h"
#include "serve/sandbox/sandbox.h"

enum { TEMPLATES_MOST = 64, TEMPLATE_LINE_MAX = 1500 };

struct template_row {
    struct account *owner;
    char id[SERVE_ID_SIZE], name[SERVE_NAME_SIZE];
    int64_t created_ms;
    droste_template *made;
    struct template_row *next;
};

/* A sandbox on its way to be one. */
struct template_build {
    char name[SERVE_NAME_SIZE];
    char id[SERVE_ID_SIZE];    /* that it has on other nodes already; "": a new one */
    struct json_object *cells; /* NULL: the sandbox is the client's, and stays */
    size_t next;               /* the next cell */
    droste_template *made;
};

/* ---- all of them ---- */

static bool template_is_of(const struct template_row *row, const struct request *r)
{
    return row->owner == r->account || (r->account->key.scopes & SCOPE_ADMIN);
}

static struct template_row *template_look(struct request *r)
{
    struct template_row *row = r->server->templates;
    while (row && strcmp(row->id, r->id) != 0)
        row = row->next;
    return row && template_is_of(row, r) ? row : NULL;
}

static struct template_row *template_find(struct request *r)
{
    struct template_row *row = template_look(r);
    if (row)
        return row;
    request_refuse(r, 404, "not_found", "there is no template '%s'; it may have ended", r->id);
    return NULL;
}

droste_template *templates_of(struct request *r)
{
    const struct template_row *row = template_find(r);
    return row ? row->made : NULL;
}

/* The rows are newest first. */
droste_template *templates_named(struct request *r, const char *name)
{
    for (const struct template_row *row = r->server->templates; row && *name; row = row->next)
        if (template_is_of(row, r) && (strcmp(row->name, name) == 0 || strcmp(row->id, name) == 0))
            return row->made;
    return NULL;
}

static void template_drop_row(struct template_row **at)
{
    struct template_row *row = *at;
    *at = row->next;
    droste_template_free(row->made);
    free(row);
}

void templates_drop(struct server *s, const char *key, size_t key_len, const char *id)
{
    struct template_row **at = &s->templates;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    const char *owner = *at && (*at)->owner->key.id[0] ? (*at)->owner->key.id : "all";
    if (*at && strlen(owner) == key_len && memcmp(owner, key, key_len) == 0)
        template_drop_row(at);
}

bool templates_await(struct request *r)
{
    return !template_look(r) && recipes_await(r);
}

void templates_sweep(struct server *s)
{
    struct template_row **at = &s->templates;
    while (*at)
        if ((*at)->owner->is_revoked)
            template_drop_row(at);
        else
            at = &(*at)->next;
}

void templates_close(struct server *s)
{
    recipes_close(s);
    while (s->templates)
        template_drop_row(&s->templates);
}

static void template_put(struct buf *out, const struct template_row *row)
{
    field_open(out, NULL, '{');
    field_string(out, "id", row->id);
    field_string(out, "name", row->name);
    field_int(out, "created_ms", row->created_ms);
    field_close(out, '}');
}

static void template_reply(struct request *r, unsigned status, const struct template_row *row)
{
    cleanup_buf struct buf out = { 0 };
    template_put(&out, row);
    request_reply_written(r, status, &out);
}

/* ---- one that is made ---- */

/* A template that a client has may not be one too many. */
static bool template_has_room(struct request *r)
{
    size_t count = 0;
    for (const struct template_row *row = r->server->templates; row; row = row->next)
        count += row->owner == r->account;
    if (count < TEMPLATES_MOST)
        return true;
    request_refuse(
        r, 409, "quota", "there are %d templates, which is the most; remove some", TEMPLATES_MOST);
    return false;
}

static void templates_forget(struct sandbox *sb)
{
    struct template_build *build = sb->build;
    sb->build = NULL;
    if (!build)
        return;
    json_object_put(build->cells);
    droste_template_free(build->made);
    free(build);
}

static struct template_build *template_begin(struct request *r, struct sandbox *sb)
{
    struct template_build *build = calloc(1, sizeof *build);
    const char *id = recipes_id_of(r);
    if (build && id)
        snprintf(build->id, sizeof build->id, "%s", id);
    if (build)
        snprintf(build->name, sizeof build->name, "%s", json_get_string(r->json, "name", ""));
    sb->build = build;
    sb->drop_build = templates_forget;
    return build;
}

/* Gives the template its row, and answers. */
static void template_keep(struct sandbox *sb, struct request *r)
{
    struct server *s = sb->server;
    struct template_row *row = calloc(1, sizeof *row);
    bool is_new = !sb->build->id[0];
    if (!row || (is_new && server_make_id(s, row->id) < 0)) {
        free(row);
        request_refuse_memory(r);
        return;
    }
    if (!is_new)
        memcpy(row->id, sb->build->id, sizeof row->id);
    else if (sb->build->cells)
        recipes_put(r, row->id);
    row->owner = sb->owner;
    row->created_ms = clock_wall_ms();
    row->made = sb->build->made;
    sb->build->made = NULL;
    memcpy(row->name, sb->build->name, sizeof row->name);
    row->next = s->templates;
    s->templates = row;
    template_reply(r, 201, row);
    request_locate(r, "/v1/templates/%s", row->id);
}

static void template_on_made(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    bool is_own = sb->build->cells == NULL;
    if (r && err)
        request_fail(r, err);
    else if (r)
        template_keep(sb, r);
    if (is_own)
        templates_forget(sb);
    else
        sandbox_close(sb);
}

static void template_save(struct sandbox *sb, struct request *r)
{
    droste_error err;
    bool is_own = sb->build->cells == NULL;
    int rc = droste_session_template_start(sb->session, &sb->build->made, &err);
    sandbox_await(sb, r, rc, &err, template_on_made);
    if (rc < 0 && is_own)
        templates_forget(sb);
    else if (rc < 0)
        sandbox_close(sb);
}

void handle_template_save(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    if (!sb || !template_has_room(r))
        return;
    if (template_begin(r, sb))
        template_save(sb, r);
    else
        request_refuse_memory(r);
}

/* ---- of cells ---- */

static void template_step(struct sandbox *sb, struct request *r);

/* With the last line of the traceback. */
static void template_refuse_cell(struct request *r, size_t number, const droste_result *result)
{
    droste_error why;
    const char *text = droste_result_traceback(result);
    droste_result_error(result, &why);
    text = text ? text : why.text;
    size_t end = strlen(text);
    while (end > 0 && text[end - 1] == '\n')
        end--;
    const char *newline = memrchr(text, '\n', end);
    const char *line = newline ? newline + 1 : text;
    size_t len = (size_t)(text + end - line);
    request_refuse(r, 400, "cell", "cell %zu ended with '%s': %.*s", number,
        droste_result_status(result), (int)(len < TEMPLATE_LINE_MAX ? len : TEMPLATE_LINE_MAX),
        line);
}

static void template_on_cell(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    bool ok = !err && result && strcmp(droste_result_status(result), "ok") == 0;
    if (ok && r) {
        template_step(sb, r);
        return;
    }
    if (r && err)
        request_fail(r, err);
    else if (r)
        template_refuse_cell(r, sb->build->next, result);
    sandbox_close(sb);
}

/* The next cell, or behind the last one the template. */
static void template_step(struct sandbox *sb, struct request *r)
{
    struct template_build *build = sb->build;
    droste_error err;
    if (build->next == json_length(build->cells)) {
        template_save(sb, r);
        return;
    }
    struct json_object *cell = json_object_array_get_idx(build->cells, build->next++);
    int rc = droste_session_exec_start(sb->session, json_object_get_string(cell),
        (size_t)json_object_get_string_len(cell), 0, -1, &err);
    sandbox_await(sb, r, rc, &err, template_on_cell);
    if (rc < 0)
        sandbox_close(sb);
}

static bool template_prepare(struct sandbox *sb, struct request *r)
{
    struct template_build *build = template_begin(r, sb);
    sb->model_key = sb->server->model_key; /* of its settings */
    if (build)
        build->cells = json_object_get(json_get_typed(r->json, "cells", json_type_array));
    else
        request_refuse_memory(r);
    return build != NULL;
}

static void template_ready(struct sandbox *sb, struct request *r, droste_result *result)
{
    template_step(sb, r);
}

void handle_template_create(struct request *r)
{
    static const struct sandbox_maker maker = { sandbox_settings, template_prepare,
        template_ready };
    if (template_has_room(r))
        sandbox_create(r, &maker);
}

/* ---- list, describe, remove ---- */

/* Several nodes may have one. */
static void template_list_reply(struct request *r, struct json_object *all)
{
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; i < json_length(all); i++) {
        struct json_object *one = json_object_array_get_idx(all, i);
        bool is_there = false;
        for (size_t k = 0; k < i && !is_there; k++)
            is_there = strcmp(json_get_string(one, "id", ""),
                           json_get_string(json_object_array_get_idx(all, k), "id", "-")) == 0;
        if (!is_there)
            json_object_array_add(list, json_object_get(one));
    }
    json_object_put(all);
    request_reply_list(r, "templates", list);
}

void handle_template_list(struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '[');
    for (struct template_row *row = r->server->templates; row; row = row->next)
        if (template_is_of(row, r))
            template_put(&out, row);
    field_close(&out, ']');
    relay_gather_written(r, "templates", &out, template_list_reply);
}

void handle_template_get(struct request *r)
{
    if (templates_await(r))
        return;
    const struct template_row *row = template_find(r);
    if (row)
        template_reply(r, 200, row);
}

void handle_template_delete(struct request *r)
{
    struct template_row **at = &r->server->templates;
    if (templates_await(r))
        return;
    const struct template_row *row = template_find(r);
    if (!row)
        return;
    recipes_remove(r);
    while (*at != row)
        at = &(*at)->next;
    template_drop_row(at);
    request_reply(r, 204, NULL, NULL, 0);
}
