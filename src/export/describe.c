/* export/describe.c: see describe.h. */
#include "export/describe.h"

#include <stdbool.h>

#include "base/json/json.h"
#include "base/text.h"

static bool describe_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The first bytes of a text (at most four per character), with each white space as a blank. */
static void describe_collapse(struct buf *line, droste_value text, size_t max_bytes)
{
    const char *p = text.data;
    for (size_t i = 0; p && i < text.len && line->len < max_bytes; i++) {
        bool blank = describe_is_blank(p[i]);
        if (!blank || (line->len > 0 && line->data[line->len - 1] != ' '))
            buf_putc(line, blank ? ' ' : p[i]);
    }
    if (line->len > 0 && line->data[line->len - 1] == ' ')
        line->len--;
}

void describe_line(struct buf *out, droste_value text, size_t max)
{
    cleanup_buf struct buf line = { 0 };
    size_t at = 0, characters = 0, last = 0;
    describe_collapse(&line, text, 4 * max + 8);
    for (; at < line.len; at++) {
        if (((unsigned char)line.data[at] & 0xC0) == 0x80)
            continue;
        if (++characters > max)
            break;
        last = at;
    }
    buf_append(out, buf_text(&line), characters > max ? last : line.len);
    if (characters > max)
        buf_puts(out, "…");
}

static void describe_source(struct buf *out, struct json_object *o)
{
    const char *name = json_get_string(o, "name", NULL);
    int64_t files = json_get_int(o, "files", 0), left_out = json_get_int(o, "left_out", 0);
    buf_printf(
        out, "%s%s%s, ", name ? name : "", name ? " = " : "", json_get_string(o, "source", "?"));
    text_append_grouped(out, json_get_int(o, "bytes", 0));
    buf_puts(out, " bytes");
    if (files > 0) {
        buf_puts(out, " in ");
        text_append_grouped(out, files);
        buf_puts(out, " files");
    }
    if (left_out > 0) {
        buf_puts(out, " (");
        text_append_grouped(out, left_out);
        buf_puts(out, " more omitted)");
    }
}

void describe_context(struct buf *out, const char *json, size_t len)
{
    cleanup_json struct json_object *o = NULL;
    if (json_parse(json, len, &json_limits_large, &o, NULL) < 0)
        return;
    bool several = json_object_is_type(o, json_type_array);
    size_t count = json_length(o);
    if (!several)
        describe_source(out, o);
    for (size_t i = 0; i < count; i++) {
        buf_puts(out, i ? "; " : "");
        describe_source(out, json_object_array_get_idx(o, i));
    }
}
