/* packages/request.h: which packages a session asks for.
 *
 * Requirements come from the setting `packages`, from requirements files, and from pyproject.toml
 * and lock files. The host only collects them: it accepts names, versions, extras, markers and
 * hashes, and refuses what would read or reach anything else. TOML is read in the sandbox in which
 * the packages are built.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

/* Initially zero. */
struct package_request {
    struct buf requirements, constraints; /* lines, as in a requirements file */
    struct buf documents;                 /* JSON objects {"kind", "name", "text"}, by commas */
    unsigned files;
};

/* "numpy,pandas>=2,<3": requirements, separated by commas. */
int package_request_add(struct package_request *r, const char *value, struct error *err);
/* A requirements file, pyproject.toml, pylock.toml (pylock.NAME.toml) or uv.lock. */
int package_request_add_file(struct package_request *r, const char *path, struct error *err);
void package_request_free(struct package_request *r);
