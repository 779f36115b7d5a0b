/* base/chunk.h: a directory of chunks, which are named by their SHA-256.
 *
 *   DIR/ab/abcd…       a chunk: written beside, synced, and renamed
 *   DIR/ab/abcd….old   a chunk that no list had when the directory was swept
 *
 * Several processes, on several machines, may write into one directory and sweep it. A list is a
 * chunk, too: each of its lines that is the name of a chunk stands for it; other lines are its
 * owner's.
 *
 * A sweep (chunk_sweep) gets the lists that are in use, and never removes at once what they do not
 * have: a writer may have found the chunk a moment ago, and be about to use a list that has it. The
 * chunk becomes an ".old" one instead, which is still read, but which writers do not see, so that
 * they write it again. A later sweep removes it if it has been old for `grace_s`, and otherwise
 * brings it back if a list has it meanwhile. So a writer has `grace_s` from its first chunk until
 * its list is in use, and each step of a sweep may be the last one of a killed process.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/list.h"

/* A chunk has about 1 MiB. */
enum { CHUNK_LEAST = 256 << 10, CHUNK_MOST = 4 << 20, CHUNK_BITS = 20 };

struct chunk_store {
    const char *path; /* borrowed */
    int directory;
};

/* The directory must be there. */
int chunk_store_open(const char *path, struct chunk_store *out, struct error *err);
void chunk_store_close(struct chunk_store *s);
#define cleanup_chunk_store __attribute__((cleanup(chunk_store_close)))

bool chunk_name_is_ok(const char *name);
/* Stores at most CHUNK_MOST bytes, unless they are there, and gives the chunk's name. */
int chunk_put(const struct chunk_store *s, const void *data, size_t len, char name[HASH_TEXT_SIZE],
    struct error *err);
/* Stores a chunk from elsewhere, also in place of a damaged one. ERROR_PROTOCOL: the data have
 * another name. */
int chunk_put_named(
    const struct chunk_store *s, const char *name, const void *data, size_t len, struct error *err);
/* Whether a writer may rely on it. */
bool chunk_is_there(const struct chunk_store *s, const char *name);
/* Opens a chunk that was not checked. ERROR_NOT_FOUND. */
int chunk_open(const struct chunk_store *s, const char *name, struct error *err);
/* Into an empty buf. ERROR_NOT_FOUND; ERROR_PROTOCOL: it is damaged. */
int chunk_get(const struct chunk_store *s, const char *name, struct buf *out, struct error *err);
/* The next chunk of a list, and where the search goes on. False: there is no other one. */
bool chunk_list_next(const struct buf *list, size_t *at, char name[HASH_TEXT_SIZE]);

/* `lists`: the names of those that were in use at `listed_ns` (clock_ns); what is not in the
 * directory is skipped. Counts the chunks that were removed. After an error all that was there may
 * still be read. Needs links (link(2)). */
int chunk_sweep(const struct chunk_store *s, const struct list *lists, uint64_t listed_ns,
    unsigned grace_s, size_t *removed, struct error *err);
