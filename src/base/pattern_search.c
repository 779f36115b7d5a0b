/* base/pattern_search.c: runs a pattern's program over a text, all its threads at once. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/pattern_internal.h"

static bool is_in(const struct range *ranges, size_t count, uint32_t c)
{
    for (size_t i = 0; i < count; i++)
        if (c >= ranges[i].low && c <= ranges[i].high)
            return true;
    return false;
}

/* Places in the program, each at most once; a place that was met is not gone to again. */
struct threads {
    unsigned *at;
    unsigned count;
    uint64_t *met; /* at which step, counted from 1 */
};

struct search {
    const struct pattern *p;
    struct threads now, next;
    unsigned *stack;
    uint64_t step, *work;
    bool start, end, word_before, word_after; /* of the place between two characters */
    bool matched;
};

static bool pattern_search_holds(const struct search *s, char assertion)
{
    bool boundary = s->word_before != s->word_after;
    return assertion == '^'   ? s->start
           : assertion == '$' ? s->end
           : assertion == 'b' ? boundary
                              : !boundary;
}

/* Follows what needs no character from here on. */
static void pattern_search_follow(struct search *s, unsigned from)
{
    unsigned depth = 0;
    s->stack[depth++] = from;
    while (depth > 0) {
        unsigned at = s->stack[--depth];
        const struct instruction *i = &s->p->program[at];
        if (s->now.met[at] == s->step)
            continue;
        s->now.met[at] = s->step;
        *s->work -= *s->work > 0;
        if (i->op == OP_MATCH)
            s->matched = true;
        else if (i->op == OP_SET)
            s->now.at[s->now.count++] = at;
        else if (i->op != OP_ASSERT)
            s->stack[depth++] = i->x;
        else if (pattern_search_holds(s, i->assertion))
            s->stack[depth++] = at + 1;
        if (i->op == OP_SPLIT)
            s->stack[depth++] = i->y;
    }
}

/* Those that are here, and one that begins here. */
static void pattern_search_gather(struct search *s)
{
    s->step++;
    s->now.count = 0;
    for (unsigned i = 0; i < s->next.count; i++)
        pattern_search_follow(s, s->next.at[i]);
    pattern_search_follow(s, 0);
}

static void move_on(struct search *s, uint32_t c)
{
    s->next.count = 0;
    for (unsigned i = 0; i < s->now.count; i++) {
        const struct instruction *set = &s->p->program[s->now.at[i]];
        *s->work -= *s->work > 0;
        if (set->ranges > 0 && is_in(s->p->ranges + set->range, set->ranges, c)) /* `[]` has none */
            s->next.at[s->next.count++] = s->now.at[i] + 1;
    }
}

static int pattern_search_search(struct search *s, const char *text, const char *end)
{
    s->start = true;
    for (const char *at = text;;) {
        const char *next = at;
        uint32_t c = at < end ? pattern_take_char(&next) : 0;
        s->end = at == end;
        s->word_after = !s->end && is_in(pattern_words, PATTERN_WORD_RANGES, c);
        pattern_search_gather(s);
        if (s->matched)
            return 1;
        if (s->end)
            return 0;
        move_on(s, c);
        if (*s->work == 0)
            return -1;
        s->start = false;
        s->word_before = s->word_after;
        at = next;
    }
}

int pattern_search(const struct pattern *p, const char *text, size_t len, uint64_t *work)
{
    /* A place is on the stack at most once for each that leads to it, of which there are two. */
    cleanup_free unsigned *places = calloc((size_t)p->length * 4 + 4, sizeof *places);
    cleanup_free uint64_t *met = calloc(p->length, sizeof *met);
    if (!places || !met)
        return -1;
    struct search s = { .p = p,
        .now = { .at = places, .met = met },
        .next = { .at = places + p->length },
        .stack = places + 2 * (size_t)p->length,
        .work = work };
    return pattern_search_search(&s, text, text + len);
}
