/* serve/jupyter/history.c: the cells of a kernel so far, as its clients ask for them. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "serve/jupyter/jupyter.h"

void jupyter_history_add(struct jupyter_kernel *k, const char *code)
{
    struct jupyter_cell *cell = &k->history[k->history_end % JUPYTER_HISTORY];
    char *copy = text_copy(code, strlen(code));
    if (!copy)
        return;
    while (k->history_end - k->history_first >= JUPYTER_HISTORY ||
           (k->history_end > k->history_first &&
               k->history_bytes + strlen(code) > JUPYTER_HISTORY_BYTES)) {
        struct jupyter_cell *first = &k->history[k->history_first++ % JUPYTER_HISTORY];
        k->history_bytes -= strlen(first->code);
        free(steal(&first->code));
    }
    *cell = (struct jupyter_cell){ copy, k->count };
    k->history_end++;
    k->history_bytes += strlen(code);
}

static bool history_fits(struct json_object *o, const char *access, const struct jupyter_cell *cell)
{
    int64_t stop = json_get_int(o, "stop", INT64_MAX);
    if (strcmp(access, "range") == 0)
        return (int64_t)cell->count >= json_get_int(o, "start", 0) && (int64_t)cell->count < stop;
    if (strcmp(access, "search") == 0)
        return fnmatch(json_get_string(o, "pattern", "*"), cell->code, 0) == 0;
    return true;
}

/* `unique`: only the last cell of those with the same code. */
static bool history_is_asked_for(
    struct jupyter_kernel *k, struct json_object *o, const char *access, uint64_t i)
{
    const struct jupyter_cell *cell = &k->history[i % JUPYTER_HISTORY];
    if (!history_fits(o, access, cell))
        return false;
    for (i++; json_get_bool(o, "unique", false) && i < k->history_end; i++)
        if (strcmp(k->history[i % JUPYTER_HISTORY].code, cell->code) == 0)
            return false;
    return true;
}

void jupyter_history_put(struct jupyter_kernel *k, struct json_object *o, struct buf *out)
{
    const char *access = json_get_string(o, "hist_access_type", "tail");
    bool with_output = json_get_bool(o, "output", false);
    int64_t n = json_get_int(o, "n", 0), count = 0;
    uint64_t first = k->history_end;
    while (first > k->history_first && (n <= 0 || count < n))
        count += history_is_asked_for(k, o, access, --first);
    buf_putc(out, '{');
    field_string(out, "status", "ok");
    field_open(out, "history", '[');
    for (; first < k->history_end; first++) {
        const struct jupyter_cell *cell = &k->history[first % JUPYTER_HISTORY];
        if (!history_is_asked_for(k, o, access, first))
            continue;
        field_open(out, NULL, '[');
        field_int(out, NULL, 1);
        field_int(out, NULL, (int64_t)cell->count);
        if (with_output)
            field_open(out, NULL, '[');
        field_string(out, NULL, cell->code);
        if (with_output) {
            field_null(out, NULL);
            field_close(out, ']');
        }
        field_close(out, ']');
    }
    field_close(out, ']');
    buf_putc(out, '}');
}
