/* lm/prices.c: the built-in table of prices, and the user's. */
#include "lm/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"

#define FILE_LIMIT ((size_t)1 << 20)

/* Dollars per million tokens; `cached` is for input from the provider's cache. */
struct price {
    double input, output, cached;
};

/* As of October 2026, without models whose price depends on the length of the prompt: an unknown
 * price is better than a wrong one. */
static const struct built_in_price {
    const char *model;
    struct price price;
} built_in_prices[] = {
    { "openai/gpt-5", { 1.25, 10, 0.125 } },
    { "openai/gpt-5-mini", { 0.25, 2, 0.025 } },
    { "openai/gpt-5-nano", { 0.05, 0.40, 0.005 } },
    { "openai/gpt-5.1", { 1.25, 10, 0.125 } },
    { "openai/gpt-5.2", { 1.75, 14, 0.175 } },
    { "openai/gpt-5.4-mini", { 0.75, 4.50, 0.075 } },
    { "openai/gpt-5.4-nano", { 0.20, 1.25, 0.02 } },
    { "openai/gpt-4.1", { 2, 8, 0.50 } },
    { "openai/gpt-4.1-mini", { 0.40, 1.60, 0.10 } },
    { "openai/gpt-4.1-nano", { 0.10, 0.40, 0.025 } },
    { "openai/gpt-4o", { 2.50, 10, 1.25 } },
    { "openai/gpt-4o-mini", { 0.15, 0.60, 0.075 } },
    { "anthropic/claude-opus-5-5", { 4, 20, 0.20 } },
    { "anthropic/claude-opus-5", { 5, 25, 0.50 } },
    { "anthropic/claude-opus-4-5", { 5, 25, 0.50 } },
    { "anthropic/claude-sonnet-5-5", { 2, 10, 0.10 } },
    { "anthropic/claude-sonnet-5", { 2, 10, 0.20 } },
    { "anthropic/claude-haiku-4-5", { 1, 5, 0.10 } },
    { "gemini/gemini-2.5-flash", { 0.30, 2.50, 0.03 } },
    { "gemini/gemini-2.5-flash-lite", { 0.10, 0.40, 0.01 } },
};

/* A line of the user's table: a name, or a prefix if it ended in '*'. */
struct line {
    char *name;
    bool prefix;
    struct price price;
};

struct prices {
    struct line *lines;
    size_t count;
};

/* ---- the user's table ---- */

static int prices_wrong_line(const char *path, size_t number, struct error *err)
{
    return error_set(err, ERROR_CONFIG,
        "%.120s, line %zu: expected MODEL INPUT OUTPUT [CACHED], in dollars per million tokens",
        path, number);
}

/* The next word, NUL-terminated; NULL: none. */
static char *prices_take_word(char **text)
{
    static const char space[] = " \t\r";
    char *word = *text + strspn(*text, space);
    if (*word == '\0' || *word == '#')
        return NULL;
    *text = word + strcspn(word, space);
    if (**text)
        *(*text)++ = '\0';
    return word;
}

static bool prices_take_dollars(const char *word, double *out)
{
    char *end;
    if (!word || word[strspn(word, "0123456789.")] != '\0')
        return false;
    *out = text_to_double(word, &end);
    return end != word && *end == '\0' && isfinite(*out) && *out <= 1e6;
}

static int prices_add_line(
    struct prices *p, char *name, const struct price *price, struct error *err)
{
    struct line *more = reallocarray(p->lines, p->count + 1, sizeof *more);
    if (!more)
        return error_memory(err);
    p->lines = more;
    size_t n = strlen(name);
    bool prefix = name[n - 1] == '*';
    if (prefix)
        name[n - 1] = '\0';
    more[p->count] = (struct line){ strdup(name), prefix, *price };
    return more[p->count++].name ? 0 : error_memory(err);
}

