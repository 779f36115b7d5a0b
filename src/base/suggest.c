/* base/suggest.c: see suggest.h.
 *
 * The distance is that of optimal string alignment: how many letters to insert, remove, replace
 * or swap with their neighbour. A third of a word's letters may be wrong; a word with more wrong
 * letters is rather another word.
 */
#include "base/suggest.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

enum { WORD_MAX = 48 };

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t suggest_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            row[j] =
                least_of(least_of(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (swapped)
                row[j] = least_of(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

void suggestion_consider(struct suggestion *s, const char *candidate)
{
    size_t len = strlen(candidate);
    if (len > WORD_MAX || s->len > WORD_MAX)
        return;
    size_t distance = suggest_distance(s->typed, s->len, candidate, len);
    if (distance > (s->len > len ? s->len : len) / 3 || (s->best && distance >= s->distance))
        return;
    s->best = candidate;
    s->distance = distance;
}

const char *suggestion_best(const struct suggestion *s)
{
    return s->best;
}

int suggest_refuse(const char *what, const char *typed, const char *const *first, size_t size,
    size_t count, struct error *err)
{
    struct suggestion s = { .typed = typed, .len = strlen(typed) };
    cleanup_buf struct buf words = { 0 };
    const char *row = (const char *)first;
    for (size_t i = 0; i < count; i++, row += size) {
        const char *word = *(const char *const *)(const void *)row;
        buf_printf(&words, "%s%s", i > 0 ? ", " : "", word);
        suggestion_consider(&s, word);
    }
    const char *best = suggestion_best(&s);
    return error_set(err, ERROR_ARGUMENT, "%s '%.40s' is not one of %s%s%s%s", what, typed,
        buf_text(&words), best ? "; did you mean " : "", best ? best : "", best ? "?" : "");
}
