/* guest/zygote/pages.c: creates clones with the pages that they will need, instead of one page
 * fault for each. A clone costs what its page tables cost: some 0.2 µs per entry, and 2.4 µs per
 * fault.
 *
 * Code. fork does not copy page tables of file mappings that were never written to, so a clone
 * would fault in its code. After a write to one byte of the mapping (its old value, while it is
 * writable for a moment) fork does copy them (vma_needs_copy in mm/memory.c). So that clones do not
 * pay for entries that they never use, all such code is unmapped first, and what a trial clone has
 * used is mapped again.
 *
 * Written pages. A clone shares the zygote's pages until it writes to one; then the kernel copies
 * the page, with a page fault (the copy itself is a quarter of its cost). A first cell writes to
 * some 250 pages, mostly reference counts, and always the same ones. A trial clone therefore
 * reports which pages have become its own (pagemap(5)), and the zygote pins these. A pinned page
 * cannot be shared copy-on-write, so fork(2) copies it at once (Linux 5.12,
 * page_needs_cow_for_dma). To pin them, the zygote registers them as buffers of an io_uring that is
 * never used for anything else. A clone closes its descriptor of it before any user code runs, and
 * the guest's filter denies io_uring.
 *
 * The kernel may refuse all of this (RLIMIT_MEMLOCK, kernel.io_uring_disabled, SELinux, another
 * version). Then clones are half a millisecond slower, and otherwise the same.
 */
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
    MAPPINGS_MAX = 512,
    RANGES_MAX = 1024,
    CHUNK = 512,   /* pages examined per read */
    FEW_PAGES = 4, /* a smaller mapping costs one fault at most */
};

/* Bits of an entry in pagemap(5). */
static const uint64_t present = 1ull << 63, of_file = 1ull << 61, exclusive = 1ull << 56;

struct ranges {
    int count;
    struct iovec at[RANGES_MAX];
};

/* The report of a trial clone; fits into a pipe. */
struct trial_report {
    struct ranges written, code;
};

__attribute__((visibility("default"))) void pages_keep_code(void);
__attribute__((visibility("default"))) int pages_tell(int out);
__attribute__((visibility("default"))) int pages_prepare(int in);

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

/* True for mappings that clones would fault in: code and constants. */
static bool pages_is_code(const struct mapping *m)
{
    return m->private && m->of_file && (m->protection & PROT_READ) &&
           !(m->protection & PROT_WRITE) && m->end - m->start >= (size_t)FEW_PAGES * PAGE;
}

struct mappings {
    int count;
    struct mapping at[MAPPINGS_MAX];
};

static void add_code(const struct mapping *m, void *arg)
{
    struct mappings *code = arg;
    if (pages_is_code(m) && code->count < MAPPINGS_MAX)
        code->at[code->count++] = *m;
}

/* Writes a byte of a mapping with its own value. */
static void pages_touch(const struct mapping *m)
{
    void *start = (void *)m->start;
    size_t size = m->end - m->start;
    if (mprotect(start, size, m->protection | PROT_WRITE) < 0)
        return;
    volatile char *byte = start;
    *byte = *byte;
    mprotect(start, size, m->protection);
}

/* Makes fork copy the page tables of code and constants, and empties these tables for now. */
void pages_keep_code(void)
{
    static struct mappings code;
    static struct ranges mapped;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    each_mapping(add_code, &code);
    for (int i = 0; i < code.count; i++)
        pages_touch(&code.at[i]);
    for (int i = 0; pagemap >= 0 && i < code.count; i++)
        find_pages(pagemap, code.at[i].start, code.at[i].end, present | of_file, &mapped);
    for (int i = 0; i < mapped.count; i++)
        madvise(mapped.at[i].iov_base, mapped.at[i].iov_len, MADV_DONTNEED);
    if (pagemap >= 0)
        close(pagemap);
}

struct survey {
    struct trial_report report;
    int pagemap;
};

static void survey_mapping(const struct mapping *m, void *arg)
{
    struct survey *s = arg;
    if (pages_is_code(m))
        find_pages(s->pagemap, m->start, m->end, present | of_file, &s->report.code);
    else if (m->private && (m->protection & PROT_WRITE))
        find_pages(s->pagemap, m->start, m->end, present | exclusive, &s->report.written);
}

/* Reports to `out` which private writable pages belong to this process alone, and which code pages
 * are mapped. */
int pages_tell(int out)
{
    static struct survey s;
    s.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (s.pagemap < 0)
        return -errno;
    each_mapping(survey_mapping, &s);
    close(s.pagemap);
    return write(out, &s.report, sizeof s.report) == (ssize_t)sizeof s.report ? 0 : -errno;
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

/* Maps code again, by reading a byte of each page. */
static void pages_recall(const struct ranges *code)
{
    for (int i = 0; i < code->count; i++)
        for (size_t at = 0; at < code->at[i].iov_len; at += PAGE)
            (void)*(volatile char *)((char *)code->at[i].iov_base + at);
}

/* Prepares what a trial clone reported for all clones. Returns the number of pinned ranges, or a
 * negative errno; then nothing is pinned. */
int pages_prepare(int in)
{
    static struct trial_report report;
    static struct ranges here;
    struct io_uring_params parameters = { 0 };
    size_t got = 0;
    ssize_t n;
    while (got < sizeof report && (n = read(in, (char *)&report + got, sizeof report - got)) > 0)
        got += (size_t)n;
    if (got < sizeof report)
        return -EPIPE;
    pages_recall(&report.code);
    pages_keep_present(&report.written, &here);
    int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    if (ring < 0)
        return -errno;
    fcntl(ring, F_SETFD, FD_CLOEXEC);
    if (here.count > 0 &&
        syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, here.at, here.count) == 0)
        return here.count; /* the ring stays open: it pins the pages */
    int saved = errno;
    close(ring);
    return -saved;
}
