/* base/text.h: UTF-8, and text from untrusted sources. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* True if the bytes are well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms).
 * Otherwise *bad (which may be NULL) is the offset of the first byte that is not. */
bool text_is_utf8(const char *data, size_t len, size_t *bad);

/* Appends the bytes with each malformed sequence replaced by U+FFFD, according to Unicode's
 * "maximal subpart" practice (as Python's errors="replace"). */
void text_append_utf8(struct buf *out, const char *data, size_t len);

/* Appends text that cannot control a terminal: control characters except newline and tab,
 * bidirectional controls, and invisible line ends (U+061C, U+200E-200F, U+2028-202E,
 * U+2066-2069) appear as \x.. or \u.... */
void text_append_visible(struct buf *out, const char *data, size_t len);
/* The same for JSON, which stays equivalent: DEL, C1 and bidirectional controls, which JSON does
 * not escape, appear as \u.... */
void text_append_visible_json(struct buf *out, const char *data, size_t len);

/* Where the last line begins that is not blank. *len becomes its end, without white space. */
size_t text_last_line(const char *data, size_t *len);
/* Appends ": " and that line as visible text, or nothing if there is none. */
void text_append_last_line(struct buf *out, const char *data, size_t len);

/* Appends text for HTML, of an element or of an attribute in double quotes. */
void text_append_html(struct buf *out, const char *data, size_t len);

/* The largest n' <= n that is not in the middle of a UTF-8 sequence. */
size_t text_utf8_floor(const char *data, size_t len, size_t n);
/* The length without a character of which only the beginning is there, so that the rest of it can
 * still follow. */
size_t text_utf8_whole(const char *data, size_t len);

/* The beginning of a character at the end of a piece of a stream. */
struct text_rest {
    char data[4];
    size_t len;
};
/* Appends the next piece of a stream as UTF-8 (text_append_utf8), with each character when it is
 * there as a whole. */
void text_append_piece(struct buf *out, struct text_rest *rest, const char *data, size_t len);
/* Appends what is left at its end. */
void text_append_rest(struct buf *out, struct text_rest *rest);

/* The plural suffix for `count` things: "s" or "". */
const char *text_plural(int64_t count);
/* Appends a number with its digits in groups: 12,345. */
void text_append_grouped(struct buf *out, int64_t number);

/* True for names [A-Za-z0-9_.-]{1,64} that do not start with '-' or '.'. */
bool text_is_name(const char *text);

/* True for Python's keywords. */
bool text_is_keyword(const char *text);
/* True for Python identifiers of ASCII ([A-Za-z_][A-Za-z0-9_]*, at most 64 characters) that are
 * not keywords. */
bool text_is_identifier(const char *text);
/* Appends an identifier that resembles the name: at most 62 characters. */
void text_append_identifier(struct buf *out, const char *name);

/* The last component of a path, without trailing slashes; *len is its length, 0 if there is
 * none. */
const char *text_last_name(const char *path, size_t *len);

/* The part of a path below a directory, "" for the directory itself; NULL if it is elsewhere. Both
 * are compared as text. */
const char *text_below(const char *path, const char *directory);

/* The number behind `key` at the beginning of a line, as in files of /proc and of cgroups; 0 if
 * there is none. */
uint64_t text_number_after(const char *text, const char *key);

/* True for a relative path that leads down: its components are neither empty, nor
 * "." or "..", nor longer than a name can be. */
bool text_leads_down(const char *path, size_t len);

/* Copies the first n bytes; NULL without memory. */
char *text_copy(const char *data, size_t n);
/* Formats as printf does into memory that the caller frees; NULL without memory. */
char *text_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Shorter secrets ("x", "none") are placeholders; masking them would mangle text. */
enum { TEXT_SECRET_LEAST = 6 };
/* Overwrites each occurrence of the secret with asterisks. */
void text_mask(char *text, size_t len, const char *secret);

/* The number of characters in well-formed UTF-8. */
size_t text_utf8_length(const char *data, size_t len);

/* Writes two digits for each byte and a NUL: 2 * len + 1 bytes. */
void text_hex(const void *data, size_t len, char *out);

/* strtod with a decimal point in every locale. */
double text_to_double(const char *text, char **end);
