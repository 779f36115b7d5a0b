/* session/template.c: see template.h. */
#include "session/template.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "session/internal.h"

enum {
    SAVE_SECONDS = 600,      /* for the guest to copy its memory; a gigabyte takes one or two */
    EXTRA_BYTES = 256 << 20, /* of code and constants, which do not count as the guest's memory */
};

struct template
{
    unsigned references;
    bool sealed;
    int fd;
    uint64_t lineage;
    uint64_t last_id; /* cells keep numbers that are unique in tracebacks */
    struct json_object *variables;
};

struct template *template_hold(struct template *t)
{
    t->references++;
    return t;
}

void template_drop(struct template *t)
{
    if (!t || --t->references > 0)
        return;
    close_fd(&t->fd);
    json_object_put(t->variables);
    free(t);
}

/* As large as the image may be. Untouched bytes of a memory file take no memory. */
static int template_make_file(const struct session *s, uint64_t *size, struct error *err)
{
    cleanup_fd int fd = file_memfd("droste-template", err);
    uint64_t memory = s->settings.limits.sandbox.memory;
    if (memory == 0)
        memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *size = (memory + EXTRA_BYTES) & ~(uint64_t)0xFFFF;
    if (fd < 0)
        return fd;
    /* The guest may neither grow nor cut it. */
    if (ftruncate(fd, (off_t)*size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0)
        return error_set_errno(err, ERROR_IO, "making a memory file for the template");
    return steal_fd(&fd);
}

/* Sends the frame with a descriptor of its own: guests that had the same one could use its position
 * and locks to leave messages for each other. */
static int template_send(
    struct session *s, const struct template *t, uint8_t type, uint64_t size, struct error *err)
{
    cleanup_buf struct buf head = { 0 };
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", t->fd);
    cleanup_fd int fd = open(self, (type == FRAME_SAVE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "opening the memory file of the template");
    if (type == FRAME_SAVE)
        buf_printf(&head, "{\"size\":%" PRIu64 "}", size);
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = {
        .type = type, .flags = FRAME_FD, .id = s->operation, .head_len = head.len
    };
    struct iovec iov[2] = { { header, sizeof header }, { head.data, head.len } };
    if (buf_failed(&head))
        return error_memory(err);
    frame_write_header(header, &frame);
    return s->ops->send(s->sandbox, iov, 2, steal_fd(&fd), err);
}

static struct template *template_new(const struct session *s)
{
    struct template *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *t = (struct template){ .references = 1, .fd = -1, .lineage = s->ops->lineage(s->sandbox) };
    t->last_id = s->last_id;
    t->variables = s->variables ? json_object_get(s->variables) : NULL;
    return t;
}

int session_save(
    struct session *s, struct template **out, session_done_fn *done, void *arg, struct error *err)
{
    uint64_t size = 0;
    if (!s->ops->lineage)
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%s' has no templates; local sandboxes do", s->ops->name);
    if (session_volume(s) || session_workspace(s))
        return error_set(err, ERROR_UNSUPPORTED,
            "a session with a volume or workspace cannot become a template; open it without");
    int rc = session_begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    struct template *t = template_new(s);
    rc = t ? 0 : error_memory(err);
    if (t)
        rc = t->fd = template_make_file(s, &size, err);
    if (rc >= 0)
        rc = template_send(s, t, FRAME_SAVE, size, err);
    if (rc < 0) {
        template_drop(t);
        return session_take_back(s, rc);
    }
    s->limit = SAVE_SECONDS;
    session_deadline_begin(s);
    *out = t;
    return 0;
}

int template_seal(struct template *t, struct error *err)
{
    /* Fails if the guest has kept a writable mapping. */
    int rc = file_memfd_seal(t->fd, err);
    if (rc < 0)
        return error_wrap(err, "making a template");
    t->sealed = true;
    return 0;
}

int session_restore(struct session *s, struct template *t, struct error *err)
{
    if (!s->ops->lineage)
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%s' has no templates; local sandboxes do", s->ops->name);
    if (!t->sealed)
        return error_set(err, ERROR_ARGUMENT, "the template is not ready yet");
    if (s->ops->lineage(s->sandbox) != t->lineage)
        return error_set(err, ERROR_ARGUMENT,
            "the template belongs to another zygote: leave preload, python, read, isolation, "
            "allow-net, volume and workspace as they were when it was made; if they are, its "
            "zygote has died: make the template again");
    s->last_id = t->last_id;
    s->variables = t->variables ? json_object_get(t->variables) : NULL;
    return template_send(s, t, FRAME_RESTORE, 0, err);
}
