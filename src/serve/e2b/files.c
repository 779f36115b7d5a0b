/* serve/e2b/files.c: GET and POST /files: contents of any size.
 *
 * An upload is one file (octet-stream) or several (multipart), perhaps compressed. The body is
 * decompressed in steps of bounded size, parsed, and written; while one step is written, no more
 * than another is read from the client, so that memory does not depend on sizes or on rates of
 * compression.
 * libmicrohttpd parses multipart bodies.
 */
#include "serve/e2b/filesystem.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/sandbox/exchange.h"
#include "serve/sandbox/sandbox.h"

enum { UPLOAD_STEP = 256 << 10, UPLOAD_FILES_MOST = 1000, UPLOAD_PARSER = 32 << 10 };
enum { UPLOAD_NAME_MAX = 4096, UPLOAD_KEY_MAX = 246, UPLOAD_MARKS_MAX = 4000 };

/* What is to be done in the sandbox, in order. */
enum upload_op { UPLOAD_OPEN, UPLOAD_DATA, UPLOAD_CLOSE, UPLOAD_MARK };

struct upload_step {
    enum upload_op op;
    char *path;
    struct buf data;
    struct upload_step *next;
};

struct upload {
    struct exchange *x;
    const struct e2b_sandbox *e2b;
    char *path;                       /* of the query; NULL: names of parts are paths */
    struct MHD_PostProcessor *parser; /* NULL: the body is the file */
    z_stream inflater;
    bool is_gzip, inflated, ended, failed, made_parents;
    struct buf in; /* what the client sent and is not parsed yet */
    struct upload_step *steps, **last;
    char *current; /* the path of the file that is being parsed */
    char *part;    /* its name, as its part has it */
    bool is_announced;
    size_t files;
    struct buf marks;             /* the prefix of metadata, and a line for each */
    struct json_object *metadata; /* the same; NULL: none was given */
    bool has_bad_marks;
    bool has_old_marks; /* the file that is open has had some */
    struct json_object *written;
};

static void upload_continue(struct upload *u);

/* ---- the life of an upload ---- */

static void upload_drop_step(struct upload *u)
{
    struct upload_step *step = u->steps;
    u->steps = step->next;
    if (!u->steps)
        u->last = &u->steps;
    free(step->path);
    buf_free(&step->data);
    free(step);
}

static void upload_on_free(struct request *r)
{
    struct exchange *x = r->state;
    struct upload *u = x->arg;
    if (u->parser)
        MHD_destroy_post_processor(u->parser);
    while (u->steps)
        upload_drop_step(u);
    if (u->is_gzip)
        inflateEnd(&u->inflater);
    buf_free(&u->in);
    json_object_put(u->written);
    json_object_put(u->metadata);
    buf_free(&u->marks);
    free(u->current);
    free(u->part);
    free(u->path);
    free(u);
    exchange_on_free(r);
}

static void upload_fail(struct upload *u, unsigned status, const char *text)
{
    u->failed = true;
    request_refuse(u->x->r, status, "file", "%s", text);
}

static void upload_on_error(struct exchange *x, const droste_error *err)
{
    upload_fail(x->arg, e2b_file_status(err), err->text);
}

/* ---- parsing ---- */

static void upload_add(struct upload *u, enum upload_op op, const char *path)
{
    struct upload_step *step = calloc(1, sizeof *step);
    if (!step || (path && !(step->path = strdup(path)))) {
        free(step);
        upload_fail(u, 503, "out of memory");
        return;
    }
    step->op = op;
    *u->last = step;
    u->last = &step->next;
}

static void upload_add_data(struct upload *u, const char *data, size_t len)
{
    struct upload_step *step = u->steps;
    while (step && step->next)
        step = step->next;
    if (!step || step->op != UPLOAD_DATA || step->data.len + len > DROSTE_FILE_PIECE) {
        upload_add(u, UPLOAD_DATA, NULL);
        for (step = u->steps; step && step->next; step = step->next)
            ;
    }
    if (!step || u->failed)
        return;
    buf_append(&step->data, data, len);
    if (buf_failed(&step->data))
        upload_fail(u, 503, "out of memory");
}

