/* serve/e2b/logs.c: the log of a sandbox: what its clients did in it, and what that printed.
 *
 * It is in memory, lasts as long as the sandbox, and has the newest entries that fit into
 * LOG_BYTES. An entry is the text of its fields as JSON, behind its message. Variables of
 * environments and tokens are in none.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/e2b/e2b.h"

enum { LOG_BYTES = 64 << 10, LOG_TEXT = 1 << 10, LOG_LIMIT = 1000, LOG_SEARCH = 256 };

struct e2b_log_entry {
    struct e2b_log_entry *next;
    int64_t us;
    enum e2b_level level;
    size_t size, len; /* of all, and of the message */
    char text[];      /* the message, and the fields as {"NAME":"VALUE",…} */
};

static const char *const log_levels[] = {
    [E2B_DEBUG] = "debug", [E2B_INFO] = "info", [E2B_WARN] = "warn", [E2B_ERROR] = "error"
};

/* ---- entries ---- */

static void log_drop_first(struct e2b_log *log)
{
    struct e2b_log_entry *first = log->first;
    log->first = first->next;
    log->bytes -= first->size;
    if (!log->first)
        log->last = NULL;
    free(first);
}

void e2b_log_free(struct e2b_log *log)
{
    while (log->first)
        log_drop_first(log);
}

/* Without memory there is no entry. */
static void log_add(struct e2b_log *log, enum e2b_level level, const char *message, size_t len,
    const struct buf *fields)
{
    struct timespec t;
    size_t size = sizeof(struct e2b_log_entry) + len + fields->len + 2;
    struct e2b_log_entry *entry = buf_failed(fields) ? NULL : malloc(size);
    if (!entry)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    *entry = (struct e2b_log_entry){ .us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000,
        .level = level,
        .size = size,
        .len = len };
    memcpy(entry->text, message, len);
    entry->text[len] = '\0';
    memcpy(entry->text + len + 1, buf_text(fields), fields->len + 1);
    if (log->last)
        log->last->next = entry;
    else
        log->first = entry;
    log->last = entry;
    log->bytes += size;
    while (log->bytes > LOG_BYTES)
        log_drop_first(log);
}

static void log_put_field(struct buf *out, const char *name, const char *value)
{
    field_text(out, name, value, strnlen(value, LOG_TEXT));
}

void e2b_log(struct e2b_sandbox *e, enum e2b_level level, const char *event,
    const struct e2b_field *more, const char *format, ...)
{
    cleanup_buf struct buf fields = { 0 };
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    field_open(&fields, NULL, '{');
    field_string(&fields, "event_type", event);
    for (; more && more->name; more++)
        if (more->value)
            log_put_field(&fields, more->name, more->value);
    field_close(&fields, '}');
    log_add(&e->log, level, message, strlen(message), &fields);
}

void e2b_log_output(struct e2b_sandbox *e, const char *stream, const struct e2b_field *of,
    const char *data, size_t len)
{
    cleanup_buf struct buf fields = { 0 }, message = { 0 };
    size_t kept = len < LOG_TEXT ? len : LOG_TEXT;
    if (len == 0)
        return;
    field_open(&fields, NULL, '{');
    field_string(&fields, "event_type", stream);
    log_put_field(&fields, of->name, of->value);
    if (kept < len) {
        char bytes[32];
        snprintf(bytes, sizeof bytes, "%zu", len);
        field_string(&fields, "bytes", bytes);
    }
    field_close(&fields, '}');
    text_append_utf8(&message, data, kept);
    log_add(&e->log, E2B_INFO, buf_text(&message), message.len, &fields);
}

/* ---- the answers ---- */

struct log_query {
    int64_t from_us, before_us; /* before: exclusive */
    int64_t limit;
    bool backward;
    enum e2b_level level;
    const char *search;
};

/* False: the request was refused. */
static bool log_number(
    struct request *r, const char *name, int64_t fallback, int64_t most, int64_t *out)
{
    const char *text = request_parameter(r, name);
    size_t len = text ? strlen(text) : 0;
    *out = text ? strtoll(text, NULL, 10) : fallback;
    if (!text || (len > 0 && len < 16 && strspn(text, "0123456789") == len && *out <= most))
        return true;
    request_refuse(r, 400, "argument", "%s is a number up to %lld", name, (long long)most);
    return false;
}

