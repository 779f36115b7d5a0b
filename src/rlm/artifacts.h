/* rlm/artifacts.h: saves files of a run's sandbox when the run has ended.
 *
 * Files that match the patterns are copied below a directory of this machine, and to the record as
 * far as they fit. The guest chooses names and contents: only regular files with printable names
 * are copied, nothing is written outside of the directory, and numbers and sizes are limited.
 */
#pragma once

#include "base/hash.h"
#include "base/list.h"
#include "session/files.h"
#include "store/store.h"

enum { ARTIFACTS_MAX = 1000 };
#define ARTIFACTS_SIZE_MAX ((uint64_t)1 << 30) /* of all files of a run together, in bytes */

struct artifact {
    char *name; /* in the sandbox */
    char *path; /* on this machine */
    uint64_t size;
    char hash[HASH_TEXT_SIZE];
};

/* What was saved. */
struct artifact_list {
    struct artifact *items;
    size_t count, cap;
    struct error error; /* the first reason why a file, or all, were not saved */
    size_t left_out;    /* files that matched and were not saved */
};

struct artifact_options {
    struct loop *loop;
    struct session *session; /* outlives the copying */
    const struct list *patterns;
    const char *directory; /* made if there is none */
    /* Records a saved file, whose contents `fd` has. */
    int (*record)(void *arg, const struct artifact *artifact, int fd, struct error *err);
    void (*done)(void *arg); /* called once, from the loop */
    void *arg;
};

struct artifacts;
/* Starts copying into *list, which outlives it. */
int artifacts_start(const struct artifact_options *options, struct artifact_list *list,
    struct artifacts **out, struct error *err);
/* Ends the copying, and calls `done` before it returns. Not from a callback of the session. */
void artifacts_cancel(struct artifacts *a);
/* Not from within `done`. NULL is allowed. */
void artifacts_free(struct artifacts *a);
void artifact_list_free(struct artifact_list *list);
