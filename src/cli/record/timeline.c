/* cli/record/timeline.c: see timeline.h. */
#include "cli/record/timeline.h"

#include <stdio.h>
#include <string.h>

#include "cli/terminal/screen.h"

/* Of a bar; around it are its turn, time and calls. */
enum { WIDTH_LEAST = 8, WIDTH_MOST = 48, AROUND = 42 };

/* The bar to replace with a longer one. */
static size_t find_shortest(const struct timeline *t)
{
    size_t shortest = 0;
    for (size_t i = 1; i < t->count; i++)
        if (t->bars[i].seconds < t->bars[shortest].seconds)
            shortest = i;
    return shortest;
}

static void timeline_drop(struct timeline *t, size_t which)
{
    t->count--;
    memmove(&t->bars[which], &t->bars[which + 1], (t->count - which) * sizeof *t->bars);
}

void timeline_add(struct timeline *t, int64_t turn, const char *what, int64_t started_ms,
    double seconds, int64_t calls)
{
    /* The file is not trusted: ignore a bar longer than a year. */
    bool ended = seconds >= 0;
    double bounded = ended && seconds < 3e7 ? seconds : 0;
    int64_t ended_ms = started_ms + (int64_t)(bounded * 1000);
    if (t->all == 0)
        t->first_ms = started_ms;
    if (t->all++ == 0 || ended_ms > t->last_ms)
        t->last_ms = ended_ms;
    if (t->count == TIMELINE_BARS) {
        size_t shortest = find_shortest(t);
        if (t->bars[shortest].seconds >= bounded)
            return;
        timeline_drop(t, shortest);
    }
    t->bars[t->count++] = (struct timeline_bar){ turn, started_ms, calls, what, bounded, ended };
}

static int timeline_width(void)
{
    const struct screen screen = { .out = stdout };
    int columns = (int)screen_columns(&screen) - AROUND;
    return columns < WIDTH_LEAST ? WIDTH_LEAST : columns > WIDTH_MOST ? WIDTH_MOST : columns;
}

static int timeline_column(const struct timeline *t, double ms, int width)
{
    double span = (double)(t->last_ms - t->first_ms);
    double at = span > 0 ? (ms - (double)t->first_ms) / span * width : 0;
    return at < 0 ? 0 : at > width ? width : (int)at;
}

static void print_bar(const struct timeline *t, const struct timeline_bar *b, int width)
{
    int from = timeline_column(t, (double)b->started_ms, width);
    int to = timeline_column(t, (double)b->started_ms + b->seconds * 1000, width);
    if (from == width)
        from--;
    if (to <= from)
        to = from + 1;
    printf("  turn %-4lld %-5s |%*s", (long long)b->turn, b->what, from, "");
    for (int i = from; i < to; i++)
        putchar('#');
    printf("%*s| ", width - to, "");
    if (b->ended)
        printf("%.3f s", b->seconds);
    else
        fputs("not ended", stdout);
    if (b->calls > 0)
        printf(", %lld call%s", (long long)b->calls, b->calls == 1 ? "" : "s");
    putchar('\n');
}

void timeline_print(const struct timeline *t)
{
    int width = timeline_width();
    if (t->count < 2)
        return;
    printf("\ntimeline  %.2f s", (double)(t->last_ms - t->first_ms) / 1000);
    if (t->all > t->count)
        printf("; the %zu longest of %zu steps", t->count, t->all);
    putchar('\n');
    for (size_t i = 0; i < t->count; i++)
        print_bar(t, &t->bars[i], width);
}
