/* cli/remote/http.c: requests to one server, with libcurl. A connection is kept for the next one.
 */
#include <curl/curl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"

enum { REMOTE_ERROR_MAX = 64 << 10, REMOTE_EVENT_MAX = 256 << 20, REMOTE_ID_DIGITS = 32 };

struct remote {
    CURL *curl;
    char *address, *base;
    struct curl_slist *headers;
    bool is_interrupted;
    bool is_creating; /* only the answer names what an interrupt is to end: the first one waits */
    bool is_pending;  /* an interrupt that has waited; the next request fails with it */
};

/* An answer as it comes in. */
struct remote_answer {
    struct remote *r;
    const struct remote_request *request;
    struct error *err;
    struct buf text; /* of an error */
    bool has_failed; /* a function of the caller's has, and *err says why */
};

const char *remote_address(const char *flag)
{
    const char *address = flag ? flag : getenv("DROSTE_SERVER");
    return address && address[0] ? address : NULL;
}

int remote_refuse(const char *command, const char *flag)
{
    if (!remote_address(flag))
        return -1;
    return cli_fail(EXIT_ENVIRONMENT,
        "'%s' does not use a server%s; add --server '' for this machine", command,
        flag ? "" : ", which DROSTE_SERVER names");
}

/* ---- a server ---- */

static int remote_place(struct remote *r, struct error *err)
{
    static const char *const schemes[] = { "http://", "https://" };
    if (strncmp(r->address, "unix:", 5) == 0) {
        r->base = strdup("http://localhost");
        return r->base ? 0 : error_memory(err);
    }
    for (size_t i = 0; i < array_length(schemes); i++) {
        size_t n = strlen(r->address);
        if (strncmp(r->address, schemes[i], strlen(schemes[i])) != 0)
            continue;
        r->base = text_copy(r->address, n - (r->address[n - 1] == '/'));
        return r->base ? 0 : error_memory(err);
    }
    return error_set(err, ERROR_ARGUMENT,
        "a server is http://HOST:PORT, https://HOST:PORT or unix:PATH, not '%.200s'", r->address);
}

int remote_server_open(const char *address, struct remote **out, struct error *err)
{
    struct remote *r = calloc(1, sizeof *r);
    const char *key = getenv("DROSTE_API_KEY");
    if (!r)
        return error_memory(err);
    r->curl = curl_easy_init();
    r->address = strdup(address);
    int rc = r->curl && r->address ? remote_place(r, err) : error_memory(err);
    if (rc == 0 && key && key[0]) {
        cleanup_free char *line = text_printf("X-API-Key: %s", key);
        r->headers = line ? curl_slist_append(NULL, line) : NULL;
        rc = r->headers ? 0 : error_memory(err);
    }
    if (rc < 0)
        remote_server_close(r);
    else
        *out = r;
    return rc;
}

void remote_server_close(struct remote *r)
{
    if (!r)
        return;
    curl_easy_cleanup(r->curl);
    curl_slist_free_all(r->headers);
    free(r->address);
    free(r->base);
    free(r);
}

/* ---- errors ---- */