static int prices_take_line(
    struct prices *p, char *text, const char *path, size_t number, struct error *err)
{
    struct price price;
    char *name = prices_take_word(&text);
    if (!name)
        return 0;
    const char *input = prices_take_word(&text), *output = prices_take_word(&text),
               *cached = prices_take_word(&text);
    if (!prices_take_dollars(input, &price.input) || !prices_take_dollars(output, &price.output) ||
        (cached && !prices_take_dollars(cached, &price.cached)) || prices_take_word(&text))
        return prices_wrong_line(path, number, err);
    if (!cached)
        price.cached = price.input;
    return prices_add_line(p, name, &price, err);
}

static int read_table(struct prices *p, const char *path, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    int rc = file_read(path, FILE_LIMIT, &text, err);
    if (rc < 0)
        return error_wrap(err, "reading the prices");
    char *line = text.data, *end = text.data + text.len;
    for (size_t number = 1; line && line < end; number++) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        char *stop = newline ? newline : end;
        if (memchr(line, '\0', (size_t)(stop - line)))
            return prices_wrong_line(path, number, err);
        *stop = '\0'; /* the terminating NUL of a buf may be overwritten */
        if ((rc = prices_take_line(p, line, path, number, err)) < 0)
            return rc;
        line = stop + 1;
    }
    return 0;
}

int prices_open(const char *path, struct prices **out, struct error *err)
{
    struct prices *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    int rc = path && path[0] ? read_table(p, path, err) : 0;
    if (rc < 0) {
        prices_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void prices_close(struct prices *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++)
        free(p->lines[i].name);
    free(p->lines);
    free(p);
}

/* ---- looking up ---- */

/* The length of the match, plus one for an exact match; 0: no match. */
static size_t fit_of(const struct line *line, const char *model)
{
    size_t n = strlen(line->name);
    if (line->prefix)
        return strncmp(line->name, model, n) == 0 ? n + 1 : 0;
    return strcmp(line->name, model) == 0 ? n + 2 : 0;
}

/* The best match, for the full name or for the name without its provider; the later of equals. */
static const struct price *find_line(const struct prices *p, const char *model)
{
    const char *slash = strchr(model, '/');
    const char *names[] = { model, slash ? slash + 1 : model };
    for (size_t k = 0; k < array_length(names); k++) {
        const struct line *best = NULL;
        for (size_t i = 0; i < p->count; i++) {
            size_t fit = fit_of(&p->lines[i], names[k]);
            if (fit > 0 && (!best || fit >= fit_of(best, names[k])))
                best = &p->lines[i];
        }
        if (best)
            return &best->price;
    }
    return NULL;
}

/* The length of the name without a version's date, "-20250929" or "-2025-08-07". */
static size_t undated_length(const char *model)
{
    static const char *const shapes[] = { "-dddddddd", "-dddd-dd-dd" };
    size_t len = strlen(model);
    for (size_t i = 0; i < array_length(shapes); i++) {
        size_t n = strlen(shapes[i]), k = 0;
        if (len < n)
            continue;
        const char *end = model + len - n;
        while (k < n && (shapes[i][k] == 'd' ? end[k] >= '0' && end[k] <= '9' : end[k] == '-'))
            k++;
        if (k == n)
            return len - n;
    }
    return len;
}

static const struct price *find_built_in(const char *model)
{
    size_t n = undated_length(model);
    for (size_t i = 0; i < array_length(built_in_prices); i++) {
        const struct built_in_price *row = &built_in_prices[i];
        if (strncmp(row->model, model, n) == 0 && row->model[n] == '\0')
            return &row->price;
    }
    return NULL;
}

double prices_cost(
    const struct prices *p, const char *model, bool built_in, const struct lm_usage *usage)
{
    const struct price *price = find_line(p, model);
    if (!price && built_in)
        price = find_built_in(model);
    if (!price)
        return -1;
    int64_t cached =
        usage->cached_tokens < usage->input_tokens ? usage->cached_tokens : usage->input_tokens;
    return ((double)(usage->input_tokens - cached) * price->input + (double)cached * price->cached +
               (double)usage->output_tokens * price->output) /
           1e6;
}
