/* cli/record/timeline.h: shows the longest steps of a run as bars of text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TIMELINE_BARS = 24 };

/* Empty if zeroed. Keeps the longest bars. */
struct timeline {
    struct timeline_bar {
        int64_t turn, started_ms, calls;
        const char *what;
        double seconds;
        bool ended;
    } bars[TIMELINE_BARS];
    size_t count; /* of the bars kept */
    size_t all;   /* bars added */
    int64_t first_ms, last_ms;
};

/* Adds a step; call it in the order in which they began. `what` is not copied. Negative seconds:
 * the step has not ended. */
void timeline_add(struct timeline *t, int64_t turn, const char *what, int64_t started_ms,
    double seconds, int64_t calls);
/* Prints nothing if there are too few bars to compare. */
void timeline_print(const struct timeline *t);
