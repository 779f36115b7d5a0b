/* env/local/zygote_internal.h: what the two files of zygotes share: zygote_boot.c starts one, zygote.c has it clone. */
#ifndef DROSTE_ENV_LOCAL_ZYGOTE_INTERNAL_H
#define DROSTE_ENV_LOCAL_ZYGOTE_INTERNAL_H

#include "env/local/zygote.h"

/* A clone that was asked for and is not answered. In the order in which they were asked for. */
struct zygote_pending {
    struct zygote_pending *next;
    uint32_t id;
    zygote_fn *fn;
    void *arg;
    const struct jail_plan *plan;
    int fds[ZYGOTE_CLONE_FDS];     /* -1 once it is under way */
    int extra[ZYGOTE_EXTRA_COUNT]; /* the receiver's, or -1 */
    bool sent;
};

struct zygote {
    struct loop *loop;
    pid_t pid;
    int control;
    int errors; /* its standard error while it starts, -1 after */
    struct watch *watch;
    enum isolation isolation, asked; /* `asked` may be ISOLATION_AUTO */
    char *wanted;                    /* spec->python, or NULL */
    char *executable;
    char
        *words; /* preload, read paths and the place of volumes, as one text, to compare specs by */
    bool preloads;
    char python[64];
    struct jail_plan *plan;
    struct user_range users;         /* that it lends to its sandboxes; first 0: none */
    struct scratch_dir *scratch_dir; /* where its sandboxes have no root of their own */
    uint32_t last_id;
    struct zygote_pending *first, **last;
    unsigned under_way; /* sent and not answered, forgotten ones too */
    bool dead, telling;
};

/* zygote.c */

/* Where the volume and the workspace of a spec are; NULL: it has neither. */
const char *zygote_volumes_of(const struct sandbox_spec *spec);
/* One datagram from the zygote, with the descriptor that may come along, which is the caller's. Returns its
 * length, as recv(2). */
ssize_t zygote_receive(int control, void *data, size_t size, int *fd);
/* Sends the request with its descriptors, and closes them. -1 with errno; they are still there then. */
int zygote_send_clone(struct zygote *z, struct zygote_pending *p);

/* zygote_boot.c */

/* Starts the interpreter, waits until it is warm, has it carry out its plan, and tries out a sandbox. The
 * errors are those of zygote_start; whatever was started is in *z. */
int zygote_boot(
    struct zygote *z, const struct sandbox_spec *spec, struct cgroups *groups, struct error *err);

#endif
