/* volume/checkout.h: writes the files of a commit as git stores them, without filters or
 * conversions.
 */
#pragma once

#include "volume/repository.h"
#include "volume/volume.h"

/* Into the new directory `name` of the volume's data. Links are written but never followed;
 * submodules are empty directories. ERROR_ARGUMENT if it exceeds the volume's limits,
 * ERROR_PROTOCOL for invalid names ("..", ".git", duplicates). */
int checkout(const struct volume *v, const char *name, const struct repository *r,
    const struct git_bounds *bounds, droste_volume_count *count, struct error *err);
