/* jail/filter.h: which system calls a guest may make. */
#ifndef DROSTE_JAIL_FILTER_H
#define DROSTE_JAIL_FILTER_H

#include "base/buf.h"
#include "base/error.h"

/* Appends the filter for this machine as the kernel takes it (an array of struct sock_filter):
 * an allow-list, ENOSYS for the rest, so that a call which a later kernel adds is refused too. It is
 * a binary tree, which costs a guest's call 30 to 40 ns. Compiling takes milliseconds: once for a
 * zygote, not for a sandbox. */
int filter_compile(struct buf *out, struct error *err);

#endif