static enum error_code remote_code(long status)
{
    static const struct {
        long status;
        enum error_code code;
    } codes[] = { { 400, ERROR_ARGUMENT }, { 401, ERROR_PERMISSION }, { 403, ERROR_PERMISSION },
        { 404, ERROR_NOT_FOUND }, { 409, ERROR_ARGUMENT }, { 410, ERROR_LOST },
        { 413, ERROR_ARGUMENT }, { 501, ERROR_UNSUPPORTED }, { 504, ERROR_TIMEOUT } };
    for (size_t i = 0; i < array_length(codes); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return ERROR_ENVIRONMENT;
}

static int remote_refused(struct remote_answer *a, long status)
{
    cleanup_json struct json_object *o = NULL;
    json_parse(buf_text(&a->text), a->text.len, &json_limits_small, &o, NULL);
    struct json_object *error = json_get_typed(o, "error", json_type_object);
    const char *message = json_get_string(error, "message", NULL);
    if (status == 401)
        return error_set(a->err, ERROR_PERMISSION,
            "the server %.200s wants a key: set DROSTE_API_KEY to one of `droste keys create`",
            a->r->address);
    if (!message)
        return error_set(a->err, remote_code(status), "the server %.200s answered with status %ld",
            a->r->address, status);
    return error_set(a->err, remote_code(status), "%.1500s", message);
}

static int remote_failed(struct remote_answer *a, CURLcode code)
{
    if (a->r->is_interrupted)
        return error_set(a->err, ERROR_CANCELLED, "interrupted");
    return error_set(a->err, code == CURLE_COULDNT_CONNECT ? ERROR_ENVIRONMENT : ERROR_LOST,
        code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST
            ? "the server %.200s cannot be reached: %s"
            : "the connection to the server %.200s was lost: %s",
        a->r->address, curl_easy_strerror(code));
}

/* ---- a request ---- */

static size_t remote_on_data(char *data, size_t size, size_t count, void *arg)
{
    struct remote_answer *a = arg;
    size_t len = size * count;
    long status = 0;
    curl_easy_getinfo(a->r->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400) {
        if (a->text.len + len <= REMOTE_ERROR_MAX)
            buf_append(&a->text, data, len);
        return len;
    }
    a->has_failed = a->request->piece && a->request->piece(a->request->arg, data, len, a->err) != 0;
    return a->has_failed ? 0 : len;
}

static size_t remote_on_read(char *data, size_t size, size_t count, void *arg)
{
    const struct remote_answer *a = arg;
    ssize_t n = read(a->request->file, data, size * count);
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

static int remote_on_progress(
    void *arg, curl_off_t total, curl_off_t now, curl_off_t send_total, curl_off_t sent)
{
    struct remote *r = arg;
    bool is_new = cli_was_interrupted(), is_second = is_new && r->is_interrupted;
    r->is_interrupted = r->is_interrupted || is_new || cli_output_gone();
    return r->is_creating ? is_second : r->is_interrupted;
}

static void remote_put_query(struct remote *r, struct buf *url, const char *const *query)
{
    bool first = true;
    for (size_t i = 0; query && query[i]; i += 2) {
        if (!query[i + 1])
            continue;
        char *value = curl_easy_escape(r->curl, query[i + 1], 0);
        buf_printf(url, "%c%s=%s", first ? '?' : '&', query[i], value ? value : "");
        curl_free(value);
        first = false;
    }
}

char *remote_path(const char *before, const char *name, const char *behind)
{
    char *escaped = curl_easy_escape(NULL, name, 0);
    char *path = escaped ? text_printf("%s%s%s", before, escaped, behind) : NULL;
    curl_free(escaped);
    return path;
}

static struct curl_slist *remote_headers(const struct remote *r, const struct remote_request *q)
{
    struct curl_slist *all = NULL;
    char id[REMOTE_ID_DIGITS + 1];
    cleanup_free char *type =
        text_printf("Content-Type: %s", q->json   ? "application/json"
                                        : q->type ? q->type
                                                  : "application/octet-stream");
    for (const struct curl_slist *one = r->headers; one; one = one->next)
        all = curl_slist_append(all, one->data);
    if (type)
        all = curl_slist_append(all, type);
    all = curl_slist_append(all, "Expect:");
    if (q->creates && random_hex(id, REMOTE_ID_DIGITS, NULL) == 0) {
        cleanup_free char *key = text_printf("Idempotency-Key: %s", id);
        if (key)
            all = curl_slist_append(all, key);
    }
    return all;
}

static void remote_set_body(
    struct remote *r, const struct remote_request *q, struct remote_answer *a)
{
    struct stat st;
    if (q->has_file) {
        curl_easy_setopt(r->curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(r->curl, CURLOPT_READFUNCTION, remote_on_read);
        curl_easy_setopt(r->curl, CURLOPT_READDATA, a);
        if (fstat(q->file, &st) == 0 && S_ISREG(st.st_mode))
            curl_easy_setopt(r->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)st.st_size);
    } else if (q->json || strcmp(q->method, "POST") == 0) {
        size_t len = 0;
        const char *text = q->json ? json_text(q->json, &len) : "";
        curl_easy_setopt(r->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
        curl_easy_setopt(r->curl, CURLOPT_POSTFIELDS, text);
    }
}

int remote_ask(struct remote *r, const struct remote_request *q, struct error *err)
{
    struct remote_answer a = { .r = r, .request = q, .err = err };
    cleanup_buf struct buf url = { 0 };
    long status = 0;
    buf_printf(&url, "%s%s", r->base, q->path);
    remote_put_query(r, &url, q->query);
    if (buf_failed(&url))
        return error_memory(err);
    if (r->is_pending) {
        r->is_pending = false;
        return error_set(err, ERROR_CANCELLED, "interrupted");
    }
    r->is_interrupted = false;
    r->is_creating = q->creates && !q->has_file;
    curl_easy_reset(r->curl);
    if (strncmp(r->address, "unix:", 5) == 0)
        curl_easy_setopt(r->curl, CURLOPT_UNIX_SOCKET_PATH, r->address + 5);
    struct curl_slist *headers = remote_headers(r, q);
    remote_set_body(r, q, &a);
    curl_easy_setopt(r->curl, CURLOPT_URL, buf_text(&url));
    curl_easy_setopt(r->curl, CURLOPT_CUSTOMREQUEST, q->method);
    curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, remote_on_data);
    curl_easy_setopt(r->curl, CURLOPT_WRITEDATA, &a);
    curl_easy_setopt(r->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(r->curl, CURLOPT_XFERINFOFUNCTION, remote_on_progress);
    curl_easy_setopt(r->curl, CURLOPT_XFERINFODATA, r);
    curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(r->curl, CURLOPT_TCP_KEEPALIVE, 1L);
    CURLcode code = curl_easy_perform(r->curl);
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    int rc = a.has_failed ? -1 : 0;
    if (rc == 0 && status >= 400)
        rc = remote_refused(&a, status);
    else if (rc == 0 && code != CURLE_OK)
        rc = remote_failed(&a, code);
    r->is_pending = rc == 0 && r->is_creating && r->is_interrupted;
    buf_free(&a.text);
    return rc;
}

const char *remote_server_address(const struct remote *r)
{
    return r->address;
}

void *remote_handle(
    const struct remote *r, const char *method, const char *path, struct curl_slist **headers)
{
    cleanup_free char *url = text_printf("%s%s", r->base, path);
    const struct remote_request q = { .type = "application/json" };
    CURL *curl = url ? curl_easy_init() : NULL;
    if (!curl)
        return NULL;
    *headers = remote_headers(r, &q);
    if (strncmp(r->address, "unix:", 5) == 0)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, r->address + 5);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    return curl;
}

/* ---- files ---- */

static int remote_write(void *arg, const char *data, size_t len, struct error *err)
{
    int fd = *(int *)arg;
    return file_write_all(fd, data, len) < 0
               ? error_set_errno(err, ERROR_IO, "writing what the server sends")
               : 0;
}

int remote_fetch(
    struct remote *r, const struct remote_request *request, const char *local, struct error *err)
{
    struct remote_request q = *request;
    bool to_output = strcmp(local, "-") == 0;
    cleanup_free char *draft = to_output ? NULL : text_printf("%s.XXXXXX", local);
    cleanup_fd int fd = to_output ? dup(STDOUT_FILENO) : draft ? mkostemp(draft, O_CLOEXEC) : -1;
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "making %.160s", local);
    q.piece = remote_write;
    q.arg = &fd;
    int rc = remote_ask(r, &q, err);
    if (to_output)
        return rc;
    if (rc == 0 && (fchmod(fd, 0666 & ~file_umask()) < 0 || rename(draft, local) < 0))
        rc = error_set_errno(err, ERROR_IO, "making %.160s", local);
    if (rc < 0)
        unlink(draft);
    return rc;
}

/* ---- JSON ---- */

static int remote_collect(void *arg, const char *data, size_t len, struct error *err)
{
    struct buf *out = arg;
    buf_append(out, data, len);
    return buf_failed(out) ? error_memory(err) : 0;
}

int remote_ask_json(struct remote *r, const struct remote_request *request,
    struct json_object **answer, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    struct remote_request q = *request;
    q.piece = remote_collect;
    q.arg = &text;
    *answer = NULL;
    int rc = remote_ask(r, &q, err);
    if (rc == 0 && text.len > 0)
        rc = json_parse(buf_text(&text), text.len, &json_limits_large, answer, err);
    return rc;
}

/* ---- events ---- */

struct remote_stream {
    struct buf text;
    size_t looked; /* up to here there is no end of an event */
    remote_event_fn *fn;
    void *arg;
    bool is_done;
};

/* The value of a field in the block of an event; NULL: it has none. */
static char *remote_field(const char *block, size_t len, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = block, *end = block + len; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t line = (size_t)((newline ? newline : end) - at);
        if (line > n + 1 && strncmp(at, name, n) == 0 && at[n] == ':')
            return text_copy(at + n + 1 + (at[n + 1] == ' '), line - n - 1 - (at[n + 1] == ' '));
        at += line + 1;
    }
    return NULL;
}

