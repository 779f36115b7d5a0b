/* image/pull.c: fetches images of registries with skopeo, which knows registries' protocols, keys
 * and mirrors as they are configured on this machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "image/internal.h"

int image_pull(const char *name, const char *layout, struct error *err)
{
    static char skopeo[] = "skopeo", copy[] = "copy", quiet[] = "--quiet";
    cleanup_buf struct buf from = { 0 }, to = { 0 };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    char words[300];
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@-") !=
        strlen(name))
        return error_set(err, ERROR_ARGUMENT,
            "image '%.100s': expected oci:DIR[:TAG], docker-archive:FILE, or a registry's name such "
            "as docker.io/library/python:3.12-slim",
            name);
    cleanup_fd int complaints = file_memfd("complaints", err);
    if (complaints < 0)
        return complaints;
    buf_printf(&from, "docker://%s", name);
    buf_printf(&to, "oci:%s:image", layout);
    if (buf_failed(&from) || buf_failed(&to))
        return error_memory(err);
    char *argv[] = { skopeo, copy, quiet, from.data, to.data, NULL };
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, complaints, 2);
    int rc = posix_spawnp(&pid, skopeo, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc == ENOENT)
        return error_set(err, ERROR_UNSUPPORTED,
            "fetching the image '%.100s' needs skopeo, which is not installed; install it, or use "
            "oci:DIR or docker-archive:FILE",
            name);
    errno = rc;
    if (rc != 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "starting skopeo");
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status == 0)
        return 0;
    file_last_line(complaints, words, sizeof words);
    return error_set(
        err, ERROR_NOT_FOUND, "skopeo could not fetch the image '%.100s': %s", name, words);
}
