/* serve/sandbox/owners.h: which node of a cluster has each volume, and who may write it.
 *
 * The bucket droste-volumes has a key for each volume, "KEY.HEXNAME", with the value "NODE" or
 * "NODE COMMIT", which every node watches. A commit is a copy of the volume in the directory that
 * the nodes share (droste_volume_commit). Only a volume with a commit ever changes its node:
 *
 *   - A node uses such a volume only while a heartbeat that it has sent within OWNER_LEASE_MS is
 *     stored. Otherwise it moves the volume's directory away, which ends what uses it.
 *   - A node that is asked for it, and has not heard of its node for OWNER_SILENCE_MS, which is
 *     longer, opens the last commit, and writes itself into the key upon the revision that it has
 *     read. So one node gets it, and no commit of an earlier one is accepted any more.
 *   - The earlier node finds another one in the key when it is back, and leaves its own copy where
 *     it has been moved: ROOT.lost, which is not served, and is its operator's to remove.
 */
#pragma once

#include "cluster/registry.h"
#include "serve/http/request.h"

enum { OWNER_LEASE_MS = 5000, OWNER_SILENCE_MS = 8000 };

struct owner;

int owners_open(struct server *s, struct error *err);
void owners_close(struct server *s);
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
/* True: this node opens the last commit, or is doing so already, if it may. */
bool owners_take(struct server *s, const struct owner *o);

/* What was read or written of a key, before the watch says it. */
void owners_note(struct server *s, const char *key, const char *value, uint64_t revision);
/* The key of a volume in the bucket. */
void owners_key(const char *key, const char *name, char out[BUS_SUBJECT_MAX + 1]);
/* The node of a value. */
void owners_read_node(const char *value, char out[NODE_NAME_SIZE]);
/* Writes the commit of a volume into its key. False: this node may not, now. `done` has
 * BUS_CONFLICT if another one has the volume. */
bool owners_commit(struct server *s, const char *key, const char *name, const char *commit,
    bus_done_fn *done, void *arg);
