/* jail/filter.h: compiles the system-call tables into seccomp filters. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

/* The filter is loaded in two parts. The zygote loads the first, which its sandboxes inherit: the
 * allow-list, plus the calls that set up a sandbox. Each sandbox adds the second, which denies
 * those calls again. A sandbox therefore only pays for loading the small part. */
enum filter_part { FILTER_ZYGOTE, FILTER_GUEST };

/* What the first part allows beyond the list. */
enum filter_more {
    FILTER_EPOLL = 1,  /* what is allowed in containers */
    FILTER_NVIDIA = 2, /* the commands of NVIDIA's driver */
};

/* Appends a part for this machine in the kernel's format (an array of struct sock_filter). It is an
 * allow-list with ENOSYS for everything else, so calls added by later kernels are denied. As a
 * binary tree it costs a guest's call 30 to 40 ns. Compiling takes milliseconds and is done once
 * per zygote, not per sandbox. Without its own root the guest is among the host's files and
 * processes, and calls that Landlock does not control are denied too. `more`: FILTER_…, of the
 * first part. */
int filter_compile(
    enum filter_part part, bool own_root, unsigned more, struct buf *out, struct error *err);

/* Appends the same list as a seccomp profile for containers, in the format of Docker's daemon
 * (JSON). It has one part, because nothing is set up inside a container: calls for the zygote are
 * denied from the start. */
int filter_profile(struct buf *out, struct error *err);
