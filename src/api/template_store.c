/* api/template_store.c: stored templates: executes their recipes; the functions of
 * droste/template.h for them.
 */
#include "api/template_store.h"

#include <stdlib.h>
#include <string.h>

#include "api/options.h"
#include "api/session_api.h"
#include "api/templates.h"
#include "base/cleanup.h"

/* ---- executing one ---- */

static int load_context(droste_session *s, const char *context, struct error *err)
{
    const char *equals = context[0] == '/' ? NULL : strchr(context, '=');
    cleanup_free char *name =
        equals ? strndup(context, (size_t)(equals - context)) : strdup("context");
    if (!name)
        return error_memory(err);
    int rc = droste_session_load(s, name, NULL, equals ? equals + 1 : context, err);
    return rc;
}

/* The last line of a traceback: the exception and its message. */
static const char *last_line(const char *traceback, size_t *len)
{
    size_t end = strlen(traceback);
    while (end > 0 && traceback[end - 1] == '\n')
        end--;
    const char *newline = memrchr(traceback, '\n', end);
    const char *line = newline ? newline + 1 : traceback;
    *len = (size_t)(traceback + end - line);
    return line;
}

static int cell_failed(const droste_result *r, size_t i, struct error *err)
{
    droste_error why;
    size_t len;
    const char *traceback = droste_result_traceback(r);
    droste_result_error(r, &why);
    const char *line = last_line(traceback ? traceback : why.text, &len);
    return error_set(err, ERROR_CONFIG, "cell %zu ended with '%s': %.*s", i + 1,
        droste_result_status(r), (int)(len < 1500 ? len : 1500), line);
}

static int execute_cell(droste_session *s, struct json_object *cell, size_t i, struct error *err)
{
    droste_result *r = NULL;
    const char *code = json_object_get_string(cell);
    int rc = droste_session_exec(s, code, (size_t)json_object_get_string_len(cell), 0, &r, err);
    if (rc < 0)
        return rc;
    rc = strcmp(droste_result_status(r), "ok") == 0 ? 0 : cell_failed(r, i, err);
    droste_result_free(r);
    return rc;
}

static int execute_recipe(droste_session *s, const struct recipe *r, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_length(r->contexts); i++)
        rc =
            load_context(s, json_object_get_string(json_object_array_get_idx(r->contexts, i)), err);
    for (size_t i = 0; rc == 0 && i < json_length(r->cells); i++)
        rc = execute_cell(s, json_object_array_get_idx(r->cells, i), i, err);
    return rc;
}

int api_template_make(droste *d, const char *name, const struct recipe *r, const struct settings *s,
    droste_template **out, struct error *err)
{
    struct settings own = { 0 };
    droste_session *session = NULL;
    int rc = settings_copy(&own, s, err);
    if (rc == 0)
        rc = recipe_prepare(r, &own, err);
    if (rc == 0)
        rc = api_session_open_with(d, &own, &session, err);
    if (rc == 0)
        rc = execute_recipe(session, r, err);
    if (rc == 0)
        rc = droste_session_template(session, out, err);
    droste_session_close(session);
    settings_free(&own);
    return rc < 0 ? error_wrap(err, "making the template '%.64s'", name) : 0;
}

/* ---- the public functions ---- */

int droste_template_make(droste *d, droste_error *err)
{
    err = api_error(err);
    struct settings s = { 0 };
    struct template *image = NULL;
    api_forget_interrupt(d);
    int rc = settings_copy(&s, &d->settings, err);
    if (rc == 0)
        rc = api_template_settings(&s, err);
    if (rc == 0)
        rc = api_template_image(d, &s, NULL, &image, err);
    template_drop(image);
    settings_free(&s);
    return rc;
}

/* The settings that the program has set, as a JSON object. */
static int template_store_settings(droste *d, struct buf *out, struct error *err)
{
    struct settings own = { 0 };
    struct session_parts parts = { 0 };
    struct session_options options;
    cleanup_buf struct buf instructions = { 0 };
    int rc = settings_copy(&own, &d->settings, err);
    memcpy(own.given, d->set_by_program, sizeof own.given);
    if (rc == 0)
        rc = api_session_options(d, &own, &parts, &options, err);
    if (rc == 0)
        rc = api_instructions(&own, &instructions, err);
    if (rc == 0) {
        struct settings_texts texts = { .setup_code = options.setup,
            .instructions = buf_text(&instructions) };
        settings_save(&own, &texts, out);
        rc = buf_failed(out) ? error_memory(err) : 0;
    }
    session_parts_free(&parts);
    settings_free(&own);
    return rc;
}

/* Executes the recipe once before it is stored, with the settings that a session would have. */
static int template_store_try(
    droste *d, const char *name, const struct recipe *r, struct error *err)
{
    droste_template *made = NULL;
    struct settings s = { 0 };
    int rc = settings_copy(&s, &d->settings, err);
    if (rc == 0)
        rc = api_template_make(d, name, r, &s, &made, err);
    settings_free(&s);
    droste_template_free(made);
    return rc;
}

int droste_template_create(
    droste *d, const char *name, const char *const *cells, int flags, droste_error *err)
{
    err = api_error(err);
    struct recipe r = { 0 };
    cleanup_buf struct buf settings = { 0 }, text = { 0 };
    bool replace = flags & DROSTE_TEMPLATE_REPLACE;
    int rc = recipe_check_free(name, replace, err);
    if (rc == 0)
        rc = template_store_settings(d, &settings, err);
    if (rc == 0)
        rc = recipe_build(buf_text(&settings), &d->contexts, cells, &text, err);
    if (rc == 0)
        rc = recipe_parse(name, text.data, text.len, &r, err);
    if (rc == 0 && !(flags & DROSTE_TEMPLATE_UNTRIED))
        rc = template_store_try(d, name, &r, err);
    recipe_free(&r);
    if (rc == 0)
        rc = recipe_write(name, &text, replace, err);
    return rc;
}

const char *droste_template_read(droste *d, const char *name, size_t *len, droste_error *err)
{
    err = api_error(err);
    struct recipe r = { 0 };
    buf_clear(&d->recipe);
    int rc = recipe_read(name, &r, &d->recipe, err);
    recipe_free(&r);
    if (rc < 0)
        return NULL;
    if (len)
        *len = d->recipe.len;
    return buf_text(&d->recipe);
}

int droste_template_names(droste *d, droste_name_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    struct list names = { 0 };
    int rc = recipe_names(&names, err);
    for (size_t i = 0; rc == 0 && i < names.count && fn(arg, names.items[i]) == 0; i++)
        continue;
    list_clear(&names);
    return rc;
}

int droste_template_remove(droste *d, const char *name, droste_error *err)
{
    return recipe_remove(name, api_error(err));
}
