/* cluster/handover.c: see handover.h. */
#include "cluster/handover.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { HANDOVER_END_SECONDS = 5 };

static void items_init(struct items *items)
{
    *items = (struct items){ .end = &items->first };
}

static void items_add(struct items *items, struct item *item)
{
    item->next = NULL;
    *items->end = item;
    items->end = &item->next;
    items->bytes += item->bytes;
}

static struct item *items_take_all(struct items *items)
{
    struct item *all = items->first;
    items_init(items);
    return all;
}

static struct item *item_new(
    const struct nats_library *nats, nats_message *m, struct subscription *subscription)
{
    struct item *item = malloc(sizeof *item);
    if (item)
        *item = (struct item){ .m = m,
            .subscription = subscription,
            .bytes = sizeof *item + 256 + (size_t)nats->length(m) };
    return item;
}

static void items_free(const struct nats_library *nats, struct item *all)
{
    while (all) {
        struct item *item = all;
        all = item->next;
        nats->message_free(item->m);
        free(item);
    }
}

/* ---- threads of libnats ---- */

/* Blocks the delivering thread while the loop is behind; libnats then drops what is too much, and
 * what was asked ends with a timeout. */
static void handover_add_in(struct handover *x, struct subscription *subscription, nats_message *m)
{
    struct item *item = item_new(x->nats, m, subscription);
    if (!item) {
        x->nats->message_free(m);
        return;
    }
    pthread_mutex_lock(&x->lock);
    while (x->in.bytes > HANDOVER_BYTES_MAX && !x->is_closed)
        pthread_cond_wait(&x->in_taken, &x->lock);
    bool is_closed = x->is_closed, was_empty = !x->in.first;
    if (!is_closed)
        items_add(&x->in, item);
    pthread_mutex_unlock(&x->lock);
    if (is_closed)
        items_free(x->nats, item);
    else if (was_empty) /* handover_end waits for this callback before the handle goes */
        uv_async_send(x->async);
}

static void handover_on_inbox(
    nats_connection *connection, nats_subscription *subscription, nats_message *m, void *arg)
{
    handover_add_in(arg, NULL, m);
}

static void handover_on_message(
    nats_connection *connection, nats_subscription *handle, nats_message *m, void *arg)
{
    struct subscription *subscription = arg;
    handover_add_in(subscription->x, subscription, m);
}

static void handover_set_connected(struct handover *x, bool is_connected)
{
    pthread_mutex_lock(&x->lock);
    x->is_connected = is_connected;
    x->was_lost = x->was_lost || !is_connected;
    if (!x->is_closed && x->async)
        uv_async_send(x->async);
    pthread_mutex_unlock(&x->lock);
}

void handover_on_disconnected(nats_connection *connection, void *arg)
{
    handover_set_connected(arg, false);
}

void handover_on_reconnected(nats_connection *connection, void *arg)
{
    handover_set_connected(arg, true);
}

static void handover_leave(void *arg)
{
    struct handover *x = arg;
    pthread_mutex_lock(&x->lock);
    x->users--;
    pthread_cond_signal(&x->left);
    pthread_mutex_unlock(&x->lock);
}

void handover_on_closed(nats_connection *connection, void *arg)
{
    handover_set_connected(arg, false);
    handover_leave(arg);
}

/* Without a handler libnats prints errors. What they stop ends with a timeout. */
void handover_on_error(
    nats_connection *connection, nats_subscription *subscription, nats_status status, void *arg)
{
}

/* ---- the sender ---- */

static void *handover_send(void *arg)
{
    struct handover *x = arg;
    pthread_mutex_lock(&x->lock);
    while (!x->is_closed || x->out.first) {
        if (!x->out.first) {
            pthread_cond_wait(&x->out_added, &x->lock);
            continue;
        }
        struct item *all = items_take_all(&x->out);
        bool is_connected = x->is_connected;
        pthread_mutex_unlock(&x->lock);
        /* libnats would keep them for the next connection, when no caller waits any more. */
        for (const struct item *item = all; item && is_connected; item = item->next)
            x->nats->publish(x->connection, item->m);
        items_free(x->nats, all);
        pthread_mutex_lock(&x->lock);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* Takes the message. */
bool handover_add_out(struct handover *x, nats_message *m)
{
    struct item *item = item_new(x->nats, m, NULL);
    if (!item) {
        x->nats->message_free(m);
        return false;
    }
    pthread_mutex_lock(&x->lock);
    bool is_added = x->is_connected && !x->is_closed && x->out.bytes <= HANDOVER_BYTES_MAX;
    bool was_empty = !x->out.first;
    if (is_added)
        items_add(&x->out, item);
    pthread_mutex_unlock(&x->lock);
    if (!is_added)
        items_free(x->nats, item);
    else if (was_empty) /* a woken sender finds the lock free */
        pthread_cond_signal(&x->out_added);
    return is_added;
}

/* ---- subscriptions ---- */

nats_status handover_subscribe(struct handover *x, const char *subject, const char *group,
    struct subscription *subscription, nats_subscription **out)
{
    nats_message_fn *fn = subscription ? handover_on_message : handover_on_inbox;
    void *arg = subscription ? (void *)subscription : (void *)x;
    nats_status status = group
                             ? x->nats->subscribe_group(out, x->connection, subject, group, fn, arg)
                             : x->nats->subscribe(out, x->connection, subject, fn, arg);
    if (status != 0)
        return status;
    pthread_mutex_lock(&x->lock);
    x->users++;
    pthread_mutex_unlock(&x->lock);
    x->nats->set_pending(*out, 65536, HANDOVER_BYTES_MAX);
    return x->nats->on_complete(*out, handover_leave, x);
}

/* ---- the loop's side ---- */

struct item *handover_take_in(struct handover *x, bool *is_connected, bool *was_lost)
{
    pthread_mutex_lock(&x->lock);
    struct item *all = items_take_all(&x->in);
    *is_connected = x->is_connected;
    *was_lost = x->was_lost;
    x->was_lost = false;
    pthread_cond_broadcast(&x->in_taken);
    pthread_mutex_unlock(&x->lock);
    return all;
}

int handover_start(struct handover *x, struct error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&x->sender, NULL, handover_send, x);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return errno ? error_set_errno(err, ERROR_IO, "starting a thread") : 0;
}

struct handover *handover_new(const struct nats_library *nats)
{
    struct handover *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->nats = nats;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->in_taken, NULL);
    pthread_cond_init(&x->out_added, NULL);
    pthread_cond_init(&x->left, NULL);
    items_init(&x->in);
    items_init(&x->out);
    return x;
}

void handover_free(struct handover *x)
{
    items_free(x->nats, items_take_all(&x->in));
    items_free(x->nats, items_take_all(&x->out));
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->in_taken);
    pthread_cond_destroy(&x->out_added);
    pthread_cond_destroy(&x->left);
    free(x);
}

bool handover_end(struct handover *x)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANDOVER_END_SECONDS;
    pthread_mutex_lock(&x->lock);
    x->is_closed = true;
    pthread_cond_broadcast(&x->in_taken);
    pthread_cond_broadcast(&x->out_added);
    pthread_mutex_unlock(&x->lock);
    if (x->sender)
        pthread_join(x->sender, NULL);
    if (x->connection)
        x->nats->close(x->connection);
    pthread_mutex_lock(&x->lock);
    while (x->users > 0 && rc == 0)
        rc = pthread_cond_timedwait(&x->left, &x->lock, &until);
    bool is_over = x->users == 0;
    pthread_mutex_unlock(&x->lock);
    return is_over;
}
