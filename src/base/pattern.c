/* base/pattern.c: see pattern.h.
 *
 *   text ─► tree of nodes ─► program ─► all its threads at once, a character at a time (pattern_search.c)
 *
 * The program is Thompson's: a thread is a place in it, there is at most one at each place, and so
 * the threads together are a set that moves on with each character. A counted part is written out as
 * often as it is counted, which is why programs have a largest size. Patterns come from whoever runs
 * the program, texts from guests.
 */
#include "base/pattern.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/pattern_internal.h"

enum { PROGRAM_MAX = 20000, NESTING_MAX = 50, COUNT_MAX = 1000, LAST_CHAR = 0x10FFFF };

enum node_kind { NODE_SET, NODE_ASSERT, NODE_GROUP, NODE_REPEAT };

/* A group has alternatives, each a list of nodes; an alternative is a node of its own, a group of
 * one. Lists are linked by `next`, 0 ends them: node 0 is the whole. */
struct node {
    enum node_kind kind;
    unsigned next;
    unsigned child;       /* of a repeat; of a group, its first alternative */
    unsigned items;       /* of an alternative: its first node */
    size_t range, ranges; /* of a set */
    int min, max;         /* of a repeat; max -1: no limit */
    char assertion;       /* '^', '$', 'b', 'B' */
};

struct parser {
    const char *at, *end;
    struct pattern *p;
    struct node *nodes;
    unsigned node_count, depth, written;
    size_t node_room;
    struct error *err;
    bool failed;
};

/* ---- characters ---- */

uint32_t pattern_take_char(const char **at)
{
    const unsigned char *p = (const unsigned char *)*at;
    unsigned n = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    static const unsigned char masks[] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    uint32_t c = p[0] & masks[n];
    for (unsigned i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3F);
    *at += n;
    return c;
}

static const struct range digits[] = { { '0', '9' } };
const struct range pattern_words[PATTERN_WORD_RANGES] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' },
    { 'a', 'z' } };
static const struct range spaces[] = { { '\t', '\r' }, { ' ', ' ' }, { 0xA0, 0xA0 },
    { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 }, { 0x202F, 0x202F },
    { 0x205F, 0x205F }, { 0x3000, 0x3000 }, { 0xFEFF, 0xFEFF } };
static const struct range line_ends[] = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };

/* ---- parsing ---- */

static unsigned pattern_fail(struct parser *s, const char *what)
{
    if (!s->failed)
        error_set(s->err, ERROR_ARGUMENT, "%s", what);
    s->failed = true;
    s->at = s->end;
    return 0;
}

static unsigned fail_memory(struct parser *s)
{
    pattern_fail(s, "");
    error_memory(s->err);
    return 0;
}

static unsigned add_node(struct parser *s, const struct node *node)
{
    struct node *nodes = array_grow(s->nodes, s->node_count, &s->node_room, sizeof *nodes);
    if (!nodes)
        return fail_memory(s);
    s->nodes = nodes;
    s->nodes[s->node_count] = *node;
    return s->node_count++;
}

static void add_range(struct parser *s, uint32_t low, uint32_t high)
{
    struct pattern *p = s->p;
    struct range *ranges = array_grow(p->ranges, p->range_count, &p->range_room, sizeof *ranges);
    if (!ranges) {
        fail_memory(s);
        return;
    }
    p->ranges = ranges;
    p->ranges[p->range_count++] = (struct range){ low, high };
}

/* What is in none of the ranges, which are in order. */
static void add_others(struct parser *s, const struct range *ranges, size_t count)
{
    uint32_t low = 0;
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].low > low)
            add_range(s, low, ranges[i].low - 1);
        if (ranges[i].high >= low)
            low = ranges[i].high + 1;
    }
    if (low <= LAST_CHAR)
        add_range(s, low, LAST_CHAR);
}

static int by_low(const void *a, const void *b)
{
    uint32_t x = ((const struct range *)a)->low, y = ((const struct range *)b)->low;
    return x < y ? -1 : x > y;
}

static bool looking_at(const struct parser *s, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(s->end - s->at) >= n && memcmp(s->at, text, n) == 0;
}

static bool pattern_take(struct parser *s, const char *text)
{
    bool there = looking_at(s, text);
    s->at += there ? strlen(text) : 0;
    return there;
}

