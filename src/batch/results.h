/* batch/results.h: the file of a batch's results, one JSON line per completed task.
 *
 * The file belongs to one batch at a time (flock). Each line is one write. Lines are not synced
 * individually: after a power failure, missing lines are restored from the record.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json/json.h"

struct results {
    int fd;
    char *path; /* absolute: the name of the batch in the record */
    bool dirty; /* written since the last results_sync */
};

/* Opens or creates the file and locks it. ERROR_ARGUMENT: another batch uses it; ERROR_IO,
 * ERROR_PERMISSION… */
int results_open(const char *path, struct results **out, struct error *err);
void results_close(struct results *results);

/* Reports each line with its id; ERROR_ARGUMENT if a line is not a result. An unterminated last
 * line is completed if it is a result, and removed if it is the beginning of one; `notice` (which
 * may be empty before) then says so. */
typedef int result_fn(void *arg, const char *id, struct json_object *line, struct error *err);
int results_read(
    struct results *results, result_fn *fn, void *arg, struct buf *notice, struct error *err);

/* Appends a complete line, or nothing. */
int results_append(struct results *results, const char *line, size_t len, struct error *err);
int results_sync(struct results *results, struct error *err);
