/* guest/zygote/image.c: saves the memory of a worker to a file, and continues from it in another.
 *
 * Theory of operation. All workers of a zygote have the same address space to begin with. So the
 * memory of one, written to a memory file, can be mapped at the same addresses in a fresh one, in
 * a sandbox of its own: it continues where the first one was saved, as a fork would, but behind its
 * own walls. The mappings are private: pages are shared by all that continue from the file, until
 * one writes to them. Nothing outside reads the file, and everything here happens within the
 * sandbox, so a forged one harms only those who start from it, as its code could anyway.
 *
 *   save      (image_save) copies the mappings that the zygote did not have in this form. It leaves
 *             out pages that were never touched.
 *   restore   (image_restore) runs on a stack in the arena, a mapping that every worker has at the
 *             same address and that is never saved. It removes what the saved worker did not have,
 *             maps the file's regions over the rest, and jumps to where the saved worker stopped.
 *
 * Code of the zygote is left as it is, so that the restoring code does not move under its own feet.
 * The main thread's stack is copied, because a mapping of a file would not grow. What the kernel
 * keeps for a process (descriptors, limits, children, timers) is the new worker's, except for
 * signal handlers.
 */
#include "zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    IMAGE_PAGE = 4096,
    REGIONS_MAX = 8192,
    KNOWN_MAX = 1024,        /* mappings of the zygote */
    GAP_PAGES = 16,          /* a shorter run of untouched pages is saved */
    ENTRIES = 512,           /* of pagemap(5), read at once */
    MAPS_TEXT = 1024 * 1024, /* /proc/self/maps */
    RESTORE_STACK = 64 * 1024,
    SIGNALS = 65,
};

/* Called by Python. image_learn: in the zygote, before it serves. image_save: 0 in the saved
 * worker, 1 in one that was restored, otherwise a negative errno: EXDEV stands for memory that is
 * shared with other processes, ENOSPC for a file that is too small. image_restore: returns only a
 * negative errno: ESTALE stands for a file of another zygote's worker, ENOMEM for a limit. */
__attribute__((visibility("default"))) int image_learn(void);
__attribute__((visibility("default"))) int image_save(int fd, uint64_t size);
__attribute__((visibility("default"))) int image_restore(int fd);

enum region_kind {
    REGION_KEEP,  /* as in the zygote, or the kernel's */
    REGION_DATA,  /* in the file */
    REGION_EMPTY, /* untouched */
    REGION_STACK, /* in the file, to be copied */
};

struct region {
    uint64_t start, end, offset;
    uint32_t protection, kind;
};

struct image {
    uint64_t zygote[2]; /* a random number of the zygote */
    uint64_t heap_end;  /* brk(2) */
    uint64_t data;      /* bytes that count against RLIMIT_DATA */
    uint32_t count, handler_count;
    stack_t signal_stack;
    struct sigaction handlers[SIGNALS];
    struct region regions[REGIONS_MAX];
};

enum { IMAGE_HEAD = (sizeof(struct image) + IMAGE_PAGE - 1) / IMAGE_PAGE * IMAGE_PAGE };

struct map {
    uintptr_t start, end;
    unsigned long inode;
    int protection;
    bool shared, of_kernel, is_stack;
};

static struct arena {
    uint64_t zygote[2];
    int known_count;
    struct map known[KNOWN_MAX];
    int fd;
    struct image image;
    char maps[MAPS_TEXT] __attribute__((aligned(IMAGE_PAGE)));
    char stack[RESTORE_STACK] __attribute__((aligned(64)));
} * arena;

/* Where a restored worker continues; saved with the rest of the memory. */
static struct {
    jmp_buf resume;
    sigset_t mask;
} saved;

/* ---- mappings ---- */

/* Parses the next line of /proc/self/maps; false at the end. */
static bool image_next_map(const char **at, struct map *out)
{
    char mode[5], name[8] = "";
    if (!**at || sscanf(*at, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %lu %7[^\n]", &out->start,
                     &out->end, mode, &out->inode, name) < 4)
        return false;
    out->protection = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0) |
                      (mode[2] == 'x' ? PROT_EXEC : 0);
    out->shared = mode[3] == 's';
    out->is_stack = strcmp(name, "[stack]") == 0;
    out->of_kernel = strncmp(name, "[v", 2) == 0; /* vdso, vvar, vsyscall */
    const char *end = strchr(*at, '\n');
    *at = end ? end + 1 : "";
    return true;
}

