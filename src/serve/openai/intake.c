/* serve/openai/intake.c: a file of a multipart body, written to the disk as it comes.
 *
 * libmicrohttpd parses the body. A piece is written before the next one is read, so that a client
 * is as fast as the disk. What is refused, or breaks off, leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "serve/openai/errors.h"
#include "serve/openai/file_store.h"

enum { INTAKE_PARSER = 64 << 10, INTAKE_FIELDS_MAX = 32, INTAKE_FIELD_MAX = 4096 };

static void intake_fail(struct intake *in, unsigned status, const char *code, const char *text)
{
    if (in->status)
        return;
    in->status = status;
    in->code = code;
    in->text = text;
}

static void intake_name(char out[STORE_NAME_SIZE], const struct intake *in)
{
    snprintf(out, STORE_NAME_SIZE, ".new-%s", in->id);
}

static void intake_free(struct intake *in)
{
    char name[STORE_NAME_SIZE];
    intake_name(name, in);
    if (in->parser)
        MHD_destroy_post_processor(in->parser);
    if (in->fd >= 0)
        close(in->fd);
    if (in->directory >= 0) {
        unlinkat(in->directory, name, 0); /* it has another name if it is kept */
        close(in->directory);
    }
    json_object_put(in->fields);
    free(in);
}

static void intake_on_free(struct request *r)
{
    if (r->state)
        intake_free(r->state);
}

/* ---- the parts ---- */

static void intake_take_field(struct intake *in, const char *key, const char *data, size_t len)
{
    struct json_object *had = NULL;
    cleanup_buf struct buf text = { 0 };
    json_object_object_get_ex(in->fields, key, &had);
    buf_puts(&text, had ? json_object_get_string(had) : "");
    text_append_utf8(&text, data, len);
    if (text.len > INTAKE_FIELD_MAX || strlen(key) > 64 ||
        json_object_object_length(in->fields) >= INTAKE_FIELDS_MAX)
        intake_fail(in, 400, "form", "a field of the form is too long, or there are too many");
    else if (buf_failed(&text) || !json_put_text(in->fields, key, buf_text(&text)))
        intake_fail(in, 503, "memory", "out of memory");
}

static void intake_begin_file(struct intake *in, const char *filename)
{
    if (in->has_file) {
        intake_fail(in, 400, "form", "a request has one file");
        return;
    }
    in->has_file = true;
    cleanup_buf struct buf name = { 0 };
    text_append_utf8(&name, filename ? filename : "", strlen(filename ? filename : ""));
    size_t len = text_utf8_floor(buf_text(&name), name.len, sizeof in->name - 1);
    memcpy(in->name, buf_text(&name), len);
    in->name[len] = '\0';
}

static void intake_take_file(struct intake *in, const char *data, size_t len)
{
    in->bytes += len;
    if (in->bytes > in->most)
        intake_fail(in, 413, "too_large", "the file is larger than one may be here");
    else if (in->bytes > in->room)
        intake_fail(in, 413, "quota", "the files of this key would exceed its quota; delete some");
    else if (len > 0 && file_write_all(in->fd, data, len) < 0)
        intake_fail(in, 507, "storage", "the disk of the server is full, or cannot be written to");
}

static enum MHD_Result intake_on_part(void *arg, enum MHD_ValueKind kind, const char *key,
    const char *filename, const char *type, const char *encoding, const char *data, uint64_t at,
    size_t len)
{
    struct intake *in = arg;
    if (!key || in->status)
        return in->status ? MHD_NO : MHD_YES;
    if (strcmp(key, in->field) != 0) {
        intake_take_field(in, key, data, len);
    } else {
        /* The first call may be one without data, before the first data. */
        bool continues = at > 0 || in->is_announced;
        in->is_announced = len == 0;
        if (!continues)
            intake_begin_file(in, filename);
        if (!in->status)
            intake_take_file(in, data, len);
    }
    return in->status ? MHD_NO : MHD_YES;
}

/* ---- the body ---- */

static void intake_refuse(struct intake *in)
{
    openai_refuse(
        in->r, &(struct openai_error){ .status = in->status, .code = in->code }, "%s", in->text);
}

static void intake_on_piece(struct request *r, const char *data, size_t len)
{
    struct intake *in = r->state;
    if (!in || in->status)
        return;
    if (MHD_post_process(in->parser, data, len) != MHD_YES)
        intake_fail(in, 400, "form", "the body is not valid multipart/form-data");
    if (in->status)
        intake_refuse(in);
}

