/* api/stage.h: what is read, fetched and copied before a session begins: contexts, its volume, its workspace.
 *
 * All of that may block (a silent git server, a pipe, a lock, a slow disk), so it is a job (base/job.h): other sessions
 * and runs of the same droste go on. The job has copies of all that it uses, and may outlive the one that wanted it.
 */
#ifndef DROSTE_API_STAGE_H
#define DROSTE_API_STAGE_H

#include "api/api.h"

/* What it made; taking a part of it leaves zero or NULL there. */
struct staged_parts {
    struct contexts contexts;
    struct volume *volume;
    struct workspace *workspace;
    struct stored_run stored_run; /* as it was given */
};

struct staging;
/* Called in the loop's thread; NULL: it succeeded. The staging is gone afterwards, with what was not taken. */
typedef void staging_done_fn(void *arg, struct staged_parts *parts, const struct error *why);

struct staging {
    struct settings settings; /* a copy */
    struct list paths; /* of contexts, PATH or NAME=PATH, to be loaded behind those in `parts` */
    bool unnamed;      /* they are PATH alone */
    bool again;        /* they must be those of `parts.past`, or are loaded as it says */
    bool wants_volume, seeds_volume, wants_workspace;
    struct staged_parts parts;
    /* of stage.c */
    bool started;
    int cancel; /* an eventfd */
    struct error why;
    staging_done_fn *done; /* NULL: it was given up */
    void *arg;
};

int staging_new(const struct settings *s, struct staging **out, struct error *err);
/* The volume and the workspace that the settings name, but for what is there already or is none of this machine's.
 * ERROR_ARGUMENT: what they say cannot be. */
int staging_want_session(struct staging *st, const struct session_options *options,
    const struct environment *env, bool has_workspace, struct error *err);
/* Whether there is anything to do. */
bool staging_is_needed(const struct staging *st);
/* Takes the staging, also when it fails. *mine is where its owner has it: it is NULL before `done` is called. */
int staging_start(
    struct loop *loop, struct staging **mine, staging_done_fn *done, void *arg, struct error *err);
/* It ends soon, with ERROR_CANCELLED. */
void staging_cancel(struct staging *st);
/* Gives up without telling and removes what it made. NULL is fine. */
void staging_drop(struct staging *st);
/* Starts it and turns the loop until its end; droste_interrupt ends that. */
int staging_run(droste *d, struct staging *st, struct staged_parts *out, struct error *err);
void staged_parts_free(struct staged_parts *parts);

/* The volume and the workspace become those of a session: its parts own them. */
void staged_parts_use(struct staged_parts *staged, const struct settings *s,
    struct session_parts *parts, struct session_options *options);

#endif
