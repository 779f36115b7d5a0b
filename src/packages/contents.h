/* packages/contents.h: what is in a directory of packages. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/list.h"

struct package_contents {
    uint64_t bytes, files;
    uint64_t stamp;              /* of names, sizes and times; tells damage, not attacks */
    struct list names;           /* "numpy==2.1.0", sorted; only from package_contents_take */
    char digest[HASH_TEXT_SIZE]; /* of paths, modes and data; likewise */
};

/* Reads nothing but the directories. ERROR_IO. */
int package_contents_look(int top, struct package_contents *out, struct error *err);
/* Makes everything readable for all users and writable for none but this one, and hashes it. The
 * tree must be the caller's alone. ERROR_ARGUMENT if something is neither file nor directory. */
int package_contents_take(int top, struct package_contents *out, struct error *err);
void package_contents_free(struct package_contents *contents);
