/* api/contexts.h: the contexts of a run or session, as requested and as a record has them. */
#pragma once

#include "base/list.h"
#include "droste.h"
#include "session/context.h"

struct settings;
struct stored_run;
struct tools;

int api_context_kind(const struct settings *s, enum value_kind *kind, struct error *err);

/* Paths of contexts: PATH or NAME=PATH each, or PATH alone if `unnamed`. */
struct context_paths {
    struct list list;
    bool unnamed;
};
/* Checks that all can be read, without reading them. */
int api_contexts_look(
    const struct settings *s, const struct context_paths *paths, struct error *err);
/* Reads them and appends them to `all`. */
int api_contexts_read(const struct settings *s, const struct context_paths *paths,
    const int *interrupt, struct contexts *all, struct error *err);
/* ERROR_ARGUMENT for a context with the name of a tool or of a tool's value. */
int api_contexts_check(const struct contexts *all, const struct tools *tools, struct error *err);
/* Checks that `all` are the contexts of a recorded run, unchanged. If `all` is empty, loads them
 * from their files or from the record. */
int api_contexts_again(const struct stored_run *stored_run, const struct settings *s,
    const int *interrupt, struct contexts *all, struct error *err);
