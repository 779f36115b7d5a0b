/* egress/body.c: follows the framing of a body. */
#include "egress/body.h"

#include <string.h>

#include "base/cleanup.h"

/* Chunks: SIZE CR LF DATA CR LF … 0 CR LF CR LF. LAST comes after the size 0. */
enum chunk_state {
    CHUNK_SIZE,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_LAST_CR,
    CHUNK_LAST_LF,
    CHUNK_END
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
    body->state = CHUNK_SIZE_LF;
    return c == '\r' && body->digits > 0;
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
    if (c != steps[body->state].expected)
        return false;
    body->state = steps[body->state].next;
    if (body->state == CHUNK_DATA && body->left == 0)
        body->state = CHUNK_LAST_CR;
    if (body->state == CHUNK_SIZE)
        body->left = body->digits = 0;
    return true;
}

static size_t chunks_take(struct egress_body *body, const char *data, size_t len, bool *bad)
{
    size_t at = 0;
    while (at < len && body->state != CHUNK_END) {
        if (body->state == CHUNK_DATA) {
            size_t n = len - at < body->left ? len - at : (size_t)body->left;
            at += n;
            body->left -= n;
            body->state = body->left == 0 ? CHUNK_DATA_CR : CHUNK_DATA;
            continue;
        }
        if (!chunk_take(body, data[at])) {
            *bad = true;
            return at;
        }
        at++;
    }
    return at;
}

size_t egress_body_take(struct egress_body *body, const char *data, size_t len, bool *bad)
{
    *bad = false;
    if (body->framing == BODY_CHUNKED)
        return chunks_take(body, data, len, bad);
    if (body->framing == BODY_UNTIL_CLOSE)
        return len;
    size_t n = body->framing == BODY_NONE ? 0 : len < body->left ? len : (size_t)body->left;
    body->left -= n;
    return n;
}
