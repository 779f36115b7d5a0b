/* base/os/sealed.h: maps memory files that another, untrusted process has made.
 *
 * Reading a file that its owner can still change is a race, and reading beyond the end of one that
 * was truncated raises SIGBUS. A sealed memory file can do neither (fcntl(2), F_ADD_SEALS).
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "base/error.h"

/* What is mapped of one process's memory files; shared with the mappings, which may outlive it. */
struct sealed_total;

/* NULL without memory. */
struct sealed_total *sealed_total_new(void);
/* NULL is fine. */
void sealed_total_drop(struct sealed_total *total);
/* Bytes that are mapped now. */
size_t sealed_total_bytes(const struct sealed_total *total);

/* Zero: nothing is mapped. */
struct sealed {
    char *data;
    size_t len;
    struct sealed_total *total;
};

/* Maps a memory file of exactly `len` bytes, writable for this process alone: pages that it writes
 * to are copied. ERROR_PROTOCOL unless the file is in memory, sealed against writing, shrinking
 * and growing, and has all of its pages, which were charged to the process that wrote them. */
int sealed_map(
    int fd, size_t len, struct sealed_total *total, struct sealed *out, struct error *err);
void sealed_unmap(struct sealed *sealed);
