/* base/text.h: UTF-8 and text from strangers. */
#ifndef DROSTE_BASE_TEXT_H
#define DROSTE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* True if the bytes are well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). If not,
 * *bad (which may be NULL) is the offset of the first byte that is not. */
bool text_is_utf8(const char *data, size_t len, size_t *bad);

/* Appends the bytes with each malformed sequence replaced by U+FFFD, as a decoder that follows
 * Unicode's "maximal subpart" practice (and Python's errors="replace") does. */
void text_append_utf8(struct buf *out, const char *data, size_t len);

/* Appends text so that it cannot act on a terminal: control characters (but newline and tab),
 * and those that change the direction of text or end a line unseen (U+061C, U+200E-200F, U+2028-202E,
 * U+2066-2069) come out as \x.. or \u..... */
void text_append_visible(struct buf *out, const char *data, size_t len);
/* The same for text that is JSON, and stays what it is: DEL, C1 and direction controls, which JSON does not
 * escape, come out as \u..... */
void text_append_visible_json(struct buf *out, const char *data, size_t len);

/* The largest n' <= n that does not end in the middle of a UTF-8 sequence. */
size_t text_utf8_floor(const char *data, size_t len, size_t n);

/* "s" behind a noun that `count` things have, or "". */
const char *text_plural(int64_t count);

/* True for NULL-terminated words [A-Za-z0-9_.-]{1,64} that do not start with '-' or '.'. */
bool text_is_name(const char *text);

/* True for Python's keywords. */
bool text_is_keyword(const char *text);
/* True for what Python can have as a name: [A-Za-z_][A-Za-z0-9_]*, at most 64 characters, no keyword. */
bool text_is_identifier(const char *text);

/* The last name of a path, without the slashes behind it: its length is *len, 0 where there is none. */
const char *text_last_name(const char *path, size_t *len);

/* strdup of the first n bytes, NULL without memory. */
char *text_copy(const char *data, size_t n);
/* What printf would write, the caller's (free); NULL without memory. */
char *text_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A shorter one ("x", "none") is a placeholder, and masking it mangles text. */
enum { TEXT_SECRET_LEAST = 6 };
/* Overwrites each occurrence of the secret with asterisks. */
void text_mask(char *text, size_t len, const char *secret);

/* Number of UTF-8 characters in well-formed text. */
size_t text_utf8_length(const char *data, size_t len);

/* Two digits a byte, and a zero byte: 2 * len + 1 bytes in all. */
void text_hex(const void *data, size_t len, char *out);

/* strtod with a decimal point, whatever the locale of the program around us. */
double text_to_double(const char *text, char **end);

#endif