/* \d and the like; false: it is none. Capitals are the others. */
static bool add_named(struct parser *s, char name)
{
    static const struct {
        char name;
        const struct range *ranges;
        size_t count;
    } named[] = {
        { 'd', digits, array_length(digits) },
        { 'w', pattern_words, array_length(pattern_words) },
        { 's', spaces, array_length(spaces) },
    };
    for (size_t i = 0; i < array_length(named); i++) {
        for (size_t k = 0; name == named[i].name && k < named[i].count; k++)
            add_range(s, named[i].ranges[k].low, named[i].ranges[k].high);
        if (name == named[i].name)
            return true;
        if (name != named[i].name - 'a' + 'A')
            continue;
        add_others(s, named[i].ranges, named[i].count);
        return true;
    }
    return false;
}

static uint32_t take_hex(struct parser *s, unsigned digits_wanted)
{
    uint32_t c = 0;
    for (unsigned i = 0; i < digits_wanted; i++) {
        static const char hex[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = s->at < s->end && *s->at ? strchr(hex, *s->at) : NULL;
        if (!digit)
            return pattern_fail(s, "a bad \\x or \\u escape");
        c = c << 4 | (uint32_t)((digit - hex) % 16);
        s->at++;
    }
    return c;
}

/* \u0041, \u{41}, or two halves of a surrogate pair. */
static uint32_t take_unicode(struct parser *s)
{
    if (pattern_take(s, "{")) {
        const char *end = memchr(s->at, '}', (size_t)(s->end - s->at));
        uint32_t c =
            end && end - s->at <= 6 ? take_hex(s, (unsigned)(end - s->at)) : LAST_CHAR + 1u;
        return pattern_take(s, "}") && c <= LAST_CHAR ? c : pattern_fail(s, "a bad \\u{} escape");
    }
    uint32_t c = take_hex(s, 4);
    if (c >= 0xD800 && c < 0xDC00 && pattern_take(s, "\\u"))
        c = 0x10000 + ((c - 0xD800) << 10) + ((take_hex(s, 4) - 0xDC00) & 0x3FF);
    return c;
}

/* Behind a backslash: one character. */
static uint32_t take_escape(struct parser *s)
{
    static const char letters[] = "tnvfr", meant[] = "\t\n\v\f\r";
    if (s->at == s->end)
        return pattern_fail(s, "a backslash at the end");
    char c = *s->at;
    const char *letter = strchr(letters, c);
    if (letter && c) {
        s->at++;
        return (unsigned char)meant[letter - letters];
    }
    bool digit = c >= '0' && c <= '9', alpha = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (pattern_take(s, "x"))
        return take_hex(s, 2);
    if (pattern_take(s, "u"))
        return take_unicode(s);
    if (digit)
        return pattern_fail(s, "backreferences are not supported");
    if (c == 'p' || c == 'P')
        return pattern_fail(s, "\\p is not supported");
    return alpha ? pattern_fail(s, "an escape that is not supported") : pattern_take_char(&s->at);
}

static uint32_t take_class_char(struct parser *s)
{
    if (!pattern_take(s, "\\"))
        return pattern_take_char(&s->at);
    return pattern_take(s, "b") ? '\b' : take_escape(s);
}

/* One item of a class: true if it was a character, *c. */
static bool take_class_item(struct parser *s, uint32_t *c)
{
    if (looking_at(s, "\\") && s->end - s->at > 1 && add_named(s, s->at[1])) {
        s->at += 2;
        return false;
    }
    *c = take_class_char(s);
    return true;
}

static void parse_class_items(struct parser *s)
{
    while (!s->failed && s->at < s->end && !looking_at(s, "]")) {
        uint32_t low = 0, high = 0;
        bool single = take_class_item(s, &low);
        if (single && looking_at(s, "-") && s->end - s->at > 1 && s->at[1] != ']') {
            s->at++;
            if (!take_class_item(s, &high) || high < low)
                pattern_fail(s, "a range of characters that is none");
            add_range(s, low, high);
        } else if (single) {
            add_range(s, low, low);
        }
    }
    if (!pattern_take(s, "]"))
        pattern_fail(s, "a [ without ]");
}

/* In the place of the last ranges, from `first` on, what is in none of them. */
static void turn_ranges_round(struct parser *s, size_t first)
{
    size_t count = s->p->range_count - first;
    cleanup_free struct range *copy = calloc(count + 1, sizeof *copy);
    if (!copy) {
        fail_memory(s);
        return;
    }
    memcpy(copy, s->p->ranges + first, count * sizeof *copy);
    qsort(copy, count, sizeof *copy, by_low);
    s->p->range_count = first;
    add_others(s, copy, count);
}

static unsigned parse_class(struct parser *s)
{
    size_t first = s->p->range_count;
    bool negated = pattern_take(s, "^");
    parse_class_items(s);
    if (negated && !s->failed && s->p->range_count > first)
        turn_ranges_round(s, first);
    else if (negated)
        add_range(s, 0, LAST_CHAR);
    return add_node(
        s, &(struct node){ .kind = NODE_SET, .range = first, .ranges = s->p->range_count - first });
}

static unsigned parse_alternatives(struct parser *s);

static unsigned parse_group(struct parser *s)
{
    if (pattern_take(s, "?:"))
        ;
    else if (looking_at(s, "?=") || looking_at(s, "?!") || looking_at(s, "?<=") ||
             looking_at(s, "?<!"))
        return pattern_fail(s, "looking ahead and behind is not supported");
    else if (looking_at(s, "?"))
        return pattern_fail(s, "groups with names or flags are not supported");
    if (++s->depth > NESTING_MAX)
        return pattern_fail(s, "groups are nested too deep");
    unsigned group = parse_alternatives(s);
    s->depth--;
    return pattern_take(s, ")") ? group : pattern_fail(s, "a ( without )");
}

static unsigned parse_atom(struct parser *s)
{
    size_t first = s->p->range_count;
    if (pattern_take(s, "("))
        return parse_group(s);
    if (pattern_take(s, "["))
        return parse_class(s);
    if (looking_at(s, "\\b") || looking_at(s, "\\B")) {
        s->at += 2;
        return add_node(s, &(struct node){ .kind = NODE_ASSERT, .assertion = s->at[-1] });
    }
    if (looking_at(s, "^") || looking_at(s, "$"))
        return add_node(s, &(struct node){ .kind = NODE_ASSERT, .assertion = *s->at++ });
    if (strchr("*+?{", *s->at) && *s->at)
        return pattern_fail(s, "a quantifier without anything before it");
    if (strchr("]}", *s->at) && *s->at)
        return pattern_fail(s, "a closing bracket without an opening one; write \\] or \\}");
    if (pattern_take(s, "."))
        add_others(s, line_ends, array_length(line_ends));
    else if (looking_at(s, "\\") && s->end - s->at > 1 && add_named(s, s->at[1]))
        s->at += 2;
    else {
        uint32_t c = pattern_take(s, "\\") ? take_escape(s) : pattern_take_char(&s->at);
        add_range(s, c, c);
    }
    return add_node(
        s, &(struct node){ .kind = NODE_SET, .range = first, .ranges = s->p->range_count - first });
}

static int take_count(struct parser *s)
{
    int n = -1;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && n <= COUNT_MAX)
        n = (n < 0 ? 0 : n * 10) + (*s->at++ - '0');
    return n;
}

