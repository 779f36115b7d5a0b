/* Headers that tell limits, one "name: value" a line: whatever they say, nobody waits for over a
 * minute, and what was learned is forgotten in time.
 */
#include "fuzz.h"

#include <math.h>

#include "lm/limits.h"

enum { HEADERS_MOST = 32 };

struct headers {
    char *lines[HEADERS_MOST];
    unsigned count;
};

static const char *find_header(void *arg, const char *name)
{
    const struct headers *h = arg;
    size_t n = strlen(name);
    for (unsigned i = 0; i < h->count; i++)
        if (strncmp(h->lines[i], name, n) == 0 && strncmp(h->lines[i] + n, ": ", 2) == 0)
            return h->lines[i] + n + 2;
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t now = 1000000000000u, minute = 60000000000u;
    struct headers h = { 0 };
    struct limits l = { 0 };
    struct limits_need need = { { 1, 1e9, 1e9, 1 } }, since = { { data && size ? data[0] : 0 } };
    char *text = malloc(size + 1), *rest = text, *line;
    expect(text);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    while (h.count < HEADERS_MOST && (line = strsep(&rest, "\n")))
        h.lines[h.count++] = line;
    limits_learn(&l, find_header, &h, &since, now);
    double wait = limits_wait(&l, &need, now);
    expect(isfinite(wait) && wait >= 0 && wait <= 60);
    limits_take(&l, &need, now + minute / 2);
    wait = limits_wait(&l, &need, now + minute / 2);
    expect(isfinite(wait) && wait >= 0 && wait <= 30);
    expect(limits_are_idle(&l, now + minute));
    double reset = limits_parse_reset(text, 0);
    expect(isfinite(reset));
    free(text);
    return 0;
}