static void intake_on_complete(struct request *r)
{
    struct intake *in = r->state;
    if (!in || in->status)
        return;
    bool whole = MHD_destroy_post_processor(in->parser) == MHD_YES;
    in->parser = NULL;
    if (!whole)
        intake_fail(in, 400, "form", "the body is not complete multipart/form-data");
    else if (!in->has_file)
        intake_fail(in, 400, "no_file", "the form has no file");
    if (in->status)
        intake_refuse(in);
    else
        in->done(in);
}

static bool intake_open(struct intake *in, struct request *r)
{
    char name[STORE_NAME_SIZE];
    size_t files = 0;
    uint64_t quota = (uint64_t)r->server->options->files_quota_mib << 20;
    in->directory = file_store_open(r);
    if (in->directory < 0)
        return false;
    uint64_t used = file_store_used(in->directory, &files);
    in->room = used < quota ? quota - used : 0;
    intake_name(name, in);
    if (files >= 2 * (size_t)STORE_FILES_MOST) {
        openai_refuse(r, &(struct openai_error){ .status = 413, .code = "quota" },
            "this key has %d files, which is the most; delete some", STORE_FILES_MOST);
        return false;
    }
    in->fd = openat(
        in->directory, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (in->fd < 0)
        request_refuse(r, 503, "storage", "a file cannot be made: %s", strerror(errno));
    return in->fd >= 0;
}

/* NULL: the request was refused. */
static struct intake *intake_new(struct request *r, const char *prefix, const char *field,
    uint64_t most, void (*done)(struct intake *in))
{
    struct intake *in = request_alloc(r, sizeof *in);
    if (!in)
        return NULL;
    *in = (struct intake){
        .r = r, .field = field, .most = most, .done = done, .directory = -1, .fd = -1
    };
    r->state = in;
    r->on_free = intake_on_free;
    in->fields = json_object_new_object();
    return in->fields && file_store_make_id(r, prefix, in->id) && intake_open(in, r) ? in : NULL;
}

void intake_begin(struct request *r, const char *prefix, const char *field, uint64_t most,
    void (*done)(struct intake *in))
{
    struct intake *in = intake_new(r, prefix, field, most, done);
    if (!in)
        return;
    const char *type = request_header_of(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (type && strncasecmp(type, "multipart/form-data", strlen("multipart/form-data")) == 0)
        in->parser = MHD_create_post_processor(r->connection, INTAKE_PARSER, intake_on_part, in);
    if (!in->parser) {
        openai_refuse(r, &(struct openai_error){ .status = 400, .code = "form" },
            "send the file as multipart/form-data");
        return;
    }
    r->on_piece = intake_on_piece;
    r->on_complete = intake_on_complete;
}

static void intake_on_plain_piece(struct request *r, const char *data, size_t len)
{
    struct intake *in = r->state;
    if (!in || in->status)
        return;
    intake_take_file(in, data, len);
    if (in->status)
        request_refuse(r, in->status, in->code, "%s", in->text);
}

static void intake_on_plain_end(struct request *r)
{
    struct intake *in = r->state;
    if (in && !in->status)
        in->done(in);
}

void intake_begin_plain(struct request *r, const char *prefix, void (*done)(struct intake *in))
{
    if (!intake_new(r, prefix, "", UINT64_MAX, done))
        return;
    r->on_piece = intake_on_plain_piece;
    r->on_complete = intake_on_plain_end;
}

void intake_release(struct intake *in)
{
    in->r->state = NULL;
    close_fd(&in->fd);
    close_fd(&in->directory);
    json_object_put(in->fields);
    free(in);
}

void intake_keep(struct intake *in, struct json_object *object,
    void (*reply)(struct request *r, struct json_object *object))
{
    struct store_job *job = calloc(1, sizeof *job);
    if (!job || !object) {
        free(job);
        json_object_put(object);
        request_refuse_memory(in->r);
        return;
    }
    *job = (struct store_job){ .w = { .server = in->r->server, .r = in->r },
        .directory = in->directory,
        .object = object,
        .answer = json_object_get(object),
        .reply = reply };
    memcpy(job->id, in->id, sizeof job->id);
    in->directory = -1; /* it is the job's, and so is the file */
    intake_release(in);
    file_store_start_job(job);
}
