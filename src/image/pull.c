/* image/pull.c: fetches images of registries with skopeo, which knows registries' protocols, keys
 * and mirrors as they are configured on this machine.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/spawn.h"
#include "image/internal.h"

enum { STATUS_UNKNOWN = 255 << 8 }; /* of spawn_end: what it wrote is verified in any case */

/* Waits until it ends, or is interrupted. */
static int pull_wait(pid_t pid, const struct image_request *q, struct error *err)
{
    cleanup_fd int end = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd fds[] = { { end, POLLIN, 0 }, { q->interrupt, POLLIN, 0 } };
    if (end < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "waiting for skopeo");
    while (poll(fds, 2, -1) < 0 || !(fds[0].revents || fds[1].revents))
        ;
    return fds[0].revents ? 0 : image_interrupted(err);
}

static int pull_run(const struct image_request *q, const char *from, const char *to, int complaints,
    int *status, struct error *err)
{
    const char *const words[] = { "skopeo", "copy", "--quiet", from, to, NULL };
    pid_t pid;
    cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return error_set_errno(err, ERROR_IO, "opening /dev/null");
    int rc = spawn_with_thread(words, "", (int[]){ null, null, complaints }, &pid, err);
    if (rc == -(int)ERROR_NOT_FOUND)
        return error_set(err, ERROR_UNSUPPORTED,
            "fetching the image '%.100s' needs skopeo, which is not installed; install it, or use "
            "oci:DIR or docker-archive:FILE",
            q->name);
    if (rc < 0)
        return rc;
    rc = pull_wait(pid, q, err);
    *status = spawn_end(pid);
    return rc;
}

int image_pull(const struct image_request *q, const char *layout, struct error *err)
{
    cleanup_buf struct buf from = { 0 }, to = { 0 };
    int status = 0;
    char words[300];
    if (strspn(q->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@-") !=
        strlen(q->name))
        return error_set(err, ERROR_ARGUMENT,
            "image '%.100s': expected oci:DIR[:TAG], docker-archive:FILE, or a registry's name such "
            "as docker.io/library/python:3.12-slim",
            q->name);
    cleanup_fd int complaints = file_memfd("complaints", err);
    if (complaints < 0)
        return complaints;
    buf_printf(&from, "docker://%s", q->name);
    buf_printf(&to, "oci:%s:image", layout);
    if (buf_failed(&from) || buf_failed(&to))
        return error_memory(err);
    int rc = pull_run(q, buf_text(&from), buf_text(&to), complaints, &status, err);
    if (rc < 0 || status == 0 || status == STATUS_UNKNOWN)
        return rc;
    file_last_line(complaints, words, sizeof words);
    return error_set(
        err, ERROR_NOT_FOUND, "skopeo could not fetch the image '%.100s': %s", q->name, words);
}
