/* serve/queue/copies.c: copies of runs in this node's record with which other nodes go on.
 *
 * The cluster's log of a run is what counts: a copy that does not end here would look like a run
 * that can be resumed, and paid for again. It is removed when the run leaves this node. A full disk
 * does not allow that, and a killed node has no time for it. So it is tried again, and a node that
 * starts asks for the log of each interrupted run in its record.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/queue/queue.h"

struct queue_copy {
    char key[KEY_ID_SIZE], id[QUEUE_ID_MAX + 1]; /* key "": it is known that another one has it */
    struct queue_copy *next;
};

static void queue_copy_add(struct run_queue *q, const char *key, const char *id)
{
    struct queue_copy *copy = calloc(1, sizeof *copy);
    if (!copy)
        return;
    snprintf(copy->key, sizeof copy->key, "%s", key);
    snprintf(copy->id, sizeof copy->id, "%s", id);
    copy->next = q->copies;
    q->copies = copy;
}

void queue_copy_remove(struct run_queue *q, const char *id)
{
    if (droste_record_import(q->s->d, id, NULL, 0, NULL) == -DROSTE_ERROR_STORE)
        queue_copy_add(q, "", id);
}

static void queue_copy_drop(struct queue_copy **at)
{
    struct queue_copy *copy = *at;
    *at = copy->next;
    free(copy);
}

bool queue_copy_is_back(struct run_queue *q, const char *id)
{
    bool was_there = false;
    for (struct queue_copy **at = &q->copies; *at;) {
        if (strcmp((*at)->id, id) != 0) {
            at = &(*at)->next;
            continue;
        }
        queue_copy_drop(at);
        was_there = true;
    }
    return was_there;
}

/* ---- what an earlier process has left ---- */

static int queue_copy_on_left(void *arg, const droste_record_run *run, droste_error *err)
{
    if (run->account && strlen(run->account) < KEY_ID_SIZE && queue_id_is_ok(run->id))
        queue_copy_add(arg, run->account, run->id);
    return 0;
}

void queue_copies_find(struct run_queue *q)
{
    struct server *s = q->s;
    const droste_record_filter filter = { .status = "interrupted" };
    if (server_record(s, NULL))
        droste_record_list(s->record, &filter, queue_copy_on_left, q, NULL);
}

/* The first that is in doubt; NULL: none is. */
static struct queue_copy **queue_copy_in_doubt(struct run_queue *q)
{
    struct queue_copy **at = &q->copies;
    while (*at && !(*at)->key[0])
        at = &(*at)->next;
    return *at ? at : NULL;
}

/* Its log: the run is the queue's, and if this node takes it again, it makes it of its log. */
static void queue_copy_on_log(void *arg, const struct bus_answer *a)
{
    struct run_queue *q = arg;
    struct queue_copy **at = queue_copy_in_doubt(q);
    q->is_asking = false;
    if (!at || strcmp((*at)->id, q->asked) != 0) /* it has come back meanwhile */
        return;
    if (a->result == BUS_OK && !queue_run_is_here(q, (*at)->key, (*at)->id))
        (*at)->key[0] = '\0';
    else if (a->result == BUS_OK || a->result == BUS_NOT_FOUND)
        queue_copy_drop(at);
    else
        return; /* asked again with the next tick */
    queue_copies_remove(q);
}

static void queue_copy_ask(struct run_queue *q)
{
    char subject[BUS_SUBJECT_MAX + 1];
    struct queue_copy **at = queue_copy_in_doubt(q);
    if (!at || q->is_asking)
        return;
    q->is_asking = true;
    snprintf(q->asked, sizeof q->asked, "%s", (*at)->id);
    snprintf(subject, sizeof subject, "droste.run.log.%s.%s", (*at)->key, (*at)->id);
    bus_stream_last(q->bus, "droste_run_logs", subject, queue_copy_on_log, q);
}

void queue_copies_remove(struct run_queue *q)
{
    for (struct queue_copy **at = &q->copies; *at;)
        if (!(*at)->key[0] && droste_record_import(q->s->d, (*at)->id, NULL, 0, NULL) == 0)
            queue_copy_drop(at);
        else
            at = &(*at)->next;
    queue_copy_ask(q);
}

void queue_copies_free(struct run_queue *q)
{
    while (q->copies)
        queue_copy_drop(&q->copies);
}
