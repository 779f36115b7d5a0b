/* base/traceparent.c: see traceparent.h. */
#include "base/traceparent.h"

#include <stdio.h>
#include <string.h>

static bool traceparent_take(const char *text, size_t digits, char *out)
{
    if (strspn(text, "0123456789abcdef") < digits)
        return false;
    memcpy(out, text, digits);
    out[digits] = '\0';
    return true;
}

static bool traceparent_is_zero(const char *digits)
{
    return digits[strspn(digits, "0")] == '\0';
}

bool traceparent_parse(const char *text, struct traceparent *out)
{
    char version[3];
    if (!text || strlen(text) < TRACEPARENT_SIZE - 1 || !traceparent_take(text, 2, version) ||
        strcmp(version, "ff") == 0)
        return false;
    char after = text[TRACEPARENT_SIZE - 1];
    if (after != '\0' && (strcmp(version, "00") == 0 || after != '-'))
        return false;
    return text[2] == '-' && text[35] == '-' && text[52] == '-' &&
           traceparent_take(text + 3, TRACE_ID_SIZE - 1, out->trace) &&
           traceparent_take(text + 36, SPAN_ID_SIZE - 1, out->span) &&
           traceparent_take(text + 53, 2, out->flags) && !traceparent_is_zero(out->trace) &&
           !traceparent_is_zero(out->span);
}

void traceparent_write(
    const struct traceparent *parent, const char *span, char out[TRACEPARENT_SIZE])
{
    snprintf(out, TRACEPARENT_SIZE, "00-%s-%.16s-%s", parent->trace, span, parent->flags);
}

const char *traceparent_call_span(const char *key)
{
    return strlen(key) == TRACE_ID_SIZE - 1 ? key + SPAN_ID_SIZE - 1 : NULL;
}
