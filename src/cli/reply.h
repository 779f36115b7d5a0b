/* cli/reply.h: a model's reply as it comes in: its words line by line, its code as a preview. */
#pragma once

#include "cli/terminal/screen.h"

struct reply {
    size_t taken;    /* bytes of the reply */
    struct buf line; /* the line that is coming in */
    struct buf code; /* of the block that is coming in */
    enum { FENCE_NONE, FENCE_CODE, FENCE_OTHER } fence;
    char mark;    /* of the open fence, */
    size_t marks; /* and how many */
    size_t lines; /* that were printed */
    bool blank;   /* an empty line stands between these words and the next */
};

void reply_free(struct reply *r);
/* Begins the next reply. */
void reply_clear(struct reply *r);
/* Prints to the screen's log what is complete. */
void reply_take(struct reply *r, struct screen *s, const char *text, size_t len);
/* Takes the whole reply, of which some may have come before, and ends it. */
void reply_end(struct reply *r, struct screen *s, const char *text, size_t len);
/* Adds the end of what is not complete to the lines that are rewritten. */
void reply_draw(const struct reply *r, struct screen *s, size_t columns);