static bool log_take_level(struct request *r, struct log_query *q)
{
    const char *level = request_parameter(r, "level");
    for (q->level = E2B_DEBUG; level && q->level <= E2B_ERROR; q->level++)
        if (strcmp(level, log_levels[q->level]) == 0)
            return true;
    if (level)
        request_refuse(r, 400, "argument", "level is debug, info, warn or error");
    return !level;
}

/* Of the second version; the first has `start` and `limit`. False: the request was refused. */
static bool log_take_query(struct request *r, bool is_v2, struct log_query *q)
{
    const char *direction = request_parameter(r, "direction");
    int64_t ms = 0, most = INT64_MAX / 1000000;
    *q = (struct log_query){ .before_us = INT64_MAX };
    if (!log_number(r, "limit", LOG_LIMIT, is_v2 ? LOG_LIMIT : INT32_MAX, &q->limit))
        return false;
    if (!is_v2) {
        bool taken = log_number(r, "start", 0, most, &ms);
        q->from_us = ms * 1000;
        return taken;
    }
    q->search = request_parameter(r, "search");
    q->backward = !direction || strcmp(direction, "backward") == 0;
    if ((direction && !q->backward && strcmp(direction, "forward") != 0) ||
        (q->search && strlen(q->search) > LOG_SEARCH)) {
        request_refuse(r, 400, "argument",
            "direction is forward or backward, and search has at most %d bytes", LOG_SEARCH);
        return false;
    }
    if (!log_number(r, "cursor", 0, most, &ms) || !log_take_level(r, q))
        return false;
    if (!q->backward)
        q->from_us = ms * 1000;
    else if (ms > 0)
        q->before_us = ms * 1000;
    return true;
}

static bool log_matches(const struct log_query *q, const struct e2b_log_entry *entry)
{
    return entry->us >= q->from_us && entry->us < q->before_us && entry->level >= q->level &&
           (!q->search || memmem(entry->text, entry->len, q->search, strlen(q->search)));
}

static const char *log_fields(const struct e2b_log_entry *entry)
{
    return entry->text + entry->len + 1;
}

static void log_put_entry(struct buf *out, const struct e2b_log_entry *entry)
{
    field_open(out, NULL, '{');
    field_time(out, "timestamp", entry->us / 1000);
    field_string(out, "level", log_levels[entry->level]);
    field_text(out, "message", entry->text, entry->len);
    field_json(out, "fields", log_fields(entry));
    field_close(out, '}');
}

/* An entry as a line of a log, which is JSON, too. */
static void log_put_line(struct buf *out, const struct e2b_log_entry *entry)
{
    cleanup_buf struct buf line = { 0 };
    field_open(&line, NULL, '{');
    field_string(&line, "level", log_levels[entry->level]);
    field_string(&line, "logger", "sandbox");
    field_text(&line, "message", entry->text, entry->len);
    buf_printf(&line, ",%s", log_fields(entry) + 1);
    field_open(out, NULL, '{');
    field_time(out, "timestamp", entry->us / 1000);
    field_text(out, "line", buf_text(&line), line.len);
    field_close(out, '}');
}

/* Those that match: the oldest of them, or the newest in reverse. */
static void log_put(struct buf *out, const char *name, const struct e2b_log *log,
    const struct log_query *q, void put(struct buf *out, const struct e2b_log_entry *entry))
{
    const struct e2b_log_entry *found[LOG_BYTES / sizeof(struct e2b_log_entry)];
    size_t count = 0;
    for (const struct e2b_log_entry *at = log->first; at; at = at->next)
        if (log_matches(q, at))
            found[count++] = at;
    field_open(out, name, '[');
    for (size_t i = 0; i < count && i < (size_t)q->limit; i++)
        put(out, found[q->backward ? count - 1 - i : i]);
    field_close(out, ']');
}

void e2b_handle_logs(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    bool is_v2 = strncmp(r->route->path, "/v2/", 4) == 0;
    cleanup_buf struct buf out = { 0 };
    struct log_query q;
    if (!e || !log_take_query(r, is_v2, &q))
        return;
    field_open(&out, NULL, '{');
    log_put(&out, "logs", &e->log, &q, is_v2 ? log_put_entry : log_put_line);
    if (!is_v2)
        log_put(&out, "logEntries", &e->log, &q, log_put_entry);
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}
