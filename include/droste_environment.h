/* droste_environment.h: an environment of your own, in C: a shared object that Droste loads with --env plugin:PATH.
 *
 * An environment starts a Python somewhere and moves the bytes of its standard streams. That is all: cells,
 * calls, deadlines, limits of processes, results, and the guest itself are Droste's. The object exports
 *
 *     const droste_environment droste_environment_v1 = { .size = sizeof(droste_environment), … };
 *
 * whose functions are called on the thread that runs the `droste`, never at the same time. None of them may wait: what takes
 * time is watched for. examples/environment.c is a whole one.
 */
#ifndef DROSTE_ENVIRONMENT_H
#define DROSTE_ENVIRONMENT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of which the standard streams are: one Python, somewhere. Droste's. */
typedef struct droste_transport droste_transport;
/* What watches something for you. */
typedef struct droste_watch droste_watch;

enum { DROSTE_READABLE = 1, DROSTE_WRITABLE = 2 };

/* `events` is what there is, and everything if the descriptor is broken: then reading or writing says why. */
typedef void droste_watch_fn(void *arg, int events);

/* What Droste does for an environment. */
typedef struct droste_environment_host {
    size_t size; /* of this table: later versions have more behind it */

    /* Calls fn when the descriptor is ready for one of `events`. NULL without memory. */
    droste_watch *(*watch)(droste_transport *c, int fd, int events, droste_watch_fn *fn, void *arg);
    void (*change)(droste_watch *w, int events);
    /* Before the descriptor is closed. NULL is fine. */
    void (*unwatch)(droste_watch *w);

    /* Python is there, or there again after it was lost: its streams can be used. */
    void (*joined)(droste_transport *c);
    /* Bytes of its standard output. */
    void (*bytes)(droste_transport *c, const char *data, size_t len);
    /* Its streams are lost, and may be joined again; what was on its way may be lost with them. */
    void (*lost)(droste_transport *c);
    /* It is gone for good, or could not be started. NULL: it ended by itself. Nothing may be told after it. */
    void (*ended)(droste_transport *c, const char *why);
} droste_environment_host;

/* What the user asked for. Strings are valid during the call. */
typedef struct droste_environment_spec {
    size_t size;
    const char *const *words; /* the program and its arguments; NULL behind the last one */
    unsigned long long memory,
        processes; /* 0: no limit. Those of a process Droste sets in Python itself */
} droste_environment_spec;

typedef struct droste_environment {
    size_t size;      /* of this table */
    const char *name; /* "ssh" */
    /* True: the streams are a terminal's, or may lose what is said while nobody listens; everything is sent as
     * text then, and sent again where it was lost. False: all bytes arrive, in order. */
    int is_text;
    /* Starts the program, and gives what the other functions are called with. 0, or -1 with the reason in `why`. Neither
     * joined nor ended may be told from within. */
    int (*start)(const droste_environment_host *host, droste_transport *c,
        const droste_environment_spec *spec, void **own, char *why, size_t why_size);
    /* Bytes for its standard input: take all of them, and keep what does not go now. */
    void (*write)(void *own, const char *data, size_t len);
    /* Droste cannot take more for now (1), or can again (0): leave its output where it is. May be NULL. */
    void (*pause)(void *own, int paused);
    /* Ends the program and all that it started, and frees `own`. Nothing may be told after it. */
    void (*end)(void *own);
} droste_environment;

#ifdef __cplusplus
}
#endif

#endif
