/* cli/cluster_look.h: a cluster as its NATS servers and its nodes show it, for `droste cluster
 * status --join` and `droste cluster doctor`. Neither joins it, nor changes anything. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct cluster_look {
    const char *join, *credentials, *ca; /* NULL: none */
    bool json;
};

/* Return exit statuses. */
int cluster_look_status(const struct cluster_look *o);
int cluster_look_doctor(const struct cluster_look *o);
