/* jail/filter.h: which system calls a guest may make. */
#ifndef DROSTE_JAIL_FILTER_H
#define DROSTE_JAIL_FILTER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

/* The list is loaded in two parts. The zygote takes the first, which its sandboxes inherit: the list
 * itself, and the calls with which a sandbox is set up. Each sandbox adds the second, which takes
 * those calls away again. Together they are the list; a sandbox pays for the small one only. */
enum filter_part { FILTER_ZYGOTE, FILTER_GUEST };

/* Appends a part for this machine as the kernel takes it (an array of struct sock_filter): an
 * allow-list, ENOSYS for the rest, so that a call which a later kernel adds is refused too. It is a
 * binary tree, which costs a guest's call 30 to 40 ns. Compiling takes milliseconds: once for a
 * zygote, not for a sandbox. Without a root of its own the guest stands among the host's files and
 * processes, and more is refused: what Landlock does not see. */
int filter_compile(enum filter_part part, bool own_root, struct buf *out, struct error *err);

/* The same list as a seccomp profile for containers, as Docker's daemon takes it (JSON). There is one part: nothing is
 * set up in a container, and what only the zygote may is refused from the beginning. */
int filter_profile(struct buf *out, struct error *err);

#endif
