/* serve/e2b/filesystem.h: what envd's calls about files and its transfers share. */
#pragma once

#include "serve/e2b/e2b.h"

/* The absolute path that a client means, "~" and relative ones below the home directory; free it.
 * It is one of the sandbox, which resolves it with its own rights. */
char *e2b_path(struct request *r, const struct e2b_sandbox *e, const char *path);
/* The directory of an absolute path; free it. */
char *e2b_parent(const char *path);
/* The HTTP status that stands for an error of a file. */
unsigned e2b_file_status(const droste_error *err);
/* Metadata of files are extended attributes with this prefix, as in E2B's own sandboxes. */
#define E2B_METADATA "user.e2b."
/* NULL: there are none. */
struct json_object *e2b_metadata(const droste_file_entry *entry);
/* The description of an entry. */
struct json_object *e2b_entry(const char *path, const droste_file_entry *entry);
