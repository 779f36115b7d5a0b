/* cluster/nats.c: the connection of the bus, and what the loop does with messages. See
 * nats_internal.h.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/text.h"
#include "cluster/nats_internal.h"

enum { BUS_URLS_MAX = 16, BUS_CONNECT_MS = 5000, BUS_CONNECT_PAUSE_US = 100000 };
/* A silent server is noticed after two pings without an answer. */
enum { BUS_PING_MS = 1000, BUS_PINGS_OUT = 2, BUS_WRITE_MS = 2000 };

/* ---- the loop's side ---- */

static void bus_take(struct bus *b, struct item *item)
{
    struct subscription *subscription = item->subscription;
    if (!subscription) {
        struct call *c = call_find(b, b->nats->subject(item->m));
        if (c)
            c->take(c, item->m);
        return;
    }
    if (subscription->call) {
        subscription->call->receive(subscription->call, &item->m);
        return;
    }
    struct message_origin origin;
    bool is_late =
        subscription->consumer[0] && message_read_origin(b->nats->reply(item->m), &origin);
    if (!subscription->on_message && !is_late)
        return;
    struct bus_message *m = message_new(b, steal(&item->m));
    if (m && is_late)
        bus_nak(m, 0); /* of a fetch that has ended */
    else if (m)
        subscription->on_message(subscription->arg, m);
}

static void bus_find_server(struct bus *b)
{
    char url[sizeof b->server] = "";
    b->server[0] = '\0';
    if (!b->is_connected || b->nats->connected_url(b->x->connection, url, sizeof url) != 0)
        return;
    const char *host = strstr(url, "://"), *user;
    host = host ? host + 3 : url;
    user = strrchr(host, '@');
    snprintf(b->server, sizeof b->server, "%s", user ? user + 1 : host);
}

static void bus_see_connection(struct bus *b, bool is_connected, bool was_lost)
{
    bool has_changed = is_connected != b->is_connected;
    if (!has_changed && !was_lost)
        return;
    b->is_connected = is_connected;
    bus_find_server(b);
    for (size_t i = 0; was_lost && i < b->call_count; i++)
        if (b->calls[i] && !b->calls[i]->renew && b->calls[i]->early == BUS_OK) {
            b->calls[i]->early = BUS_TIMEOUT;
            b->calls[i]->early_why = "the connection to the NATS server was lost";
            b->has_early = true;
        }
    for (size_t i = 0; is_connected && i < b->call_count; i++)
        if (b->calls[i] && b->calls[i]->renew)
            b->calls[i]->renew(b->calls[i]);
    if (has_changed && b->options.changed)
        b->options.changed(b->options.arg, is_connected);
}

static void bus_on_async(uv_async_t *async)
{
    struct bus *b = async->data;
    bool is_connected, was_lost;
    struct item *all = handover_take_in(b->x, &is_connected, &was_lost);
    while (all) {
        struct item *item = all;
        all = item->next;
        bus_take(b, item);
        if (item->m)
            b->nats->message_free(item->m);
        free(item);
    }
    bus_see_connection(b, is_connected, was_lost);
    if (b->has_early)
        calls_sweep(b, clock_ns());
}

bool bus_is_connected(const struct bus *b)
{
    return b->is_connected;
}

const char *bus_server(const struct bus *b)
{
    return b->server;
}

void bus_forget(struct bus *b, const void *arg)
{
    for (size_t i = 0; i < b->call_count; i++) {
        struct call *c = b->calls[i];
        if (!c || c->arg != arg)
            continue;
        c->done = NULL;
        c->is_forgotten = true;
        if (c->renew)
            call_free(c); /* a watch */
    }
    for (struct subscription *s = b->subscriptions; s; s = s->next)
        if (s->arg == arg && s->on_message)
            subscription_end(s);
}

/* ---- subscriptions ---- */

static struct subscription *subscription_open(
    struct bus *b, const char *subject, const char *group, nats_status *status)
{
    struct subscription *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->x = b->x;
    s->b = b;
    *status = handover_subscribe(b->x, subject, group, s, &s->handle);
    if (!s->handle) {
        free(s);
        return NULL;
    }
    s->next = b->subscriptions;
    b->subscriptions = s;
    return s;
}

struct subscription *subscription_new(struct bus *b, bool is_exact)
{
    char inbox[sizeof((struct subscription *)0)->inbox], subject[80];
    nats_status status;
    size_t len = strlen(b->inbox) - 1; /* a sibling of the bus's */
    snprintf(
        inbox, sizeof inbox, "%.*s%x%s", (int)len, b->inbox, ++b->generation, is_exact ? "" : ".");
    snprintf(subject, sizeof subject, "%s%s", inbox, is_exact ? "" : "*");
    struct subscription *s = subscription_open(b, subject, NULL, &status);
    if (s)
        memcpy(s->inbox, inbox, sizeof inbox);
    return s;
}