static int image_read_maps(void)
{
    size_t len = 0;
    ssize_t n = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (len < MAPS_TEXT - 1 && (n = read(fd, arena->maps + len, MAPS_TEXT - 1 - len)) > 0)
        len += (size_t)n;
    arena->maps[len] = '\0';
    close(fd);
    return n < 0 ? -EIO : len == MAPS_TEXT - 1 ? -E2BIG : 0;
}

static bool is_arena(const struct map *m)
{
    return m->start < (uintptr_t)(arena + 1) && m->end > (uintptr_t)arena;
}

/* Code and constants of the zygote. */
static bool image_is_known(const struct map *m)
{
    for (int i = 0; i < arena->known_count; i++) {
        const struct map *k = &arena->known[i];
        if (k->start == m->start && k->end == m->end && k->inode == m->inode &&
            k->protection == m->protection)
            return true;
    }
    return false;
}

int image_learn(void)
{
    size_t size = (sizeof *arena + IMAGE_PAGE - 1) / IMAGE_PAGE * IMAGE_PAGE;
    /* Between two pages without access, so that the kernel merges no other mapping with it. */
    char *room = mmap(NULL, size + (size_t)2 * IMAGE_PAGE, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct map m;
    if (room == MAP_FAILED)
        return -errno;
    if (mprotect(room + IMAGE_PAGE, size, PROT_READ | PROT_WRITE) < 0)
        return -errno;
    arena = (void *)(room + IMAGE_PAGE);
    if (getrandom(arena->zygote, sizeof arena->zygote, 0) != (ssize_t)sizeof arena->zygote)
        return -EIO;
    int rc = image_read_maps();
    const char *at = arena->maps;
    while (rc == 0 && arena->known_count < KNOWN_MAX && image_next_map(&at, &m))
        if (m.inode && !m.shared && !(m.protection & PROT_WRITE))
            arena->known[arena->known_count++] = m;
    madvise(arena->maps, sizeof arena->maps, MADV_DONTNEED);
    return rc;
}

/* ---- saving ---- */

struct saving {
    int fd, pagemap;
    uint64_t size, end; /* of the file; what is used of it */
    int failed;         /* errno, or 0 */
    uintptr_t first;    /* page of the first entry; 0: none was read */
    uint64_t entries[ENTRIES];
};

/* Adds to the last region if it continues it. */
static void save_region(struct saving *s, const struct map *m, uintptr_t start, uintptr_t end,
    enum region_kind kind, uint64_t offset)
{
    struct image *image = &arena->image;
    struct region *last = image->count ? &image->regions[image->count - 1] : NULL;
    if (last && last->end == start && last->kind == kind && kind != REGION_STACK &&
        last->protection == (uint32_t)m->protection &&
        (kind != REGION_DATA || last->offset + (last->end - last->start) == offset)) {
        last->end = end;
        return;
    }
    if (image->count == REGIONS_MAX) {
        s->failed = E2BIG;
        return;
    }
    image->regions[image->count++] = (struct region){ .start = start,
        .end = end,
        .offset = offset,
        .protection = (uint32_t)m->protection,
        .kind = kind };
}

/* A mapped file may be shorter than its mapping; reading on would be fatal (SIGBUS). The first byte
 * of the image is written last. */
static bool can_read(const struct saving *s, uintptr_t address)
{
    return pwrite(s->fd, (void *)address, 1, 0) == 1;
}

/* Copies through a mapping, because RLIMIT_FSIZE would limit pwrite(2). */
static void save_pages(struct saving *s, const struct map *m, uintptr_t start, uintptr_t end)
{
    size_t len = end - start;
    if (s->failed || len > s->size - s->end) {
        s->failed = s->failed ? s->failed : ENOSPC;
        return;
    }
    char *to = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, (off_t)s->end);
    if (to == MAP_FAILED) {
        s->failed = errno;
        return;
    }
    if (!m->inode)
        memcpy(to, (void *)start, len);
    for (size_t at = 0; m->inode && at < len; at += IMAGE_PAGE)
        if (can_read(s, start + at))
            memcpy(to + at, (void *)(start + at), IMAGE_PAGE);
    munmap(to, len);
    save_region(s, m, start, end, m->is_stack ? REGION_STACK : REGION_DATA, s->end);
    s->end += len;
}

/* Whether the page has contents; without a pagemap, any may have. */
static bool page_is_used(struct saving *s, uintptr_t address)
{
    uintptr_t page = address / IMAGE_PAGE, first = page / ENTRIES * ENTRIES;
    if (s->pagemap < 0)
        return true;
    if (first != s->first) {
        memset(s->entries, 0, sizeof s->entries);
        (void)!pread(s->pagemap, s->entries, sizeof s->entries, (off_t)(first * 8));
        s->first = first;
    }
    return s->entries[page - first] >> 62; /* present, or swapped */
}

