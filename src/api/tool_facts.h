/* api/tool_facts.h: identifies the tools of a run, so that a resumed run has the same ones: a JSON
 * array with an object for each, {"kind", "name", "path", "sha256"}, in the order in which they
 * were added.
 *
 * A resumed run reads files again, as with contexts; their contents are not in the record. A
 * function of the embedding program has no hash: only its existence is checked.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"

/* These add to the array, which is empty at first. */
/* A tool with contents; `path` NULL: not from a file. */
int tool_facts_add(struct buf *facts, const char *kind, const char *name, const char *path,
    const void *data, size_t len, struct error *err);
/* A tool with a name only. */
int tool_facts_add_name(struct buf *facts, const char *kind, const char *name, struct error *err);
/* A program and the description beside it. A program in PATH is identified by its name. */
int tool_facts_add_program(
    struct buf *facts, const char *name, const char *path, struct error *err);
/* All facts of another array. */
void tool_facts_add_all(struct buf *facts, const struct buf *others);

/* ERROR_ARGUMENT, with its name, for a tool of the run that is missing now or has changed. Checks
 * what a session begins with (sources, data) if `prepared`, and what calls reach if `called`. */
struct tool_facts_then {
    const char *run;
    const struct buf *json; /* empty: not recorded */
    bool prepared, called;
};
int tool_facts_check(const struct tool_facts_then *then, const struct buf *now, struct error *err);