/* * + ? {…}; false: there is none. */
static bool take_quantifier(struct parser *s, int *min, int *max)
{
    *min = looking_at(s, "+");
    *max = looking_at(s, "?") ? 1 : -1;
    if (pattern_take(s, "*") || pattern_take(s, "+") || pattern_take(s, "?"))
        return true;
    if (!pattern_take(s, "{"))
        return false;
    *min = *max = take_count(s);
    if (pattern_take(s, ","))
        *max = looking_at(s, "}") ? -1 : take_count(s);
    bool bad = *min < 0 || (*max >= 0 && *max < *min) || *min > COUNT_MAX || *max > COUNT_MAX;
    if (!pattern_take(s, "}") || bad)
        pattern_fail(s, "a {n,m} that is none, or counts over 1000");
    return true;
}

static unsigned parse_item(struct parser *s)
{
    int min, max;
    unsigned item = parse_atom(s);
    if (s->failed || !take_quantifier(s, &min, &max))
        return item;
    pattern_take(s, "?"); /* lazy: what matches is the same */
    if (s->nodes[item].kind == NODE_ASSERT)
        return pattern_fail(s, "a quantifier behind an assertion");
    return add_node(
        s, &(struct node){ .kind = NODE_REPEAT, .child = item, .min = min, .max = max });
}

static unsigned parse_alternative(struct parser *s)
{
    unsigned self = add_node(s, &(struct node){ .kind = NODE_GROUP }), last = 0;
    while (!s->failed && s->at < s->end && !looking_at(s, "|") && !looking_at(s, ")")) {
        unsigned item = parse_item(s);
        if (s->failed)
            return 0;
        if (last)
            s->nodes[last].next = item;
        else
            s->nodes[self].items = item;
        last = item;
    }
    return self;
}