/* A thread of libnats may be about to deliver to it, so it is only freed with the bus. */
void subscription_end(struct subscription *s)
{
    s->on_message = NULL;
    s->call = NULL;
    if (s->handle)
        s->b->nats->unsubscribe(steal(&s->handle));
}

int bus_subscribe(struct bus *b, const char *subject, const char *group, bus_message_fn *on_message,
    void *arg, struct error *err)
{
    nats_status status = 0;
    if (!bus_subject_is_ok(subject, true) || (group && !bus_name_is_ok(group)))
        return error_set(err, ERROR_ARGUMENT, "'%s' is not a subject that can be subscribed to",
            subject ? subject : "");
    struct subscription *s = subscription_open(b, subject, group, &status);
    if (!s)
        return error_set(
            err, ERROR_IO, "subscribing to '%s': %s", subject, b->nats->status_text(status));
    s->on_message = on_message;
    s->arg = arg;
    return 0;
}

/* ---- opening and closing ---- */

static int nats_failed(
    const struct nats_library *nats, nats_status status, const char *what, struct error *err)
{
    const char *text = nats->status_text(status), *detail = nats->last_error(NULL);
    bool is_refused = strstr(text, "uthoriz") || (detail && strstr(detail, "uthoriz"));
    const char *place = detail ? strstr(detail, "): ") : NULL; /* (conn.c:2088): */
    detail = place ? place + strlen("): ") : detail;
    bool has_more = detail && *detail && strcmp(detail, text) != 0;
    return error_set(err, is_refused ? ERROR_PERMISSION : ERROR_IO, "%s: %s%s%s", what, text,
        has_more ? ": " : "", has_more ? detail : "");
}

/* Splits "nats://a:1,nats://b:2" in place. Messages do not repeat an address, which may contain a
 * password. */
static int bus_split_urls(char *text, const char **urls, int *count, struct error *err)
{
    *count = 0;
    for (char *rest = NULL, *url = strtok_r(text, ",", &rest); url;
         url = strtok_r(NULL, ",", &rest)) {
        bool has_scheme = strncmp(url, "nats://", 7) == 0 || strncmp(url, "tls://", 6) == 0;
        if (!has_scheme || strlen(url) > 256 || !text_is_utf8(url, strlen(url), NULL))
            return error_set(err, ERROR_ARGUMENT,
                "an address of a NATS server is nats://HOST:PORT or tls://HOST:PORT");
        if (*count == BUS_URLS_MAX)
            return error_set(
                err, ERROR_ARGUMENT, "give at most %d addresses of NATS servers", BUS_URLS_MAX);
        urls[(*count)++] = url;
    }
    if (*count == 0)
        return error_set(
            err, ERROR_ARGUMENT, "give the address of a NATS server: nats://HOST:PORT");
    return 0;
}

static nats_status bus_set_security(
    const struct nats_library *nats, nats_options *to, const struct bus_options *o, bool has_tls)
{
    nats_status status = has_tls || o->ca || o->certificate ? nats->set_secure(to, true) : 0;
    if (status == 0 && o->ca)
        status = nats->load_ca(to, o->ca);
    if (status == 0 && o->certificate)
        status = nats->load_certificate(to, o->certificate, o->certificate_key);
    if (status == 0 && o->credentials)
        status = nats->set_credentials(to, o->credentials, NULL);
    return status;
}

static int bus_connect_ms(const struct bus_options *o)
{
    return o->connect_ms ? o->connect_ms : BUS_CONNECT_MS;
}

static nats_status bus_set_options(const struct nats_library *nats, nats_options *to,
    const struct bus_options *o, struct handover *x)
{
    nats_status status = nats->set_timeout(to, bus_connect_ms(o));
    status = status ? status : nats->set_name(to, o->name ? o->name : "droste");
    status = status ? status : nats->set_ping_interval(to, BUS_PING_MS);
    status = status ? status : nats->set_pings_out(to, BUS_PINGS_OUT);
    status = status ? status : nats->set_reconnects(to, -1);
    status = status ? status : nats->set_reconnect_wait(to, 100);
    status = status ? status : nats->set_jitter(to, 50, 50);
    status = status ? status : nats->set_write_deadline(to, BUS_WRITE_MS);
    status = status ? status : nats->set_send_asap(to, true);
    status = status ? status : nats->on_disconnected(to, handover_on_disconnected, x);
    status = status ? status : nats->on_reconnected(to, handover_on_reconnected, x);
    status = status ? status : nats->on_closed(to, handover_on_closed, x);
    return status ? status : nats->on_error(to, handover_on_error, x);
}

