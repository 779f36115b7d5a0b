/* cli/terminal/children.c: see children.h.
 *
 * A run has a node from the event "child" on. Nodes stand in the order of their beginnings, so a
 * parent comes before its children, and each parent has a list of its own. A cell may start
 * thousands of runs, of which a screen shows a few: the ones at work with their parents, then the
 * ones that ended last.
 */
#include "cli/terminal/children.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"

enum { CHILD_TEXT = 200, CHILD_DEPTH = 16, NO_NODE = -1 };

struct child_node {
    uint64_t number;
    int parent, first, last, next; /* indices; NO_NODE: none */
    unsigned turn, turns;
    const char *doing;     /* a constant */
    char status[16];       /* "": at work */
    char text[CHILD_TEXT]; /* the prompt; of a failed one, the error */
    uint64_t start_ns;
    double seconds;
    bool shown;
};

struct children {
    struct child_node *nodes;
    size_t count, room;
    int first, last; /* the root's children */
};

struct children *children_new(void)
{
    struct children *c = calloc(1, sizeof *c);
    if (c)
        c->first = c->last = NO_NODE;
    return c;
}

void children_free(struct children *c)
{
    if (!c)
        return;
    free(c->nodes);
    free(c);
}

void children_clear(struct children *c)
{
    c->count = 0;
    c->first = c->last = NO_NODE;
}

/* ---- events ---- */

/* From the end: events are mostly of runs that began late. */
static int find_node(const struct children *c, uint64_t number)
{
    for (size_t i = c->count; i > 0 && number > 0; i--)
        if (c->nodes[i - 1].number == number)
            return (int)i - 1;
    return NO_NODE;
}

static void node_set_text(struct child_node *node, const char *text, size_t len)
{
    size_t n = len < CHILD_TEXT ? len : text_utf8_floor(text, len, CHILD_TEXT - 1);
    memcpy(node->text, text, n);
    node->text[n] = '\0';
}

static void add_node(struct children *c, const droste_event *e)
{
    int parent = find_node(c, e->run), index = (int)c->count;
    if (!array_room(c->nodes, c->count, &c->room))
        return;
    c->nodes[c->count++] = (struct child_node){ .number = e->call,
        .parent = parent,
        .first = NO_NODE,
        .last = NO_NODE,
        .next = NO_NODE,
        .doing = "starts",
        .start_ns = clock_ns() };
    node_set_text(&c->nodes[index], e->text, e->len);
    int *first = parent == NO_NODE ? &c->first : &c->nodes[parent].first;
    int *last = parent == NO_NODE ? &c->last : &c->nodes[parent].last;
    if (*last == NO_NODE)
        *first = index;
    else
        c->nodes[*last].next = index;
    *last = index;
}

static void end_node(struct child_node *node, const droste_event *e)
{
    snprintf(node->status, sizeof node->status, "%s", e->status ? e->status : "error");
    node->seconds = clock_seconds_since(node->start_ns);
    if (strcmp(node->status, "answered") != 0)
        node_set_text(node, e->text, e->len);
}

bool children_take(struct children *c, const droste_event *e)
{
    static const struct {
        const char *kind, *doing;
    } states[] = {
        { "turn", "asks the model" },
        { "cell", "runs code" },
        { "result", "reads output" },
        { "retry", "waits to ask again" },
    };
    bool ends = strcmp(e->kind, "child_end") == 0;
    if (strcmp(e->kind, "child") == 0) {
        add_node(c, e);
        return true;
    }
    int at = find_node(c, ends ? e->call : e->run);
    if (at != NO_NODE && ends)
        end_node(&c->nodes[at], e);
    if (at == NO_NODE || ends)
        return ends || e->run > 0;
    struct child_node *node = &c->nodes[at];
    node->turn = e->turn;
    node->turns = e->turns;
    for (size_t i = 0; i < array_length(states); i++)
        if (strcmp(states[i].kind, e->kind) == 0)
            node->doing = states[i].doing;
    return true;
}

/* ---- the tree ---- */

/* Marks a node and its parents; returns how many were not marked before. */
static size_t show_node(struct children *c, int at)
{
    size_t added = 0;
    for (; at != NO_NODE && !c->nodes[at].shown; at = c->nodes[at].parent) {
        c->nodes[at].shown = true;
        added++;
    }
    return added;
}

