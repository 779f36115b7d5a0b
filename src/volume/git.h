/* volume/git.h: the program git, run on repositories that strangers wrote.
 *
 * Nothing of theirs runs: no hooks, filters, helpers or submodules; files are read as git has them, never
 * checked out. Nothing of ours goes along: neither the configuration of the user and the machine nor, of the
 * environment, more than how to reach the network (the ssh agent, proxies, certificates).
 */
#ifndef DROSTE_VOLUME_GIT_H
#define DROSTE_VOLUME_GIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

/* What ends it early. */
struct git_bounds {
    uint64_t deadline_ns; /* as by clock_ns; git is killed then: ERROR_TIMEOUT */
    int interrupt;        /* a descriptor that becomes readable: ERROR_CANCELLED; -1: none */
    uint64_t file_bytes;  /* of one file that git writes: ERROR_ARGUMENT above; 0: any */
};

/* Takes a piece of what git prints; a negative return ends git and is the result. */
typedef int git_take_fn(void *arg, const char *data, size_t len, struct error *err);

struct git_call {
    const char *directory;    /* of the repository, bare; NULL: none */
    const char *const *words; /* the command and its arguments, then NULL */
    int input;                /* its standard input; -1: nothing */
    int lock;                 /* a descriptor that git and all that it starts keep open; -1: none */
    git_take_fn *take;        /* NULL: what it prints is passed over */
    void *arg;
};

/* How it went. */
struct git_end {
    bool quiet; /* it ended by itself: nothing of it is half done */
    int status; /* its exit status, where it did */
};

/* Runs git to its end and waits. A status other than 0 is an error, whose text says what to do where that is
 * known: ERROR_NOT_FOUND (no such repository), ERROR_PERMISSION (it wants to know who we are), ERROR_IO (no
 * network, full disk, others), ERROR_UNSUPPORTED (there is no git). *end may be NULL. */
int git_run(const struct git_call *call, const struct git_bounds *bounds, struct git_end *end,
    struct error *err);
/* An error once the bounds are reached: which. */
int git_check_bounds(const struct git_bounds *bounds, struct error *err);

/* A take function: appends to a buf (arg), 64 MiB at most: names of files, or of branches and tags. */
int git_keep(void *arg, const char *data, size_t len, struct error *err);

#endif