static void upload_end_file(struct upload *u)
{
    if (u->current) {
        upload_add(u, UPLOAD_CLOSE, u->current);
        upload_add(u, UPLOAD_MARK, u->current);
    }
    free(steal(&u->current));
}

static void upload_begin_file(struct upload *u, const char *path)
{
    upload_end_file(u);
    if (++u->files > UPLOAD_FILES_MOST)
        upload_fail(u, 413, "too many files in one request");
    else if (strlen(path) > UPLOAD_NAME_MAX)
        upload_fail(u, 400, "the path is too long");
    else if (path[0] == '\0')
        upload_fail(u, 400, "there is no path");
    else if (!(u->current = e2b_path(u->x->r, u->e2b, path)))
        upload_fail(u, 503, "out of memory");
    else
        upload_add(u, UPLOAD_OPEN, u->current);
}

/* Names in the header of a part have these characters escaped (HTML, multipart/form-data). */
static void upload_unescape(char *name)
{
    static const struct {
        const char *escape;
        char c;
    } escapes[] = { { "%22", '"' }, { "%0D", '\r' }, { "%0A", '\n' } };
    char *out = name;
    for (const char *at = name; *at; at++, out++) {
        *out = *at;
        for (size_t i = 0; i < array_length(escapes); i++)
            if (strncasecmp(at, escapes[i].escape, 3) == 0) {
                *out = escapes[i].c;
                at += 2;
                break;
            }
    }
    *out = '\0';
}

static enum MHD_Result upload_on_part(void *arg, enum MHD_ValueKind kind, const char *key,
    const char *filename, const char *type, const char *encoding, const char *data, uint64_t at,
    size_t len)
{
    struct upload *u = arg;
    if (!key || strcmp(key, "file") != 0)
        return MHD_YES;
    cleanup_free char *name = strdup(u->path ? u->path : filename ? filename : "");
    if (name && !u->path)
        upload_unescape(name);
    /* The first call may be one without data, before the first data. */
    bool continues = at > 0 || (u->is_announced && name && u->part && strcmp(name, u->part) == 0);
    u->is_announced = len == 0;
    if (!continues) {
        free(u->part);
        u->part = name ? strdup(name) : NULL;
        upload_begin_file(u, u->part ? u->part : "");
    }
    if (!u->failed && len > 0)
        upload_add_data(u, data, len);
    return u->failed ? MHD_NO : MHD_YES;
}

static void upload_parse(struct upload *u, const char *data, size_t len)
{
    if (!u->parser)
        upload_add_data(u, data, len);
    else if (MHD_post_process(u->parser, data, len) != MHD_YES && !u->failed)
        upload_fail(u, 400, "the body is not valid multipart/form-data");
}

/* One step of a compressed body. */
static void upload_inflate(struct upload *u)
{
    static char out[UPLOAD_STEP]; /* the loop has one thread */
    z_stream *z = &u->inflater;
    z->next_in = (unsigned char *)u->in.data;
    z->avail_in = (unsigned)u->in.len;
    z->next_out = (unsigned char *)out;
    z->avail_out = sizeof out;
    int rc = inflate(z, Z_NO_FLUSH);
    buf_consume(&u->in, u->in.len - z->avail_in);
    if (rc == Z_STREAM_END)
        u->inflated = true;
    else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        upload_fail(u, 400, "the body is not valid gzip");
        return;
    }
    if (u->inflated)
        buf_clear(&u->in); /* what follows is nothing */
    if (sizeof out > z->avail_out)
        upload_parse(u, out, sizeof out - z->avail_out);
}

static void upload_take_step(struct upload *u)
{
    if (u->is_gzip) {
        upload_inflate(u);
        return;
    }
    upload_parse(u, u->in.data, u->in.len);
    buf_clear(&u->in);
}

/* ---- writing ---- */

/* The first step is done. */
static void upload_next(struct upload *u)
{
    u->made_parents = false;
    upload_drop_step(u);
    upload_continue(u);
}

