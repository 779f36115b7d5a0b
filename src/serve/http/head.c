/* serve/http/head.c: checks the head of a request before a byte of its body is used.
 *
 * libmicrohttpd 0.9.75 parses leniently (docs/internals/serve.md has the table): it joins a folded
 * line to the name of its field, so that "Transfer-Encoding:\r\n chunked" frames nothing; cuts a
 * field at a NUL; accepts a bare LF, spaces in names, two lengths, a length beside chunks. A proxy
 * in front that reads the same bytes differently would see another request than we do.
 *
 * The fields themselves tell most. For line ends and folding, the positions of the strings do:
 * the library replaces the CR LF behind a field by two NULs in its buffer and leaves everything
 * where it was, so each name begins two bytes behind the last value. It moves a folded line. A
 * later release that keeps its strings elsewhere refuses all requests, which the tests notice.
 *
 * A line that begins with a colon is overwritten where it says so, and ends the head for the
 * library. Its bytes are therefore read once before: when the library has the request line, and
 * the fields behind it are as they were received. Mostly that is the whole head; if not, nothing
 * is known of the rest, and what follows this request is not read as another one.
 */
#include <string.h>
#include <strings.h>
#include <sys/uio.h>
#include <unistd.h>

#include "serve/http/request.h"

/* Bytes of a head that are looked at before the library parses them. */
enum { HEAD_LOOKED = 4096 };

struct head {
    const char *end; /* behind the last string so far */
    unsigned hosts, lengths, encodings;
    const char *host, *origin, *encoding;
    const char *why; /* NULL: nothing is wrong */
};

static bool head_is_token(const char *text, size_t len)
{
    static const char more[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool alphanumeric =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!alphanumeric && (c == '\0' || !strchr(more, c)))
            return false;
    }
    return len > 0;
}

/* Field values (RFC 9110, 5.5): no control characters but the tab. */
static bool head_is_value(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\t') || text[i] == '\x7f')
            return false;
    return true;
}

/* True if the next string begins where it must after one that ends at `end`. */
static bool head_follows(const char *end, const char *next)
{
    return next == end + 2 && end[0] == '\0' && (end[1] == '\0' || end[1] == '\n');
}

static enum MHD_Result head_on_field(void *arg, enum MHD_ValueKind kind, const char *name,
    size_t name_len, const char *value, size_t len)
{
    struct head *h = arg;
    if (!value)
        value = "";
    if (!head_is_token(name, name_len))
        h->why = "a field's name is not a token";
    else if (!head_is_value(value, len))
        h->why = "a field's value has a control character";
    else if (!head_follows(h->end, name))
        h->why = "a line does not end with CR LF, is folded, or has a NUL";
    h->end = value + len;
    if (name_len == 4 && strcasecmp(name, "Host") == 0) {
        h->hosts++;
        h->host = value;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        h->lengths++;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        h->encodings++;
        h->encoding = value;
    } else if (strcasecmp(name, "Origin") == 0) {
        h->origin = value;
    }
    return h->why ? MHD_NO : MHD_YES;
}

/* Its end, behind the empty line; NULL: a line begins with a colon or white space, or does not end
 * with CR LF, or there is no empty line. */
static const char *head_find_end(const char *at, const char *end)
{
    while (end - at >= 2 && memcmp(at, "\r\n", 2) != 0) {
        size_t len = 0, left = (size_t)(end - at);
        while (len < left && at[len] != '\r' && at[len] != '\n' && at[len] != '\0')
            len++;
        if (strchr(": \t", at[0]) || left - len < 2 || memcmp(at + len, "\r\n", 2) != 0)
            return NULL;
        at += len + 2;
    }
    return end - at >= 2 ? at + 2 : NULL;
}

/* The target may lie near the end of the library's memory, which is not known, so the kernel copies
 * what there is. */
void head_look(struct request *r)
{
    char text[HEAD_LOOKED];
    struct iovec to = { text, sizeof text }, from = { (void *)(uintptr_t)r->target_at, to.iov_len };
    ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    const char *end = text + (n > 0 ? n : 0);
    const char *target_end = memchr(text, '\0', (size_t)(end - text));
    const char *version = target_end ? target_end + 1 : end;
    const char *version_end = memchr(version, '\0', (size_t)(end - version));
    if (!version_end || end - version_end < 2)
        return;
    const char *found = head_find_end(version_end + 2, end);
    r->head_end = found ? r->target_at + (found - text) : NULL;
}

