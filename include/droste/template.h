/* droste/template.h: templates, from which sessions start with everything in place.
 *
 * A template is the memory of a session: interpreter, modules, variables, contexts. Sessions that
 * start from it share this memory until they write to it, and are otherwise as separate as any two
 * sessions: each has a sandbox of its own. docs/templates.md says what a template keeps.
 */
#ifndef DROSTE_TEMPLATE_H
#define DROSTE_TEMPLATE_H

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
 * isolation and env must be those of the session that it was made of, and there can be no volume or
 * workspace. The template's code does not run again; setup-code and tools of the settings do. */
DROSTE_API int droste_session_start_from(
    droste_template *t, const char *const *settings, droste_session **out, droste_error *err);
/* Sessions that have started from it continue. NULL is fine. */
DROSTE_API void droste_template_free(droste_template *t);

#ifdef __cplusplus
}
#endif

#endif