static void upload_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (exchange_is_over_opened(x, reply, err))
        return;
    struct upload *u = x->arg;
    struct json_object *old = reply->count > 0 ? e2b_metadata(&reply->entries[0]) : NULL;
    u->has_old_marks = old != NULL;
    json_object_put(old);
    upload_next(u);
}

/* Adds the file of the first step to the answer. */
static void upload_add_written(struct upload *u)
{
    size_t len = 0;
    cleanup_buf struct buf path = { 0 };
    text_append_utf8(&path, u->steps->path, strlen(u->steps->path));
    const char *name = text_last_name(buf_text(&path), &len);
    struct json_object *o = json_object_new_object();
    json_put_text(o, "path", buf_text(&path));
    json_put_string(o, "name", name, len);
    json_put_text(o, "type", "file");
    if (u->metadata)
        json_put(o, "metadata", json_object_get(u->metadata));
    json_object_array_add(u->written, o);
}

static void upload_on_done(struct exchange *x)
{
    struct upload *u = x->arg;
    if (u->steps->op == UPLOAD_CLOSE)
        upload_add_written(u);
    upload_next(u);
}

static void upload_on_parents(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (exchange_is_over(x, NULL))
        return;
    struct upload *u = x->arg;
    u->made_parents = true; /* if that failed, so does opening the file */
    upload_continue(u);
}

static void upload_open(struct upload *u, const char *path)
{
    cleanup_free char *parent = e2b_parent(path);
    const droste_file_request make = {
        .op = "mkdir", .path = parent, .flags = DROSTE_FILE_PARENTS
    };
    const droste_file_request open = {
        .op = "open", .path = path, .mode = "w", .flags = DROSTE_FILE_ATTRIBUTES
    };
    if (!u->made_parents)
        (void)exchange_ask_file(u->x, &make, upload_on_parents);
    else
        (void)exchange_ask_file(u->x, &open, upload_on_open);
}

static void upload_run(struct upload *u)
{
    const struct upload_step *step = u->steps;
    const droste_file_request write = { .op = "write",
        .handle = u->x->handle,
        .offset = -1,
        .data = buf_text(&step->data),
        .len = step->data.len };
    const droste_file_request mark = {
        .op = "mark", .path = step->path, .to = buf_text(&u->marks)
    };
    if (step->op == UPLOAD_OPEN)
        upload_open(u, step->path);
    else if (step->op == UPLOAD_CLOSE)
        exchange_close_file(u->x);
    else
        (void)exchange_ask_file(
            u->x, step->op == UPLOAD_DATA ? &write : &mark, exchange_on_file_done);
}

static void upload_end_parser(struct upload *u)
{
    if (MHD_destroy_post_processor(steal(&u->parser)) != MHD_YES)
        upload_fail(u, 400, "the body is not complete multipart/form-data");
}

static void upload_finish(struct upload *u)
{
    if (u->is_gzip && !u->inflated) {
        upload_fail(u, 400, "the compressed body is cut off");
        return;
    }
    request_reply_json(u->x->r, 200, json_object_get(u->written));
}

/* Does what is next: a step in the sandbox, more of the body, or the answer. */
static void upload_continue(struct upload *u)
{
    while (!u->failed && !u->x->pending) {
        bool needs_no_mark =
            u->steps && u->steps->op == UPLOAD_MARK && !u->metadata && !u->has_old_marks;
        if (needs_no_mark) {
            upload_drop_step(u);
            continue;
        }
        if (u->steps) {
            upload_run(u);
            return;
        }
        if (u->in.len > 0) {
            upload_take_step(u);
            if (!u->ended && u->in.len < UPLOAD_STEP)
                request_resume(u->x->r); /* reads more meanwhile */
            continue;
        }
        if (!u->ended)
            return;
        if (!u->parser && !u->current) {
            upload_finish(u);
            return;
        }
        if (u->parser)
            upload_end_parser(u);
        else
            upload_end_file(u);
    }
}

/* ---- the routes ---- */

