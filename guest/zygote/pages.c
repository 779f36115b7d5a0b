/* guest/zygote/pages.c: creates clones with the pages that they will write to, instead of one page
 * fault for each, which takes 2.4 µs.
 *
 * A clone shares the zygote's pages until it writes to one; then the kernel copies the page, with a
 * page fault (the copy itself is a quarter of its cost). A first cell writes to some 250 pages,
 * mostly reference counts, and always the same ones. A trial clone therefore reports which pages
 * have become its own (pagemap(5)), and the zygote pins these. A pinned page cannot be shared
 * copy-on-write, so fork(2) copies it at once (Linux 5.12, page_needs_cow_for_dma). To pin them,
 * the zygote registers them as buffers of an io_uring that is never used for anything else. A clone
 * closes its descriptor of it before any user code runs, and the guest's filter denies io_uring.
 *
 * The kernel may refuse all of this (RLIMIT_MEMLOCK, kernel.io_uring_disabled, SELinux, another
 * version). Then clones are half a millisecond slower, and otherwise the same.
 */
#include "zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    RANGES_MAX = 1024,
    CHUNK = 512, /* pages examined per read */
};

/* Bits of an entry in pagemap(5). */
static const uint64_t present = 1ull << 63, exclusive = 1ull << 56;

struct ranges {
    int count;
    struct iovec at[RANGES_MAX];
};

__attribute__((visibility("default"))) int pages_tell(int out);
__attribute__((visibility("default"))) int pages_prepare(int in);

/* One line of /proc/self/maps. */
struct mapping {
    uintptr_t start, end;
    bool is_private, is_writable;
};

static bool parse_mapping(const char *line, struct mapping *out)
{
    char mode[5];
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &out->start, &out->end, mode) < 3)
        return false;
    out->is_writable = mode[1] == 'w';
    out->is_private = mode[3] == 'p';
    return true;
}

/* Adds a page; extends the last range if the page follows it. */
static void add_page(struct ranges *r, uintptr_t address)
{
    struct iovec *last = r->count ? &r->at[r->count - 1] : NULL;
    if (last && (uintptr_t)last->iov_base + last->iov_len == address)
        last->iov_len += PAGE;
    else if (r->count < RANGES_MAX)
        r->at[r->count++] = (struct iovec){ (void *)address, PAGE };
}

/* Finds the pages of [start, end) whose entry has all bits of `wanted`. */
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

/* Calls visit(m, arg) for each mapping of this process. */
static void each_mapping(void (*visit)(const struct mapping *m, void *arg), void *arg)
{
    char line[512];
    struct mapping m;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps))
        if (parse_mapping(line, &m))
            visit(&m, arg);
    if (maps)
        fclose(maps);
}

struct survey {
    struct ranges written; /* fits into a pipe */
    int pagemap;
};

static void survey_mapping(const struct mapping *m, void *arg)
{
    struct survey *s = arg;
    if (m->is_private && m->is_writable)
        find_pages(s->pagemap, m->start, m->end, present | exclusive, &s->written);
}

/* Reports to `out` which private writable pages belong to this process alone. */
int pages_tell(int out)
{
    static struct survey s;
    s.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (s.pagemap < 0)
        return -errno;
    each_mapping(survey_mapping, &s);
    close(s.pagemap);
    return write(out, &s.written, sizeof s.written) == (ssize_t)sizeof s.written ? 0 : -errno;
}

/* Keeps those that are also present here: a trial clone has created new ones as well. */
static void pages_keep_present(const struct ranges *pages, struct ranges *out)
{
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (int i = 0; pagemap >= 0 && i < pages->count; i++) {
        uintptr_t start = (uintptr_t)pages->at[i].iov_base;
        find_pages(pagemap, start, start + pages->at[i].iov_len, present, out);
    }
    if (pagemap >= 0)
        close(pagemap);
}

/* The pages that clones write to, and what pins them; -1: nothing does. */
static struct ranges pinned;
static int pinning_ring = -1;

/* A copy of the zygote has copies of the pages, which are not pinned. */
int pages_pin(void)
{
    struct io_uring_params parameters = { 0 };
    if (pinning_ring >= 0)
        close(pinning_ring);
    pinning_ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    if (pinning_ring < 0)
        return -errno;
    fcntl(pinning_ring, F_SETFD, FD_CLOEXEC);
    if (pinned.count > 0 && syscall(SYS_io_uring_register, pinning_ring, IORING_REGISTER_BUFFERS,
                                pinned.at, pinned.count) == 0)
        return pinned.count; /* the ring stays open: it pins the pages */
    int saved = errno;
    close(pinning_ring);
    pinning_ring = -1;
    return -saved;
}

/* Pins the pages that a trial clone reported. Returns the number of ranges, or a negative errno. */
int pages_prepare(int in)
{
    static struct ranges report;
    size_t got = 0;
    ssize_t n;
    while (got < sizeof report && (n = read(in, (char *)&report + got, sizeof report - got)) > 0)
        got += (size_t)n;
    if (got < sizeof report)
        return -EPIPE;
    pages_keep_present(&report, &pinned);
    return pages_pin();
}
