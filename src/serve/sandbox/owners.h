/* serve/sandbox/owners.h: which node of a cluster has each volume, and who may write it.
 *
 * The bucket droste-volumes has a key for each volume, "KEY.HEXNAME", with the value "NODE" or
 * "NODE COMMIT", which every node watches. A commit is a copy of the volume (droste_volume_commit)
 * in the directory that the nodes share, or in that of the node and of one other node (commits.h).
 * Only a volume with a commit ever changes its node:
 *
 *   - A node uses such a volume only while a heartbeat that it has sent within OWNER_LEASE_MS is
 *     stored. Otherwise it moves the volume's directory away, which ends what uses it.
 *   - A node that is asked for it, and has not heard of its node for OWNER_SILENCE_MS, which is
 *     longer, opens the last commit, and writes itself into the key upon the revision that it has
 *     read. So one node gets it, and no commit of an earlier one is accepted any more.
 *   - The earlier node finds another one in the key when it is back, or that the key was removed,
 *     and leaves its own copy where it has been moved: ROOT.lost, which is not served, and is its
 *     operator's to remove.
 */
#pragma once

#include "base/list.h"
#include "cluster/registry.h"
#include "serve/http/request.h"

enum { OWNER_LEASE_MS = 5000, OWNER_SILENCE_MS = 8000 };
/* From the first chunk of a commit until it is in the key. */
enum { OWNER_COMMIT_SECONDS = 1800 };

struct commit_transfers;
struct owner;

int owners_open(struct server *s, struct error *err);
void owners_close(struct server *s);
/* After that, when no thread writes commits any more. */
void owners_free(struct server *s);
/* Takes the volumes away whose lease is over, and brings them back. */
void owners_sweep(struct server *s);

/* Whether the bucket was read. */
bool owners_are_known(const struct server *s);
/* NULL: nothing is known of it, and there is no more than what the disk has. */
const struct owner *owners_find(const struct server *s, const char *key, const char *name);
/* "-" is none, until some node opens the volume. */
const char *owner_node(const struct owner *o);
/* Whether this node may use it, now. */
bool owner_is_own(const struct server *s, const struct owner *o);
/* "": it has none. */
const char *owner_commit(const struct owner *o);
/* Appends the volumes with a commit that this node may use now, each as "KEY NAME". */
int owners_list_committed(const struct server *s, struct list *out);
/* True: this node opens the last commit, or is doing so already, if it may. */
bool owners_take(struct server *s, const struct owner *o);

/* What was read or written of a key, before the watch says it. */
void owners_note(struct server *s, const char *key, const char *value, uint64_t revision);
/* The key of a volume in the bucket. */
void owners_key(const char *key, const char *name, char out[BUS_SUBJECT_MAX + 1]);
/* The node of a value. */
void owners_read_node(const char *value, char out[NODE_NAME_SIZE]);
/* The directory of commits; NULL: this server has none. */
const char *owners_store(const struct server *s);
/* NULL: the nodes share a directory, or there are none. */
struct commit_transfers *owners_transfers(const struct server *s);
/* Makes a commit, which is in the store, the last one of a volume: another node gets it, too,
 * unless they share the store or none is there, and then it is written into the key. `done` has
 * BUS_CONFLICT if another node has the volume; it may be called at once. */
void owners_commit(struct server *s, const char *key, const char *name, const char *commit,
    uint64_t began_ns, bus_done_fn *done, void *arg);

/* Of a key in the bucket. The directory of the volume is being removed, or is not after all. */
void owners_set_gone(struct server *s, const char *key, bool is_gone);
/* Removes the key of a volume of this node that is not there (any more); what fails is tried again
 * later. `done`, which may be NULL, is called when that has ended, perhaps at once. */
void owners_release(struct server *s, const char *key, void (*done)(void *arg), void *arg);
