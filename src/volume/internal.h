/* volume/internal.h: what the files of this layer share. */
#pragma once

#include "volume/volume.h"

struct volume {
    unsigned holders;
    char *root, *name, *path;
    int directory, data, lock;
    dev_t device;
    ino_t inode;
    uid_t owner;
    bool ephemeral; /* removed with its last holder */
    int interrupt;  /* see volume_interrupt_by; -1: none */
    struct volume_limits limits;
};

/* The error for a failed system call on this path of the volume. */
int volume_failed(const struct volume *v, const char *what, const char *path, struct error *err);

/* root.c */
#define EPHEMERAL_PREFIX ".session-"
int root_failed(const char *root, const char *what, struct error *err);
int root_make(const char *root, struct error *err);
/* Locks the root for creating and removing volumes. -1 with errno. */
int root_lock(int root);
/* Removes the remains of killed processes; the root is locked. */
void root_sweep(int root);
/* The sorted names of volumes or snapshots in a directory. */
int names_in(int directory, struct list *names, struct error *err);
/* The mode of directories that a guest started by root must traverse. */
mode_t passable(void);
/* The owner of new data, and the function that sets it. */
uid_t owner_of_new(void);
int give_to_guest(int directory, const char *name);
/* Sets the paths of an open volume, without links. */
int volume_find_path(struct volume *v, struct error *err);

/* lock.c: flock(2) with a timeout. -1 with errno, EWOULDBLOCK after the timeout. */
int lock_within(int fd, int operation, unsigned ms);
/* Appends "process 12, process 34": the known holders of a lock on this file. */
void lock_holders(int fd, struct buf *out);

/* atomic_replace.c: generates an unused name in `aside`. */
enum { ATOMIC_REPLACE_NAME = 40 };
int atomic_replace_name(char name[ATOMIC_REPLACE_NAME], struct error *err);
/* Opens `aside`. */
int atomic_replace_open(const struct volume *v, struct error *err);
/* Both. */
int atomic_replace_begin(const struct volume *v, char name[ATOMIC_REPLACE_NAME], struct error *err);
/* Moves a complete entry from `aside` to a name in `directory`, durably and atomically. The
 * flags are those of renameat2. -1 with errno. */
int atomic_replace_move(
    int staging, const char *name, int directory, const char *to, unsigned flags);

/* copy.c: copies untrusted files. Copies keep modes except set-user-id, times and holes; links
 * are not followed. */
struct copying {
    const struct volume *v; /* for errors */
    uid_t owner;            /* of the copies, when running as root */
    bool links;  /* links are copied as links; otherwise skipped like FIFOs, sockets and devices */
    bool behind; /* the target is not an empty regular file */
    mode_t mask; /* the umask(2) for copies outside of volumes; 0 within */
    uint64_t most_bytes; /* limit of copied data */
    droste_volume_count count;
};
/* Copies everything below a directory into an empty one, but skips the volume itself if it is
 * there. */
int copy_tree(struct copying *c, int from, int to, struct error *err);
/* Copies the data of an open file, up to its current size. */
int copy_data(struct copying *c, int from, int to, struct error *err);
/* Copies a file to a new one. */
int copy_file(struct copying *c, int from, int directory, const char *to, struct error *err);

/* snapshot.c: opens the directory of a snapshot, which the caller closes. */
int snapshot_open(const struct volume *v, const char *name, struct error *err);

/* limits.c */
int limits_read(
    int directory, struct volume_limits *limits, struct error *err); /* its own words only */
int limits_write(int directory, int staging, const struct volume_limits *limits, struct error *err);
