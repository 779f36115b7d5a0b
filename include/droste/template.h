/* droste/template.h: templates, from which sessions start with everything in place.
 *
 * A template is the memory of a session: interpreter, modules, variables, contexts. Sessions that
 * start from it share this memory until they write to it, and are otherwise as separate as any two
 * sessions: each has a sandbox of its own. docs/templates.md says what a template keeps.
 */
#ifndef DROSTE_TEMPLATE_H
#define DROSTE_TEMPLATE_H

#include <stddef.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct droste_session droste_session;

typedef struct droste_template droste_template;

/* Makes a template of the session's present state, and waits for that. The session continues, and
 * may be closed. ERROR_ARGUMENT while threads, asyncio tasks, subprocesses, open files or shared
 * memory exist in the sandbox, which a template cannot keep; ERROR_UNSUPPORTED where the
 * environment has no templates. */
DROSTE_API int droste_session_template(droste_session *s, droste_template **out, droste_error *err);
/* The same without waiting. If the end of this operation is an error, *out is only to be freed. */
DROSTE_API int droste_session_template_start(
    droste_session *s, droste_template **out, droste_error *err);
/* Starts a session from it, as droste_session_start starts one. The settings preload, python, read,
 * isolation and env must be those of the session that it was made of, allow-net set in both or in
 * neither, and there can be no volume or workspace. The template's code does not run again;
 * setup-code and tools of the settings do. */
DROSTE_API int droste_session_start_from(
    droste_template *t, const char *const *settings, droste_session **out, droste_error *err);
/* Sessions that have started from it continue. NULL is fine. */
DROSTE_API void droste_template_free(droste_template *t);

/* ---- stored templates ---- */

/* A stored template is a recipe in the data directory: settings, contexts and cells, as JSON. With
 * the setting "template", sessions and runs start from it. Its recipe is then executed once for
 * each droste object, in a sandbox, when the first of them starts. */

enum {
    DROSTE_TEMPLATE_REPLACE = 1, /* the one of this name, if there is one */
    DROSTE_TEMPLATE_UNTRIED = 2, /* without executing it */
};
/* Stores the settings that droste_set has set, the contexts of the droste and these cells, which
 * end with NULL, under a name. Executes all of it once before, and waits for that. ERROR_ARGUMENT
 * if the name exists, and for settings that are not of sandboxes. */
DROSTE_API int droste_template_create(
    droste *d, const char *name, const char *const *cells, int flags, droste_error *err);
/* A stored template as JSON, valid until the next call; NULL with *err. `len` may be NULL:
 * {"version": 1, "settings": {NAME: VALUE or [VALUE]}, "contexts": ["NAME=PATH"], "cells": []} */
DROSTE_API const char *droste_template_read(
    droste *d, const char *name, size_t *len, droste_error *err);
/* Lists their names in order. */
DROSTE_API int droste_template_names(droste *d, droste_name_fn *fn, void *arg, droste_error *err);
/* What has started from it goes on. */
DROSTE_API int droste_template_remove(droste *d, const char *name, droste_error *err);
/* Executes the recipe of the setting "template" now, unless that was done, and waits for it, for
 * programs that start sessions without waiting. */
DROSTE_API int droste_template_make(droste *d, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
