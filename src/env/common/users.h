/* env/common/users.h: a user id for each sandbox, so that sandboxes share no per-user kernel
 * limits.
 *
 * As root, each sandbox runs as its own user, from a range of ids that nothing else uses. Hosts on
 * the same machine never use the same id at a time: an id is reserved by locking a byte of a file
 * that only root can write (fcntl(2), open file description locks). The kernel releases the locks
 * of a host that dies.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Ids from `first` to `last`; first 0: sandboxes share their zygote's user. */
struct user_range {
    uint32_t first, last;
};

/* Parses "FIRST-LAST", "shared" or "auto". "auto" is the default range if this process is root and
 * may assign these ids (most user namespaces may not), else "shared". ERROR_ARGUMENT for anything
 * else, and for ids that this process cannot assign. */
int user_range_parse(const char *text, struct user_range *out, struct error *err);

struct users;

/* NULL: out of memory. */
struct users *users_new(void);
void users_free(struct users *u);
/* In the child of a fork: closes the file, which would keep the locks as long as the child
 * lives. */
void users_forked(struct users *u);
/* Reserves an id that no other sandbox on this machine has. ERROR_ENVIRONMENT if all are taken or
 * the lock file cannot be created. */
int users_take(struct users *u, const struct user_range *range, uint32_t *out, struct error *err);
/* Does nothing for 0. */
void users_give_back(struct users *u, uint32_t id);

/* Processes and threads of a user. Approximate, because processes start and end during the count;
 * so is the limit computed from it. */
uint64_t users_count_processes(uid_t uid);
