/* egress/head.c: reads heads of HTTP/1.1, strictly. */
#include "egress/head.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

size_t egress_head_end(const char *data, size_t len, size_t scanned)
{
    static const char empty[] = "\r\n\r\n";
    size_t from = scanned > 3 ? scanned - 3 : 0;
    const char *end = len > from ? memmem(data + from, len - from, empty, 4) : NULL;
    return end ? (size_t)(end - data) + 4 : 0;
}

bool egress_span_is(struct egress_span span, const char *text)
{
    return span.len == strlen(text) && strncasecmp(span.at, text, span.len) == 0;
}

bool egress_span_is_token(struct egress_span span)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < span.len; i++) {
        char c = span.at[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && (c == '\0' || !strchr(others, c)))
            return false;
    }
    return span.len > 0;
}

bool egress_span_number(struct egress_span span, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < span.len; i++) {
        if (span.at[i] < '0' || span.at[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(span.at[i] - '0');
    }
    return span.len > 0 && span.len <= 18;
}

static struct egress_span span_trim(struct egress_span span)
{
    while (span.len > 0 && (span.at[0] == ' ' || span.at[0] == '\t'))
        span.at++, span.len--;
    while (span.len > 0 && (span.at[span.len - 1] == ' ' || span.at[span.len - 1] == '\t'))
        span.len--;
    return span;
}

/* The next line, without its end; false: it has no CR LF, or another control character. */
static bool head_take_line(struct egress_span *rest, struct egress_span *line)
{
    const char *end = memchr(rest->at, '\r', rest->len);
    size_t len = end ? (size_t)(end - rest->at) : 0;
    if (!end || len + 1 >= rest->len || end[1] != '\n')
        return false;
    *line = (struct egress_span){ rest->at, len };
    *rest = (struct egress_span){ end + 2, rest->len - len - 2 };
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)line->at[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool head_take_field(struct egress_span line, struct egress_field *out)
{
    const char *colon = memchr(line.at, ':', line.len);
    if (!colon)
        return false;
    out->name = (struct egress_span){ line.at, (size_t)(colon - line.at) };
    out->value =
        span_trim((struct egress_span){ colon + 1, line.len - (size_t)(colon - line.at) - 1 });
    return egress_span_is_token(out->name);
}

bool egress_head_parse(const char *data, size_t len, struct egress_head *out)
{
    struct egress_span rest = { data, len }, line;
    out->count = 0;
    if (!head_take_line(&rest, &out->line) || out->line.len == 0)
        return false;
    while (head_take_line(&rest, &line)) {
        if (line.len == 0)
            return rest.len == 0;
        if (out->count == EGRESS_FIELDS_MAX || !head_take_field(line, &out->fields[out->count]))
            return false;
        out->count++;
    }
    return false;
}

const struct egress_field *egress_head_find(
    const struct egress_head *head, const char *name, bool *several)
{
    const struct egress_field *found = NULL;
    *several = false;
    for (size_t i = 0; i < head->count; i++) {
        if (!egress_span_is(head->fields[i].name, name))
            continue;
        *several = found != NULL;
        found = found ? found : &head->fields[i];
        if (*several)
            break;
    }
    return found;
}

static bool list_has_word(struct egress_span list, struct egress_span word)
{
    while (list.len > 0) {
        const char *comma = memchr(list.at, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.at) : list.len;
        struct egress_span item = span_trim((struct egress_span){ list.at, len });
        if (item.len == word.len && strncasecmp(item.at, word.at, word.len) == 0)
            return true;
        len += comma ? 1 : 0;
        list = (struct egress_span){ list.at + len, list.len - len };
    }
    return false;
}

bool egress_head_lists(const struct egress_head *head, const char *name, struct egress_span word)
{
    for (size_t i = 0; i < head->count; i++)
        if (egress_span_is(head->fields[i].name, name) &&
            list_has_word(head->fields[i].value, word))
            return true;
    return false;
}

bool egress_field_is_hop(const struct egress_head *head, const struct egress_field *field)
{
    static const char *const hops[] = { "connection", "proxy-connection", "keep-alive", "te",
        "trailer", "transfer-encoding", "upgrade", "http2-settings", "proxy-authorization",
        "proxy-authenticate", "proxy-authentication-info" };
    for (size_t i = 0; i < array_length(hops); i++)
        if (egress_span_is(field->name, hops[i]))
            return true;
    return egress_head_lists(head, "connection", field->name);
}
