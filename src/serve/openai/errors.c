/* serve/openai/errors.c: errors in OpenAI's form: {"error": {"message", "type", "param", "code"}}.
 *
 * Its clients repeat a request that ended with 408, 409, 429 or 500 and above, unless a field says
 * that they should not. */
#include "serve/openai/errors.h"

#include <stdarg.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"

static const char *openai_type(unsigned status)
{
    if (status >= 500)
        return "server_error";
    return status == 429   ? "rate_limit_error"
           : status == 403 ? "permission_error"
                           : "invalid_request_error";
}

void openai_put_error(struct buf *out, const struct openai_error *error, const char *text)
{
    buf_putc(out, '{');
    field_string(out, "message", text);
    field_string(out, "type", openai_type(error->status));
    field_string(out, "param", error->param);
    field_string(out, "code", error->code);
    field_close(out, '}');
}

static void openai_reply_error(
    struct request *r, const struct openai_error *error, const char *text)
{
    cleanup_buf struct buf body = { 0 };
    buf_puts(&body, "{\"error\": ");
    openai_put_error(&body, error, text);
    buf_puts(&body, "}");
    request_reply(r, error->status, "application/json", buf_text(&body), body.len);
    if (error->is_final)
        request_header(r, "x-should-retry", "false");
}

void openai_refuse(struct request *r, const struct openai_error *error, const char *format, ...)
{
    cleanup_buf struct buf text = { 0 }, valid = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    text_append_utf8(&valid, buf_text(&text), text.len);
    openai_reply_error(r, error, buf_text(&valid));
}

void openai_refuse_plainly(struct request *r, unsigned status, const char *code, const char *text)
{
    static const struct {
        const char *ours, *theirs;
    } words[] = { { "unauthorized", "invalid_api_key" }, { "scope", "insufficient_permissions" },
        { "rate", "rate_limit_exceeded" }, { "sandboxes", "rate_limit_exceeded" },
        { "capacity", "rate_limit_exceeded" } };
    struct openai_error error = { .status = status, .code = code };
    for (size_t i = 0; i < array_length(words); i++)
        if (strcmp(words[i].ours, code) == 0)
            error.code = words[i].theirs;
    if (!r->route && status == 404) {
        openai_refuse(r, &(struct openai_error){ .status = 404, .code = "unknown_url" },
            "this server does not support %s %.200s; docs/openai.md lists what it has", r->method,
            r->target);
        return;
    }
    openai_reply_error(r, &error, text);
}
