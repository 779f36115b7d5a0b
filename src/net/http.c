/* net/http.c: libcurl's multi_socket interface on libuv.
 *
 * libcurl's callbacks (sockets, timer, received bytes) may call almost none of its functions. So
 * they only store what they receive, and http_drain, which runs when libcurl has returned, delivers
 * bytes and ends to the users. Users' code may close the http: `depth` counts our frames on the
 * stack, and the last one frees it.
 *
 * Known problems of libcurl 7.88, measured: HTTP/2 opens a connection for each transfer over the
 * server's limit of streams, hence HTTP/1.1; a thousand lookups are a thousand threads, hence
 * net/dns_cache.h. If the server closes a reused connection before it responds, libcurl repeats the
 * request with the same headers (Curl_retry_request).
 */
#include "net/http.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "net/dns_cache.h"
#include "net/sockets.h"

#define TICK_MS      100   /* a stall is detected one or two ticks late */
#define SENT_AT_ONCE 16384 /* a body that fits in any socket's buffer */

/* Reused with its handle for many requests: creating one costs as much as sending one. */
struct http_transfer {
    TAILQ_ENTRY(http_transfer) link, ready_link; /* `link` is also used in the spare list */
    struct http *http;
    CURL *easy;
    struct curl_slist *headers, *resolve;
    bool fresh;  /* the handle never had a URL */
    bool parsed; /* it uses the http's parsed URL */
    /* The following members belong to one request. */
    struct http_handler handler;
    void *arg;
    size_t body_len;
    bool added; /* to the multi handle; false during name resolution */
    /* the request may have been sent; before that, the handle describes the previous one */
    bool begun;
    struct buf in;     /* received but not delivered */
    size_t received;   /* bytes of the body */
    curl_off_t sent;   /* bytes of the request's body */
    uint64_t moved_ns; /* time of the last byte in either direction */
    uint64_t still_ns; /* the `moved_ns` that was too long ago at the last tick */
    bool too_large;
    bool headed; /* `head` was called */
    bool paused;
    char words[CURL_ERROR_SIZE];
};
TAILQ_HEAD(transfer_list, http_transfer);

struct http {
    struct loop *loop;
    struct http_options options;
    char *host;
    CURLM *multi;
    struct timer *timer; /* libcurl's */
    struct timer *tick;  /* detects stalls; runs while there are transfers */
    struct sockets *sockets;
    char *url; /* of the first request, parsed: most requests use it */
    CURLU *parsed_url;
    bool direct;                 /* the environment configures no proxy */
    struct dns_cache *dns_cache; /* NULL if the host needs no lookup */
    struct transfer_list transfers;
    struct transfer_list ready; /* transfers with bytes in `in` */
    struct transfer_list spare; /* for the next requests: at most one per connection */
    unsigned spare_count;
    unsigned depth;
    bool closing;
};

/* Classes of failures. `sent` replaces the class once the request may have been read. */
enum trouble { TROUBLE_CONNECT, TROUBLE_CUT, TROUBLE_REPLY, TROUBLE_CONFIG, TROUBLE_MEMORY };
static const struct failure {
    CURLcode curl;
    enum trouble trouble, sent;
    bool again; /* may be retried if nothing was sent */
} failures[] = {
    { CURLE_COULDNT_RESOLVE_HOST, TROUBLE_CONNECT, TROUBLE_CONNECT, true },
    { CURLE_COULDNT_RESOLVE_PROXY, TROUBLE_CONNECT, TROUBLE_CONNECT, true },
    { CURLE_COULDNT_CONNECT, TROUBLE_CONNECT, TROUBLE_CONNECT, true },
    { CURLE_OPERATION_TIMEDOUT, TROUBLE_CONNECT, TROUBLE_CUT, true },
    { CURLE_SSL_CONNECT_ERROR, TROUBLE_CONNECT, TROUBLE_CUT, true },
    { CURLE_PEER_FAILED_VERIFICATION, TROUBLE_CONNECT, TROUBLE_CONNECT, false },
    { CURLE_SSL_CACERT_BADFILE, TROUBLE_CONFIG, TROUBLE_CONFIG, false },
    { CURLE_SSL_CERTPROBLEM, TROUBLE_CONFIG, TROUBLE_CONFIG, false },
    { CURLE_GOT_NOTHING, TROUBLE_CONNECT, TROUBLE_CUT, true },
    { CURLE_SEND_ERROR, TROUBLE_CONNECT, TROUBLE_CUT, true },
    { CURLE_RECV_ERROR, TROUBLE_CONNECT, TROUBLE_CUT, true },
    { CURLE_PARTIAL_FILE, TROUBLE_CUT, TROUBLE_CUT, false },
    { CURLE_OUT_OF_MEMORY, TROUBLE_MEMORY, TROUBLE_MEMORY, false },
};