static unsigned parse_alternatives(struct parser *s)
{
    unsigned self = add_node(s, &(struct node){ .kind = NODE_GROUP }), last = 0;
    do {
        unsigned alternative = parse_alternative(s);
        if (s->failed)
            return 0;
        if (last)
            s->nodes[last].next = alternative;
        else
            s->nodes[self].child = alternative;
        last = alternative;
    } while (pattern_take(s, "|"));
    return self;
}

/* ---- the program ---- */

static unsigned pattern_emit(struct parser *s, const struct instruction *instruction)
{
    struct pattern *p = s->p;
    if (p->length >= PROGRAM_MAX)
        return pattern_fail(s, "it is too large; count less");
    struct instruction *program = array_grow(p->program, p->length, &p->room, sizeof *program);
    if (!program)
        return fail_memory(s);
    p->program = program;
    p->program[p->length] = *instruction;
    return p->length++;
}

static void emit_node(struct parser *s, unsigned index);

static void emit_alternatives(struct parser *s, unsigned first)
{
    unsigned jumps = 0; /* a list of those to the end, linked by x */
    for (unsigned a = first; a && !s->failed; a = s->nodes[a].next) {
        bool more = s->nodes[a].next;
        unsigned split = more ? pattern_emit(s, &(struct instruction){ .op = OP_SPLIT }) : 0;
        if (more && !s->failed)
            s->p->program[split].x = s->p->length;
        for (unsigned item = s->nodes[a].items; item && !s->failed; item = s->nodes[item].next)
            emit_node(s, item);
        if (!more || s->failed)
            continue;
        jumps = pattern_emit(s, &(struct instruction){ .op = OP_JUMP, .x = jumps });
        s->p->program[split].y = s->p->length;
    }
    while (jumps && !s->failed) {
        unsigned next = s->p->program[jumps].x;
        s->p->program[jumps].x = s->p->length;
        jumps = next;
    }
}

static void emit_repeat(struct parser *s, const struct node *node)
{
    for (int i = 0; i < node->min && !s->failed; i++)
        emit_node(s, node->child);
    for (int i = node->min; node->max < 0 ? i == node->min : i < node->max; i++) {
        unsigned split = pattern_emit(s, &(struct instruction){ .op = OP_SPLIT });
        if (s->failed)
            return;
        s->p->program[split].x = s->p->length;
        emit_node(s, node->child);
        if (node->max < 0)
            pattern_emit(s, &(struct instruction){ .op = OP_JUMP, .x = split });
        if (!s->failed)
            s->p->program[split].y = s->p->length;
    }
}

static void emit_node(struct parser *s, unsigned index)
{
    const struct node node = s->nodes[index];
    if (++s->written > PROGRAM_MAX * 4) /* what is empty counts too */
        pattern_fail(s, "it is too large; count less");
    if (s->failed)
        return;
    switch (node.kind) {
    case NODE_SET:
        pattern_emit(
            s, &(struct instruction){ .op = OP_SET, .range = node.range, .ranges = node.ranges });
        return;
    case NODE_ASSERT:
        pattern_emit(s, &(struct instruction){ .op = OP_ASSERT, .assertion = node.assertion });
        return;
    case NODE_GROUP:
        emit_alternatives(s, node.child);
        return;
    case NODE_REPEAT:
        emit_repeat(s, &node);
        return;
    }
}

int pattern_compile(const char *text, size_t len, struct pattern **out, struct error *err)
{
    struct error why = { 0 };
    struct parser s = { .at = text, .end = text + len, .err = &why };
    s.p = calloc(1, sizeof *s.p);
    if (!s.p)
        return error_memory(err);
    add_node(&s, &(struct node){ .kind = NODE_GROUP }); /* 0 is nobody's */
    /* Jumps to the end are a list that 0 ends, so no jump is there. */
    pattern_emit(&s, &(struct instruction){ .op = OP_JUMP, .x = 1 });
    unsigned whole = parse_alternatives(&s);
    if (!s.failed && s.at < s.end)
        pattern_fail(&s, "a ) without (");
    if (!s.failed)
        emit_node(&s, whole);
    if (!s.failed)
        pattern_emit(&s, &(struct instruction){ .op = OP_MATCH });
    free(s.nodes);
    if (s.failed) {
        pattern_free(s.p);
        if (err)
            *err = why;
        return -(int)why.code;
    }
    *out = s.p;
    return 0;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    free(p->ranges);
    free(p->program);
    free(p);
}
