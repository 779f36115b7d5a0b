/* env/local/reports.c: receives the reports of keepers.
 *
 * A tag is an index into the table, and above it a number that no other user of the entry had, so a
 * report that arrives after its sandbox was closed is not taken for another's.
 */
#include "env/local/reports.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"

enum { TAG_INDEX_BITS = 32, NO_ENTRY = -1 };

struct reports {
    int mine, theirs;
    struct watch *watch;
    report_fn *fn;
    struct report_entry {
        void *sandbox; /* NULL: the entry is free */
        uint64_t tag;
        int64_t next_free; /* index, or NO_ENTRY */
    } * entries;
    size_t count, room;
    int64_t first_free;
    uint64_t uses;
};

static struct report_entry *reports_find(const struct reports *r, uint64_t tag)
{
    size_t index = tag & UINT32_MAX;
    if (tag == 0 || index >= r->count || r->entries[index].tag != tag || !r->entries[index].sandbox)
        return NULL;
    return &r->entries[index];
}

void reports_read(struct reports *r)
{
    struct zygote_status status;
    ssize_t n;
    while ((n = recv(r->mine, &status, sizeof status, MSG_DONTWAIT)) > 0 ||
           (n < 0 && errno == EINTR)) {
        struct report_entry *e = n == (ssize_t)sizeof status ? reports_find(r, status.tag) : NULL;
        if (e)
            r->fn(e->sandbox, &status);
    }
}

static void reports_readable(void *arg, int status, int events)
{
    reports_read(arg);
}

int reports_open(struct loop *loop, report_fn *fn, struct reports **out, struct error *err)
{
    int pair[2] = { -1, -1 };
    struct reports *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        free(r);
        return error_set_errno(err, ERROR_ENVIRONMENT, "creating a socket for reports");
    }
    *r = (struct reports){ .mine = pair[0], .theirs = pair[1], .fn = fn, .first_free = NO_ENTRY };
    r->watch = watch_new(loop, r->mine, reports_readable, r);
    if (!r->watch) {
        reports_close(r);
        return error_memory(err);
    }
    watch_events(r->watch, UV_READABLE);
    watch_background(r->watch, true);
    *out = r;
    return 0;
}

void reports_close(struct reports *r)
{
    if (!r)
        return;
    watch_free(r->watch);
    close_fd(&r->mine);
    close_fd(&r->theirs);
    free(r->entries);
    free(r);
}

void reports_forked(struct reports *r)
{
    close_fd(&r->theirs);
}

int reports_expect(struct reports *r, void *sandbox, uint64_t *tag, struct error *err)
{
    int64_t index = r->first_free;
    if (index == NO_ENTRY) {
        if (!array_room(r->entries, r->count, &r->room))
            return error_memory(err);
        index = (int64_t)r->count++;
    } else {
        r->first_free = r->entries[index].next_free;
    }
    *tag = ++r->uses << TAG_INDEX_BITS | (uint64_t)index;
    r->entries[index] =
        (struct report_entry){ .sandbox = sandbox, .tag = *tag, .next_free = NO_ENTRY };
    return 0;
}

void reports_forget(struct reports *r, uint64_t tag)
{
    struct report_entry *e = reports_find(r, tag);
    if (!e)
        return;
    e->sandbox = NULL;
    e->next_free = r->first_free;
    r->first_free = e - r->entries;
}

int reports_share(const struct reports *r)
{
    return fcntl(r->theirs, F_DUPFD_CLOEXEC, 0);
}