static enum error_code code_of(const struct http *http, enum trouble trouble)
{
    const struct http_codes *codes = &http->options.codes;
    switch (trouble) {
    case TROUBLE_CONNECT:
        return codes->connect;
    case TROUBLE_CUT:
        return codes->cut;
    case TROUBLE_REPLY:
        return codes->reply;
    case TROUBLE_CONFIG:
        return ERROR_CONFIG;
    case TROUBLE_MEMORY:
        return ERROR_MEMORY;
    }
    return codes->reply;
}

static void http_enter(struct http *http)
{
    http->depth++;
}

static void transfer_free(struct http_transfer *t)
{
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    curl_slist_free_all(t->resolve);
    buf_free(&t->in);
    free(t);
}

static void http_free(struct http *http)
{
    struct http_transfer *t;
    while ((t = TAILQ_FIRST(&http->spare))) {
        TAILQ_REMOVE(&http->spare, t, link);
        transfer_free(t);
    }
    if (http->multi)
        curl_multi_cleanup(http->multi);
    sockets_free(http->sockets);
    timer_free(http->timer);
    timer_free(http->tick);
    dns_cache_free(http->dns_cache);
    curl_url_cleanup(http->parsed_url);
    free(http->url);
    free(http->host);
    free(http);
    curl_global_cleanup();
}

static void http_leave(struct http *http)
{
    if (--http->depth == 0 && http->closing)
        http_free(http);
}

/* The request is over, or was never started. */
static void transfer_release(struct http_transfer *t)
{
    struct http *http = t->http;
    if (t->added)
        curl_multi_remove_handle(http->multi, t->easy);
    t->added = false;
    buf_free(&t->in);
    if (http->spare_count == http->options.connections) {
        transfer_free(t);
        return;
    }
    TAILQ_INSERT_HEAD(&http->spare, t, link);
    http->spare_count++;
}

static void transfer_unlink(struct http_transfer *t)
{
    struct http *http = t->http;
    TAILQ_REMOVE(&http->transfers, t, link);
    if (t->in.len > 0)
        TAILQ_REMOVE(&http->ready, t, ready_link);
    if (TAILQ_EMPTY(&http->transfers)) {
        timer_stop(http->tick);
        loop_far(http->loop, false);
    }
}

const char *http_header(struct http_transfer *t, const char *name)
{
    struct curl_header *header = NULL;
    /* -1: the last response, not that of a proxy or redirect. */
    return curl_easy_header(t->easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK
               ? header->value
               : NULL;
}

static void transfer_tell_head(struct http_transfer *t)
{
    if (t->headed || http_status(t) == 0)
        return;
    t->headed = true;
    t->handler.head(t->arg, t);
}

/* Reports the end to the user; the transfer is freed. */
static void transfer_finish(struct http_transfer *t, struct http_result *result)
{
    struct http_handler handler = t->handler;
    void *arg = t->arg;
    curl_off_t wait = 0;
    result->status = http_status(t);
    if (t->begun)
        curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &wait);
    result->retry_after = wait > 0 ? (double)wait : 0;
    transfer_tell_head(t);
    transfer_unlink(t);
    transfer_release(t);
    handler.done(arg, result);
}

