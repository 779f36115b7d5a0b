/* env/local/zygote_internal.h: declarations shared by zygote_boot.c, which starts a zygote, and
 * zygote_client.c, which requests clones.
 */
#pragma once

#include "env/local/nvidia.h"
#include "env/local/zygote.h"
#include "image/image.h"

/* A clone request without an answer. The list is in order of the requests. */
struct zygote_pending {
    struct zygote_pending *next;
    uint32_t id;
    uint64_t tag;
    zygote_fn *fn;
    void *arg;
    const struct jail_plan *plan;
    int fds[ZYGOTE_CLONE_FDS];         /* -1 once it is in progress */
    int extra[ZYGOTE_EXTRA_COUNT];     /* owned by the receiver, or -1 */
    const struct zygote_process *sent; /* NULL: it waits */
};

enum { ZYGOTE_PROCESSES_MAX = 4 };

/* A process that clones: the interpreter that was started first, then copies of it. */
struct zygote_process {
    struct zygote *zygote;
    int control; /* -1: there is none yet, or it has ended */
    bool serves; /* false: a copy that has not begun */
    struct watch *watch;
    unsigned under_way; /* requests sent and not answered, including forgotten ones */
};

struct zygote {
    struct loop *loop;
    uint64_t lineage;
    pid_t pid;  /* of the first process */
    int errors; /* its standard error while it starts, then -1 */
    struct zygote_process processes[ZYGOTE_PROCESSES_MAX];
    size_t process_count;
    unsigned crowded;                /* requests in a row for which all processes were busy */
    enum isolation isolation, asked; /* `asked` may be ISOLATION_AUTO */
    char *python_setting;            /* spec->python, or NULL */
    char *executable;
    /* preload, read paths and directory of volumes as one text, to compare specifications */
    char *spec_key;
    bool preloads;
    char python[64];
    /* of an image: its root directory, without links in its path; NULL: none. `pid` is then the
     * keeper's that is the first process of the pid namespace. */
    char *root;
    struct image *image;   /* NULL: the root is a directory of the user's */
    struct list variables; /* the image's, and those of a device */
    struct nvidia nvidia;  /* while it starts */
    int lifeline;          /* -1: none */
    struct jail_plan *plan;
    struct user_range users;         /* that it assigns to its sandboxes; first 0: none */
    struct scratch_dir *scratch_dir; /* if its sandboxes have no private root */
    uint32_t last_id;
    struct zygote_pending *first, **last;
    bool dead, telling;
};

/* The image of a specification; NULL: none. */
static inline const char *zygote_image_of(const struct sandbox_spec *spec)
{
    return sandbox_container(spec)->image;
}

/* The directory of the volume and workspace of a specification; NULL: it has neither. */
static inline const char *zygote_volumes_of(const struct sandbox_spec *spec)
{
    if (spec->volume)
        return volume_root_of(spec->volume);
    return spec->workspace ? volume_root_of(workspace_volume(spec->workspace)) : NULL;
}

/* zygote_io.c */

/* Receives one datagram from the zygote, with its descriptor if it has one, which the caller owns.
 * Returns the length, as recv(2). */
ssize_t zygote_receive(int control, void *data, size_t size, int *fd);
/* Sends the request with its descriptors, and closes them. On failure returns -1 with errno, and
 * they stay open. */
int zygote_send_clone(struct zygote_process *to, struct zygote_pending *p);
/* Asks the process for a copy of itself that serves this socket; -1 with errno. */
int zygote_send_copy(const struct zygote_process *to, int control);

/* zygote_boot.c */

/* Starts the interpreter, waits until it is warm, has it execute its plan, and tries out a sandbox.
 * Errors as in zygote_start; *z owns whatever was started. */
int zygote_boot(struct zygote *z, const struct sandbox_spec *spec,
    const struct zygote_groups *groups, struct error *err);
