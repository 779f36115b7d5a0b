/* serve/native/batch_results.c: results of batches, sent as their file has them.
 *
 * The file only grows, by whole lines, so a client that has read N bytes goes on at the offset N.
 * One that follows gets new lines until the batch ends; nothing is read for one that does not read.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/native/batch.h"

enum { READER_PIECE = 64 << 10 };

struct batch_reader {
    struct request *r;
    int fd;
    off_t at;
    bool follows, waits; /* waits: for a line */
    struct batch_reader *next;
};

static void reader_read(struct batch_reader *reader)
{
    struct request *r = reader->r;
    cleanup_free char *piece = malloc(READER_PIECE);
    reader->waits = false;
    while (piece && !r->gone && request_unread(r) <= SERVE_UNREAD_MAX) {
        bool may_grow = reader->follows && batch_active(r->server, r->id);
        ssize_t n = pread(reader->fd, piece, READER_PIECE, reader->at);
        if (n > 0) {
            request_push(r, piece, (size_t)n);
            reader->at += n;
            continue;
        }
        if (n == 0 && may_grow) {
            reader->waits = true;
            return;
        }
        if (n < 0)
            request_cut(r);
        else
            request_end(r);
        return;
    }
    if (!piece)
        request_cut(r);
}

void batch_results_serve(struct server *s, const char *id)
{
    for (struct batch_reader *reader = s->batch_readers; reader; reader = reader->next)
        if (reader->waits && strcmp(reader->r->id, id) == 0)
            reader_read(reader);
}

static void reader_on_drained(struct request *r)
{
    struct batch_reader *reader = r->state;
    if (!reader->waits && !r->ended && !r->cut)
        reader_read(reader);
}

static void reader_on_free(struct request *r)
{
    struct batch_reader *reader = r->state, **at = &r->server->batch_readers;
    while (*at != reader)
        at = &(*at)->next;
    *at = reader->next;
    close_fd(&reader->fd);
    free(reader);
}

/* Where the client goes on; negative: it is not a number, or in the middle of a line, and the
 * request was refused. */
static off_t results_offset(struct request *r, int fd)
{
    const char *text = request_query(r, "offset", "0");
    char *end = NULL, before = '\n';
    long long at = text ? strtoll(text, &end, 10) : -1;
    if (!text)
        return -1;
    if (end == text || *end || at < 0 || strlen(text) > 18)
        request_refuse(r, 400, "argument", "offset is a number of bytes");
    else if (at > 0 && (pread(fd, &before, 1, at - 1) != 1 || before != '\n'))
        request_refuse(r, 400, "argument", "offset is not the beginning of a line of the results");
    return r->reply ? -1 : at;
}

void handle_batch_results(struct request *r)
{
    cleanup_free char *directory = batch_directory_of(r);
    cleanup_free char *path = directory ? text_printf("%s/results.jsonl", directory) : NULL;
    const char *follow = path ? request_query(r, "follow", "no") : NULL;
    if (!follow)
        return;
    cleanup_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (strcmp(follow, "yes") != 0 && strcmp(follow, "no") != 0)
        request_refuse(r, 400, "argument", "follow is yes or no");
    else if (fd < 0)
        request_refuse(r, 503, "storage", "the results cannot be opened");
    off_t at = r->reply ? -1 : results_offset(r, fd);
    struct batch_reader *reader = at < 0 ? NULL : calloc(1, sizeof *reader);
    if (!reader) {
        if (!r->reply)
            request_refuse_memory(r);
        return;
    }
    *reader = (struct batch_reader){ .r = r,
        .fd = steal_fd(&fd),
        .at = at,
        .follows = strcmp(follow, "yes") == 0,
        .next = r->server->batch_readers };
    r->server->batch_readers = reader;
    r->state = reader;
    r->on_free = reader_on_free;
    r->on_drained = reader_on_drained;
    request_stream(r, "application/jsonl");
    reader_read(reader);
}
