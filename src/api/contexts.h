/* api/contexts.h: the contexts of a run or session. */
#ifndef DROSTE_API_CONTEXTS_H
#define DROSTE_API_CONTEXTS_H

#include "api/stage.h"
#include "session/context.h"

/* What a staging is to load: `first` (PATH or NAME=PATH, or NULL), `more` (NULL behind the last, or NULL), then those
 * that were added to the droste. */
int api_contexts_want(const droste *d, const char *first, const char *const *more,
    struct staging *st, struct error *err);
/* Those that were added to the droste, loaded: turns the loop meanwhile. */
int api_contexts_load(droste *d, const struct settings *s, struct contexts *out, struct error *err);
/* One, PATH alone, in the same way; `kind` NULL: as the settings say. */
int api_context_load(droste *d, const struct settings *s, const char *path, const char *kind,
    struct context **out, struct error *err);
/* Loads what a staging names; a descriptor that is readable ends it. */
int api_contexts_read(struct staging *st, const int *interrupt, struct error *err);
/* ERROR_ARGUMENT for one that would hide a tool, or a value of the tools, in the guest. */
int api_contexts_check(const struct contexts *all, const struct tools *tools, struct error *err);
/* Those of a run of the record, which must be as they were: those that are in `all` already, or, where
 * there are none, from where they came. */
int api_contexts_again(const struct stored_run *stored_run, const struct settings *s,
    const int *interrupt, struct contexts *all, struct error *err);

#endif