/* A server that was started at the same time may not listen yet: tries again until the time is
 * over. */
static nats_status bus_connect_in_time(
    struct handover *x, nats_options *options, const struct bus_options *o)
{
    uint64_t start = clock_ns();
    double seconds = bus_connect_ms(o) / 1e3;
    for (;;) {
        nats_status status = x->nats->connect(&x->connection, options);
        if (status != NATS_STATUS_NO_SERVER || clock_seconds_since(start) >= seconds)
            return status;
        usleep(BUS_CONNECT_PAUSE_US);
    }
}

static int bus_connect(struct handover *x, const struct bus_options *o, struct error *err)
{
    const char *urls[BUS_URLS_MAX];
    int count = 0;
    cleanup_free char *text = strdup(o->urls ? o->urls : "");
    nats_options *to = NULL;
    if (!text)
        return error_memory(err);
    if (bus_split_urls(text, urls, &count, err) < 0)
        return -ERROR_ARGUMENT;
    bool has_tls = strstr(o->urls, "tls://") != NULL;
    nats_status status = x->nats->options_new(&to);
    status = status ? status : x->nats->set_servers(to, urls, count);
    status = status ? status : bus_set_options(x->nats, to, o, x);
    status = status ? status : bus_set_security(x->nats, to, o, has_tls);
    if (status == 0) {
        x->users = 1;
        status = bus_connect_in_time(x, to, o);
    }
    if (status != 0)
        x->users = 0;
    x->is_connected = status == 0;
    int rc = status ? nats_failed(x->nats, status, "connecting to the NATS server", err) : 0;
    x->nats->options_free(to);
    return rc;
}

static void bus_free_handle(uv_handle_t *handle)
{
    free(handle);
}

static int bus_add_handles(struct bus *b, struct error *err)
{
    uv_async_t *async = calloc(1, sizeof *async);
    uv_timer_t *timer = calloc(1, sizeof *timer);
    if (!async || !timer || uv_async_init(b->loop, async, bus_on_async) < 0) {
        free(async);
        free(timer);
        return error_memory(err);
    }
    uv_timer_init(b->loop, timer);
    async->data = timer->data = b;
    b->async = async;
    b->timer = timer;
    return 0;
}

static int bus_start(struct bus *b, struct error *err)
{
    struct handover *x = b->x;
    char word[23], subject[64];
    if (random_hex(word, sizeof word - 1, err) < 0)
        return -ERROR_IO;
    snprintf(b->inbox, sizeof b->inbox, "_INBOX.%s.", word);
    snprintf(subject, sizeof subject, "%s*", b->inbox);
    nats_status status = handover_subscribe(x, subject, NULL, NULL, &b->inbox_handle);
    if (status != 0)
        return nats_failed(x->nats, status, "subscribing to the inbox", err);
    return handover_start(x, err);
}

int bus_open(
    uv_loop_t *loop, const struct bus_options *options, struct bus **out, struct error *err)
{
    const struct nats_library *nats;
    sigset_t all, before;
    if (nats_library_load(&nats, err) < 0)
        return -ERROR_UNSUPPORTED;
    struct bus *b = calloc(1, sizeof *b);
    struct handover *x = b ? handover_new(nats) : NULL;
    if (!x) {
        free(b);
        return error_memory(err);
    }
    *b = (struct bus){ .nats = nats, .x = x, .loop = loop, .options = *options };
    int rc = bus_add_handles(b, err);
    x->async = b->async;
    /* The threads that libnats starts inherit the mask: signals are the loop's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (rc == 0)
        rc = bus_connect(x, options, err);
    if (rc == 0)
        rc = bus_start(b, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    b->is_connected = rc == 0;
    bus_find_server(b);
    if (rc < 0)
        bus_close(steal(&b));
    *out = b;
    return rc;
}

void bus_close(struct bus *b)
{
    if (!b)
        return;
    struct handover *x = b->x;
    bool is_over = handover_end(x);
    for (size_t i = 0; i < b->call_count; i++)
        if (b->calls[i])
            call_free(b->calls[i]);
    free(b->calls);
    while (b->subscriptions) {
        struct subscription *s = b->subscriptions;
        b->subscriptions = s->next;
        if (s->handle)
            x->nats->unsubscribe(s->handle);
        if (is_over) /* or it stays, for the late call */
            free(s);
    }
    if (b->inbox_handle)
        x->nats->unsubscribe(b->inbox_handle);
    if (x->connection)
        x->nats->free(x->connection);
    if (is_over)
        handover_free(x);
    if (b->async)
        uv_close((uv_handle_t *)b->async, bus_free_handle);
    if (b->timer)
        uv_close((uv_handle_t *)b->timer, bus_free_handle);
    free(b);
}
