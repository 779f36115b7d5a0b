/* session/prepare.h: what runs in a session before its first cell: the setup code, the values that it
 * is given, and the sources of its tools, in this order. Before all that, where an environment takes its time to
 * start a sandbox, that it has one is waited for.
 */
#ifndef DROSTE_SESSION_PREPARE_H
#define DROSTE_SESSION_PREPARE_H

#include "session/context.h"
#include "session/session.h"

/* `why` is NULL where all went well. */
typedef void prepare_done_fn(void *arg, const struct error *why);

/* The caller's, as long as the session; zeroed at first. */
struct prepare {
    struct session *session;
    const struct session_options *options;
    bool describe, waits;
    prepare_done_fn *done;
    void *arg;
    size_t step;
    struct json_object
        *tools; /* array of {name, signature, description}; NULL: not asked, or none */
    struct json_object *data; /* array of {name, type, length, …}, as the guest describes them */
};

/* True if there is anything to do; with `describe`, also what the guest has as tools. */
bool prepare_is_needed(
    const struct session *session, const struct session_options *options, bool describe);
/* Begins, or begins again with another session; `done` comes later, exactly once, unless the session
 * is closed first. The options must stay as long. */
int prepare_start(struct prepare *p, struct session *session, const struct session_options *options,
    bool describe, prepare_done_fn *done, void *arg, struct error *err);
void prepare_free(struct prepare *p);

/* True for the name of a tool, also one that a source defines, or of a value. */
bool prepare_has(const struct prepare *p, const char *name);
/* ERROR_ARGUMENT where a context would hide what the session was given: a tool, also one that a source
 * defines, or a value. */
int prepare_check_context(
    const struct prepare *p, const struct context *context, struct error *err);

#endif