/* A loopback host, with any port: a page of another site has a name that it controls. */
static bool head_is_loopback(const char *host)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) != 0)
            continue;
        const char *port = host + n;
        if (*port == '\0' || (*port == ':' && strspn(port + 1, "0123456789") == strlen(port + 1)))
            return true;
    }
    return false;
}

/* A page of this server. One of another port of this machine may show what a guest wrote. */
static bool head_is_own_origin(const struct head *h, enum head_trust trust)
{
    const char *host = strstr(h->origin, "://");
    bool web = strncmp(h->origin, "http://", 7) == 0 || strncmp(h->origin, "https://", 8) == 0;
    if (!web)
        return false;
    if (trust == HEAD_LOOPBACK && !head_is_loopback(host + 3))
        return false;
    return h->host && strcasecmp(host + 3, h->host) == 0;
}

static bool head_is_trusted(const struct head *h, enum head_trust trust)
{
    if (trust == HEAD_ANY)
        return true;
    /* A request that names a sandbox by its Host needs that sandbox's token. */
    if (trust == HEAD_LOOPBACK && !head_is_loopback(h->host ? h->host : "localhost") &&
        !route_has_host(h->host))
        return false;
    return !h->origin || head_is_own_origin(h, trust);
}

static void head_check_framing(struct head *h, const char *version)
{
    bool old = strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
    if (h->hosts > 1 || (h->hosts == 0 && !old))
        h->why = "there must be exactly one Host";
    else if (h->lengths > 1)
        h->why = "there is more than one Content-Length";
    else if (h->lengths && h->encodings)
        h->why = "there are both Content-Length and Transfer-Encoding";
    else if (h->encodings && old)
        h->why = "HTTP/1.0 has no Transfer-Encoding";
}

/* The target as it was sent: printable, from the root, in a line of three words. */
static bool head_is_target(const char *target)
{
    return target[0] == '/' && head_is_value(target, strlen(target)) &&
           !strpbrk(target, "#\\ \t") && !strstr(target, "%00");
}

bool head_check(struct request *r, const char *method, const char *version, enum head_trust trust)
{
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct head h = { .end = version + strlen(version) };
    if (!head_is_target(r->target))
        h.why = "the target is not an absolute path";
    else if (r->target_at != method + strlen(method) + 1 ||
             version != r->target_at + strlen(r->target) + 1)
        h.why = "the request line is not three words between single spaces";
    else
        MHD_get_connection_values_n(r->connection, MHD_HEADER_KIND, head_on_field, &h);
    if (!h.why && (!size || method + size->header_size != h.end + 4))
        h.why = "a line does not end with CR LF, is folded, or has a NUL";
    if (!h.why)
        head_check_framing(&h, version);
    if (h.why) {
        table_count(r->server->figures, COUNT_REFUSED_HEAD, 1);
        r->close_after = true;
        request_refuse(r, 400, "bad_request", "%s; send requests as RFC 9112 has them", h.why);
        return false;
    }
    if (h.encodings && (h.encodings > 1 || strcasecmp(h.encoding, "chunked") != 0)) {
        r->close_after = true;
        request_refuse(r, 501, "unsupported", "the only Transfer-Encoding is 'chunked'");
        return false;
    }
    /* The library accepts line ends in a chunked body that a proxy may read differently. What
     * follows such a body is therefore never read as a request. */
    bool is_whole = r->client->is_relay || r->head_end == method + size->header_size;
    r->close_after = r->close_after || h.encodings > 0 || !is_whole;
    if (head_is_trusted(&h, trust))
        return true;
    table_count(r->server->figures, COUNT_REFUSED_SITE, 1);
    request_refuse(r, 403, "forbidden", "%s",
        trust == HEAD_LOOPBACK
            ? "the Host and Origin must be localhost, 127.0.0.1 or [::1]: without keys, pages of "
              "other sites must not reach this server"
            : "the Origin is another site: its pages must not reach this server");
    return false;
}