/* Splits a mapping without a file into runs of pages with and without contents. */
static void save_runs(struct saving *s, const struct map *m)
{
    const uintptr_t gap = (uintptr_t)GAP_PAGES * IMAGE_PAGE;
    const enum region_kind empty = m->is_stack ? REGION_KEEP : REGION_EMPTY;
    uintptr_t at = m->start;
    while (at < m->end && !s->failed) {
        uintptr_t used = at, end, last;
        while (used < m->end && !page_is_used(s, used))
            used += IMAGE_PAGE;
        if (used - at < gap && used < m->end)
            used = at;
        if (used > at)
            save_region(s, m, at, used, empty, 0);
        for (end = last = used; end < m->end && end - last <= gap; end += IMAGE_PAGE)
            if (page_is_used(s, end))
                last = end + IMAGE_PAGE;
        if (last > used)
            save_pages(s, m, used, last);
        at = last > at ? last : used;
    }
}

static void save_mapping(struct saving *s, const struct map *m)
{
    if (m->of_kernel || is_arena(m) || (m->inode && !m->shared && image_is_known(m)))
        save_region(s, m, m->start, m->end, REGION_KEEP, 0);
    else if (m->shared && m->protection & PROT_WRITE)
        s->failed = EXDEV;
    else if (!(m->protection & PROT_READ))
        save_region(s, m, m->start, m->end, REGION_EMPTY, 0);
    else if (m->inode)
        save_pages(s, m, m->start, m->end);
    else
        save_runs(s, m);
}

static void save_signals(struct image *image)
{
    sigaltstack(NULL, &image->signal_stack);
    for (int i = 1; i < SIGNALS; i++)
        if (sigaction(i, NULL, &image->handlers[i]) < 0)
            image->handlers[i].sa_handler = SIG_ERR; /* the C library's own */
}

static int image_write(int fd, uint64_t size)
{
    struct image *image = &arena->image;
    struct saving s = { .fd = fd, .size = size, .end = IMAGE_HEAD };
    struct map m;
    memset(image, 0, offsetof(struct image, regions));
    memcpy(image->zygote, arena->zygote, sizeof image->zygote);
    image->heap_end = (uint64_t)(uintptr_t)sbrk(0);
    save_signals(image);
    int rc = size < IMAGE_HEAD ? -ENOSPC : image_read_maps();
    if (rc < 0)
        return rc;
    s.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (const char *at = arena->maps; !s.failed && image_next_map(&at, &m);) {
        save_mapping(&s, &m);
        if (m.protection & PROT_WRITE && !m.of_kernel && !is_arena(&m))
            image->data += m.end - m.start;
    }
    if (s.pagemap >= 0)
        close(s.pagemap);
    if (s.failed)
        return -s.failed;
    return pwrite(fd, image, sizeof *image, 0) == (ssize_t)sizeof *image ? 0 : -errno;
}

int image_save(int fd, uint64_t size)
{
    sigset_t all;
    if (!arena)
        return -ENOSYS;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &saved.mask);
    zygote.before_fork();
    if (_setjmp(saved.resume)) {
        zygote.after_fork_child();
        sigprocmask(SIG_SETMASK, &saved.mask, NULL);
        return 1;
    }
    int rc = image_write(fd, size);
    zygote.after_fork_parent();
    sigprocmask(SIG_SETMASK, &saved.mask, NULL);
    madvise(arena->maps, sizeof arena->maps, MADV_DONTNEED);
    return rc;
}

/* ---- restoring: once the first region is mapped, only the arena may be used ---- */

__attribute__((noreturn)) static void restore_fail(const char *what)
{
    static const char text[] = "continuing from the template failed: ";
    (void)!write(2, text, sizeof text - 1);
    (void)!write(2, what, strlen(what));
    (void)!write(2, "\n", 1);
    _exit(125);
}

/* Removes the mappings of this process that no region covers. */
static void restore_unmap(const struct image *image)
{
    struct map m;
    uint32_t i = 0;
    for (const char *at = arena->maps; image_next_map(&at, &m);) {
        uintptr_t from = m.start;
        if (m.of_kernel || is_arena(&m) || m.is_stack)
            continue;
        while (i < image->count && image->regions[i].end <= m.start)
            i++;
        for (uint32_t k = i; from < m.end; k++) {
            uintptr_t next = k < image->count ? image->regions[k].start : m.end;
            if (next > m.end)
                next = m.end;
            if (next > from)
                munmap((void *)from, next - from);
            if (k >= image->count)
                break;
            if (image->regions[k].end > from)
                from = image->regions[k].end;
        }
    }
}

