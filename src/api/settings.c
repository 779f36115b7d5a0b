/* api/settings.c: see settings.h.
 *
 * Precedence: the program or its command line, then the configuration file, then environment
 * variables, then the defaults of the table.
 */
#include "api/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/suggest.h"
#include "base/text.h"

static bool is_list(const struct setting *what)
{
    return what->type == TYPE_LIST || what->type == TYPE_NAMES;
}

enum { FILE_MAX = 1 << 20 };

static const struct setting *find(const char *name)
{
    for (size_t i = 0; i < settings_count; i++)
        if (strcmp(settings_table[i].option.name, name) == 0)
            return &settings_table[i];
    return NULL;
}

static int settings_wrong(
    const struct setting *s, const char *value, const char *source, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT, "%s: '%.60s' is not a value for %s (%s)", source,
        s->option.secret ? "…" : value, s->option.name, s->option.value);
}

static const struct unit {
    enum type type;
    const char *name, *whole; /* `whole` is the unit in messages; NULL: unused there */
    double factor;
} units[] = {
    { TYPE_SIZE, "B", "bytes", 1 },
    { TYPE_SIZE, "K", "KiB", 1024.0 },
    { TYPE_SIZE, "M", "MiB", 1048576.0 },
    { TYPE_SIZE, "G", "GiB", 1073741824.0 },
    { TYPE_SIZE, "T", "TiB", 1099511627776.0 },
    { TYPE_SIZE, "P", "PiB", 1125899906842624.0 },
    { TYPE_SECONDS, "ms", NULL, 0.001 },
    { TYPE_SECONDS, "s", "seconds", 1 },
    { TYPE_SECONDS, "m", "minutes", 60 },
    { TYPE_SECONDS, "h", "hours", 3600 },
    { TYPE_SECONDS, "d", "days", 86400 },
};

/* Parses a number with an optional unit: bytes (K or KiB, M, G, T, P: powers of 1024), or seconds
 * (ms, s, m, h, d). */
static bool parse_number(const char *text, enum type type, double *out)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    *out = text_to_double(text, &end);
    if (!isfinite(*out) || (type == TYPE_NUMBER && *out != floor(*out)))
        return false;
    if (*end == '\0')
        return true;
    for (size_t i = 0; i < array_length(units); i++) {
        const struct unit *u = &units[i];
        if (u->type != type ||
            (strcmp(u->name, end) != 0 && (type != TYPE_SIZE || strcmp(u->whole, end) != 0)))
            continue;
        *out *= u->factor;
        return true;
    }
    return false;
}

int droste_parse_seconds(const char *text, double *seconds)
{
    return parse_number(text, TYPE_SECONDS, seconds);
}