bool http_sent(const struct http_transfer *t)
{
    return t->begun;
}

static void transfer_fail(struct http_transfer *t, CURLcode curl)
{
    struct http_result result = { .unsent = !http_sent(t) };
    const char *peer = t->http->options.peer;
    const struct failure *f = NULL;
    long fresh = 1, header_bytes = 0;
    for (size_t i = 0; i < array_length(failures); i++)
        if (failures[i].curl == curl)
            f = &failures[i];
    if (t->begun) {
        curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &fresh);
        curl_easy_getinfo(t->easy, CURLINFO_HEADER_SIZE, &header_bytes);
    }
    result.unanswered = fresh == 0 && header_bytes == 0 && t->received == 0;
    enum trouble trouble = !f ? TROUBLE_REPLY : result.unsent ? f->trouble : f->sent;
    enum error_code code = code_of(t->http, trouble);
    if (!f || !f->again)
        result.unsent = false;
    result.hopeless = f && !f->again && trouble != TROUBLE_CUT;
    const char *words = t->words[0] ? t->words : curl_easy_strerror(curl);
    if (t->too_large)
        error_set(&result.error, t->http->options.codes.reply,
            "%.80s: the answer is larger than %zu bytes", peer, t->http->options.response_limit);
    else if (trouble == TROUBLE_CUT)
        error_set(&result.error, code,
            "%.80s: the connection was lost after %zu bytes of the answer: %.90s", peer,
            t->received, words);
    else if (curl == CURLE_PEER_FAILED_VERIFICATION)
        error_set(&result.error, code,
            "%.80s: its certificate is not trusted (%.90s): see --ca-file", peer, words);
    else
        error_set(&result.error, code, "%.80s: %.140s", peer, words);
    transfer_finish(t, &result);
}

static void transfer_fail_lookup(struct http_transfer *t, const char *why)
{
    struct http_result result = { .unsent = true };
    error_set(&result.error, t->http->options.codes.connect,
        "%.80s: its address was not found: %.100s", t->http->options.peer, why);
    transfer_finish(t, &result);
}

static void transfer_end(struct http_transfer *t, CURLcode curl)
{
    if (curl != CURLE_OK) {
        transfer_fail(t, curl);
        return;
    }
    struct http_result result = { 0 };
    transfer_finish(t, &result);
}

static bool hand_over_bytes(struct http *http)
{
    struct http_transfer *t = TAILQ_FIRST(&http->ready);
    if (!t)
        return false;
    TAILQ_REMOVE(&http->ready, t, ready_link);
    cleanup_buf struct buf in = t->in;
    t->in = (struct buf){ 0 };
    transfer_tell_head(t);
    t->handler.data(t->arg, in.data, in.len);
    return true;
}

static bool hand_over_end(struct http *http)
{
    int left;
    CURLMsg *m = curl_multi_info_read(http->multi, &left);
    if (!m)
        return false;
    struct http_transfer *t = NULL;
    CURLcode curl = m->data.result;
    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
    transfer_end(t, curl);
    return true;
}

/* Delivers bytes before ends: a transfer's last bytes arrive with its end. */
static void http_drain(struct http *http)
{
    while (!http->closing && (hand_over_bytes(http) || hand_over_end(http)))
        ;
}

static void http_act(struct http *http, curl_socket_t fd, int events)
{
    int running;
    http_enter(http);
    curl_multi_socket_action(http->multi, fd, events, &running);
    http_drain(http);
    http_leave(http);
}

static void http_socket_ready(void *arg, int fd, int events)
{
    http_act(arg, fd, events);
}

static int http_on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *unused)
{
    return sockets_want(((struct http *)arg)->sockets, fd, what);
}

