/* env/common/users.h: a user id for each sandbox, so that nothing that the kernel counts by user is shared.
 *
 * As root, each sandbox is another user, of a range of ids that nobody else has. Hosts that run at the same time
 * on one machine do not give the same id: one that is in use is locked, as a byte of a file that only root can
 * write (fcntl(2), open file description locks), and the kernel lifts the locks of a host that dies.
 */
#ifndef DROSTE_ENV_COMMON_USERS_H
#define DROSTE_ENV_COMMON_USERS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Ids from `first` to `last`; first 0: sandboxes have none of their own. */
struct user_range {
    uint32_t first, last;
};

/* Reads "FIRST-LAST", "shared" or "auto": the range that is Droste's by default, where this is root and has
 * these ids to give (not in most user namespaces), else `shared`. ERROR_ARGUMENT for what is neither, and for ids
 * that this process cannot give. */
int user_range_parse(const char *text, struct user_range *out, struct error *err);

struct users;

/* NULL: no memory. */
struct users *users_new(void);
void users_free(struct users *u);
/* In the child of a fork: lets go of the file, whose locks would be held for as long as the child lives. */
void users_forked(struct users *u);
/* An id of the range that no other sandbox on this machine has; ERROR_ENVIRONMENT where all are taken, or where
 * the file for the locks cannot be made. */
int users_take(struct users *u, const struct user_range *range, uint32_t *out, struct error *err);
/* Does nothing for 0. */
void users_give_back(struct users *u, uint32_t id);

/* Processes and threads of a user. Others come and go meanwhile: the number is about right, as is the limit that is
 * made of it. */
uint64_t users_count_processes(uid_t uid);

#endif
