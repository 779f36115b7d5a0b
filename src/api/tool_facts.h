/* api/tool_facts.h: by what a run's tools are known again when it is resumed: a JSON array with an object
 * for each, {"kind", "name", "path", "sha256"}, in the order in which they were added.
 *
 * Files are read again then, as contexts are; what they held is not in the record. A function of the
 * embedding program has no hash: it is there, or it is not.
 */
#ifndef DROSTE_API_TOOL_FACTS_H
#define DROSTE_API_TOOL_FACTS_H

#include "base/buf.h"
#include "base/error.h"

/* Each adds to the array, empty at first. One that is known by its bytes; `path` NULL: they came from no file. */
int tool_facts_add(struct buf *facts, const char *kind, const char *name, const char *path,
    const void *data, size_t len, struct error *err);
/* One that is known by its name alone. */
int tool_facts_add_name(struct buf *facts, const char *kind, const char *name, struct error *err);
/* A program, and the description beside it. One that is looked for in PATH is known by its name. */
int tool_facts_add_program(
    struct buf *facts, const char *name, const char *path, struct error *err);
/* All of another one's. */
void tool_facts_add_all(struct buf *facts, const struct buf *others);

/* ERROR_ARGUMENT, which names it, where one that a run had is not among those of now, or is not what it
 * was: only `prepared` what a session begins with (sources, data), only `called` what calls reach. */
struct tool_facts_then {
    const char *run;
    const struct buf *json; /* empty: nothing is known */
    bool prepared, called;
};
int tool_facts_check(const struct tool_facts_then *then, const struct buf *now, struct error *err);

#endif
