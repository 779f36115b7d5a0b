/* session/prepare.c: runs preparation steps one after the other. Each step defines how to start it
 * and how to interpret its result. Ignores what setup code and tools submit, except the guest's
 * description of the tools after the last source.
 */
#include "session/prepare.h"

#include <stdlib.h>
#include <string.h>

enum { TOOLS_MAX = 1000 };

static const char setup_name[] = "<setup>";
static const char no_source_name[] = "<tools>";
static const char start_name[] = "<start>";
static const char imports_name[] = "<preload>";

/* ---- steps: [empty cell] [imports] [setup code] [values] [sources, or one for the tools] ---- */

/* The memory of a template has them. */
static bool has_imports(const struct session_options *o)
{
    return o->imports && o->imports->count > 0 && !o->template;
}

static size_t setup_steps(const struct prepare *p)
{
    return p->waits + has_imports(p->options) + (p->options->setup != NULL);
}

static size_t source_steps(const struct session_options *o, bool describe)
{
    if (o->source_count > 0)
        return o->source_count;
    return describe && o->tools ? 1 : 0;
}

static size_t all_steps(const struct prepare *p)
{
    return setup_steps(p) + p->options->datum_count + source_steps(p->options, p->describe);
}

bool prepare_is_needed(
    const struct session *session, const struct session_options *o, bool describe)
{
    return session_is_late(session) || has_imports(o) || o->setup || o->datum_count > 0 ||
           source_steps(o, describe) > 0;
}

/* The value that a step binds, or the code that it runs. */
static const struct session_datum *datum_of(const struct prepare *p)
{
    size_t at = p->step - setup_steps(p);
    return p->step >= setup_steps(p) && at < p->options->datum_count ? &p->options->data[at] : NULL;
}

static struct session_cell cell_of(const struct prepare *p)
{
    const struct session_options *o = p->options;
    struct session_cell cell = { .code = "", .name = no_source_name, .execute_timeout = -1 };
    if (p->step < p->waits) {
        cell.name = start_name;
        return cell;
    }
    if (p->step == p->waits && has_imports(o)) {
        cell.code = buf_text(&p->imports);
        cell.len = p->imports.len;
        cell.name = imports_name;
        return cell;
    }
    if (p->step < setup_steps(p)) {
        cell.code = o->setup;
        cell.len = strlen(o->setup);
        cell.name = setup_name;
        cell.each = o->setup_each;
        return cell;
    }
    size_t at = p->step - setup_steps(p) - o->datum_count;
    cell.tools = true;
    if (at >= o->source_count)
        return cell;
    cell.code = o->sources[at].code;
    cell.len = o->sources[at].len;
    cell.name = o->sources[at].name;
    return cell;
}

/* ---- the end of a step ---- */

/* Finds the line of this source where a traceback ends. */
static unsigned line_of(const char *traceback, const char *name)
{
    cleanup_buf struct buf mark = { 0 };
    unsigned long line = 1;
    buf_printf(&mark, "File \"%s\", line ", name);
    for (const char *at = traceback; at && (at = strstr(at, buf_text(&mark))); at++)
        line = strtoul(at + mark.len, NULL, 10);
    return (unsigned)line;
}

static int code_outcome(const struct cell_result *r, const char *name, struct error *err)
{
    bool setup = name == setup_name;
    if (name == imports_name && r->error.type)
        return error_set(err, ERROR_CONFIG, "preload: %.60s: %.200s; packages must name it",
            r->error.type, r->error.message ? r->error.message : "");
    if (r->status == CELL_OK || r->status == CELL_SUBMITTED)
        return 0;
    if (name == start_name && r->alive)
        return 0; /* the sandbox exists; the cell's result does not matter */
    if (!r->error.type) {
        if (err)
            *err = r->reason;
        if (name == start_name)
            return -(int)r->reason.code;
        return error_wrap(err, "running the %s", setup ? "setup code" : "tools");
    }
    return error_set(err, r->status == CELL_TIMEOUT ? ERROR_TIMEOUT : ERROR_CONFIG,
        "the %s failed in line %u%s%.60s: %.60s: %.130s", setup ? "setup code" : "tools",
        line_of(r->error.traceback, name), setup ? "" : " of ", setup ? "" : name, r->error.type,
        r->error.message ? r->error.message : "");
}

