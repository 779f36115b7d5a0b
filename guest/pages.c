/* guest/pages.c: has the pages that every clone writes to copied by the clone, all at once.
 *
 * A clone shares the zygote's pages until it writes to one; then the kernel copies it, at the price
 * of a page fault each (2.4 µs where 0.6 of it are the copy). A first cell writes to some 250 pages,
 * mostly reference counts, and always to the same ones. So a trial clone runs a cell and tells which
 * pages have become its own (pagemap(5)), and the zygote pins these: a pinned page cannot be shared
 * copy-on-write, so fork(2) itself makes the copy (Linux 5.12, page_needs_cow_for_dma). To pin, they
 * are registered as buffers of an io_uring that is never used for anything else; a clone's end of it
 * is closed before any of the user's code runs, and the guest's filter has no io_uring.
 *
 * All of this may be refused (RLIMIT_MEMLOCK, kernel.io_uring_disabled, another kernel). Then clones
 * are as before: slower by half a millisecond, and the same in every other way.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    RANGES_MAX = 1024,
    CHUNK = 512, /* pages looked at in one read */
};

static const uint64_t present = 1ull << 63, exclusive = 1ull << 56;

struct ranges {
    int count;
    struct iovec at[RANGES_MAX];
};

__attribute__((visibility("default"))) int pages_tell(int out);
__attribute__((visibility("default"))) int pages_pin(int in);

/* Another page; it goes to the last range if it follows on it. */
static void add_page(struct ranges *r, uintptr_t address)
{
    struct iovec *last = r->count ? &r->at[r->count - 1] : NULL;
    if (last && (uintptr_t)last->iov_base + last->iov_len == address)
        last->iov_len += PAGE;
    else if (r->count < RANGES_MAX)
        r->at[r->count++] = (struct iovec){ (void *)address, PAGE };
}

/* The pages of [start, end) whose entry has all bits of `wanted`. */
static void find_pages(int pagemap, uintptr_t start, uintptr_t end, uint64_t wanted,
    struct ranges *out)
{
    uint64_t entries[CHUNK];
    while (start < end) {
        size_t pages = (end - start) / PAGE < CHUNK ? (end - start) / PAGE : CHUNK;
        ssize_t n = pread(pagemap, entries, pages * 8, (off_t)(start / PAGE * 8));
        if (n <= 0)
            return;
        for (size_t i = 0; i < (size_t)n / 8; i++)
            if ((entries[i] & wanted) == wanted)
                add_page(out, start + i * PAGE);
        start += (size_t)n / 8 * PAGE;
    }
}

/* Tells `out` which of this process's private writable pages are its own alone. */
int pages_tell(int out)
{
    static struct ranges found;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], mode[5];
    uintptr_t start, end;
    while (pagemap >= 0 && maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &start, &end, mode) == 3 &&
            mode[1] == 'w' && mode[3] == 'p')
            find_pages(pagemap, start, end, present | exclusive, &found);
    if (maps)
        fclose(maps);
    if (pagemap >= 0)
        close(pagemap);
    size_t size = (size_t)found.count * sizeof found.at[0];
    return write(out, found.at, size) == (ssize_t)size ? found.count : -errno;
}

/* Those of them that are here too: a trial has made new ones as well. */
static void keep_present(const struct ranges *told, struct ranges *out)
{
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (int i = 0; pagemap >= 0 && i < told->count; i++) {
        uintptr_t start = (uintptr_t)told->at[i].iov_base;
        find_pages(pagemap, start, start + told->at[i].iov_len, present, out);
    }
    if (pagemap >= 0)
        close(pagemap);
}

/* Pins what a trial told: the number of ranges, or a negative errno; nothing is pinned then. */
int pages_pin(int in)
{
    static struct ranges told, here;
    struct io_uring_params parameters = { 0 };
    size_t got = 0;
    ssize_t n;
    while (got < sizeof told.at && (n = read(in, (char *)told.at + got, sizeof told.at - got)) > 0)
        got += (size_t)n;
    told.count = (int)(got / sizeof told.at[0]);
    keep_present(&told, &here);
    int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    if (ring < 0)
        return -errno;
    fcntl(ring, F_SETFD, FD_CLOEXEC);
    if (here.count > 0 && syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, here.at,
                              here.count) == 0)
        return here.count; /* the ring stays open: it holds the pages */
    int saved = errno;
    close(ring);
    return -saved;
}
