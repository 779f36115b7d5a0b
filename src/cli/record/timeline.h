/* cli/record/timeline.h: where the time of a run went, as lines of text. */
#ifndef DROSTE_CLI_RECORD_TIMELINE_H
#define DROSTE_CLI_RECORD_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TIMELINE_BARS = 24 };

/* Zeroed, it is empty. Of more bars than there is room for, the longest stay. */
struct timeline {
    struct timeline_bar {
        int64_t turn, started_ms, calls;
        const char *what;
        double seconds;
        bool ended;
    } bars[TIMELINE_BARS];
    size_t count; /* of those */
    size_t all;   /* that were added */
    int64_t first_ms, last_ms;
};

/* A step, in the order of their beginnings; `what` must last. Negative seconds: it has not
 * ended. */
void timeline_add(struct timeline *t, int64_t turn, const char *what, int64_t started_ms,
    double seconds, int64_t calls);
/* Prints nothing where there is nothing to compare. */
void timeline_print(const struct timeline *t);

#endif
