/* lm/record.c: writes recordings and computes the keys of requests. */
#include "lm/record.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/json/fields.h"
#include "base/json/json.h"

struct record {
    int fd;
    char *path;
    size_t last_len; /* of the last line, with its newline */
};

/* Uses OpenAI's format, the most widely known one. */
static void append_part(struct buf *b, const struct lm_part *part)
{
    if (part->kind == LM_PART_TEXT) {
        buf_puts(b, "{\"type\":\"text\",\"text\":");
        json_append_string(b, part->data, part->len);
        buf_putc(b, '}');
        return;
    }
    if (part->kind == LM_PART_IMAGE_URL) {
        buf_puts(b, "{\"type\":\"image_url\",\"image_url\":{\"url\":");
        json_append_string(b, part->data, part->len);
        buf_puts(b, "}}");
        return;
    }
    buf_printf(b, "%sdata:%s;base64,",
        part->kind == LM_PART_IMAGE ? "{\"type\":\"image_url\",\"image_url\":{\"url\":\""
                                    : "{\"type\":\"file\",\"file\":{\"filename\":\"document\","
                                      "\"file_data\":\"",
        part->media_type);
    json_append_base64(b, part->data, part->len);
    buf_puts(b, "\"}}");
}

static void record_append_content(struct buf *b, const struct lm_message *message)
{
    if (message->part_count == 0) {
        json_append_string(b, message->text, message->len);
        return;
    }
    for (size_t i = 0; i < message->part_count; i++) {
        buf_putc(b, i ? ',' : '[');
        append_part(b, &message->parts[i]);
    }
    buf_putc(b, ']');
}

int record_write_head(struct lm_call *call, struct error *err)
{
    struct buf *b = &call->body;
    const struct lm_request *r = &call->request;
    if (call->head_len > 0)
        return 0;
    const char *model = call->model ? call->model : "";
    buf_reserve(b, call->input_bytes + call->input_bytes / 16 + 256);
    buf_putc(b, '{');
    field_string(b, "model", model);
    field_key(b, "messages");
    call->messages_at = b->len;
    for (size_t i = 0; i < r->message_count; i++) {
        buf_puts(b, i ? ",{\"role\":\"" : "[{\"role\":\"");
        buf_puts(b, r->messages[i].role);
        buf_puts(b, "\",\"content\":");
        record_append_content(b, &r->messages[i]);
        buf_putc(b, '}');
    }
    buf_putc(b, ']');
    if (buf_failed(b))
        return error_memory(err);
    call->head_len = b->len;
    return 0;
}

static int hash_messages(struct lm_call *call, struct error *err)
{
    if (call->messages_hash[0])
        return 0;
    return hash_sha256(call->body.data + call->messages_at, call->head_len - call->messages_at,
        call->messages_hash, err);
}

int record_key(struct lm_call *call, const char *model, char out[HASH_TEXT_SIZE], struct error *err)
{
    cleanup_buf struct buf b = { 0 };
    int rc = hash_messages(call, err);
    if (rc < 0)
        return rc;
    buf_putc(&b, '{');
    field_string(&b, "model", model);
    field_string(&b, "messages", call->messages_hash);
    field_int(&b, "max_tokens", call->request.max_tokens);
    if (call->request.temperature < 0)
        field_null(&b, "temperature");
    else
        field_number(&b, "temperature", call->request.temperature);
    if (call->request.sampling[0])
        buf_printf(&b, ",\"sampling\":{%s}", call->request.sampling + 1);
    buf_putc(&b, '}');
    if (buf_failed(&b))
        return error_memory(err);
    return hash_sha256(b.data, b.len, out, err);
}

/* The next line would be appended to an incomplete one. */
static int check_end(int fd, const char *path, struct error *err)
{
    struct stat st;
    char last = '\n';
    if (fstat(fd, &st) < 0)
        return error_set_errno(err, ERROR_IO, "inspecting the recording %.100s", path);
    if (S_ISREG(st.st_mode) && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1)
        return error_set_errno(err, ERROR_IO, "reading the recording %.100s", path);
    if (last != '\n')
        return error_set(err, ERROR_PROTOCOL,
            "the recording %.100s ends with an incomplete line: delete that line", path);
    return 0;
}

int record_open(const char *path, struct record **out, struct error *err)
{
    cleanup_fd int fd =
        file_open(path, O_RDWR | O_APPEND | O_CREAT, FILE_OR_NULL, "the recording", err);
    if (fd < 0)
        return fd;
    int rc = check_end(fd, path, err);
    if (rc < 0)
        return rc;
    struct record *record = calloc(1, sizeof *record);
    if (!record || !(record->path = strdup(path))) {
        free(record);
        return error_memory(err);
    }
    record->fd = steal_fd(&fd);
    *out = record;
    return 0;
}

static void append_result(struct buf *line, const struct lm_reply *reply)
{
    field_key(line, "content");
    json_append_string(line, reply->text, reply->len);
    field_string(line, "finish", reply->finish);
    field_open(line, "usage", '{');
    field_int(line, "input_tokens", reply->usage.input_tokens);
    field_int(line, "output_tokens", reply->usage.output_tokens);
    field_bool(line, "estimated", reply->usage.estimated);
    if (reply->usage.cached_tokens > 0)
        field_int(line, "cached_tokens", reply->usage.cached_tokens);
    field_close(line, '}');
    if (reply->error.code == ERROR_NONE) {
        field_null(line, "error");
    } else {
        field_open(line, "error", '{');
        field_string(line, "code", error_code_name(reply->error.code));
        field_string(line, "message", reply->error.text);
        field_close(line, '}');
    }
    buf_puts(line, "}\n");
}

int record_append(struct record *record, const char *key, const struct lm_call *call,
    const struct lm_reply *reply, struct error *err)
{
    cleanup_buf struct buf line = { 0 };
    buf_reserve(&line, call->head_len + reply->len + reply->len / 16 + 512);
    buf_printf(
        &line, "{\"v\":%d,\"key\":\"%s\",\"depth\":%u,", RECORD_VERSION, key, call->request.depth);
    buf_append(&line, call->body.data + 1, call->head_len - 1); /* without its '{' */
    append_result(&line, reply);
    if (buf_failed(&line))
        return error_memory(err);
    ssize_t n = write(record->fd, line.data, line.len);
    if (n < 0)
        return error_set_errno(err, ERROR_IO, "recording to %.100s", record->path);
    if ((size_t)n != line.len)
        return error_set(err, ERROR_IO, "recording to %.100s: only %zd of %zu bytes were written",
            record->path, n, line.len);
    record->last_len = line.len;
    return 0;
}

/* O_APPEND leaves the offset at the end of the written data (open(2)). */
int record_last(const struct record *record, off_t *at, size_t *len)
{
    off_t end = lseek(record->fd, 0, SEEK_CUR);
    if (end < (off_t)record->last_len || record->last_len == 0)
        return -1;
    *at = end - (off_t)record->last_len;
    *len = record->last_len - 1;
    return 0;
}

void record_close(struct record *record)
{
    if (!record)
        return;
    close(record->fd);
    free(record->path);
    free(record);
}

void record_reply(struct record *record, struct lm_call *call, struct lm_reply *reply)
{
    char key[HASH_TEXT_SIZE];
    struct error failed = { 0 };
    if (!record || (record_key(call, call->model ? call->model : "", key, &failed) == 0 &&
                       record_append(record, key, call, reply, &failed) == 0))
        return;
    reply->message = NULL;
    reply->error = failed; /* an answer that could not be recorded could not be replayed */
    reply->text = "";
    reply->len = 0;
}
