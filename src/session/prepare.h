/* session/prepare.h: runs the setup code, binds values and runs the sources of tools before the
 * first cell, in this order. First waits for the sandbox in environments that start asynchronously.
 */
#pragma once

#include "base/buf.h"
#include "session/context.h"
#include "session/session.h"

/* `why` is NULL on success. */
typedef void prepare_done_fn(void *arg, const struct error *why);

/* Owned by the caller, for the lifetime of the session; initially zero. */
struct prepare {
    struct session *session;
    const struct session_options *options;
    bool describe, waits;
    struct buf imports; /* code that imports what is preloaded */
    prepare_done_fn *done;
    void *arg;
    size_t step;
    struct json_object *tools; /* array of {name, signature, description}; or NULL */
    struct json_object *data;  /* array of {name, type, length, …} from the guest */
};

/* Whether there is anything to do; with `describe`, also if the guest has tools to describe. */
bool prepare_is_needed(
    const struct session *session, const struct session_options *options, bool describe);
/* Starts, or starts again with another session. Calls `done` later, exactly once, unless the
 * session is closed first. The options must stay valid until then. */
int prepare_start(struct prepare *p, struct session *session, const struct session_options *options,
    bool describe, prepare_done_fn *done, void *arg, struct error *err);
void prepare_free(struct prepare *p);

/* True for the name of a tool, including those that sources define, or of a value. */
bool prepare_has(const struct prepare *p, const char *name);
/* ERROR_ARGUMENT if the name of a context would hide a tool or a value. */
int prepare_check_context(
    const struct prepare *p, const struct context *context, struct error *err);
