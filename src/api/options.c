/* api/options.c: what the settings come to for a session.
 *
 * Rules bring limits of their own, for what nobody has set. What they let cells see is shown to the
 * sandbox: the directories of --allow-import as those of --read.
 */
#include "api/api.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

enum { TEXT_MAX = 16 << 20 };

/* ---- limits ---- */

/* Of settings that nobody has set. */
static const struct {
    const char *name;
    double seconds;
} with_rules[] = {
    { "execute-timeout", 30 },
    { "execute-timeout-cap", 300 },
    { "broker-timeout", 30 },
};

static double seconds_of(const struct settings *s, const char *name, double value)
{
    for (size_t i = 0; s->rules && i < array_length(with_rules); i++)
        if (strcmp(with_rules[i].name, name) == 0 && !settings_given(s, name))
            return with_rules[i].seconds;
    return value;
}

double api_broker_timeout(const droste *d)
{
    return seconds_of(&d->settings, "broker-timeout", d->settings.broker_timeout);
}

/* A default bows to the cap; what somebody has set beside it is for session_check_timeout. */
static int set_timeouts(const struct settings *s, struct session_options *o, struct error *err)
{
    double cap = seconds_of(s, "execute-timeout-cap", s->execute_timeout_cap);
    double limit = seconds_of(s, "execute-timeout", s->execute_timeout);
    if (!settings_given(s, "execute-timeout") && cap > 0 && (limit <= 0 || limit > cap))
        limit = cap;
    o->timeout = s->timeout;
    o->execute_timeout = limit;
    o->execute_timeout_cap = cap;
    o->grace = s->grace;
    return session_check_timeout(limit, cap, err);
}

/* ---- rules ---- */

static bool is_path(const char *root)
{
    return strchr(root, '/') != NULL;
}

static int add_all(struct list *to, const struct list *from, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->count; i++)
        rc = list_add(to, from->items[i], err);
    return rc;
}

static bool lists_equal(const struct list *a, const struct list *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    return true;
}

/* An equal list stays where it is: a run under way may point to it. */
static void replace(struct list *list, struct list *by)
{
    if (lists_equal(list, by)) {
        list_clear(by);
        return;
    }
    list_clear(list);
    *list = *by;
}

/* What is preloaded is there to be imported. */
static int lay_rules(droste *d, struct session_options *o, struct error *err)
{
    const struct settings *s = &d->settings;
    struct list shown = { 0 }, allowed = { 0 };
    int rc = add_all(&shown, &s->read, err);
    if (rc == 0)
        rc = add_all(&allowed, &s->allow_import, err);
    if (rc == 0)
        rc = add_all(&allowed, &s->preload, err);
    for (size_t i = 0; rc == 0 && i < s->allow_import.count; i++) {
        const char *root = s->allow_import.items[i];
        if (is_path(root) && root[0] != '/')
            rc = error_set(err, ERROR_ARGUMENT,
                "allow-import '%.100s' is neither a module's name nor an absolute path", root);
        else if (is_path(root))
            rc = list_add(&shown, root, err);
    }
    if (rc < 0) {
        list_clear(&shown);
        list_clear(&allowed);
        return rc;
    }
    replace(&d->shown, &shown);
    replace(&d->allowed, &allowed);
    o->rules = true;
    o->spec.read_paths = (const char *const *)d->shown.items;
    o->spec.read_path_count = d->shown.count;
    o->allow_imports = (const char *const *)d->allowed.items;
    o->allow_import_count = d->allowed.count;
    return 0;
}

/* ---- texts ---- */

int api_text(const char *value, const char *what, struct buf *out, struct error *err)
{
    buf_clear(out);
    if (value[0] != '@')
        buf_puts(out, value);
    else if (file_read(value + 1, TEXT_MAX, out, err) < 0)
        return error_wrap(err, "reading the %s", what);
    if (buf_failed(out))
        return error_memory(err);
    if (strlen(buf_text(out)) != out->len)
        return error_set(
            err, ERROR_ARGUMENT, "the %s of '%.100s' has a zero byte in it", what, value + 1);
    return 0;
}

static int read_setup(droste *d, struct session_options *o, struct error *err)
{
    const char *code = d->settings.setup_code;
    int rc = code ? api_text(code, "setup code", &d->setup, err) : 0;
    if (rc == 0 && code)
        o->setup = buf_text(&d->setup);
    return rc;
}

