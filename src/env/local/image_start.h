/* env/local/image_start.h: starts the interpreter of an image as a zygote. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "jail/plan.h"

enum { IMAGE_START_FDS = 7 };

struct image_start {
    const struct jail_plan *plan; /* of a zygote with an image */
    const char *executable;       /* within the image */
    char *const *argv, *const *envp;
    int fds[IMAGE_START_FDS]; /* of the interpreter, in this order; all above that number */
    int keeper;               /* a descriptor of the keeper program, likewise */
    /* results: */
    pid_t pid;    /* of the first process of its pid namespace, a child of this process */
    int lifeline; /* all of the namespace ends when this closes */
    uint32_t op;  /* the operation of the plan that failed, if `sys` is set */
    int sys;
    bool executes; /* what failed is executing the program */
    int report;    /* where the processes report, or -1 */
};

/* Prepares the processes up to the plan, so that `pid` can be put into a cgroup. */
int image_start_begin(struct image_start *s, struct error *err);
/* Lets them go on, and returns when the interpreter runs, or could not: then `sys` is set, and 0 is
 * returned. */
int image_start_finish(struct image_start *s, struct error *err);
/* Closes what it has opened, except the lifeline. */
void image_start_free(struct image_start *s);
