/* volume/checkout.h: the files of a commit, written as git has them: no filters, no conversions of line ends. */
#ifndef DROSTE_VOLUME_CHECKOUT_H
#define DROSTE_VOLUME_CHECKOUT_H

#include "volume/repository.h"
#include "volume/volume.h"

/* Into the new directory `name` of the volume's data. Links stay links and are followed by nobody here; a
 * submodule is an empty directory. ERROR_ARGUMENT where it is larger than the volume's limits, ERROR_PROTOCOL
 * for names that no file may have ("..", ".git", two of the same). */
int checkout(const struct volume *v, const char *name, const struct repository *r,
    const struct git_bounds *bounds, struct volume_count *count, struct error *err);

#endif
