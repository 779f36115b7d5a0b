/* env/nest.c: see nest.h. */
#include "env/nest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/tree.h"
#include "jail/jail.h"

struct nest {
    unsigned holders, made;
    bool nobody;
    char *path;
};

static int give(const struct nest *nest, const char *path, struct error *err)
{
    if (!nest->nobody || chown(path, JAIL_NOBODY, JAIL_NOBODY) == 0)
        return 0;
    if (errno == EINVAL) /* in a user namespace that has no such id */
        return error_set(err, ERROR_UNSUPPORTED,
            "this root has no other user to run the guest as; run as an ordinary user");
    return error_set_errno(err, ERROR_ENVIRONMENT, "giving the guest its directory");
}

int nest_new(bool nobody, struct nest **out, struct error *err)
{
    const char *tmp = getenv("TMPDIR");
    struct buf path = { 0 };
    struct nest *nest = calloc(1, sizeof *nest);
    buf_printf(&path, "%s/droste-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
    char *made = buf_steal(&path);
    if (!nest || !made || !mkdtemp(made)) {
        int rc = nest && made
                     ? error_set_errno(err, ERROR_ENVIRONMENT, "making a temporary directory")
                     : error_memory(err);
        free(nest);
        free(made);
        return rc;
    }
    *nest = (struct nest){ .holders = 1, .nobody = nobody, .path = made };
    int rc = give(nest, made, err);
    if (rc < 0)
        nest_release(nest);
    else
        *out = nest;
    return rc;
}

struct nest *nest_hold(struct nest *nest)
{
    nest->holders++;
    return nest;
}

void nest_release(struct nest *nest)
{
    if (!nest || --nest->holders > 0)
        return;
    tree_remove(AT_FDCWD, nest->path);
    free(nest->path);
    free(nest);
}

const char *nest_path(const struct nest *nest)
{
    return nest->path;
}

int nest_add(struct nest *nest, char **path, struct error *err)
{
    struct buf text = { 0 };
    buf_printf(&text, "%s/%u", nest->path, ++nest->made);
    cleanup_free char *made = buf_steal(&text);
    if (!made)
        return error_memory(err);
    if (mkdir(made, 0700) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a temporary directory");
    int rc = give(nest, made, err);
    if (rc < 0)
        tree_remove(AT_FDCWD, made);
    else
        *path = steal(&made);
    return rc;
}
