/* serve/queue/log.c: appends to the log of a run, and reads it (queue.h).
 *
 * A message is a head of 26 bytes (the mark, its writer, its number among the writer's messages,
 * whether more of the entry follows) and data. An append whose outcome is not known is repeated
 * with the same id, which the server keeps once; after a conflict, the message behind the last one
 * that is known here says whether it was this one. If it is a cancellation, the append is repeated
 * behind it; if it is another node's, the run is lost.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/queue/queue.h"

enum { HEAD_SIZE = 26 };

bool queue_head_read(const char *data, size_t len, struct queue_head *out)
{
    char number[9] = "", *end;
    if (len < HEAD_SIZE || !strchr("QTUCFED", data[0]) || data[0] == '\0')
        return false;
    *out = (struct queue_head){ .mark = (enum queue_mark)data[0],
        .more = data[HEAD_SIZE - 1] == '+',
        .data = data + HEAD_SIZE,
        .len = len - HEAD_SIZE };
    memcpy(out->owner, data + 1, 16);
    memcpy(number, data + 17, 8);
    out->number = (uint32_t)strtoul(number, &end, 16);
    return *end == '\0';
}

/* ---- append ---- */

static void queue_log_send(struct queue_log *l);

static void queue_log_end(struct queue_log *l, enum queue_kept kept)
{
    struct queue_log **at = &l->q->appending;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->is_appending = false;
    buf_free(&l->data);
    l->done(l->arg, kept);
}

static void queue_log_advance(struct queue_log *l, uint64_t sequence)
{
    l->sequence = sequence;
    l->at += l->part;
    if (l->at < l->data.len) {
        l->number = ++l->q->number;
        queue_log_send(l);
    } else {
        queue_log_end(l, QUEUE_KEPT);
    }
}

static void queue_log_on_next(void *arg, const struct bus_answer *a)
{
    struct queue_log *l = arg;
    struct queue_head head;
    if (a->result != BUS_OK || !queue_head_read(a->data, a->len, &head)) {
        l->waits = true;
    } else if (head.number == l->number && strcmp(head.owner, l->q->owner) == 0) {
        queue_log_advance(l, a->sequence);
    } else if (head.mark == MARK_CANCEL) {
        l->is_cancelled = true;
        l->sequence = a->sequence;
        queue_log_send(l);
    } else {
        queue_log_end(l, QUEUE_LOST);
    }
}

static void queue_log_on_published(void *arg, const struct bus_answer *a)
{
    struct queue_log *l = arg;
    if (a->result == BUS_OK)
        queue_log_advance(l, a->sequence);
    else if (a->result == BUS_CONFLICT)
        bus_stream_next(
            l->q->bus, "droste_run_logs", l->subject, l->sequence + 1, queue_log_on_next, l);
    else
        l->waits = true;
}

static void queue_log_send(struct queue_log *l)
{
    cleanup_buf struct buf message = { 0 };
    char id[64];
    size_t left = l->data.len - l->at;
    l->part = left < QUEUE_PART_MAX ? left : QUEUE_PART_MAX;
    buf_printf(&message, "%c%s%08x%c", l->mark, l->q->owner, l->number, l->part < left ? '+' : '.');
    buf_append(&message, buf_text(&l->data) + l->at, l->part);
    snprintf(id, sizeof id, "%s-%08x", l->q->owner, l->number);
    if (buf_failed(&message)) {
        l->waits = true;
        return;
    }
    const struct bus_publication p = { .subject = l->subject,
        .data = message.data,
        .len = message.len,
        .id = id,
        .expects_sequence = true,
        .sequence = l->sequence };
    bus_publish(l->q->bus, &p, queue_log_on_published, l);
}

void queue_log_init(struct queue_log *l, struct run_queue *q, const char *key, const char *id)
{
    *l = (struct queue_log){ .q = q };
    snprintf(l->subject, sizeof l->subject, "droste.run.log.%s.%s", key, id);
}

void queue_log_append(struct queue_log *l, enum queue_mark mark, const void *data, size_t len,
    void (*done)(void *arg, enum queue_kept kept), void *arg)
{
    l->mark = mark;
    l->at = 0;
    l->done = done;
    l->arg = arg;
    l->waits = false;
    l->is_appending = true;
    l->number = ++l->q->number;
    buf_append(&l->data, data, len);
    l->next = l->q->appending;
    l->q->appending = l;
    queue_log_send(l);
}

void queue_log_close(struct queue_log *l)
{
    struct queue_log **at = &l->q->appending;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    bus_forget(l->q->bus, l);
    buf_free(&l->data);
}

void queue_logs_tick(struct run_queue *q)
{
    struct queue_log *next;
    for (struct queue_log *l = q->appending; l; l = next) {
        next = l->next;
        if (!l->waits)
            continue;
        l->waits = false;
        queue_log_send(l);
    }
}

/* ---- read ---- */

void queue_reading_free(struct queue_reading *r)
{
    buf_free(&r->request);
    buf_free(&r->units);
    buf_free(&r->end);
    buf_free(&r->part);
}

static void queue_reading_entry(struct queue_reading *r, enum queue_mark mark)
{
    struct buf *to = mark == MARK_REQUEST ? &r->request : mark == MARK_UNIT ? &r->units : &r->end;
    if (mark != MARK_UNIT)
        buf_clear(to);
    buf_append(to, buf_text(&r->part), r->part.len);
    r->failures += mark == MARK_FAILED;
    r->taken += mark == MARK_TAKEN;
    r->last = mark;
    buf_clear(&r->part);
}

/* An entry whose writer was stopped in the middle is dropped: the next one is of another. */
void queue_reading_take(struct queue_reading *r, const struct bus_answer *a)
{
    struct queue_head head;
    r->sequence = a->sequence;
    if (!queue_head_read(a->data, a->len, &head))
        return;
    if (head.mark == MARK_CANCEL) {
        r->is_cancelled = true;
        return;
    }
    if (r->part_mark != (char)head.mark || strcmp(r->part_owner, head.owner) != 0)
        buf_clear(&r->part);
    r->part_mark = (char)head.mark;
    memcpy(r->part_owner, head.owner, sizeof r->part_owner);
    buf_append(&r->part, head.data, head.len);
    if (!head.more)
        queue_reading_entry(r, head.mark);
}