/* ---- the type of the answer ---- */

static int parse_answer(const char *json, size_t len, struct schema **out, struct error *err)
{
    if (schema_parse(json, len, out, err) == 0)
        return 0;
    return error_wrap(err, "answer-schema");
}

static int read_schema(const char *value, struct schema **out, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    const char *json = value + strspn(value, " \t\r\n");
    if (json[0] == '{')
        return parse_answer(json, strlen(json), out, err);
    if (file_read(value, SCHEMA_BYTES_MAX, &text, err) < 0)
        return error_wrap(err, "reading the answer-schema (JSON begins with a '{')");
    return parse_answer(buf_text(&text), text.len, out, err);
}

/* The fields as a schema: all of them, and no others. */
static int schema_of_fields(const struct list *fields, struct schema **out, struct error *err)
{
    cleanup_buf struct buf names = { 0 }, json = { 0 };
    buf_puts(&json, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < fields->count; i++) {
        const char *field = fields->items[i], *colon = strchr(field, ':');
        size_t n = colon ? (size_t)(colon - field) : strlen(field);
        cleanup_free char *name = text_copy(field, n);
        if (!name)
            return error_memory(err);
        if (!text_is_identifier(name))
            return error_set(err, ERROR_ARGUMENT,
                "answer-field '%.60s': expected NAME or NAME:TYPE, the name one that Python can "
                "have",
                field);
        buf_printf(&names, "%s\"%s\"", i ? "," : "", name);
        buf_printf(&json, "%s\"%s\":{", i ? "," : "", name);
        if (colon) {
            buf_puts(&json, "\"type\":");
            json_append_string(&json, colon + 1, strlen(colon + 1));
        }
        buf_putc(&json, '}');
    }
    buf_printf(&json, "},\"required\":[%s],\"additionalProperties\":false}", buf_text(&names));
    if (buf_failed(&names) || buf_failed(&json))
        return error_memory(err);
    int rc = schema_parse(buf_text(&json), json.len, out, err);
    return rc < 0 ? error_wrap(err, "answer-field") : 0;
}

static int read_answer_type(droste *d, struct session_options *o, struct error *err)
{
    const struct settings *s = &d->settings;
    struct schema *found = NULL;
    int rc = 0;
    if (s->answer_schema && s->answer_field.count > 0)
        return error_set(err, ERROR_ARGUMENT,
            "answer-schema and answer-field are two ways to say the same; give one of them");
    if (s->answer_schema)
        rc = read_schema(s->answer_schema, &found, err);
    else if (s->answer_field.count > 0)
        rc = schema_of_fields(&s->answer_field, &found, err);
    schema_drop(d->answer); /* who uses it holds it */
    o->answer = d->answer = found;
    return rc;
}

/* ---- all of it ---- */

int api_session_options(droste *d, struct session_options *o, struct error *err)
{
    const struct settings *s = &d->settings;
    session_options_init(o);
    o->spec.python = s->python;
    o->spec.preload = (const char *const *)s->preload.items;
    o->spec.preload_count = s->preload.count;
    o->spec.read_paths = (const char *const *)s->read.items;
    o->spec.read_path_count = s->read.count;
    /* Whoever starts a second sandbox will start a third. */
    o->spec.pool = settings_given(s, "pool") || d->started ? (unsigned)s->pool : 0;
    d->started = true;
    o->spec.limits = (struct jail_limits){
        .memory = (uint64_t)s->memory,
        .processes = (uint64_t)s->processes,
        .cpus = s->cpus,
        .cpu_time = (uint64_t)ceil(s->cpu_time),
        .open_files = (uint64_t)s->open_files,
        .file_size = (uint64_t)s->file_size,
        .tmp_size = (uint64_t)s->tmp_size,
    };
    o->output_limit = (size_t)s->output_limit;
    int rc = set_timeouts(s, o, err);
    if (rc == 0)
        rc = read_setup(d, o, err);
    if (rc == 0)
        rc = read_answer_type(d, o, err);
    if (rc == 0 && s->rules)
        rc = lay_rules(d, o, err);
    return rc < 0 ? rc
                  : isolation_parse(s->isolation ? s->isolation : "auto", &o->spec.isolation, err);
}
