/* cli/volume_copy.h: copies files between this machine and a volume. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "droste.h"

void cli_put_last_name(const char *path, struct buf *out);
/* Where a copy of `source` goes: in an existing directory, it gets the source's own name. */
int cli_copy_target(const char *source, const char *target, struct buf *out, struct error *err);

/* Copies a file or directory out of a volume; `target` "-": a file to standard output, for which
 * *count is not set. */
int volume_copy_out(droste_volume *v, const char *path, const char *target,
    droste_volume_count *count, struct error *err);
/* Copies a file or directory into a volume, `source` "-": standard input. A path that is empty or
 * ends with a slash gets the source's own name. */
int volume_copy_in(droste_volume *v, const char *source, const char *path,
    droste_volume_count *count, struct error *err);
