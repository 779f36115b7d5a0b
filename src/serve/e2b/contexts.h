/* serve/e2b/contexts.h: code contexts: sessions forked from the sandbox's, each with a queue. */
#pragma once

#include "base/os/random.h"
#include "serve/e2b/execute.h"

/* What its session does now. */
enum context_phase {
    CONTEXT_IDLE,
    CONTEXT_SETTING_UP, /* its directory */
    CONTEXT_ENTERING,   /* the variables of one execution */
    CONTEXT_RUNNING,
    CONTEXT_LEAVING, /* the variables as they were */
    CONTEXT_PACKING, /* files, for a snapshot (snapshot.c) */
    CONTEXT_SAVING,  /* the session as a template */
    CONTEXT_DROPPING,
};

struct e2b_context {
    struct e2b_sandbox *e2b;
    char id[UUID_SIZE];
    const char *language; /* as context_languages has it */
    char *cwd;
    droste_session *session; /* NULL: the next execution forks one */
    bool wants_session, is_set_up;
    bool is_hidden; /* for one snapshot of files alone */
    bool entered;   /* the variables of the first execution are set */
    enum context_phase phase;
    uint64_t count;              /* of executions */
    struct trace_step cell;      /* of the first */
    struct e2b_execution *queue; /* the first may be under way */
    struct e2b_context *next;
};

/* NULL: there is none. */
struct e2b_context *e2b_context_find(struct e2b_sandbox *e, const char *id);
/* The context of a language that executions without one use; it exists from then on. NULL without
 * memory, or if there is no such language. */
struct e2b_context *e2b_context_default(struct e2b_sandbox *e, const char *language);
/* One that clients do not see, for a snapshot; it is freed behind it. NULL without memory. */
struct e2b_context *e2b_context_hidden(struct e2b_sandbox *e);
/* Whether code of this size may wait for the context. False: it refused the request. */
bool e2b_context_has_room(struct request *r, const struct e2b_context *c, size_t len);
/* Adds an execution, which is taken, to a context's queue. */
void e2b_context_queue(struct e2b_context *c, struct e2b_execution *x);
