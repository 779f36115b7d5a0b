/* base/os/sealed.c: checks and maps sealed memory files. */
#include "base/os/sealed.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

struct sealed_total {
    atomic_size_t bytes;
    atomic_uint users; /* results are freed in any thread */
};

struct sealed_total *sealed_total_new(void)
{
    struct sealed_total *total = calloc(1, sizeof *total);
    if (total)
        atomic_init(&total->users, 1);
    return total;
}

void sealed_total_drop(struct sealed_total *total)
{
    if (total && atomic_fetch_sub(&total->users, 1) == 1)
        free(total);
}

size_t sealed_total_bytes(const struct sealed_total *total)
{
    return total ? atomic_load(&total->bytes) : 0;
}

/* Only memory files have seals; on other files F_GET_SEALS fails or has F_SEAL_SEAL alone. Huge
 * pages are refused: a hole among them may raise SIGBUS. */
static int sealed_check(int fd, size_t len, struct error *err)
{
    enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, ERROR_PROTOCOL, "a descriptor that is not of a memory file");
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return error_set(err, ERROR_PROTOCOL, "a memory file that is not sealed");
    if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
        return error_set(err, ERROR_PROTOCOL, "a memory file of huge pages");
    if (st.st_size < 0 || (uint64_t)st.st_size != len || len == 0)
        return error_set(err, ERROR_PROTOCOL, "a memory file of %lld bytes instead of %zu",
            (long long)st.st_size, len);
    if ((uint64_t)st.st_blocks * 512 < len)
        return error_set(err, ERROR_PROTOCOL, "a memory file with holes");
    return 0;
}

int sealed_map(
    int fd, size_t len, struct sealed_total *total, struct sealed *out, struct error *err)
{
    *out = (struct sealed){ 0 };
    int rc = sealed_check(fd, len, err);
    if (rc < 0)
        return rc;
    void *data = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED)
        return error_set_errno(err, ERROR_MEMORY, "mapping a value of %zu bytes", len);
    *out = (struct sealed){ .data = data, .len = len, .total = total };
    if (total) {
        atomic_fetch_add(&total->users, 1);
        atomic_fetch_add(&total->bytes, len);
    }
    return 0;
}

void sealed_unmap(struct sealed *sealed)
{
    if (!sealed->data)
        return;
    munmap(sealed->data, sealed->len);
    if (sealed->total)
        atomic_fetch_sub(&sealed->total->bytes, sealed->len);
    sealed_total_drop(sealed->total);
    *sealed = (struct sealed){ 0 };
}
