/* session/send.c: sends frames to the guest. A large blob goes in a sealed memfd if the environment
 * can pass one, otherwise in the stream. At most one memfd per guest is in flight: a guest that
 * does not receive them could use up the host's descriptors and the kernel's per-user limit of
 * descriptors in sockets.
 */
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "session/internal.h"

int session_send(struct session *s, uint8_t type, uint64_t id, const char *head, size_t head_len,
    const struct session_part *blob, size_t blob_parts, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct iovec iov[4] = { { header, sizeof header }, { (void *)(uintptr_t)head, head_len } };
    struct frame frame = { .type = type, .id = id, .head_len = head_len };
    int count = 2;
    for (size_t i = 0; i < blob_parts; i++) {
        frame.blob_len += blob[i].len;
        iov[count++] = (struct iovec){ (void *)(uintptr_t)blob[i].data, blob[i].len };
    }
    frame_write_header(header, &frame);
    return s->ops->send(s->sandbox, iov, count, -1, err);
}

/* Sends the contents of a memfd in the stream. The seal prevents a concurrent truncation. */
static int send_mapped(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, int fd, size_t len, struct error *err)
{
    void *data = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return error_set_errno(err, ERROR_IO, "reading a value for the guest");
    struct session_part part = { data, len };
    int rc = session_send(s, type, id, head, head_len, &part, 1, err);
    munmap(data, len);
    return rc;
}

int session_send_memfd(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, int fd_given, size_t len, struct error *err)
{
    cleanup_fd int fd = fd_given;
    if (!(s->ops->traits & TRAIT_MEMFD))
        return send_mapped(s, type, id, head, head_len, fd, len, err);
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = {
        .type = type, .flags = FRAME_FD, .id = id, .head_len = head_len, .blob_len = len
    };
    struct iovec iov[2] = { { header, sizeof header }, { (void *)(uintptr_t)head, head_len } };
    frame_write_header(header, &frame);
    return s->ops->send(s->sandbox, iov, 2, steal_fd(&fd), err);
}

static int seal_parts(const struct session_part *parts, size_t count, struct error *err)
{
    cleanup_fd int fd = file_memfd("droste-value", err);
    if (fd < 0)
        return fd;
    for (size_t i = 0; i < count; i++)
        if (file_write_all(fd, parts[i].data, parts[i].len) < 0)
            return error_set_errno(err, ERROR_IO, "writing a value for the guest");
    int rc = file_memfd_seal(fd, err);
    return rc < 0 ? rc : steal_fd(&fd);
}

int session_send_blob(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, const struct session_part *blob, size_t parts, struct error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < parts; i++)
        total += blob[i].len;
    struct error why = { 0 };
    bool by_fd = total > FRAME_MEMFD_MIN && s->ops->traits & TRAIT_MEMFD &&
                 (!s->ops->takes_fd || s->ops->takes_fd(s->sandbox));
    int fd = by_fd ? seal_parts(blob, parts, &why) : -1;
    if (fd >= 0 && session_send_memfd(s, type, id, head, head_len, fd, total, &why) == 0)
        return 0;
    return session_send(s, type, id, head, head_len, blob, parts, err);
}
