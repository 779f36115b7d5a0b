/* guest/zygote/heap.c: returns memory that the code of a session has freed.
 *
 * The C library returns free memory at the end of its heap by itself, but one block that stays
 * there keeps all that was freed before it: 300,000 objects of 1 KB left 318 MB in a session that
 * had let go of them. malloc_trim(3) returns whole free pages wherever they are. It looks at every
 * free block, which takes tens of milliseconds then, so it is called while the session is idle, and
 * only after cells that made many pages: a fork that made none keeps sharing its pages.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

enum { GROWN_PAGES = 4096 }; /* 16 MiB with small pages */

/* Called by Python. */
__attribute__((visibility("default"))) int heap_has_grown(void);
__attribute__((visibility("default"))) void heap_trim(void);

static struct {
    long faults; /* when it was looked at last, of this process or of the one it is a copy of */
    bool grown;
} heap;

/* Whether many pages were made since the last heap_trim(). */
int heap_has_grown(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0 &&
        (used.ru_minflt - heap.faults > GROWN_PAGES || used.ru_minflt < heap.faults)) {
        heap.grown |= used.ru_minflt > heap.faults;
        heap.faults = used.ru_minflt;
    }
    return heap.grown;
}

void heap_trim(void)
{
    int (*trim)(size_t) = (int (*)(size_t))dlsym(RTLD_DEFAULT, "malloc_trim"); /* musl has none */
    heap.grown = false;
    if (trim)
        trim(0);
}