static void choose_nodes(struct children *c, size_t rows)
{
    size_t shown = 0;
    for (size_t i = 0; i < c->count; i++)
        c->nodes[i].shown = c->count <= rows;
    if (c->count <= rows)
        return;
    rows -= rows > 0; /* for the line that counts the others */
    for (int ended = 0; ended < 2; ended++)
        for (size_t i = c->count; i > 0 && shown < rows; i--)
            if ((c->nodes[i - 1].status[0] != '\0') == ended)
                shown += show_node(c, (int)i - 1);
}

static int next_shown(const struct children *c, int at)
{
    while (at != NO_NODE && !c->nodes[at].shown)
        at = c->nodes[at].next;
    return at;
}

struct drawing {
    const struct children *c;
    const struct screen *s;
    size_t columns;
    children_line_fn *fn;
    void *arg;
    bool others; /* a line follows the tree */
};

/* Whether a line of the same parent follows. */
static bool has_next(const struct drawing *d, int at)
{
    const struct child_node *node = &d->c->nodes[at];
    return next_shown(d->c, node->next) != NO_NODE || (d->others && node->parent == NO_NODE);
}

/* "│  ├─ " before a node, from the branches of its parents. */
static size_t put_branch(const struct drawing *d, struct buf *out, int at)
{
    const struct children *c = d->c;
    const struct screen *s = d->s;
    int path[CHILD_DEPTH];
    size_t depth = 0;
    for (int up = c->nodes[at].parent; up != NO_NODE && depth < CHILD_DEPTH;
         up = c->nodes[up].parent)
        path[depth++] = up;
    for (size_t i = depth; i > 0; i--)
        buf_puts(out, has_next(d, path[i - 1]) ? screen_mark(s, "│  ", "|  ") : "   ");
    buf_puts(out, has_next(d, at) ? screen_mark(s, "├─ ", "|- ") : screen_mark(s, "└─ ", "`- "));
    return 3 * (depth + 1);
}

static void put_state(const struct child_node *node, struct buf *out)
{
    if (node->status[0]) {
        buf_printf(out, "%s in %.1f s: %s", node->status, node->seconds, node->text);
        return;
    }
    if (node->turn > 0)
        buf_printf(out, "turn %u/%u ", node->turn, node->turns);
    buf_printf(out, "%s, %.1f s: %s", node->doing, clock_seconds_since(node->start_ns), node->text);
}

static void draw_node(const struct drawing *d, int at)
{
    const struct child_node *node = &d->c->nodes[at];
    cleanup_buf struct buf line = { 0 }, state = { 0 };
    bool failed = node->status[0] && strcmp(node->status, "answered") != 0;
    size_t used = 2;
    buf_puts(&line, "  ");
    buf_puts(&line, screen_paint(d->s, "\x1b[2m"));
    used += put_branch(d, &line, at);
    buf_puts(&line, screen_paint(d->s, "\x1b[0m"));
    buf_puts(&line, screen_paint(d->s, failed ? "\x1b[31m" : node->status[0] ? "\x1b[2m" : ""));
    put_state(node, &state);
    if (d->columns > used)
        used += screen_fit(d->s, &line, buf_text(&state), state.len, d->columns - used);
    buf_puts(&line, screen_paint(d->s, "\x1b[0m"));
    d->fn(d->arg, buf_text(&line), used);
}

/* The next node in the order of the tree. */
static int following(const struct children *c, int at)
{
    int down = next_shown(c, c->nodes[at].first);
    while (down == NO_NODE && at != NO_NODE) {
        down = next_shown(c, c->nodes[at].next);
        at = c->nodes[at].parent;
    }
    return down;
}

static void draw_others(const struct drawing *d)
{
    cleanup_buf struct buf line = { 0 }, text = { 0 };
    size_t others = 0, active = 0;
    for (size_t i = 0; i < d->c->count; i++) {
        others += !d->c->nodes[i].shown;
        active += !d->c->nodes[i].shown && !d->c->nodes[i].status[0];
    }
    buf_printf(&text, "  %s%zu more child run%s", screen_mark(d->s, "└─ ", "`- "), others,
        text_plural((int64_t)others));
    if (active > 0)
        buf_printf(&text, ", %zu at work", active);
    size_t used = screen_fit(d->s, &line, buf_text(&text), text.len, d->columns);
    d->fn(d->arg, buf_text(&line), used);
}

void children_draw(struct children *c, const struct screen *s, size_t rows, size_t columns,
    children_line_fn *fn, void *arg)
{
    const struct drawing d = { c, s, columns, fn, arg, c->count > rows };
    choose_nodes(c, rows);
    for (int at = next_shown(c, c->first); at != NO_NODE; at = following(c, at))
        draw_node(&d, at);
    if (d.others)
        draw_others(&d);
}
