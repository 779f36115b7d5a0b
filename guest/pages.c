/* guest/pages.c: has a clone made with the pages that it will need, instead of one page fault each.
 *
 * What is read. The kernel does not copy the page tables of files that are mapped and were never
 * written to: a clone finds its interpreter's code by some 80 faults. After a write to one byte of the
 * mapping (the same value, while it is writable for a moment) it does copy them (vma_needs_copy in
 * mm/memory.c), at a tenth of the price.
 *
 * What is written. A clone shares the zygote's pages until it writes to one; then the kernel copies it, at the price
 * of a page fault each (2.4 µs where 0.6 of it are the copy). A first cell writes to some 250 pages,
 * mostly reference counts, and always to the same ones. So a trial clone runs a cell and tells which
 * pages have become its own (pagemap(5)), and the zygote pins these: a pinned page cannot be shared
 * copy-on-write, so fork(2) itself makes the copy (Linux 5.12, page_needs_cow_for_dma). To pin, they
 * are registered as buffers of an io_uring that is never used for anything else; a clone's end of it
 * is closed before any of the user's code runs, and the guest's filter has no io_uring.
 *
 * All of this may be refused (RLIMIT_MEMLOCK, kernel.io_uring_disabled, SELinux, another kernel). Then
 * clones are as before: slower by half a millisecond, and the same in every other way.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    RANGES_MAX = 1024,
    CHUNK = 512,   /* pages looked at in one read */
    FEW_PAGES = 4, /* a smaller mapping costs one fault at most */
};

static const uint64_t present = 1ull << 63, exclusive = 1ull << 56;

struct ranges {
    int count;
    struct iovec at[RANGES_MAX];
};

__attribute__((visibility("default"))) int pages_keep_code(void);
__attribute__((visibility("default"))) int pages_tell(int out);
__attribute__((visibility("default"))) int pages_pin(int in);

/* One line of /proc/self/maps. */
struct mapping {
    uintptr_t start, end;
    int protection;
    bool private, of_file;
};

static bool parse_mapping(const char *line, struct mapping *out)
{
    char mode[5], path[2] = "";
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %*s %1s", &out->start, &out->end, mode,
            path) < 3)
        return false;
    out->protection = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0) |
                      (mode[2] == 'x' ? PROT_EXEC : 0);
    out->private = mode[3] == 'p';
    out->of_file = path[0] == '/';
    return true;
}

/* Writes a byte of a mapping with its own value. */
static void touch(const struct mapping *m)
{
    void *start = (void *)m->start;
    size_t size = m->end - m->start;
    if (mprotect(start, size, m->protection | PROT_WRITE) < 0)
        return;
    volatile char *byte = start;
    *byte = *byte;
    mprotect(start, size, m->protection);
}

/* Has clones get the page tables of code and constants. 0, or a negative errno. */
int pages_keep_code(void)
{
    static struct mapping found[RANGES_MAX];
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return -errno;
    while (count < RANGES_MAX && fgets(line, sizeof line, maps))
        if (parse_mapping(line, &found[count]) && found[count].private && found[count].of_file &&
            (found[count].protection & PROT_READ) && !(found[count].protection & PROT_WRITE) &&
            found[count].end - found[count].start >= (size_t)FEW_PAGES * PAGE)
            count++;
    fclose(maps);
    for (int i = 0; i < count; i++)
        touch(&found[i]);
    return 0;
}

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
static void find_pages(
    int pagemap, uintptr_t start, uintptr_t end, uint64_t wanted, struct ranges *out)
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
    struct mapping m;
    char line[512];
    while (pagemap >= 0 && maps && fgets(line, sizeof line, maps))
        if (parse_mapping(line, &m) && m.private && (m.protection & PROT_WRITE))
            find_pages(pagemap, m.start, m.end, present | exclusive, &found);
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
    if (here.count > 0 &&
        syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, here.at, here.count) == 0)
        return here.count; /* the ring stays open: it holds the pages */
    int saved = errno;
    close(ring);
    return -saved;
}
