/* net/sockets.c: a table indexed by descriptor, which stays small: the kernel assigns the lowest
 * free number.
 */
#include "net/sockets.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct entry {
    struct sockets *sockets;
    struct watch *watch;
    int fd;
    int wanted;  /* events that libcurl waits for */
    int watched; /* events that the loop watches */
};

struct sockets {
    struct loop *loop;
    sockets_fn *fn;
    void *arg;
    struct entry **entries; /* NULL for other descriptors */
    size_t count;
};

static int sockets_watch_for(struct entry *e, int events)
{
    if (events == e->watched)
        return 0;
    e->watched = events;
    return watch_events(e->watch, events);
}

static void sockets_socket_ready(void *arg, int status, int events)
{
    struct entry *e = arg;
    int found = (status < 0 ? CURL_CSELECT_ERR : 0) | (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
                (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);
    if (e->wanted)
        e->sockets->fn(e->sockets->arg, e->fd, found);
    else
        /* Unexpected data: the server has closed the connection, which libcurl checks before
         * reusing it. */
        sockets_watch_for(e, 0);
}

struct sockets *sockets_new(struct loop *loop, sockets_fn *fn, void *arg)
{
    struct sockets *s = calloc(1, sizeof *s);
    if (s)
        *s = (struct sockets){ .loop = loop, .fn = fn, .arg = arg };
    return s;
}

void sockets_free(struct sockets *s)
{
    if (!s)
        return;
    for (size_t fd = 0; fd < s->count; fd++)
        sockets_forget(s, (int)fd);
    free(s->entries);
    free(s);
}

static bool table_reach(struct sockets *s, int fd)
{
    size_t count = ((size_t)fd | 63) + 1;
    if (count <= s->count)
        return true;
    struct entry **longer = realloc(s->entries, count * sizeof *longer);
    if (!longer)
        return false;
    memset(longer + s->count, 0, (count - s->count) * sizeof *longer);
    s->entries = longer;
    s->count = count;
    return true;
}

static struct entry *entry_new(struct sockets *s, int fd)
{
    struct entry *e = table_reach(s, fd) ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    *e = (struct entry){ .sockets = s, .fd = fd };
    e->watch = watch_new(s->loop, fd, sockets_socket_ready, e);
    if (!e->watch) {
        free(e);
        return NULL;
    }
    return s->entries[fd] = e;
}

static struct entry *entry_of(const struct sockets *s, int fd)
{
    return fd >= 0 && (size_t)fd < s->count ? s->entries[fd] : NULL;
}

int sockets_want(struct sockets *s, int fd, int what)
{
    struct entry *e = entry_of(s, fd);
    int events = what == CURL_POLL_REMOVE ? 0
                                          : (what & CURL_POLL_IN ? UV_READABLE : 0) |
                                                (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    if (!e && events == 0)
        return 0;
    if (!e && !(e = entry_new(s, fd)))
        return -1;
    e->wanted = events;
    watch_background(e->watch, events == 0);
    /* An idle connection is almost always writable, so watching for that would spin. */
    return sockets_watch_for(e, events ? events : e->watched & UV_READABLE);
}

void sockets_forget(struct sockets *s, int fd)
{
    struct entry *e = entry_of(s, fd);
    if (!e)
        return;
    s->entries[fd] = NULL;
    watch_free(e->watch);
    free(e);
}
