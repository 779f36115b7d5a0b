/* export/public_error.c: see public_error.h. */
#include "export/public_error.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"

void public_error_copy(const struct error *why, droste_error *err)
{
    err->code = (int)why->code;
    err->sys = why->sys;
    memcpy(err->text, why->text, sizeof err->text);
}

static void public_error_set_v(droste_error *err, int code, int sys, const char *format,
    va_list args) __attribute__((format(printf, 4, 0)));

static void public_error_set_v(
    droste_error *err, int code, int sys, const char *format, va_list args)
{
    cleanup_buf struct buf text = { 0 };
    struct error why = { 0 };
    buf_vprintf(&text, format, args);
    errno = sys;
    if (sys)
        error_set_errno(&why, (enum error_code)code, "%s", buf_text(&text));
    else
        error_set(&why, (enum error_code)code, "%s", buf_text(&text));
    public_error_copy(&why, err);
}

int public_error_set(droste_error *err, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    public_error_set_v(err, code, 0, format, args);
    va_end(args);
    return -code;
}

int public_error_set_errno(droste_error *err, int code, const char *format, ...)
{
    int sys = errno;
    va_list args;
    va_start(args, format);
    public_error_set_v(err, code, sys, format, args);
    va_end(args);
    return -code;
}

int public_error_set_memory(droste_error *err)
{
    return public_error_set(err, DROSTE_ERROR_MEMORY, "out of memory");
}
