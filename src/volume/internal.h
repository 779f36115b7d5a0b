/* volume/internal.h: what the files of this layer share. */
#ifndef DROSTE_VOLUME_INTERNAL_H
#define DROSTE_VOLUME_INTERNAL_H

#include "volume/volume.h"

struct volume {
    unsigned holders;
    char *root, *name, *path;
    int directory, data, lock;
    dev_t device;
    ino_t inode;
    uid_t owner;
    bool ephemeral; /* it is removed with its last holder */
    int interrupt;  /* see volume_interrupt_by; -1: nothing */
    struct volume_limits limits;
};

/* An error of a system call on this path of the volume, in words. */
int volume_failed(const struct volume *v, const char *what, const char *path, struct error *err);

/* root.c */
#define EPHEMERAL_PREFIX ".session-"
int root_failed(const char *root, const char *what, struct error *err);
int root_make(const char *root, struct error *err);
/* Whoever has it is alone in making and removing. -1 with errno. */
int root_lock(int root);
/* Removes what killed processes have left; with the root's lock. */
void root_sweep(int root);
/* The names of volumes, or of snapshots, in a directory, in order. */
int names_in(int directory, struct list *names, struct error *err);
/* The mode of directories that root's guest must get through. */
mode_t passable(void);
/* Who the data of a volume that is made belong to, and giving them to him. */
uid_t owner_of_new(void);
int give_to_guest(int directory, const char *name);

/* volume.c: finds the paths of an open one as the kernel knows them, without links. */
int volume_find_path(struct volume *v, struct error *err);

/* ephemeral.c: removes what is of a session that has ended. */
void volume_drop_ephemeral(struct volume *v);

/* lock.c: as flock(2), but waits for so long only. -1 with errno, EWOULDBLOCK where it was in vain. */
int lock_within(int fd, int operation, unsigned ms);
/* Appends "process 12, process 34": who holds a lock on this file, as far as is known. */
void lock_holders(int fd, struct buf *out);

/* atomic_replace.c: a name in `aside` that nobody else has. */
enum { ATOMIC_REPLACE_NAME = 40 };
int atomic_replace_name(char name[ATOMIC_REPLACE_NAME], struct error *err);
int atomic_replace_open(const struct volume *v, struct error *err);
/* Moves what is complete from `aside` to a name in `directory`, on disk: whole, or not at all. The flags are
 * those of renameat2. -1 with errno. */
int atomic_replace_move(
    int staging, const char *name, int directory, const char *to, unsigned flags);

/* copy.c: copies of what strangers made. Files keep their modes but for set-user-id, their times and their
 * holes; links are not followed. */
struct copying {
    const struct volume *v; /* for errors */
    uid_t owner;            /* of the copies, where this is root */
    bool links;  /* links are copied as what they are; else left out, as FIFOs, sockets, devices */
    bool behind; /* what is written to has something in it already, or is no file */
    mode_t mask; /* of the umask(2) of whom they are for; 0 within volumes */
    uint64_t most_bytes; /* of data that may be copied */
    struct volume_count count;
};
/* All below a directory into another, which is empty; but for the volume itself, if that is there: left out. */
int copy_tree(struct copying *c, int from, int to, struct error *err);
/* The data of an open file, as much as it has now. */
int copy_data(struct copying *c, int from, int to, struct error *err);
/* A file into a new one. */
int copy_file(struct copying *c, int from, int directory, const char *to, struct error *err);

/* files.c: of a path of directories, each with a '/' behind, the last goes. */
void path_leave(struct buf *path);

/* snapshot.c: the directory, the caller's. */
int snapshot_open(const struct volume *v, const char *name, struct error *err);

/* limits.c */
int limits_read(
    int directory, struct volume_limits *limits, struct error *err); /* its own words only */
int limits_write(int directory, int staging, const struct volume_limits *limits, struct error *err);

#endif
