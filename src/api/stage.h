/* api/stage.h: prepares what a session needs before it opens: contexts, its volume, its workspace,
 * and the image that its sandbox starts from.
 *
 * Any of these may block (a silent git server, a pipe, a lock, a slow disk), so they are prepared
 * in a job (base/job.h), while other sessions and runs continue. The job has copies of all that it
 * uses, and may outlive its requester. MCP servers are reached after it, on the loop.
 */
#pragma once

#include "api/contexts.h"
#include "api/options.h"
#include "api/stored_run.h"
#include "image/image.h"

struct environment;
struct loop;

/* The result. Take a part by leaving zero or NULL in its place. */
struct staged_parts {
    struct contexts contexts;
    struct volume *volume;
    struct workspace *workspace;
    struct image *image;          /* kept from being removed until the sandbox has started */
    bool image_is_fetched;        /* by this droste: not again, whatever `pull` says */
    struct stored_run stored_run; /* unchanged */
};

struct staging;
/* Called in the loop's thread with the error, or NULL. Then the staging and all parts that were not
 * taken are freed. */
typedef void staging_done_fn(void *arg, struct staged_parts *parts, const struct error *why);

struct staging {
    struct settings settings;   /* a copy */
    struct context_paths paths; /* contexts to load after those in `parts` */
    bool again;                 /* the contexts must be those of parts.stored_run */
    bool wants_volume, wants_workspace, wants_image, wants_mcp;
    enum image_fetch fetch;
    const struct layout *layout;
    struct staged_parts parts;
    /* private to stage.c */
    bool started, works;      /* `works`: in the thread */
    droste *d;                /* of the MCP servers; valid until it is dropped */
    struct api_mcp_wait *mcp; /* NULL: it does not wait for them */
    int cancel;               /* an eventfd */
    struct error why;
    staging_done_fn *done; /* NULL: dropped */
    void *arg;
};

int staging_new(const struct settings *s, struct staging **out, struct error *err);
/* Requests contexts: `first` (PATH or NAME=PATH, or NULL), `more` (ends with NULL; may be NULL),
 * and those of the droste. Unreadable files fail at once. */
int staging_want_contexts(struct staging *st, const droste *d, const char *first,
    const char *const *more, struct error *err);
/* Requests the volume and the workspace of the settings, unless the environment keeps volumes or
 * there is a workspace. ERROR_ARGUMENT for settings that contradict each other. */
int staging_want_session(struct staging *st, const struct session_options *options,
    const struct environment *env, bool has_workspace, struct error *err);
/* Requests the image of the settings, unless a session of this droste has had it before. */
void staging_want_image(struct staging *st, const droste *d, const struct session_options *options,
    const struct environment *env);
/* Requests the functions of the MCP servers of the settings, whose clients api_tools has made. */
void staging_want_mcp(struct staging *st, droste *d);
/* Whether there is anything to prepare. */
bool staging_is_needed(const struct staging *st);
/* Takes the staging, also on failure. *mine is the owner's pointer; it becomes NULL before `done`
 * is called. */
int staging_start(
    struct loop *loop, struct staging **mine, staging_done_fn *done, void *arg, struct error *err);
/* Ends it soon, with ERROR_CANCELLED. */
void staging_cancel(struct staging *st);
/* Removes what it prepared, without calling `done`. NULL is allowed. */
void staging_drop(struct staging *st);
/* Starts it and runs the loop until its end, which droste_interrupt brings about. */
int staging_run(droste *d, struct staging *st, struct staged_parts *out, struct error *err);
void staged_parts_free(struct staged_parts *parts);

/* Moves the volume, the workspace and the image to the parts of a session. */
void staged_parts_use(droste *d, struct staged_parts *staged, const struct settings *s,
    struct session_parts *parts, struct session_options *options);

/* Loads the contexts of the droste. Runs the loop meanwhile. */
int api_contexts_load(droste *d, const struct settings *s, struct contexts *out, struct error *err);
/* The same for one PATH. `kind` NULL: as the settings say. */
int api_context_load(droste *d, const struct settings *s, const char *path, const char *kind,
    struct context **out, struct error *err);
