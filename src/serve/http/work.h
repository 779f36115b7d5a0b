/* serve/http/work.h: slow work, in a thread beside the loop. */
#pragma once

#include <uv.h>

#include "serve/http/request.h"

/* The first member of what a piece of work is about. */
struct work {
    uv_work_t uv;
    struct server *server;
    struct request *r; /* NULL: it has ended */
    /* In a thread, which uses nothing of the server's. */
    void (*run)(struct work *w);
    /* In the loop, afterwards: answers the request, unless that has ended. It may free the work, or
     * start it again. */
    void (*end)(struct work *w);
};

/* Starts it; the request, if there is one, waits, and has it as its state. */
void work_start(struct work *w);

/* A new file without a name in the directory, for what is too large for the memory; negative with
 * errno. */
int work_file(const char *directory);
