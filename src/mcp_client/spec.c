/* mcp_client/spec.c: see spec.h.
 *
 * A program gets few variables of Droste's environment, those without which programs do not find
 * their files: Droste's has the keys of models.
 */
#include "mcp_client/spec.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"

static const struct json_limits object_limits = { 1 << 16, 4, 2000 };

/* ---- words of a command ---- */

/* Appends the quoted or plain piece at `*at`; false: a quote is not closed. */
static bool spec_take_piece(const char **at, struct buf *word)
{
    const char *p = *at, *end;
    switch (*p) {
    case '\'':
        end = strchr(p + 1, '\'');
        if (end)
            buf_append(word, p + 1, (size_t)(end - p - 1));
        break;
    case '"':
        for (end = p + 1; *end && *end != '"'; end++) {
            if (*end == '\\' && (end[1] == '"' || end[1] == '\\'))
                end++;
            buf_putc(word, *end);
        }
        end = *end ? end : NULL;
        break;
    case '\\':
        end = p[1] ? p + 1 : NULL;
        if (end)
            buf_putc(word, *end);
        break;
    default:
        buf_putc(word, *p);
        end = p;
    }
    *at = end ? end + 1 : p;
    return end != NULL;
}

static int spec_split(const char *command, struct list *words, struct error *err)
{
    const char *p = command + strspn(command, " \t");
    int rc = 0;
    while (rc == 0 && *p) {
        cleanup_buf struct buf word = { 0 };
        while (*p && *p != ' ' && *p != '\t')
            if (!spec_take_piece(&p, &word))
                return error_set(err, ERROR_ARGUMENT, "a quote in its command is not closed");
        rc = buf_failed(&word) ? error_memory(err) : list_add(words, buf_text(&word), err);
        p += strspn(p, " \t");
    }
    return rc;
}

/* ---- objects ---- */

/* The value of a member that is a text without line ends; NULL with an error. */
static const char *spec_member_text(
    const char *member, const char *key, struct json_object *value, struct error *err)
{
    const char *text =
        json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
    if (text && strlen(text) == (size_t)json_object_get_string_len(value) &&
        !text[strcspn(text, "\r\n")])
        return text;
    error_set(err, ERROR_ARGUMENT, "the value of %.20s '%.60s' is missing or no text of one line",
        member, key);
    return NULL;
}

