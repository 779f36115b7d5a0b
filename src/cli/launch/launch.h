/* cli/launch/launch.h: starts the nodes of a cluster on machines that something else schedules.
 *
 * A launcher is a script for a shell, which is part of the program and can be printed: it calls the
 * scheduler's own commands, and starts `droste serve --join` on each machine. Sandboxes are never
 * scheduled by it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* NULL members have the launcher's default. */
struct launch {
    const char *kind; /* slurm, ssh, systemd, kubernetes or ray */
    const char *verb; /* up, down or status */
    const char *cluster, *join, *nodes, *port, *program;
    const char *hosts;            /* ssh, systemd: a file */
    const char *options;          /* slurm: of sbatch */
    const char *image;            /* kubernetes */
    const char *namespace, *most; /* kubernetes; most: with autoscaling */
    const char *const *serve;     /* options of `droste serve` on the nodes */
    size_t serve_count;
};

/* NULL after the last. */
const char *launch_name_at(size_t index);

/* Becomes the launcher's process, which prints and ends by itself. Returns only with an error:
 * there is no such launcher, or it lacks something. */
int launch_exec(const struct launch *l, struct error *err);
/* Prints the launcher's script. */
int launch_print(const char *kind, struct error *err);
