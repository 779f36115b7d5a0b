/* batch/grade.c: compares answers with expected values. */
#include "batch/grade.h"

#include <locale.h>
#include <math.h>
#include <string.h>
#include <wctype.h>

#include "base/cleanup.h"
#include "base/text.h"

/* ---- the names ---- */

static const char *const names[] = { "exact", "contains", "numeric", "program" };

const char *grader_name(const struct grader *grader)
{
    return names[grader->kind];
}

static bool parse_tolerance(const char *text, struct grader *g)
{
    char *end;
    g->tolerance = text_to_double(text, &end);
    g->relative = *end == '%';
    if (g->relative)
        g->tolerance /= 100;
    return text[0] >= '0' && text[0] <= '9' && !end[g->relative] && isfinite(g->tolerance);
}

int grader_parse(const char *word, struct grader *out, struct error *err)
{
    const char *colon = strchr(word, ':');
    size_t len = colon ? (size_t)(colon - word) : strlen(word);
    *out = (struct grader){ .tolerance = 1e-9, .relative = true };
    for (size_t i = 0; i < array_length(names); i++) {
        if (strlen(names[i]) != len || strncmp(names[i], word, len) != 0)
            continue;
        out->kind = (enum grader_kind)i;
        if (out->kind == GRADER_PROGRAM && colon && colon[1]) {
            out->program = colon + 1;
            return 0;
        }
        bool grade_fits = colon ? out->kind == GRADER_NUMERIC && parse_tolerance(colon + 1, out)
                                : out->kind != GRADER_PROGRAM;
        if (grade_fits)
            return 0;
    }
    return error_set(err, ERROR_ARGUMENT,
        "unknown grader '%.60s': use exact, contains, numeric, numeric:TOLERANCE (0.01 or 1%%) or "
        "program:PATH",
        word);
}

int grader_of_task(
    const char *word, const struct grader *batch, struct grader *out, struct error *err)
{
    if (strncmp(word, "program:", 8) == 0)
        return error_set(err, ERROR_ARGUMENT,
            "a task cannot choose the program: write `program` in the task, and name it with "
            "--grader program:PATH");
    if (strcmp(word, "program") != 0)
        return grader_parse(word, out, err);
    if (!batch || batch->kind != GRADER_PROGRAM)
        return error_set(
            err, ERROR_ARGUMENT, "the grader is a program: name it with --grader program:PATH");
    *out = *batch;
    return 0;
}

/* ---- texts ---- */

/* Returns a string unchanged, anything else as JSON. */
static const char *text_of(struct json_object *value, size_t *len)
{
    if (!value) {
        *len = strlen("null");
        return "null";
    }
    if (!json_object_is_type(value, json_type_string))
        return json_text(value, len);
    *len = (size_t)json_object_get_string_len(value);
    return json_object_get_string(value);
}

/* The next character of well-formed UTF-8. */
static wint_t next_character(const char **at)
{
    const unsigned char *p = (const unsigned char *)*at;
    unsigned more = p[0] < 0x80 ? 0 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3;
    wint_t c = more == 0 ? p[0] : p[0] & (0x3fu >> more);
    for (unsigned i = 1; i <= more; i++)
        c = c << 6 | (p[i] & 0x3f);
    *at += more + 1;
    return c;
}

static void put_character(struct buf *out, wint_t c)
{
    if (c < 0x80) {
        buf_putc(out, (char)c);
        return;
    }
    unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    buf_putc(out, (char)((0xf00u >> more & 0xff) | c >> (6 * more)));
    while (more-- > 0)
        buf_putc(out, (char)(0x80 | (c >> (6 * more) & 0x3f)));
}

static bool is_space(wint_t c, locale_t all)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xa0 || (all && iswspace_l(c, all));
}

/* Lower-cases a text, and replaces white space by single spaces. */
static void grade_normalise(struct json_object *value, struct buf *out)
{
    size_t len = 0;
    const char *text = text_of(value, &len), *end = text ? text + len : NULL;
    locale_t all = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    bool space = false;
    while (text < end) {
        wint_t c = next_character(&text);
        if (is_space(c, all)) {
            space = out->len > 0;
            continue;
        }
        if (space)
            buf_putc(out, ' ');
        space = false;
        put_character(out, all ? towlower_l(c, all) : c < 'A' || c > 'Z' ? c : c + 'a' - 'A');
    }
    if (all)
        freelocale(all);
}

