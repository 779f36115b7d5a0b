/* cli/fields.c: see fields.h. */
#include "base/json/fields.h"

#include <string.h>
#include <time.h>

#include "base/json/json.h"
#include "base/text.h"

void field_key(struct buf *out, const char *key)
{
    char last = out->len > 0 ? out->data[out->len - 1] : '{';
    if (last != '{' && last != '[')
        buf_putc(out, ',');
    if (key)
        buf_printf(out, "\"%s\":", key);
}

void field_open(struct buf *out, const char *key, char bracket)
{
    field_key(out, key);
    buf_putc(out, bracket);
}

void field_close(struct buf *out, char bracket)
{
    buf_putc(out, bracket);
}

void field_text(struct buf *out, const char *key, const char *text, size_t len)
{
    cleanup_buf struct buf clean = { 0 };
    if (!text) {
        field_null(out, key);
        return;
    }
    field_key(out, key);
    text_append_utf8(&clean, text, len);
    json_append_string(out, buf_text(&clean), clean.len);
    out->failed |= clean.failed;
}

void field_string(struct buf *out, const char *key, const char *text)
{
    field_text(out, key, text, text ? strlen(text) : 0);
}

void field_int(struct buf *out, const char *key, int64_t value)
{
    field_key(out, key);
    buf_printf(out, "%lld", (long long)value);
}

void field_real(struct buf *out, const char *key, double value)
{
    field_key(out, key);
    buf_printf(out, "%.6f", value);
}

void field_seconds(struct buf *out, const char *key, double seconds)
{
    field_key(out, key);
    json_append_seconds(out, seconds);
}

void field_number(struct buf *out, const char *key, double value)
{
    field_key(out, key);
    json_append_number(out, value);
}

void field_bool(struct buf *out, const char *key, bool value)
{
    field_key(out, key);
    buf_puts(out, value ? "true" : "false");
}

/* Without printf, which would scan a long text twice. */
void field_json(struct buf *out, const char *key, const char *json)
{
    field_key(out, key);
    buf_puts(out, json ? json : "null");
}

void field_null(struct buf *out, const char *key)
{
    field_json(out, key, NULL);
}

void field_strings(struct buf *out, const char *key, const char *const *items)
{
    field_open(out, key, '[');
    for (; items && *items; items++)
        field_string(out, NULL, *items);
    field_close(out, ']');
}

void field_list(struct buf *out, const char *key, const struct list *list)
{
    field_open(out, key, '[');
    for (size_t i = 0; list && i < list->count; i++)
        field_string(out, NULL, list->items[i]);
    field_close(out, ']');
}

void field_time(struct buf *out, const char *key, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char text[48];
    if (ms == 0 || !gmtime_r(&seconds, &tm)) {
        field_null(out, key);
        return;
    }
    field_key(out, key);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    buf_printf(out, "\"%s.%03dZ\"", text, (int)(ms % 1000));
}
