/* serve/openai/files.c: /v1/files, and /v1/uploads for files in parts. A file of an account can be
 * a context of its runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "serve/http/relay.h"
#include "serve/openai/file_store.h"
#include "serve/openai/openai.h"

enum { UPLOAD_SECONDS = 3600, UPLOAD_PARTS_MAX = 1000, EXPIRES_MAX = 30 * 86400 };
#define UPLOAD_PART_MAX ((uint64_t)64 << 20)

static const char file_prefix[] = "file-", upload_prefix[] = "upload_", part_prefix[] = "part_";

static void files_refuse(
    struct request *r, unsigned status, const char *code, const char *param, const char *text)
{
    openai_refuse(
        r, &(struct openai_error){ .status = status, .code = code, .param = param }, "%s", text);
}

static bool files_check_purpose(struct request *r, const char *purpose)
{
    static const char *const known[] = { "assistants", "batch", "evals", "fine-tune", "user_data",
        "vision" };
    for (size_t i = 0; i < array_length(known); i++)
        if (strcmp(known[i], purpose) == 0)
            return true;
    files_refuse(r, 400, "invalid_purpose", "purpose",
        "purpose is assistants, batch, evals, fine-tune, user_data or vision");
    return false;
}

/* The file that the request names, in its account's directory; NULL: another node answers, or it
 * was refused. */
static struct json_object *files_of(
    struct request *r, const char *prefix, const char *what, int *directory)
{
    *directory = file_store_open(r);
    if (*directory < 0)
        return NULL;
    struct json_object *o =
        file_store_is_id(r->id, prefix) ? file_store_read(*directory, r->id) : NULL;
    if (!o && !(file_store_is_id(r->id, prefix) && relay_elsewhere(r, "file", r->id)))
        openai_refuse(r,
            &(struct openai_error){ .status = 404, .code = "not_found", .param = "id" },
            "No such %s object: %s", what, r->id);
    return o;
}

/* ---- a file ---- */

/* Seconds until it expires; 0: never; -1: the request was refused. */
static int64_t files_expiry(struct request *r, struct json_object *fields)
{
    const char *text = json_get_string(fields, "expires_after[seconds]", NULL);
    char *end = NULL;
    long long seconds = text ? strtoll(text, &end, 10) : 0;
    if (!text || (end != text && *end == '\0' && seconds >= 3600 && seconds <= EXPIRES_MAX))
        return seconds;
    files_refuse(r, 400, "invalid_expiry", "expires_after", "seconds are from 3600 to 2592000");
    return -1;
}

static void files_store(struct intake *in)
{
    struct request *r = in->r;
    const char *purpose = json_get_string(in->fields, "purpose", "");
    int64_t expires = files_check_purpose(r, purpose) ? files_expiry(r, in->fields) : -1;
    if (expires < 0)
        return;
    intake_keep(in,
        file_store_object(in->id, in->name[0] ? in->name : "file", purpose, in->bytes, expires),
        NULL);
}

void openai_handle_file_create(struct request *r)
{
    intake_begin(r, file_prefix, "file", STORE_FILE_MAX, files_store);
}

void openai_handle_file_get(struct request *r)
{
    cleanup_fd int directory = -1;
    struct json_object *o = files_of(r, file_prefix, "File", &directory);
    if (o)
        request_reply_json(r, 200, o);
}

void openai_handle_file_delete(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *o = files_of(r, file_prefix, "File", &directory);
    cleanup_buf struct buf out = { 0 };
    if (!o)
        return;
    file_store_remove(directory, r->id);
    field_open(&out, NULL, '{');
    field_string(&out, "id", r->id);
    field_string(&out, "object", "file");
    field_bool(&out, "deleted", true);
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}

