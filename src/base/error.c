/* base/error.c: setting and wrapping error values; nothing here allocates. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const struct {
    enum error_code code;
    const char *name;
} names[] = {
    { ERROR_NONE, "none" },
    { ERROR_ARGUMENT, "argument" },
    { ERROR_CONFIG, "config" },
    { ERROR_NOT_FOUND, "not_found" },
    { ERROR_PERMISSION, "permission" },
    { ERROR_UNSUPPORTED, "unsupported" },
    { ERROR_ENVIRONMENT, "environment" },
    { ERROR_LOST, "lost" },
    { ERROR_PROTOCOL, "protocol" },
    { ERROR_TIMEOUT, "timeout" },
    { ERROR_BUDGET, "budget" },
    { ERROR_CANCELLED, "cancelled" },
    { ERROR_IO, "io" },
    { ERROR_MEMORY, "memory" },
    { ERROR_STORE, "store" },
    { ERROR_MODEL, "model" },
    { ERROR_MODEL_AUTH, "model_auth" },
    { ERROR_MODEL_UNKNOWN, "model_unknown" },
    { ERROR_MODEL_RATE, "model_rate" },
    { ERROR_MODEL_SERVER, "model_server" },
    { ERROR_MODEL_CONNECT, "model_connect" },
    { ERROR_MODEL_STALL, "model_stall" },
    { ERROR_MODEL_CUT, "model_cut" },
    { ERROR_MODEL_REPLY, "model_reply" },
    { ERROR_MODEL_REPLAY, "model_replay" },
    { ERROR_BUDGET_CALLS, "budget_calls" },
    { ERROR_BUDGET_TOOL_CALLS, "budget_tool_calls" },
    { ERROR_BUDGET_TOKENS, "budget_tokens" },
    { ERROR_BUDGET_COST, "budget_cost" },
    { ERROR_BUDGET_TIME, "budget_time" },
    { ERROR_BUDGET_TURNS, "budget_turns" },
    { ERROR_BUDGET_ERRORS, "budget_errors" },
    { ERROR_BUDGET_RECORD, "budget_record" },
};

/* The length of a multi-byte character that controls a terminal: C1 controls (U+0080 to U+009F)
 * and bidirectional controls (U+202A to U+202E, U+2066 to U+2069). */
static size_t acting_length(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0)
        return 2;
    if (p[0] == 0xE2 && ((p[1] == 0x80 && p[2] >= 0xAA && p[2] <= 0xAE) ||
                            (p[1] == 0x81 && p[2] >= 0xA6 && p[2] <= 0xA9)))
        return 3;
    return 0;
}

/* Ends a truncated text with an ellipsis, so that a reader does not take it for the whole. */
static void error_mark_cut(struct error *err)
{
    static const char ellipsis[] = "…";
    size_t end =
        text_utf8_floor(err->text, sizeof err->text - 1, sizeof err->text - sizeof ellipsis);
    memcpy(err->text + end, ellipsis, sizeof ellipsis);
}

/* Turns the text, which may contain output of a server or guest, into one line of valid UTF-8. */
static void error_tidy(struct error *err)
{
    size_t bad;
    for (char *p = err->text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
        else if ((unsigned char)*p >= 0x80)
            memset(p, ' ', acting_length(p));
    while (!text_is_utf8(err->text, strlen(err->text), &bad))
        err->text[bad] = '?';
}

__attribute__((format(printf, 4, 0))) static void error_fill(
    struct error *err, enum error_code code, int sys, const char *format, va_list args)
{
    err->code = code;
    err->sys = sys;
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    if (n < 0)
        err->text[0] = '\0';
    if (n >= (int)sizeof err->text)
        error_mark_cut(err);
    error_tidy(err);
}

/* Appends ": TEXT". */
static void error_append(struct error *err, const char *text)
{
    size_t used = strlen(err->text), room = sizeof err->text - used;
    if ((size_t)snprintf(err->text + used, room, ": %s", text) >= room)
        error_mark_cut(err);
    error_tidy(err);
}

int error_vset(struct error *err, enum error_code code, const char *format, va_list args)
{
    if (err)
        error_fill(err, code, 0, format, args);
    return -(int)code;
}

int error_set(struct error *err, enum error_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int rc = error_vset(err, code, format, args);
    va_end(args);
    return rc;
}

int error_set_errno(struct error *err, enum error_code code, const char *format, ...)
{
    int sys = errno;
    if (err) {
        va_list args;
        va_start(args, format);
        error_fill(err, code, sys, format, args);
        va_end(args);
        error_append(err, strerror(sys));
    }
    return -(int)code;
}

int error_wrap(struct error *err, const char *format, ...)
{
    if (!err)
        return -(int)ERROR_IO;
    char inner[sizeof err->text];
    memcpy(inner, err->text, sizeof inner);
    va_list args;
    va_start(args, format);
    error_fill(err, err->code, err->sys, format, args);
    va_end(args);
    error_append(err, inner);
    return -(int)err->code;
}

int error_memory(struct error *err)
{
    return error_set(err, ERROR_MEMORY, "out of memory");
}

const char *error_code_name(enum error_code code)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code)
            return names[i].name;
    return "unknown";
}

enum error_code error_code_named(const char *name, enum error_code fallback)
{
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (names[i].code != ERROR_NONE && strcmp(names[i].name, name) == 0)
            return names[i].code;
    return fallback;
}

bool error_is_model(enum error_code code)
{
    return code >= ERROR_MODEL && code <= ERROR_MODEL_REPLAY;
}

bool error_is_budget(enum error_code code)
{
    return code == ERROR_BUDGET || (code >= ERROR_BUDGET_CALLS && code <= ERROR_BUDGET_RECORD);
}
