/* serve/openai/errors.h: errors in OpenAI's form. */
#pragma once

#include "serve/http/request.h"

struct openai_error {
    unsigned status;
    const char *code;
    const char *param; /* NULL: none */
    bool is_final;     /* the client would repeat it, but should not */
};
void openai_refuse(struct request *r, const struct openai_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The object with "message", "type", "param" and "code". */
void openai_put_error(struct buf *out, const struct openai_error *error, const char *text);
/* The hook of the routes. */
void openai_refuse_plainly(struct request *r, unsigned status, const char *code, const char *text);
