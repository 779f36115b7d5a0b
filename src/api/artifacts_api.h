/* api/artifacts_api.h: the files that a run has saved. */
#pragma once

#include "base/buf.h"
#include "rlm/artifacts.h"

/* Where the artifacts go: the setting, and below it, for a task of a batch, a directory with the
 * task's id, in which all but letters, digits, '.', '_' and '-' are written as %XX. The caller owns
 * *out (free). */
int artifacts_directory(const char *setting, const char *task, char **out, struct error *err);
/* Copies into `to`, which must be empty. */
int artifacts_copy(struct artifact_list *to, const struct artifact_list *from);
/* Appends the members "artifacts" and "artifacts_error" of a result. */
void artifacts_put_json(const struct artifact_list *list, struct buf *out);
