/* cluster/nats_library.c: see nats_library.h. */
#include "cluster/nats_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The name of the library has its minor version (libnats.so.3.4 in Debian 12). */
enum { NATS_MINOR_LEAST = 4, NATS_MINOR_MOST = 20 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nats_library library;
static struct error failure;

static void *nats_library_find(void)
{
    char name[32];
    for (int minor = NATS_MINOR_MOST; minor >= NATS_MINOR_LEAST; minor--) {
        snprintf(name, sizeof name, "libnats.so.3.%d", minor);
        void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (handle)
            return handle;
    }
    return dlopen("libnats.so", RTLD_NOW | RTLD_LOCAL);
}

static void nats_library_open(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define NATS_ROW(theirs, ours, result, parameters) { #theirs, offsetof(struct nats_library, ours) },
        NATS_FUNCTIONS(NATS_ROW)
#undef NATS_ROW
    };
    void *handle = nats_library_find();
    if (!handle) {
        error_set(&failure, ERROR_UNSUPPORTED,
            "a cluster needs the library libnats, version 3.4 or later, which is not installed "
            "(Debian 12: apt-get install libnats3.4; Debian 13: libnats3.10)");
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(handle, functions[i].name);
        if (!function) {
            error_set(&failure, ERROR_UNSUPPORTED,
                "the library libnats has no function %s; install version 3.4 or later",
                functions[i].name);
            return;
        }
        memcpy((char *)&library + functions[i].offset, &function, sizeof function);
    }
}

int nats_library_load(const struct nats_library **out, struct error *err)
{
    pthread_once(&once, nats_library_open);
    if (failure.code != ERROR_NONE) {
        if (err)
            *err = failure;
        return -(int)failure.code;
    }
    *out = &library;
    return 0;
}
