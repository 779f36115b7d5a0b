/* batch/results.h: the file of a batch's results, a JSON line for each task that has one.
 *
 * It belongs to one batch at a time (flock). A line is one write, to the end. Whether the last ones
 * survive a power cut is not waited for each time: what is missing is made of the record again.
 */
#ifndef DROSTE_BATCH_RESULTS_H
#define DROSTE_BATCH_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json/json.h"

struct results {
    int fd;
    char *path; /* whole: the name of the batch in the record */
    bool dirty; /* it was written to since the last results_sync */
};

/* Opens, or makes, and locks it. ERROR_ARGUMENT: another batch has it; ERROR_IO, ERROR_PERMISSION… */
int results_open(const char *path, struct results **out, struct error *err);
void results_close(struct results *results);

/* Hands out each line, with its id; ERROR_ARGUMENT where one is no result. A last line without an end
 * is completed if it is whole, and else cut off; then `notice` (which may be empty before) says so. */
typedef int result_fn(void *arg, const char *id, struct json_object *line, struct error *err);
int results_read(
    struct results *results, result_fn *fn, void *arg, struct buf *notice, struct error *err);

/* Appends a line and its end, or nothing. */
int results_append(struct results *results, const char *line, size_t len, struct error *err);
int results_sync(struct results *results, struct error *err);

#endif
