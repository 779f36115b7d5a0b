/* serve/access/accounts.c: see accounts.h. */
#include "serve/access/accounts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct account *account_by_hash(struct accounts *a, const char *hash)
{
    for (struct account *one = a->all; one; one = one->next)
        if (strcmp(one->key.hash, hash) == 0)
            return one;
    return NULL;
}

struct account *account_by_id(struct accounts *a, const char *id)
{
    if (!accounts_need_keys(a))
        return &a->anyone;
    struct account *one = a->all;
    while (one && (one->is_revoked || strcmp(one->key.id, id) != 0))
        one = one->next;
    return one;
}

static int account_count(struct accounts *a, struct account *one, struct error *err)
{
    one->index = table_account(a->table, one->key.id);
    if (one->index < 0)
        return error_set(err, ERROR_CONFIG,
            "the server has seen %d keys, which is the most; restart it", TABLE_ACCOUNTS);
    one->row = &a->table->accounts[one->index];
    return 0;
}

static int accounts_take(struct accounts *a, struct keys *keys, struct error *err)
{
    for (size_t i = 0; i < keys->count; i++) {
        if (account_by_hash(a, keys->rows[i].hash))
            continue;
        struct account *added = calloc(1, sizeof *added);
        if (!added)
            return error_memory(err);
        added->key = keys->rows[i];
        if (account_count(a, added, err) < 0) {
            free(added);
            return -ERROR_CONFIG;
        }
        added->next = a->all;
        a->all = added;
    }
    for (struct account *one = a->all; one; one = one->next)
        one->is_revoked = true;
    for (size_t i = 0; i < keys->count; i++) {
        struct account *one = account_by_hash(a, keys->rows[i].hash);
        one->key = keys->rows[i];
        one->is_revoked = false;
    }
    keys_free(&a->keys);
    a->keys = *keys;
    *keys = (struct keys){ 0 };
    return 0;
}

static bool accounts_have_changed(struct accounts *a)
{
    struct stat st;
    if (stat(a->path, &st) < 0)
        return false;
    int64_t mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (a->read_inode == st.st_ino && a->read_mtime_ns == mtime)
        return false;
    a->read_inode = st.st_ino;
    a->read_mtime_ns = mtime;
    return true;
}

int accounts_reload(struct accounts *a, bool force, struct error *err)
{
    struct keys keys = { 0 };
    if (!a->path || (!accounts_have_changed(a) && !force))
        return 0;
    int rc = keys_read(a->path, &keys, err);
    if (rc == 0)
        rc = accounts_take(a, &keys, err);
    keys_free(&keys);
    return rc < 0 ? rc : 1;
}

int accounts_open(struct accounts *a, struct table *table, const char *path, struct error *err)
{
    a->table = table;
    a->anyone.key.scopes = SCOPE_ADMIN;
    strcpy(a->anyone.key.id, "local");
    a->path = path;
    int rc = path ? accounts_reload(a, true, err) : account_count(a, &a->anyone, err);
    return rc < 0 ? rc : 0;
}

void accounts_close(struct accounts *a)
{
    struct account *next;
    for (struct account *one = a->all; one; one = next) {
        next = one->next;
        free(one);
    }
    keys_free(&a->keys);
}