static int remote_take_event(
    struct remote_stream *s, const char *block, size_t len, struct error *err)
{
    cleanup_free char *kind = remote_field(block, len, "event");
    cleanup_free char *data = remote_field(block, len, "data");
    cleanup_json struct json_object *o = NULL;
    if (!kind || !data)
        return 0;
    int rc = json_parse(data, strlen(data), &json_limits_large, &o, err);
    if (rc < 0)
        return rc;
    rc = s->fn(s->arg, kind, o, err);
    s->is_done = rc > 0;
    return rc;
}

static int remote_on_stream(void *arg, const char *data, size_t len, struct error *err)
{
    struct remote_stream *s = arg;
    buf_append(&s->text, data, len);
    if (buf_failed(&s->text) || s->text.len > REMOTE_EVENT_MAX)
        return error_set(err, ERROR_PROTOCOL, "an event of the server is too large");
    size_t begun = 0;
    int rc = 0;
    const char *end;
    while (
        rc == 0 && (end = memmem(s->text.data + s->looked, s->text.len - s->looked, "\n\n", 2))) {
        rc = remote_take_event(s, s->text.data + begun, (size_t)(end - s->text.data) - begun, err);
        begun = s->looked = (size_t)(end - s->text.data) + 2;
    }
    memmove(s->text.data, s->text.data + begun, s->text.len - begun);
    s->text.len -= begun;
    s->looked = s->text.len > 0 ? s->text.len - 1 : 0;
    return rc;
}

int remote_follow(struct remote *r, const struct remote_request *request, remote_event_fn *fn,
    void *arg, struct error *err)
{
    struct remote_stream s = { .fn = fn, .arg = arg };
    struct remote_request q = *request;
    q.piece = remote_on_stream;
    q.arg = &s;
    int rc = remote_ask(r, &q, err);
    buf_free(&s.text);
    return s.is_done ? 0 : rc;
}
