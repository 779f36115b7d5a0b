/* tests/fuzz/fuzz.h: what every target shares. A target reads an input as a script for one part of
 * the library and aborts where that part breaks a promise of its header; the sanitizers see the
 * rest.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/os/file.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define expect(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct input {
    const uint8_t *p;
    size_t left;
};

/* The next byte; 0 after the last. */
static inline uint8_t input_byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->p++;
}

/* The next bytes, at most `want`, in memory of just that size (free), so that ASan sees a read of
 * one more. */
static inline char *input_piece(struct input *in, size_t want, size_t *len)
{
    *len = want < in->left ? want : in->left;
    char *piece = malloc(*len ? *len : 1);
    expect(piece);
    memcpy(piece, in->p, *len);
    in->p += *len;
    in->left -= *len;
    return piece;
}

/* A failure has its code, and one line of UTF-8 to say. */
static inline void expect_error(int rc, const struct error *err)
{
    expect(rc == -(int)err->code && err->code != ERROR_NONE);
    expect(err->text[0] && !strchr(err->text, '\n'));
    expect(text_is_utf8(err->text, strlen(err->text), NULL));
}

/* The path of a file with this text; the same file each time. */
static inline const char *input_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = file_memfd("fuzz", NULL);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    expect(fd >= 0 && ftruncate(fd, 0) == 0);
    expect(pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}