static int spec_take_members(struct json_object *o, const char *member, const char *between,
    struct list *out, struct error *err)
{
    struct json_object *members = NULL;
    if (!json_object_object_get_ex(o, member, &members))
        return 0;
    if (!json_object_is_type(members, json_type_object))
        return error_set(err, ERROR_ARGUMENT, "`%s` must be an object of texts", member);
    json_object_object_foreach(members, key, value)
    {
        const char *text = spec_member_text(member, key, value, err);
        if (!text)
            return -(int)ERROR_ARGUMENT;
        if (!key[0] || key[strcspn(key, "=: \t\r\n")])
            return error_set(err, ERROR_ARGUMENT, "`%s` has the name '%.60s'", member, key);
        int rc = list_take(out, text_printf("%s%s%s", key, between, text), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int spec_take_arguments(struct json_object *o, struct list *words, struct error *err)
{
    struct json_object *list = NULL;
    if (!json_object_object_get_ex(o, "args", &list))
        return 0;
    if (!json_object_is_type(list, json_type_array))
        return error_set(err, ERROR_ARGUMENT, "`args` must be a list of texts");
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        const char *word = json_object_get_string(json_object_array_get_idx(list, i));
        int rc = word ? list_add(words, word, err)
                      : error_set(err, ERROR_ARGUMENT, "`args` must be a list of texts");
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int spec_take_object(const char *text, struct mcp_spec *out, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    int rc = json_parse(text, strlen(text), &object_limits, &o, err);
    if (rc < 0)
        return rc;
    const char *command = json_get_string(o, "command", NULL),
               *url = json_get_string(o, "url", NULL);
    if (!command == !url)
        return error_set(
            err, ERROR_ARGUMENT, "expected either {\"command\": …, \"args\": […]} or {\"url\": …}");
    if (url) {
        out->url = strdup(url);
        rc = out->url ? 0 : error_memory(err);
        return rc < 0 ? rc : spec_take_members(o, "headers", ": ", &out->headers, err);
    }
    rc = list_add(&out->words, command, err);
    if (rc == 0)
        rc = spec_take_arguments(o, &out->words, err);
    return rc < 0 ? rc : spec_take_members(o, "env", "=", &out->environment, err);
}

/* ---- the setting ---- */

size_t mcp_spec_name_length(const char *value)
{
    const char *equals = strchr(value, '=');
    return equals ? (size_t)(equals - value) : 0;
}

static bool spec_is_url(const char *text)
{
    return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

static int spec_take_value(const char *value, struct mcp_spec *out, struct error *err)
{
    size_t n = mcp_spec_name_length(value);
    out->name = text_copy(value, n);
    if (!out->name)
        return error_memory(err);
    if (n == 0 || !text_is_identifier(out->name))
        return error_set(err, ERROR_ARGUMENT,
            "write NAME=COMMAND or NAME=URL; NAME is the Python name under which code finds the "
            "functions: at most 64 letters, digits and '_'");
    const char *text = value + n + 1 + strspn(value + n + 1, " \t");
    if (text[0] == '{')
        return spec_take_object(text, out, err);
    if (spec_is_url(text)) {
        out->url = strdup(text);
        return out->url ? 0 : error_memory(err);
    }
    int rc = spec_split(text, &out->words, err);
    if (rc == 0 && out->words.count == 0)
        rc = error_set(err, ERROR_ARGUMENT, "it names no command");
    return rc;
}

int mcp_spec_parse(const char *value, struct mcp_spec *out, struct error *err)
{
    *out = (struct mcp_spec){ 0 };
    int rc = spec_take_value(value, out, err);
    if (rc == 0)
        return 0;
    if (out->name)
        error_wrap(err, "mcp-server '%.64s'", out->name);
    mcp_spec_free(out);
    return rc;
}

void mcp_spec_free(struct mcp_spec *spec)
{
    free(spec->name);
    free(spec->url);
    list_clear(&spec->words);
    list_clear(&spec->environment);
    list_clear(&spec->headers);
    *spec = (struct mcp_spec){ 0 };
}

int mcp_spec_copy(struct mcp_spec *to, const struct mcp_spec *from, struct error *err)
{
    *to = (struct mcp_spec){ .name = strdup(from->name) };
    to->url = from->url ? strdup(from->url) : NULL;
    int rc = to->name && !to->url == !from->url ? 0 : error_memory(err);
    if (rc == 0)
        rc = list_add_all(&to->words, &from->words, err);
    if (rc == 0)
        rc = list_add_all(&to->environment, &from->environment, err);
    return rc < 0 ? rc : list_add_all(&to->headers, &from->headers, err);
}

/* ---- secrets ---- */

/* Whether the text consists of references, the words "Bearer", "Basic", "token", and spaces. */
static bool spec_is_reference(const char *text)
{
    static const char *const words[] = { "Bearer ", "Basic ", "token " };
    bool any = false;
    for (size_t i = 0; i < array_length(words); i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0)
            text += strlen(words[i]);
    while (strncmp(text, "${", 2) == 0) {
        size_t n = strcspn(text, "}:");
        if (text[n] != '}')
            return false;
        text += n + 1;
        any = true;
    }
    return any && *text == '\0';
}

static void spec_hide_values(struct json_object *o, const char *member)
{
    struct json_object *members = json_get_typed(o, member, json_type_object);
    if (!members)
        return;
    json_object_object_foreach(members, key, value)
    {
        if (!json_object_is_type(value, json_type_string) ||
            !spec_is_reference(json_object_get_string(value)))
            json_object_object_add(members, key, NULL); /* replaces the value of this key */
    }
}

void mcp_spec_write_public(const char *value, struct buf *out)
{
    cleanup_json struct json_object *o = NULL;
    size_t n = mcp_spec_name_length(value);
    const char *text = n ? value + n + 1 + strspn(value + n + 1, " \t") : "";
    if (text[0] != '{') {
        buf_puts(out, value);
        return;
    }
    buf_append(out, value, n + 1);
    if (json_parse(text, strlen(text), &object_limits, &o, NULL) < 0)
        return;
    spec_hide_values(o, "env");
    spec_hide_values(o, "headers");
    const char *shown = json_text(o, NULL);
    buf_puts(out, shown ? shown : "{}");
}

/* ---- variables ---- */

/* Appends the value of the reference that begins at text + 2 and ends at `end`. */
static int spec_expand_one(const char *text, const char *end, struct buf *out, struct error *err)
{
    cleanup_free char *inner = text_copy(text + 2, (size_t)(end - text - 2));
    if (!inner)
        return error_memory(err);
    char *fallback = strstr(inner, ":-");
    if (fallback) {
        *fallback = '\0';
        fallback += 2;
    }
    const char *value = getenv(inner);
    if (!value || !value[0])
        value = fallback;
    if (!value)
        return error_set(err, ERROR_CONFIG, "the environment variable %.60s is not set (${%.60s})",
            inner, inner);
    buf_puts(out, value);
    return 0;
}

int mcp_spec_expand(const char *text, struct buf *out, struct error *err)
{
    for (;;) {
        const char *from = strstr(text, "${"), *end = from ? strchr(from, '}') : NULL;
        if (!end) {
            buf_puts(out, text);
            return buf_failed(out) ? error_memory(err) : 0;
        }
        buf_append(out, text, (size_t)(from - text));
        int rc = spec_expand_one(from, end, out, err);
        if (rc < 0)
            return rc;
        text = end + 1;
    }
}

int mcp_spec_environment(const struct mcp_spec *spec, struct list *out, struct error *err)
{
    static const char *const usual[] = { "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH",
        "SHELL", "TERM", "TMPDIR", "TZ", "USER" };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_length(usual); i++) {
        const char *value = getenv(usual[i]);
        bool is_given = false;
        for (size_t k = 0; k < spec->environment.count; k++) {
            const char *given = spec->environment.items[k];
            size_t n = strlen(usual[i]);
            is_given |= strncmp(given, usual[i], n) == 0 && given[n] == '=';
        }
        if (value && !is_given)
            rc = list_take(out, text_printf("%s=%s", usual[i], value), err);
    }
    for (size_t i = 0; rc == 0 && i < spec->environment.count; i++) {
        cleanup_buf struct buf value = { 0 };
        rc = mcp_spec_expand(spec->environment.items[i], &value, err);
        if (rc == 0)
            rc = list_add(out, buf_text(&value), err);
    }
    return rc < 0 ? rc : list_add_end(out, err);
}