static int http_on_close(void *arg, curl_socket_t fd)
{
    struct http *http = arg;
    sockets_forget(http->sockets, fd);
    return close(fd);
}

static int http_on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct http *http = arg;
    if (timeout_ms < 0)
        timer_stop(http->timer);
    else
        timer_start(http->timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static void http_timer_due(void *arg)
{
    http_act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static size_t http_on_bytes(char *data, size_t size, size_t count, void *arg)
{
    struct http_transfer *t = arg;
    size_t n = size * count;
    t->moved_ns = clock_ns();
    t->too_large = n > t->http->options.response_limit - t->received;
    if (t->too_large)
        return 0;
    t->received += n;
    if (!buf_reserve(&t->in, n))
        return 0;
    if (t->in.len == 0 && n > 0)
        TAILQ_INSERT_TAIL(&t->http->ready, t, ready_link);
    buf_append(&t->in, data, n);
    return n;
}

static int on_progress(
    void *arg, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal, curl_off_t ulnow)
{
    struct http_transfer *t = arg;
    if (ulnow != t->sent) {
        t->sent = ulnow;
        t->moved_ns = clock_ns();
    }
    return 0;
}

static int on_begin(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    struct http_transfer *t = arg;
    t->begun = true;
    t->moved_ns = clock_ns();
    return CURL_PREREQFUNC_OK;
}

/* The seconds without a byte that are allowed now; 0: no limit. */
static double http_patience(const struct http_transfer *t)
{
    const struct http_options *o = &t->http->options;
    if (!t->added)
        return o->connect_timeout;
    if (!http_sent(t) || t->paused)
        return 0; /* libcurl limits connecting itself */
    if (t->received == 0 && (t->body_len < SENT_AT_ONCE || (size_t)t->sent >= t->body_len))
        return o->first_timeout;
    return o->stall_timeout;
}

static bool end_one_stalled(struct http *http)
{
    struct http_transfer *t;
    TAILQ_FOREACH(t, &http->transfers, link)
    {
        double limit = http_patience(t);
        if (limit <= 0 || clock_seconds_since(t->moved_ns) < limit)
            continue;
        if (t->still_ns != t->moved_ns) {
            t->still_ns = t->moved_ns;
            continue; /* if the loop was held up, the socket has bytes that it reads after this */
        }
        if (!t->added) {
            transfer_fail_lookup(t, "no name server answered in time");
            return true;
        }
        struct http_result result = { 0 };
        error_set(&result.error, http->options.codes.stall,
            "%.80s: no data arrived for %g s, after %zu bytes of the answer", http->options.peer,
            limit, t->received);
        transfer_finish(t, &result);
        return true;
    }
    return false;
}

static void tick_due(void *arg)
{
    struct http *http = arg;
    http_enter(http);
    while (!http->closing && end_one_stalled(http))
        ;
    http_leave(http);
}

/* Adds the transfer to the multi handle. */
static bool transfer_add(struct http_transfer *t)
{
    struct http *http = t->http;
    if (http->dns_cache) {
        const char *entry = dns_cache_entry(http->dns_cache);
        curl_slist_free_all(t->resolve);
        t->resolve = entry ? curl_slist_append(NULL, entry) : NULL;
        curl_easy_setopt(t->easy, CURLOPT_RESOLVE, t->resolve);
    }
    t->added = curl_multi_add_handle(http->multi, t->easy) == CURLM_OK;
    return t->added;
}

static bool go_on_with_one(struct http *http, const char *error)
{
    struct http_transfer *t;
    TAILQ_FOREACH(t, &http->transfers, link)
    {
        if (t->added)
            continue;
        t->moved_ns = clock_ns();
        if (error)
            transfer_fail_lookup(t, error);
        else if (!transfer_add(t))
            transfer_fail(t, CURLE_OUT_OF_MEMORY);
        return true;
    }
    return false;
}

static void host_looked_up(void *arg, const char *error)
{
    struct http *http = arg;
    http_enter(http);
    while (!http->closing && go_on_with_one(http, error))
        ;
    http_leave(http);
}

static bool transfer_set_headers(struct http_transfer *t, const struct http_request *request)
{
    curl_slist_free_all(t->headers);
    t->headers = NULL;
    /* libcurl would wait a second for a "100 Continue", which model servers do not send. */
    if (request->body_len >= SENT_AT_ONCE && !(t->headers = curl_slist_append(NULL, "Expect:")))
        return false;
    for (size_t i = 0; i < request->header_count; i++) {
        struct curl_slist *longer = curl_slist_append(t->headers, request->headers[i]);
        if (!longer)
            return false;
        t->headers = longer;
    }
    return curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK;
}

/* Sets the options that all requests share. */
static bool transfer_prepare(struct http_transfer *t)
{
    const struct http_options *o = &t->http->options;
    CURL *e = t->easy;
    curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->words);
    /* some gateways refuse requests without one */
    curl_easy_setopt(e, CURLOPT_USERAGENT, "droste");
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(o->connect_timeout * 1000));
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, on_begin);
    curl_easy_setopt(e, CURLOPT_PREREQDATA, t);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, http_on_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(e, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, http_on_close);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, t->http);
    if (t->http->direct) /* otherwise libcurl searches the environment for each request */
        curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
    connect_options_apply(e, &o->connect_options);
    return curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
}