/* Written by the guest: the user's source may have changed it. */
static int take_tools(struct prepare *p, const struct cell_result *r, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    size_t len;
    const char *json = submission_json(r->submit, &len);
    if (!json || json_parse(json, len, &json_limits_large, &o, err) < 0)
        return error_set(err, ERROR_PROTOCOL, "the guest did not describe its tools");
    struct json_object *tools = json_get_typed(o, "tools", json_type_array);
    if (!tools || json_object_array_length(tools) > TOOLS_MAX)
        return error_set(err, ERROR_CONFIG, "there are more than %d tools", TOOLS_MAX);
    json_object_put(p->tools);
    p->tools = json_object_get(tools);
    return 0;
}

static int take_datum(struct prepare *p, const char *name, struct cell_result *r, struct error *err)
{
    if (r->status != CELL_OK)
        return error_set(err, ERROR_CONFIG, "binding the value of tool-data '%.64s': %.150s", name,
            r->error.message ? r->error.message : r->reason.text);
    if (r->variable && p->data && json_object_array_add(p->data, r->variable) == 0)
        r->variable = NULL;
    return 0;
}

static int start_step(struct prepare *p, struct error *err);

static void step_done(void *arg, struct cell_result *r)
{
    struct prepare *p = arg;
    struct error err = { 0 };
    const struct session_datum *datum = datum_of(p);
    struct session_cell cell = datum ? (struct session_cell){ 0 } : cell_of(p);
    int rc = datum ? take_datum(p, datum->name, r, &err) : code_outcome(r, cell.name, &err);
    if (rc == 0 && cell.tools)
        rc = take_tools(p, r, &err);
    cell_result_free(r);
    p->step++;
    if (rc == 0 && p->step < all_steps(p))
        rc = start_step(p, &err);
    else if (rc == 0)
        p->done(p->arg, NULL);
    if (rc < 0)
        p->done(p->arg, &err);
}

static int start_step(struct prepare *p, struct error *err)
{
    const struct session_datum *datum = datum_of(p);
    if (datum)
        return session_set(p->session, &datum->name, 1, datum->typed ? VALUE_TYPED : VALUE_JSON,
            datum->data, datum->len, -1, step_done, p, err);
    struct session_cell cell = cell_of(p);
    return session_exec(p->session, &cell, step_done, p, err);
}

/* Names of modules come from the user's settings. */
static int prepare_write_imports(struct prepare *p, struct error *err)
{
    for (size_t i = 0; has_imports(p->options) && i < p->options->imports->count; i++) {
        const char *module = p->options->imports->items[i];
        size_t first = strcspn(module, ".");
        if (module[strspn(module, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.")] != '\0')
            return error_set(err, ERROR_ARGUMENT, "preload '%.64s' is not a module's name", module);
        buf_printf(&p->imports, "import %s; del %.*s\n", module, (int)first, module);
    }
    return buf_failed(&p->imports) ? error_memory(err) : 0;
}

int prepare_start(struct prepare *p, struct session *session, const struct session_options *options,
    bool describe, prepare_done_fn *done, void *arg, struct error *err)
{
    prepare_free(p);
    *p = (struct prepare){ .session = session,
        .options = options,
        .describe = describe,
        .waits = session_is_late(session),
        .done = done,
        .arg = arg,
        .data = json_object_new_array() };
    int rc = p->data ? prepare_write_imports(p, err) : error_memory(err);
    return rc < 0 ? rc : start_step(p, err);
}

static bool is_named_in(struct json_object *list, const char *name)
{
    for (size_t i = 0; list && i < json_object_array_length(list); i++)
        if (strcmp(json_get_string(json_object_array_get_idx(list, i), "name", ""), name) == 0)
            return true;
    return false;
}

bool prepare_has(const struct prepare *p, const char *name)
{
    return is_named_in(p->tools, name) || is_named_in(p->data, name);
}

int prepare_check_context(const struct prepare *p, const struct context *context, struct error *err)
{
    const char *name = context ? context->name : NULL;
    if (!name || !prepare_has(p, name))
        return 0;
    return context_hides_tool(name, err);
}

void prepare_free(struct prepare *p)
{
    json_object_put(p->tools);
    json_object_put(p->data);
    buf_free(&p->imports);
    p->tools = p->data = NULL;
}