static void restore_region(const struct region *r)
{
    void *start = (void *)(uintptr_t)r->start;
    size_t len = r->end - r->start;
    int flags = MAP_PRIVATE | MAP_FIXED | (r->kind == REGION_EMPTY ? MAP_ANONYMOUS : 0);
    if (r->kind == REGION_KEEP)
        return;
    if (r->kind == REGION_STACK) {
        if (pread(arena->fd, start, len, (off_t)r->offset) != (ssize_t)len)
            restore_fail("the stack is too small");
        return;
    }
    if (mmap(start, len, (int)r->protection, flags, r->kind == REGION_EMPTY ? -1 : arena->fd,
            (off_t)r->offset) != start)
        restore_fail("mapping its memory; raise --memory");
}

/* The number of this thread, which the C library and Python remember. */
static void restore_identity(void)
{
    *(pid_t *)zygote.tid_address = (pid_t)syscall(SYS_gettid);
}

static void restore_run(void)
{
    const struct image *image = &arena->image;
    if ((uint64_t)syscall(SYS_brk, image->heap_end) != image->heap_end)
        restore_fail("growing its heap; raise --memory");
    for (uint32_t i = 0; i < image->count; i++)
        restore_region(&image->regions[i]);
    syscall(SYS_close, arena->fd);
    restore_identity();
    if (!(image->signal_stack.ss_flags & SS_DISABLE))
        sigaltstack(&image->signal_stack, NULL);
    for (int i = 1; i < SIGNALS; i++)
        if (image->handlers[i].sa_handler != SIG_ERR)
            sigaction(i, &image->handlers[i], NULL);
    _longjmp(saved.resume, 1);
}

/* Without the rest of the regions, which would take a page fault for each 128. */
static int image_read(int fd, struct image *image)
{
    const size_t head = offsetof(struct image, regions);
    if (pread(fd, image, head, 0) != (ssize_t)head)
        return -EIO;
    if (memcmp(image->zygote, arena->zygote, sizeof image->zygote) != 0)
        return -ESTALE;
    if (image->count > REGIONS_MAX)
        return -EINVAL;
    size_t len = image->count * sizeof image->regions[0];
    return pread(fd, image->regions, len, (off_t)head) == (ssize_t)len ? 0 : -EIO;
}

static int image_check(const struct image *image)
{
    struct rlimit limit;
    for (uint32_t i = 0; i < image->count; i++) {
        const struct region *r = &image->regions[i];
        struct map m = { .start = r->start, .end = r->end };
        if (r->start >= r->end || (i > 0 && r->start < image->regions[i - 1].end) ||
            (is_arena(&m) && r->kind != REGION_KEEP))
            return -EINVAL;
    }
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur < image->data)
        return -ENOMEM;
    return 0;
}

/* Calls restore_run on the arena's stack. musl has no makecontext(3). */
__attribute__((noreturn)) static void restore_on_own_stack(void)
{
    char *top = arena->stack + sizeof arena->stack;
#if defined(__x86_64__)
    __asm__ volatile("mov %[top], %%rsp\n"
                     " xor %%ebp, %%ebp\n"
                     " call *%[run]\n"
                     :
                     : [top] "r"(top), [run] "r"(restore_run)
                     : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mov sp, %[top]\n"
                     " mov x29, #0\n"
                     " blr %[run]\n"
                     :
                     : [top] "r"(top), [run] "r"(restore_run)
                     : "memory");
#else
#error "switch to the stack of this machine here"
#endif
    __builtin_unreachable();
}

int image_restore(int fd)
{
    sigset_t all;
    if (!arena)
        return -ENOSYS;
    int rc = image_read(fd, &arena->image);
    if (rc == 0)
        rc = image_check(&arena->image);
    if (rc == 0)
        rc = image_read_maps();
    if (rc < 0)
        return rc;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    arena->fd = fd;
    /* brk(2) does not shrink a heap whose end is unmapped. */
    if ((uint64_t)syscall(SYS_brk, 0) > arena->image.heap_end)
        syscall(SYS_brk, arena->image.heap_end);
    restore_unmap(&arena->image); /* its own stack is not removed */
    restore_on_own_stack();
}