void openai_handle_file_content(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *o = files_of(r, file_prefix, "File", &directory);
    struct stat st;
    if (!o)
        return;
    cleanup_fd int fd = openat(directory, r->id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        request_refuse(r, 500, "storage", "the file cannot be read: %s", strerror(errno));
    else
        request_reply_fd(r, "application/octet-stream", steal_fd(&fd), (uint64_t)st.st_size);
}

/* ---- the list ---- */

static int files_compare(const void *a, const void *b)
{
    struct json_object *const *one = a, *const *other = b;
    int64_t first = json_get_int(*one, "created_at", 0),
            second = json_get_int(*other, "created_at", 0);
    if (first != second)
        return first < second ? 1 : -1;
    return strcmp(json_get_string(*other, "id", ""), json_get_string(*one, "id", ""));
}

bool file_page_read(struct request *r, struct file_page *page)
{
    const char *limit = request_query(r, "limit", "10000");
    const char *order = limit ? request_query(r, "order", "desc") : NULL;
    page->purpose = order ? request_query(r, "purpose", "") : NULL;
    page->after = page->purpose ? request_query(r, "after", "") : NULL;
    if (!page->after)
        return false;
    page->limit =
        strspn(limit, "0123456789") == strlen(limit) && strlen(limit) < 8 ? atoi(limit) : 0;
    page->is_ascending = strcmp(order, "asc") == 0;
    if (page->limit >= 1 && page->limit <= 10000 &&
        (page->is_ascending || strcmp(order, "desc") == 0))
        return true;
    files_refuse(r, 400, "invalid_page", page->limit ? "order" : "limit",
        "limit is a number from 1 to 10000, and order is asc or desc");
    return false;
}

void file_page_put(struct buf *out, struct json_object *all, const struct file_page *page)
{
    size_t count = json_length(all);
    int64_t shown = 0;
    bool is_after = page->after[0] == '\0', has_more = false;
    const char *first = NULL, *last = NULL;
    json_object_array_sort(all, files_compare);
    field_open(out, NULL, '{');
    field_string(out, "object", "list");
    field_open(out, "data", '[');
    for (size_t i = 0; i < count && !has_more; i++) {
        struct json_object *o =
            json_object_array_get_idx(all, page->is_ascending ? count - 1 - i : i);
        const char *id = json_get_string(o, "id", "");
        bool fits =
            !page->purpose[0] || strcmp(page->purpose, json_get_string(o, "purpose", "")) == 0;
        if (is_after && fits) {
            has_more = shown == page->limit;
            if (!has_more)
                field_json(out, NULL, json_text(o, NULL));
            first = first ? first : id;
            last = has_more ? last : id;
            shown++;
        }
        is_after = is_after || strcmp(id, page->after) == 0;
    }
    field_close(out, ']');
    field_bool(out, "has_more", has_more);
    field_string(out, "first_id", first);
    field_string(out, "last_id", last);
    field_close(out, '}');
}

void file_page_reply(struct request *r, struct json_object *all)
{
    struct file_page page;
    cleanup_buf struct buf out = { 0 };
    if (file_page_read(r, &page)) {
        file_page_put(&out, all, &page);
        request_reply_written(r, 200, &out);
    }
    json_object_put(all);
}

void openai_handle_file_list(struct request *r)
{
    struct file_page page;
    if (!file_page_read(r, &page))
        return;
    cleanup_fd int directory = file_store_open(r);
    if (directory < 0)
        return;
    relay_gather_shared(r, "data", file_store_list(directory, file_prefix), file_page_reply);
}

/* ---- uploads ---- */

void openai_handle_upload_create(struct request *r)
{
    const char *purpose = json_get_string(r->json, "purpose", "");
    int64_t bytes = json_get_int(r->json, "bytes", -1), now_s = clock_wall_ms() / 1000;
    char id[STORE_ID_SIZE];
    if (!files_check_purpose(r, purpose))
        return;
    if (bytes < 0 || (uint64_t)bytes > STORE_FILE_MAX) {
        files_refuse(r, 400, "invalid_bytes", "bytes", "a file has at most 512 MiB here");
        return;
    }
    cleanup_fd int directory = file_store_open(r);
    if (directory < 0 || !file_store_make_id(r, upload_prefix, id))
        return;
    struct json_object *o = json_object_new_object();
    if (!o || !json_put_text(o, "id", id) || !json_put_text(o, "object", "upload") ||
        !json_put(o, "bytes", json_object_new_int64(bytes)) ||
        !json_put(o, "created_at", json_object_new_int64(now_s)) ||
        !json_put_text(o, "filename", json_get_string(r->json, "filename", "file")) ||
        !json_put_text(o, "purpose", purpose) || !json_put_text(o, "status", "pending") ||
        !json_put(o, "expires_at", json_object_new_int64(now_s + UPLOAD_SECONDS)) ||
        !json_put_text(o, "file", NULL) || file_store_write(directory, id, o) < 0) {
        json_object_put(o);
        request_refuse(r, 503, "storage", "the upload cannot be stored");
        return;
    }
    request_reply_json(r, 200, o);
}

/* The request's upload if it is pending; NULL: the request was refused. */
static struct json_object *upload_of(struct request *r, int *directory)
{
    struct json_object *o = files_of(r, upload_prefix, "Upload", directory);
    if (!o || strcmp(json_get_string(o, "status", ""), "pending") == 0)
        return o;
    openai_refuse(r, &(struct openai_error){ .status = 400, .code = "not_pending" },
        "the upload is '%s'", json_get_string(o, "status", ""));
    json_object_put(o);
    return NULL;
}

static void upload_store_part(struct intake *in)
{
    struct request *r = in->r;
    char from[STORE_NAME_SIZE], to[2 * STORE_ID_SIZE];
    cleanup_buf struct buf out = { 0 };
    snprintf(from, sizeof from, ".new-%s", in->id);
    snprintf(to, sizeof to, "%s.%s", r->id, in->id);
    if (renameat(in->directory, from, in->directory, to) < 0) {
        request_refuse(r, 500, "storage", "the part was not stored: %s", strerror(errno));
        return;
    }
    field_open(&out, NULL, '{');
    field_string(&out, "id", in->id);
    field_string(&out, "object", "upload.part");
    field_int(&out, "created_at", clock_wall_ms() / 1000);
    field_string(&out, "upload_id", r->id);
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}

void openai_handle_upload_part(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *o = upload_of(r, &directory);
    if (o)
        intake_begin(r, part_prefix, "data", UPLOAD_PART_MAX, upload_store_part);
}

/* The bytes of the parts that are to be joined; negative: the request was refused. */
static int64_t upload_measure(struct request *r, int directory, struct json_object *parts)
{
    int64_t bytes = 0;
    size_t count = json_length(parts);
    for (size_t i = 0; i < count; i++) {
        struct json_object *part = json_object_array_get_idx(parts, i);
        const char *id =
            json_object_is_type(part, json_type_string) ? json_object_get_string(part) : "";
        char name[2 * STORE_ID_SIZE];
        struct stat st;
        snprintf(name, sizeof name, "%s.%s", r->id, id);
        if (!file_store_is_id(id, part_prefix) || count > UPLOAD_PARTS_MAX ||
            fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            openai_refuse(r,
                &(struct openai_error){ .status = 400, .code = "no_part", .param = "part_ids" },
                "the upload has no part '%.64s'", id);
            return -1;
        }
        bytes += st.st_size;
    }
    return bytes;
}

static void upload_join(struct request *r, int directory, struct json_object *upload,
    struct json_object *parts, int64_t bytes)
{
    struct store_job *job = calloc(1, sizeof *job);
    if (!job || !file_store_make_id(r, file_prefix, job->id)) {
        free(job);
        if (!r->reply)
            request_refuse_memory(r);
        return;
    }
    json_put_text(upload, "status", "completing"); /* another request does not join it, too */
    file_store_write(directory, r->id, upload);
    memcpy(job->upload, r->id, sizeof job->upload);
    job->w.server = r->server;
    job->w.r = r;
    job->directory = fcntl(directory, F_DUPFD_CLOEXEC, 0);
    job->parts = json_object_get(parts);
    job->object = file_store_object(job->id, json_get_string(upload, "filename", "file"),
        json_get_string(upload, "purpose", ""), (uint64_t)bytes, 0);
    job->answer = json_object_get(upload);
    json_put_text(upload, "status", "completed");
    json_put(upload, "file", json_object_get(job->object));
    file_store_start_job(job);
}

void openai_handle_upload_complete(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *o = upload_of(r, &directory);
    struct json_object *parts = json_get_typed(r->json, "part_ids", json_type_array);
    if (!o)
        return;
    int64_t bytes = upload_measure(r, directory, parts);
    if (bytes >= 0 && bytes != json_get_int(o, "bytes", -1))
        openai_refuse(r, &(struct openai_error){ .status = 400, .code = "invalid_bytes" },
            "the parts have %lld bytes, and the upload has %lld", (long long)bytes,
            (long long)json_get_int(o, "bytes", 0));
    else if (bytes >= 0)
        upload_join(r, directory, o, parts, bytes);
}

void openai_handle_upload_cancel(struct request *r)
{
    cleanup_fd int directory = -1;
    struct json_object *o = upload_of(r, &directory);
    if (!o)
        return;
    file_store_remove_parts(directory, r->id);
    json_put_text(o, "status", "cancelled");
    if (file_store_write(directory, r->id, o) == 0) {
        request_reply_json(r, 200, o);
        return;
    }
    json_object_put(o);
    request_refuse(r, 503, "storage", "the upload cannot be stored");
}