static struct http_transfer *transfer_new(struct http *http)
{
    struct http_transfer *t = TAILQ_FIRST(&http->spare);
    if (t) {
        TAILQ_REMOVE(&http->spare, t, link);
        http->spare_count--;
        return t;
    }
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->http = http;
    t->fresh = true;
    t->easy = curl_easy_init();
    if (t->easy && transfer_prepare(t))
        return t;
    transfer_free(t);
    return NULL;
}

static void parse_first_url(struct http *http, const char *url)
{
    http->url = strdup(url);
    http->parsed_url = curl_url();
    if (!http->url || !http->parsed_url ||
        curl_url_set(http->parsed_url, CURLUPART_URL, url, 0) != CURLUE_OK) {
        curl_url_cleanup(http->parsed_url);
        http->parsed_url = NULL;
    }
}

/* A parsed URL saves libcurl a tenth of its work. A handle keeps using the kind of URL it began
 * with, because libcurl does not reset all its state of the previous URL when the kind changes. */
static bool transfer_set_url(struct http_transfer *t, const char *url)
{
    struct http *http = t->http;
    if (!http->url)
        parse_first_url(http, url);
    bool is_same = http->parsed_url && strcmp(url, http->url) == 0;
    if (is_same && t->parsed)
        return true;
    t->parsed = is_same && t->fresh;
    t->fresh = false;
    if (t->parsed)
        return curl_easy_setopt(t->easy, CURLOPT_CURLU, http->parsed_url) == CURLE_OK;
    curl_easy_setopt(t->easy, CURLOPT_CURLU, NULL);
    return curl_easy_setopt(t->easy, CURLOPT_URL, url) == CURLE_OK;
}

/* Sets the options of this request. */
static bool transfer_set_up(struct http_transfer *t, const struct http_request *request)
{
    CURL *e = t->easy;
    t->body_len = request->body_len;
    t->begun = t->too_large = t->headed = t->paused = false;
    t->received = 0;
    t->sent = 0;
    t->words[0] = '\0';
    t->moved_ns = clock_ns();
    /* A small body is sent at once and needs no progress callback. */
    curl_easy_setopt(e, CURLOPT_NOPROGRESS, request->body_len < SENT_AT_ONCE ? 1L : 0L);
    const char *method = request->method ? request->method : "POST";
    if (strcmp(method, "POST") == 0 || request->body_len > 0) {
        curl_easy_setopt(e, CURLOPT_POST, 1L);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, request->body);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
    } else {
        curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
    }
    /* The handle may have been used for another method, or with other options. */
    curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, (long)request->once);
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
    return transfer_set_url(t, request->url) && transfer_set_headers(t, request);
}

