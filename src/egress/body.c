/* egress/body.c: follows the framing of a body. */
#include "egress/body.h"

#include <string.h>

/* Chunks: SIZE CR LF DATA CR LF … 0 CR LF CR LF. LAST comes after the size 0. */
enum chunk_state {
    CHUNK_SIZE,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_LAST_CR,
    CHUNK_LAST_LF,
    CHUNK_END,
    CHUNK_EXTENSION, /* after a size */
    CHUNK_TRAILER    /* a line after the last chunk */
};

enum { SIZE_DIGITS_MAX = 15 };

bool egress_body_has_ended(const struct egress_body *body)
{
    switch (body->framing) {
    case BODY_NONE:
        return true;
    case BODY_LENGTH:
        return body->left == 0;
    case BODY_CHUNKED:
        return body->state == CHUNK_END;
    case BODY_UNTIL_CLOSE:
        return false;
    }
    return true;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    if (!at)
        return -1;
    return at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

static bool chunk_take_size(struct egress_body *body, char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        body->left = body->left * 16 + (uint64_t)digit;
        return ++body->digits <= SIZE_DIGITS_MAX;
    }
    bool extends = body->is_lenient && (c == ';' || c == ' ' || c == '\t');
    body->state = extends ? CHUNK_EXTENSION : CHUNK_SIZE_LF;
    return (extends || c == '\r') && body->digits > 0;
}

/* A byte of an extension or of a trailer, which end with their lines. */
static bool chunk_take_text(struct egress_body *body, char c)
{
    if (body->state == CHUNK_EXTENSION && c == '\r')
        body->state = CHUNK_SIZE_LF;
    else if (body->state == CHUNK_TRAILER && c == '\n')
        body->state = CHUNK_LAST_CR;
    return c != '\0';
}

/* One byte outside of the data; false: it is none of the format. */
static bool chunk_take(struct egress_body *body, char c)
{
    static const struct {
        char expected;
        enum chunk_state next;
    } steps[] = {
        [CHUNK_SIZE_LF] = { '\n', CHUNK_DATA },
        [CHUNK_DATA_CR] = { '\r', CHUNK_DATA_LF },
        [CHUNK_DATA_LF] = { '\n', CHUNK_SIZE },
        [CHUNK_LAST_CR] = { '\r', CHUNK_LAST_LF },
        [CHUNK_LAST_LF] = { '\n', CHUNK_END },
    };
    if (body->state == CHUNK_SIZE)
        return chunk_take_size(body, c);
    if (body->state == CHUNK_EXTENSION || body->state == CHUNK_TRAILER)
        return chunk_take_text(body, c);
    if (body->state == CHUNK_LAST_CR && body->is_lenient && c != '\r' && c != '\n') {
        body->state = CHUNK_TRAILER;
        return true;
    }
    if (c != steps[body->state].expected)
        return false;
    body->state = steps[body->state].next;
    if (body->state == CHUNK_DATA && body->left == 0)
        body->state = CHUNK_LAST_CR;
    if (body->state == CHUNK_SIZE)
        body->left = body->digits = 0;
    return true;
}

static size_t chunks_next(struct egress_body *body, const char *data, size_t len,
    const char **content, size_t *content_len, bool *bad)
{
    for (size_t at = 0; at < len && body->state != CHUNK_END; at++) {
        if (body->state == CHUNK_DATA) {
            size_t n = len - at < body->left ? len - at : (size_t)body->left;
            *content = data + at;
            *content_len = n;
            body->left -= n;
            body->state = body->left == 0 ? CHUNK_DATA_CR : CHUNK_DATA;
            return at + n;
        }
        if (!chunk_take(body, data[at])) {
            *bad = true;
            return at;
        }
        if (body->state == CHUNK_END)
            return at + 1;
    }
    return body->state == CHUNK_END ? 0 : len;
}

size_t egress_body_next(struct egress_body *body, const char *data, size_t len,
    const char **content, size_t *content_len, bool *bad)
{
    *bad = false;
    *content = data;
    *content_len = 0;
    if (body->framing == BODY_CHUNKED)
        return chunks_next(body, data, len, content, content_len, bad);
    size_t n = body->framing == BODY_NONE                              ? 0
               : body->framing == BODY_UNTIL_CLOSE || len < body->left ? len
                                                                       : (size_t)body->left;
    body->left -= body->framing == BODY_LENGTH ? n : 0;
    *content_len = n;
    return n;
}

size_t egress_body_take(struct egress_body *body, const char *data, size_t len, bool *bad)
{
    const char *content;
    size_t taken = 0, content_len;
    *bad = false;
    while (taken < len && !*bad && !egress_body_has_ended(body))
        taken += egress_body_next(body, data + taken, len - taken, &content, &content_len, bad);
    return taken;
}
