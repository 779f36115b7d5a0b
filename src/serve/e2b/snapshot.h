/* serve/e2b/snapshot.h: the state of a sandbox, from which others start.
 *
 * A snapshot is a template of the session that has the variables, with the files of the sandbox
 * packed into its memory (snapshot.py). Nothing else is kept, so a sandbox with running commands,
 * or with variables in other contexts, is refused. Forks start from a snapshot that nothing lists.
 */
#pragma once

#include "serve/e2b/contexts.h"

/* What sandboxes start from. */
struct e2b_image {
    unsigned references;
    droste_template *made;
    struct json_object *environment; /* the sandbox's variables; NULL: none */
    bool has_interpreter;
};

/* A request for a snapshot or for forks. It is freed when neither its client nor an operation needs
 * it. */
struct e2b_snapshot {
    unsigned references;
    struct request *r; /* NULL: answered, or its client has gone */
    struct server *server;
    char id[SERVE_ID_SIZE]; /* of the sandbox */
    droste_template *made;
    struct e2b_image *image;     /* NULL: not made yet */
    struct json_object *answers; /* of forks; NULL: it is a snapshot */
    size_t count;                /* of forks */
};

/* ---- for contexts: a snapshot waits its turn among the executions of one ---- */

/* Begins to pack the files, in a context that is idle. */
int e2b_snapshot_pack(struct e2b_context *c, droste_error *err);
/* Continues when an operation of the phase has ended. */
int e2b_snapshot_go_on(struct e2b_context *c, enum context_phase phase, const droste_result *result,
    const droste_error *ended, droste_error *err);
void e2b_snapshot_fail(struct e2b_snapshot *s, unsigned status, const char *text);
void e2b_snapshot_release(struct e2b_snapshot *s);

/* ---- for new sandboxes (control.c) ---- */

/* The image that a request to create starts from; NULL: it names none that this worker has. */
struct e2b_image *e2b_image_of(struct request *r);
/* The same by a name or id of a snapshot. */
struct e2b_image *e2b_image_named(struct request *r, const char *name);
/* Unpacks files and sets variables in the session of a new sandbox. */
int e2b_image_unpack(struct e2b_sandbox *e, bool has_files, droste_error *err);
/* A request for forks has one more, or gets no more. False: the request is for none. Takes the
 * description if it is. */
bool e2b_fork_add(struct request *r, struct json_object *described);
bool e2b_fork_refuse(struct request *r, unsigned status, const char *text);
/* Creates a sandbox for a request, as its JSON describes it. */
void e2b_create_from_image(struct request *r);
