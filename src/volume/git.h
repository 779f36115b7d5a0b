/* volume/git.h: runs git on untrusted repositories.
 *
 * Nothing from the repository runs: no hooks, filters, helpers or submodules; files are read as git
 * stores them, never checked out. git sees neither the user's and the machine's configuration nor
 * more of the environment than network access needs (the ssh agent, proxies, certificates).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

/* What ends git early. */
struct git_bounds {
    uint64_t deadline_ns; /* of clock_ns; git is then killed: ERROR_TIMEOUT */
    int interrupt;        /* a descriptor; once it is readable: ERROR_CANCELLED; -1: none */
    uint64_t file_bytes;  /* limit for each file that git writes: ERROR_ARGUMENT above; 0: none */
};

/* Receives a piece of git's output; a negative return ends git and is the result. */
typedef int git_take_fn(void *arg, const char *data, size_t len, struct error *err);

struct git_call {
    const char *directory;    /* the bare repository; NULL: none */
    const char *const *words; /* the command and its arguments, followed by NULL */
    int input;                /* standard input; -1: empty */
    int lock;                 /* a descriptor that git and its children keep open; -1: none */
    git_take_fn *take;        /* NULL: the output is discarded */
    void *arg;
};

/* How git ended. */
struct git_end {
    bool quiet; /* it exited by itself, leaving nothing half done */
    int status; /* its exit status, in that case */
};

/* Runs git and waits for it. A status other than 0 is an error, with a remedy if one is known:
 * ERROR_NOT_FOUND (no such repository), ERROR_PERMISSION (authentication required), ERROR_IO (no
 * network, full disk, others), ERROR_UNSUPPORTED (git is not installed). *end may be NULL. */
int git_run(const struct git_call *call, const struct git_bounds *bounds, struct git_end *end,
    struct error *err);
/* The error for an exceeded bound, if any. */
int git_check_bounds(const struct git_bounds *bounds, struct error *err);

/* A git_take_fn that appends to the buf `arg`, up to 64 MiB: for names of files, branches and
 * tags. */
int git_keep(void *arg, const char *data, size_t len, struct error *err);
