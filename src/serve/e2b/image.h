/* serve/e2b/image.h: states from which sandboxes start.
 *
 * A snapshot is a template of the session that has the variables, with the files of the sandbox
 * packed into its memory (snapshot.py). Nothing else is kept, so a sandbox with running commands,
 * or with variables in other contexts, is refused. Forks start from an image that nothing lists.
 */
#pragma once

#include "serve/e2b/e2b.h"

/* What sandboxes start from. */
struct e2b_image {
    unsigned references;
    droste_template *made;
    struct json_object *environment; /* the sandbox's variables; NULL: none */
    bool has_interpreter;
};

/* Takes the template. NULL without memory. */
struct e2b_image *e2b_image_new(const struct e2b_sandbox *e, droste_template *made);
void e2b_image_release(struct e2b_image *image);
/* Whether a template is one that every server has. */
bool e2b_template_is_builtin(const char *name);
/* The image of a snapshot, by its name or id; NULL: this worker has none. */
struct e2b_image *e2b_image_named(struct request *r, const char *name);
/* Runs code of snapshot.py, and then a call of it; the session keeps none of the names. */
int e2b_image_exec(droste_session *session, const char *call, droste_error *err);
/* Unpacks files and sets variables in the session of a new sandbox. */
int e2b_image_unpack(struct e2b_sandbox *e, bool has_files, droste_error *err);

/* ---- the list of snapshots ---- */

/* Whether a snapshot may have this name, and whether there may be another. False: the request was
 * refused. */
bool e2b_snapshot_may_be_named(struct request *r, const char *name);
bool e2b_snapshots_have_room(struct request *r);
/* Adds one of this sandbox to the list, with the image, which it takes, and answers. */
void e2b_snapshot_keep(struct request *r, struct e2b_image *image, const char *sandbox);