void e2b_handle_file_read(struct request *r)
{
    const char *query = request_query(r, "path", NULL);
    struct e2b_sandbox *e = query ? e2b_running_of(r) : NULL;
    cleanup_free char *path = e ? e2b_path(r, e, query) : NULL;
    if (path)
        transfer_read(r, path);
}

static void upload_on_piece(struct request *r, const char *data, size_t len)
{
    struct upload *u = ((struct exchange *)r->state)->arg;
    buf_append(&u->in, data, len);
    if (buf_failed(&u->in)) {
        r->gone = true;
        return;
    }
    upload_continue(u);
    if (!r->reply && u->in.len >= UPLOAD_STEP)
        request_suspend(r);
}

static void upload_on_complete(struct request *r)
{
    struct upload *u = ((struct exchange *)r->state)->arg;
    u->ended = true;
    upload_continue(u);
}

static bool upload_is(struct request *r, const char *type)
{
    const char *has = request_header_of(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    return has && strncasecmp(has, type, strlen(type)) == 0;
}

static enum MHD_Result upload_on_field(
    void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    static const char prefix[] = "X-Metadata-";
    struct upload *u = arg;
    const char *key = name + strlen(prefix);
    if (strncasecmp(name, prefix, strlen(prefix)) != 0)
        return MHD_YES;
    bool ok = *key && strlen(key) <= UPLOAD_KEY_MAX && !strchr(key, '=') && value && *value;
    for (const char *p = value; ok && *p; p++)
        ok = *p >= ' ' && *p <= '~';
    if (ok && !u->metadata)
        u->metadata = json_object_new_object();
    u->has_bad_marks = u->has_bad_marks || !ok || !json_put_text(u->metadata, key, value);
    buf_printf(&u->marks, "\n" E2B_METADATA "%s=%s", key, value ? value : "");
    return MHD_YES;
}

/* Begins to read the body; false: the request was refused. */
static bool upload_prepare(struct upload *u, struct request *r)
{
    const char *encoding = request_header_of(r, MHD_HTTP_HEADER_CONTENT_ENCODING);
    u->is_gzip = encoding && strcasecmp(encoding, "gzip") == 0;
    buf_puts(&u->marks, E2B_METADATA);
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, upload_on_field, u);
    if (u->has_bad_marks || buf_failed(&u->marks) || u->marks.len > UPLOAD_MARKS_MAX) {
        request_refuse(r, 400, "argument",
            "metadata is at most 4 KiB of printable ASCII; a key has at most %d bytes",
            UPLOAD_KEY_MAX);
        return false;
    }
    if (encoding && !u->is_gzip && strcasecmp(encoding, "identity") != 0) {
        request_refuse(r, 415, "encoding", "the only Content-Encoding is gzip");
        return false;
    }
    if (u->is_gzip && inflateInit2(&u->inflater, 16 + MAX_WBITS) != Z_OK) {
        u->is_gzip = false;
        request_refuse_memory(r);
        return false;
    }
    if (upload_is(r, "multipart/form-data")) {
        u->parser = MHD_create_post_processor(r->connection, UPLOAD_PARSER, upload_on_part, u);
        if (!u->parser)
            request_refuse(r, 400, "body", "the multipart body has no boundary");
        return u->parser != NULL;
    }
    if (!u->path) {
        request_refuse(r, 400, "argument", "send multipart/form-data, or name the path");
        return false;
    }
    upload_begin_file(u, u->path);
    return !u->failed;
}

void e2b_handle_file_write(struct request *r)
{
    const char *path = request_parameter(r, "path");
    struct e2b_sandbox *e = e2b_running_of(r);
    struct exchange *x = e ? exchange_new(r) : NULL;
    struct upload *u = x ? request_alloc(r, sizeof *u) : NULL;
    if (!u)
        return;
    x->arg = u;
    x->done = upload_on_done;
    x->fail = upload_on_error;
    u->x = x;
    u->e2b = e;
    u->last = &u->steps;
    u->path = path && path[0] ? strdup(path) : NULL;
    u->written = json_object_new_array();
    r->on_free = upload_on_free;
    if (!upload_prepare(u, r))
        return;
    r->on_piece = upload_on_piece;
    r->on_complete = upload_on_complete;
}