static bool grade_is_number(struct json_object *value)
{
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

static bool same_text(struct json_object *expected, struct json_object *answer)
{
    cleanup_buf struct buf a = { 0 }, b = { 0 };
    if (grade_is_number(expected) && grade_is_number(answer))
        return json_object_get_double(expected) == json_object_get_double(answer);
    grade_normalise(expected, &a);
    grade_normalise(answer, &b);
    return !buf_failed(&a) && !buf_failed(&b) && strcmp(buf_text(&a), buf_text(&b)) == 0;
}

static bool has_text(struct json_object *expected, struct json_object *answer)
{
    cleanup_buf struct buf a = { 0 }, b = { 0 };
    grade_normalise(expected, &a);
    grade_normalise(answer, &b);
    return !buf_failed(&a) && !buf_failed(&b) && strstr(buf_text(&b), buf_text(&a));
}

/* ---- numbers ---- */

struct number {
    double value;
    bool percent;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits, with optional separators of groups of three: "1,234,567" and "1_234_567". */
static const char *take_digits(const char *p, struct buf *digits)
{
    while (is_digit(*p) || ((*p == ',' || *p == '_') && is_digit(p[1]) && is_digit(p[2]) &&
                               is_digit(p[3]) && !is_digit(p[4]))) {
        if (is_digit(*p))
            buf_putc(digits, *p);
        p++;
    }
    return p;
}

/* Reads a number at p, a digit or a point before one; returns its end. */
static const char *take_number(const char *p, struct number *out)
{
    cleanup_buf struct buf digits = { 0 };
    p = take_digits(p, &digits);
    if (*p == '.' && is_digit(p[1])) {
        buf_putc(&digits, '.');
        for (p++; is_digit(*p); p++)
            buf_putc(&digits, *p);
    }
    if ((*p == 'e' || *p == 'E') &&
        (is_digit(p[1]) || ((p[1] == '-' || p[1] == '+') && is_digit(p[2])))) {
        for (buf_putc(&digits, *p++); is_digit(*p) || *p == '-' || *p == '+'; p++)
            buf_putc(&digits, *p);
    }
    out->value = text_to_double(buf_text(&digits), NULL);
    while (*p == ' ')
        p++;
    out->percent = *p == '%';
    return p;
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c & '\x80';
}

/* Finds a minus sign of the number: one that does not connect it to preceding text. */
static bool is_negative(const char *text, const char *at)
{
    static const char minus[] = "\xe2\x88\x92"; /* U+2212 */
    size_t before = (size_t)(at - text), len = 1;
    if (before > 0 && at[-1] == '$')
        before--;
    if (before > 0 && text[before - 1] == '-')
        len = 1;
    else if (before >= 3 && memcmp(text + before - 3, minus, 3) == 0)
        len = 3;
    else
        return false;
    return before == len || !(is_word(text[before - len - 1]) || text[before - len - 1] == ')');
}

/* Finds the last number of a text. */
static bool last_number(const char *text, struct number *out)
{
    bool found = false;
    for (const char *p = text; *p;) {
        bool starts = is_digit(*p) || (*p == '.' && is_digit(p[1]));
        bool within = p > text && is_word(p[-1]) && !(p[-1] & '\x80');
        if (!starts || within) {
            p++;
            continue;
        }
        bool negative = is_negative(text, p);
        p = take_number(p, out);
        out->value = negative ? -out->value : out->value;
        found = true;
    }
    return found;
}

static bool grade_number_of(struct json_object *value, struct number *out)
{
    if (grade_is_number(value)) {
        *out = (struct number){ json_object_get_double(value), false };
        return true;
    }
    return json_object_is_type(value, json_type_string) &&
           last_number(json_object_get_string(value), out);
}

static bool is_near(const struct grader *g, double expected, double value)
{
    double room = g->relative ? g->tolerance * fabs(expected) : g->tolerance;
    /* Allows for rounding errors of doubles, as in 0.1 + 0.2. */
    return fabs(value - expected) <= room + 1e-12 * fabs(expected);
}

/* If only one of the two has a percent sign, 50 % may mean 50 or 0.5. */
static bool same_number(
    const struct grader *g, struct json_object *expected, struct json_object *answer)
{
    struct number e, a;
    if (!grade_number_of(expected, &e) || !grade_number_of(answer, &a))
        return false;
    if (is_near(g, e.value, a.value))
        return true;
    if (a.percent && !e.percent)
        return is_near(g, e.value, a.value / 100);
    return e.percent && !a.percent && is_near(g, e.value / 100, a.value);
}

/* ---- all of it ---- */

int grader_check_expected(const struct grader *g, struct json_object *expected, struct error *err)
{
    struct number n;
    bool list = json_object_is_type(expected, json_type_array);
    if (g->kind == GRADER_PROGRAM)
        return 0;
    if (list && json_object_array_length(expected) == 0)
        return error_set(err, ERROR_ARGUMENT, "`expected` is an empty list");
    for (size_t i = 0; i < (list ? json_object_array_length(expected) : 1); i++) {
        struct json_object *one = list ? json_object_array_get_idx(expected, i) : expected;
        if (json_object_is_type(one, json_type_array) || json_object_is_type(one, json_type_object))
            return error_set(err, ERROR_ARGUMENT,
                "`expected` must be a text, a number, or a list of acceptable texts and numbers");
        if (g->kind == GRADER_NUMERIC && !grade_number_of(one, &n))
            return error_set(err, ERROR_ARGUMENT, "`expected` contains no number");
    }
    return 0;
}

/* The only member of a list or an object is the answer itself. */
static struct json_object *lone_value(struct json_object *answer)
{
    if (json_object_is_type(answer, json_type_array) && json_object_array_length(answer) == 1)
        return json_object_array_get_idx(answer, 0);
    if (json_object_is_type(answer, json_type_object) && json_object_object_length(answer) == 1) {
        json_object_object_foreach(answer, name, value)
        {
            (void)name;
            return value;
        }
    }
    return answer;
}

static bool grade_fits(
    const struct grader *g, struct json_object *expected, struct json_object *answer)
{
    if (g->kind == GRADER_NUMERIC)
        return same_number(g, expected, answer);
    return g->kind == GRADER_CONTAINS ? has_text(expected, answer) : same_text(expected, answer);
}

bool grade_answer(const struct grader *g, struct json_object *expected, struct json_object *answer)
{
    struct json_object *value = lone_value(answer);
    if (!json_object_is_type(expected, json_type_array))
        return grade_fits(g, expected, value);
    for (size_t i = 0; i < json_object_array_length(expected); i++)
        if (grade_fits(g, json_object_array_get_idx(expected, i), value))
            return true;
    return false;
}