int http_send(struct http *http, const struct http_request *request,
    const struct http_handler *handler, void *arg, struct http_transfer **out, struct error *err)
{
    struct http_transfer *t = transfer_new(http);
    if (!t)
        return error_memory(err);
    t->handler = *handler;
    t->arg = arg;
    bool ready = transfer_set_up(t, request);
    if (ready && (!http->dns_cache || dns_cache_ready(http->dns_cache)))
        ready = transfer_add(t);
    if (!ready) {
        transfer_release(t);
        return error_memory(err);
    }
    if (TAILQ_EMPTY(&http->transfers)) {
        timer_start(http->tick, TICK_MS, TICK_MS);
        loop_far(http->loop, true);
    }
    TAILQ_INSERT_TAIL(&http->transfers, t, link);
    *out = t;
    return 0;
}

long http_status(const struct http_transfer *t)
{
    long status = 0;
    if (t->begun)
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

bool http_is_type(const struct http_transfer *t, const char *type)
{
    char *is = NULL;
    size_t n = strlen(type);
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &is);
    return is && strncasecmp(is, type, n) == 0 && (is[n] == '\0' || strchr("; \t", is[n]));
}

/* libcurl keeps what arrives meanwhile, and asks for a turn when it goes on. */
void http_pause(struct http_transfer *t, bool on)
{
    if (t->paused == on || !t->added)
        return;
    t->paused = on;
    t->moved_ns = clock_ns();
    curl_easy_pause(t->easy, on ? CURLPAUSE_RECV : CURLPAUSE_CONT);
}

void http_cancel(struct http_transfer *t)
{
    transfer_unlink(t);
    transfer_release(t);
}

static bool has_proxy(void)
{
    static const char *const proxies[] = { "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
        "ALL_PROXY" };
    for (size_t i = 0; i < array_length(proxies); i++) {
        const char *value = getenv(proxies[i]);
        if (value && value[0])
            return true;
    }
    return false;
}

/* Literal addresses need no lookup, and a proxy resolves names itself. */
static bool needs_lookup(const struct http *http, const char *host)
{
    return http->direct && host[0] != '[' && host[strspn(host, "0123456789.")] != '\0';
}

static bool http_fill(struct http *http)
{
    struct http_options *o = &http->options;
    http->multi = curl_multi_init();
    http->sockets = sockets_new(http->loop, http_socket_ready, http);
    http->timer = timer_new(http->loop, http_timer_due, http);
    http->tick = timer_new(http->loop, tick_due, http);
    http->host = strdup(o->host);
    if (!http->multi || !http->sockets || !http->timer || !http->tick || !http->host)
        return false;
    o->host = http->host;
    http->direct = !has_proxy();
    if (!o->connect_options.unix_path && needs_lookup(http, o->host)) {
        http->dns_cache = dns_cache_new(http->loop, o->host, o->port, host_looked_up, http);
        if (!http->dns_cache)
            return false;
    }
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, http_on_socket);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, http_on_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)o->connections);
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)o->connections);
    return true;
}

int http_open(
    struct loop *loop, const struct http_options *options, struct http **out, struct error *err)
{
    int rc = connect_options_check(&options->connect_options, err);
    if (rc < 0)
        return rc;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(err, ERROR_IO, "libcurl could not be initialised");
    struct http *http = calloc(1, sizeof *http);
    if (!http) {
        curl_global_cleanup();
        return error_memory(err);
    }
    http->loop = loop;
    http->options = *options;
    TAILQ_INIT(&http->transfers);
    TAILQ_INIT(&http->ready);
    TAILQ_INIT(&http->spare);
    if (!http_fill(http)) {
        http_free(http);
        return error_memory(err);
    }
    *out = http;
    return 0;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    http_enter(http);
    http->closing = true;
    http_leave(http);
}