/* Groups the digits before the decimal point: 10,000,000. */
static void print_grouped(double number, char *out, size_t size)
{
    char digits[40];
    int len = snprintf(digits, sizeof digits, "%.15g", number);
    size_t used = 0;
    if (number != floor(number) || number >= 1e15) {
        snprintf(out, size, "%s", digits);
        return;
    }
    for (int i = 0; i < len && used + 2 < size; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
}

/* Formats a number in the largest unit that divides it: "32 MiB", "12 hours". */
static void print_number(enum type type, double number, char *out, size_t size)
{
    const struct unit *best = NULL;
    char amount[48];
    for (size_t i = 0; number >= 1 && i < array_length(units); i++)
        if (units[i].type == type && units[i].whole && fmod(number, units[i].factor) == 0)
            best = &units[i];
    print_grouped(best ? number / best->factor : number, amount, sizeof amount);
    snprintf(out, size, "%s%s%s", amount, best ? " " : "", best ? best->whole : "");
}

static int set_number(struct settings *s, const struct setting *what, const char *value,
    const char *source, struct error *err)
{
    double number;
    if (!parse_number(value, what->type, &number))
        return settings_wrong(what, value, source, err);
    if (number < what->min || number > what->max) {
        char least[64], most[64];
        print_number(what->type, what->min, least, sizeof least);
        print_number(what->type, what->max, most, sizeof most);
        return error_set(err, ERROR_ARGUMENT, "%s: %.60s is too %s; use %s to %s", source, value,
            number < what->min ? "small" : "large", least, most);
    }
    if (what->type == TYPE_SECONDS || what->type == TYPE_DECIMAL)
        *(double *)((char *)s + what->offset) = number;
    else
        *(int64_t *)(void *)((char *)s + what->offset) = (int64_t)number;
    return 0;
}

static int set_text(char **field, const char *value, struct error *err)
{
    char *copy = value[0] ? strdup(value) : NULL;
    if (value[0] && !copy)
        return error_memory(err);
    free(*field);
    *field = copy;
    return 0;
}

/* Joins two texts; empty if one of them is. */
static int set_names(struct list *list, const struct setting *what, const char *value,
    const char *source, struct error *err)
{
    size_t len = strlen(value);
    int rc = 0;
    if (value[0] == ',' || value[len - 1] == ',' || strstr(value, ",,"))
        return settings_wrong(what, value, source, err);
    for (const char *at = value; rc == 0 && *at;) {
        size_t n = strcspn(at, ",");
        cleanup_free char *name = strndup(at, n);
        rc = name ? list_add(list, name, err) : error_memory(err);
        at += n + (at[n] == ',');
    }
    return rc;
}

static int set_switch(bool *field, const struct setting *what, const char *value,
    const char *source, struct error *err)
{
    static const char *const words[] = { "no", "yes", "false", "true", "off", "on", "0", "1" };
    for (size_t i = 0; i < array_length(words); i++) {
        if (strcmp(words[i], value) != 0)
            continue;
        *field = i % 2;
        return 0;
    }
    return settings_wrong(what, value, source, err);
}

int setting_set(struct settings *s, const struct setting *what, const char *value,
    const char *source, struct error *err)
{
    void *field = (char *)s + what->offset;
    s->given[what - settings_table] = true;
    switch (what->type) {
    case TYPE_TEXT:
        return set_text(field, value, err);
    case TYPE_LIST:
    case TYPE_NAMES:
        if (value[0])
            return what->type == TYPE_LIST ? list_add(field, value, err)
                                           : set_names(field, what, value, source, err);
        list_clear(field);
        return 0;
    case TYPE_SWITCH:
        return set_switch(field, what, value, source, err);
    case TYPE_NUMBER:
    case TYPE_DECIMAL:
    case TYPE_SECONDS:
    case TYPE_SIZE:
        return set_number(s, what, value, source, err);
    }
    return 0;
}

static int settings_unknown(const char *name, const char *source, struct error *err)
{
    struct suggestion s = { .typed = name, .len = strlen(name) };
    for (size_t i = 0; i < settings_count; i++)
        suggestion_consider(&s, settings_table[i].option.name);
    const char *best = suggestion_best(&s);
    return error_set(err, ERROR_ARGUMENT, "%s: there is no setting '%.60s'%s%s%s", source, name,
        best ? "; did you mean " : "", best ? best : "", best ? "?" : "");
}

int settings_set(
    struct settings *s, const char *name, const char *value, const char *source, struct error *err)
{
    const struct setting *what = find(name);
    if (!what)
        return settings_unknown(name, source, err);
    return setting_set(s, what, value, source, err);
}

const droste_option *settings_option(const char *name)
{
    const struct setting *what = find(name);
    return what ? &what->option : NULL;
}

const char *settings_text(const struct settings *s, const char *name)
{
    const struct setting *what = find(name);
    const void *field = what ? (const char *)s + what->offset : NULL;
    if (!what || what->option.secret)
        return NULL;
    if (is_list(what)) {
        const struct list *list = field;
        return list->count > 0 ? list->items[list->count - 1] : NULL;
    }
    if (what->type == TYPE_SWITCH)
        return !settings_is_set(s, name) ? NULL : *(const bool *)field ? "yes" : "no";
    return what->type == TYPE_TEXT ? *(char *const *)field : NULL;
}

size_t settings_index(const char *name)
{
    return (size_t)(find(name) - settings_table);
}

int settings_reset(struct settings *s, size_t index, struct error *err)
{
    const struct setting *what = &settings_table[index];
    if (!s->given[index])
        return 0;
    int rc = is_list(what) ? setting_set(s, what, "", "default", err)
                           : setting_set(s, what, what->option.fallback, "default", err);
    s->given[index] = false;
    return rc;
}

bool settings_is_emptied(const struct settings *s, size_t index)
{
    const struct setting *what = &settings_table[index];
    const void *field = (const char *)s + what->offset;
    return s->given[index] && is_list(what) && ((const struct list *)field)->count == 0;
}

bool settings_is_set(const struct settings *s, const char *name)
{
    const struct setting *what = find(name);
    return what && s->given[what - settings_table];
}

bool settings_number(const struct settings *s, const char *name, double *value)
{
    const struct setting *what = settings_is_set(s, name) ? find(name) : NULL;
    if (!what || what->type < TYPE_NUMBER)
        return false;
    const void *field = (const char *)s + what->offset;
    bool is_real = what->type == TYPE_SECONDS || what->type == TYPE_DECIMAL;
    *value = is_real ? *(const double *)field : (double)*(const int64_t *)field;
    return true;
}

int64_t settings_sub_max_tokens(const struct settings *s)
{
    return settings_is_set(s, "sub-max-tokens") ? s->sub_max_tokens : s->max_tokens;
}

int settings_init(struct settings *s, struct error *err)
{
    *s = (struct settings){ 0 };
    for (size_t i = 0; i < settings_count; i++) {
        if (!settings_table[i].option.fallback[0])
            continue;
        int rc =
            setting_set(s, &settings_table[i], settings_table[i].option.fallback, "default", err);
        if (rc < 0)
            return rc;
    }
    memset(s->given, 0, sizeof s->given);
    return 0;
}

void settings_free(struct settings *s)
{
    for (size_t i = 0; i < settings_count; i++) {
        void *field = (char *)s + settings_table[i].offset;
        if (settings_table[i].type == TYPE_TEXT)
            free(*(char **)field);
        if (is_list(&settings_table[i]))
            list_clear(field);
    }
}

int settings_copy(struct settings *to, const struct settings *from, struct error *err)
{
    int rc = 0;
    *to = *from;
    for (size_t i = 0; i < settings_count; i++) {
        void *field = (char *)to + settings_table[i].offset;
        if (settings_table[i].type == TYPE_TEXT)
            *(char **)field = NULL;
        if (is_list(&settings_table[i]))
            *(struct list *)field = (struct list){ 0 };
    }
    for (size_t i = 0; rc == 0 && i < settings_count; i++) {
        void *field = (char *)to + settings_table[i].offset;
        const void *source = (const char *)from + settings_table[i].offset;
        if (settings_table[i].type == TYPE_TEXT && *(char *const *)source)
            rc = set_text(field, *(char *const *)source, err);
        if (is_list(&settings_table[i]))
            rc = list_add_all(field, source, err);
    }
    return rc;
}

int settings_from_environment(struct settings *s, struct error *err)
{
    for (size_t i = 0; i < settings_count; i++) {
        const char *names[] = { settings_table[i].other_environment,
            settings_table[i].option.environment };
        for (size_t k = 0; k < array_length(names); k++) {
            const char *value = names[k] ? getenv(names[k]) : NULL;
            if (!value || !value[0])
                continue;
            int rc = setting_set(s, &settings_table[i], value, names[k], err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static char *settings_trim(char *text)
{
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

/* Finds the comment after a value: a ';' or '#' after white space, as in git's configuration.
 * Without white space it belongs to the value ("a#b", "https://host/#part"). */
static char *find_comment(char *text)
{
    char *p = text;
    while (*p && !((*p == ';' || *p == '#') && (p == text || isspace((unsigned char)p[-1]))))
        p++;
    return p;
}

/* Removes a comment after the value, and double quotes, which protect " #" and " ;" in it. */
static char *trim_value(char *text)
{
    text = settings_trim(text);
    char *close = text[0] == '"' ? strchr(text + 1, '"') : NULL;
    char *behind = close ? close + 1 + strspn(close + 1, " \t") : NULL;
    if (behind && (*behind == '\0' || *behind == ';' || *behind == '#')) {
        *close = '\0';
        return text + 1;
    }
    *find_comment(text) = '\0';
    return settings_trim(text);
}

/* Parses an empty line, a comment, a [section] (which is ignored), or NAME = VALUE. */
static int settings_take_line(struct settings *s, char *line, const char *source, struct error *err)
{
    char *name = settings_trim(line), *equals = strchr(name, '=');
    size_t n = strlen(name);
    if (n == 0 || name[0] == '#' || name[0] == ';' || (name[0] == '[' && name[n - 1] == ']'))
        return 0;
    if (!equals || equals == name)
        return error_set(err, ERROR_CONFIG, "%s: expected `name = value`", source);
    *equals = '\0';
    name = settings_trim(name);
    for (char *p = name; *p; p++)
        if (*p == '_')
            *p = '-';
    int rc = settings_set(s, name, trim_value(equals + 1), source, err);
    if (rc < 0 && err && err->code == ERROR_ARGUMENT)
        err->code = ERROR_CONFIG;
    return rc < 0 ? -(int)ERROR_CONFIG : 0;
}

int settings_from_file(struct settings *s, const char *path, bool may_be_absent, struct error *err)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    cleanup_buf struct buf text = { 0 };
    /* EACCES: a parent directory is not accessible, so the file is not this user's either. */
    if (may_be_absent && access(path, F_OK) < 0 && (errno == ENOENT || errno == EACCES))
        return 0;
    if (file_read(path, FILE_MAX, &text, err) < 0) {
        error_wrap(err, "reading the configuration");
        if (err)
            err->code = ERROR_CONFIG;
        return -(int)ERROR_CONFIG;
    }
    char *line = text.data, *end = text.data + text.len;
    if (strncmp(buf_text(&text), byte_order_mark, 3) == 0)
        line += 3;
    for (unsigned number = 1; line && line < end; number++) {
        char source[160], *newline = memchr(line, '\n', (size_t)(end - line));
        if (newline)
            *newline = '\0';
        snprintf(source, sizeof source, "%.120s, line %u", path, number);
        int rc = settings_take_line(s, line, source, err);
        if (rc < 0)
            return rc;
        line = newline ? newline + 1 : end;
    }
    return 0;
}

int settings_set_all(struct settings *s, const char *const *words, struct error *err)
{
    int rc = 0;
    for (; rc == 0 && words && words[0]; words += 2) {
        char source[80];
        snprintf(source, sizeof source, "setting %.60s", words[0]);
        if (!words[1])
            return error_set(err, ERROR_ARGUMENT, "%s has no value", source);
        rc = settings_set(s, words[0], words[1], source, err);
    }
    return rc;
}
