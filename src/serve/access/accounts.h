/* serve/access/accounts.h: the clients of a server: keys as the server knows them.
 *
 * Each key that was ever in the file has an account for the server's life, so that requests and
 * sandboxes can point to it while the file changes. Without keys there is one account, of all.
 */
#pragma once

#include "serve/access/keys.h"
#include "serve/table.h"

struct account {
    struct key key;  /* of the file when it was last read */
    bool is_revoked; /* its sandboxes end */
    int index;       /* in the table */
    struct table_account *row;
    size_t waiting;
    struct account *next;
};

struct accounts {
    const char *path; /* NULL: keys are not used */
    struct table *table;
    struct keys keys;
    struct account *all;
    struct account anyone; /* without keys */
    int64_t read_mtime_ns; /* of the file that was read */
    uint64_t read_inode;
};

/* Reads the file of keys, if there is one at `path` (NULL: the server has no keys). */
int accounts_open(struct accounts *a, struct table *table, const char *path, struct error *err);
/* Reads it again if it has changed, or if `force`d. An error leaves the keys as they were: a file
 * that was removed or broken admits no new client. Returns 1 if it was read. */
int accounts_reload(struct accounts *a, bool force, struct error *err);
void accounts_close(struct accounts *a);
static inline bool accounts_need_keys(const struct accounts *a)
{
    return a->path != NULL;
}

/* The account with this key's hash, or of this id (any, without keys) unless it was revoked; NULL:
 * none. */
struct account *account_by_hash(struct accounts *a, const char *hash);
struct account *account_by_id(struct accounts *a, const char *id);
