/* guest/zygote/huge.c: asks for huge pages for the memory of large Python objects, if the setting
 * `huge-pages` says so. docs/performance.md has what it brings and what it costs.
 *
 * A text of 1 GB has 262,144 small pages. Filling it takes as many page faults, and each fork of
 * the process copies as many entries of the page table. With huge pages both are 512. The kernel
 * gives them only on request where transparent_hugepage/enabled is `madvise`, as on most systems,
 * and the C library requests none. numpy requests them for arrays by itself.
 *
 * Large objects come from CPython's "raw" allocator, as pymalloc passes on what exceeds 512 bytes.
 * This wraps it, so it costs small objects nothing. After a fork a write to a huge page copies
 * 4 KiB of it, as before: the kernel splits the mapping of these 2 MiB first.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
    HUGE_PAGE = 2 << 20,
    HUGE_MIN = 2 * HUGE_PAGE, /* such a block has at least one whole huge page, wherever it is */
    RAW_DOMAIN = 0,           /* PYMEM_DOMAIN_RAW */
};

/* PyMemAllocatorEx of CPython, since 3.5. */
struct allocator {
    void *context;
    void *(*allocate)(void *context, size_t size);
    void *(*allocate_zeros)(void *context, size_t count, size_t size);
    void *(*resize)(void *context, void *block, size_t size);
    void (*release)(void *context, void *block);
};

static struct allocator raw;

/* Called by Python, once: a negative errno if this interpreter has no such functions. */
__attribute__((visibility("default"))) int huge_pages_use(void);

/* Only advice: where it is refused, the block has small pages. */
static void huge_advise(void *block, size_t size)
{
    uintptr_t start = ((uintptr_t)block + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)block + size) & ~((uintptr_t)HUGE_PAGE - 1);
    int saved = errno;
    if (block && end > start)
        madvise((void *)start, end - start, MADV_HUGEPAGE);
    errno = saved;
}

static void *huge_allocate(void *context, size_t size)
{
    void *block = raw.allocate(raw.context, size);
    if (size >= HUGE_MIN)
        huge_advise(block, size);
    return block;
}

static void *huge_allocate_zeros(void *context, size_t count, size_t size)
{
    void *block = raw.allocate_zeros(raw.context, count, size);
    if (size && count >= HUGE_MIN / size)
        huge_advise(block, count * size);
    return block;
}

/* A block of this size that grows in its place is a mapping, which keeps its advice: a text that
 * grows by a few bytes at a time costs no system call for each. */
static void *huge_resize(void *context, void *block, size_t size)
{
    void *resized = raw.resize(raw.context, block, size);
    if (size >= HUGE_MIN && resized != block)
        huge_advise(resized, size);
    return resized;
}

static void huge_release(void *context, void *block)
{
    raw.release(raw.context, block);
}

int huge_pages_use(void)
{
    static struct allocator huge = { NULL, huge_allocate, huge_allocate_zeros, huge_resize,
        huge_release };
    void (*get)(int, struct allocator *) =
        (void (*)(int, struct allocator *))dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    void (*set)(int, struct allocator *) =
        (void (*)(int, struct allocator *))dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    if (!get || !set)
        return -ENOSYS;
    get(RAW_DOMAIN, &raw);
    set(RAW_DOMAIN, &huge);
    return 0;
}
