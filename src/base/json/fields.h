/* base/json/fields.h: writes JSON as text, member by member; json.h builds trees. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"

/* Each function writes its own comma. A NULL key makes an array's element. */
void field_key(struct buf *out, const char *key); /* the caller writes the value */
void field_open(struct buf *out, const char *key, char bracket);
void field_close(struct buf *out, char bracket);
void field_string(struct buf *out, const char *key, const char *text); /* NULL → null */
/* Accepts any bytes; replaces invalid UTF-8. */
void field_text(struct buf *out, const char *key, const char *text, size_t len);
void field_int(struct buf *out, const char *key, int64_t value);
void field_real(struct buf *out, const char *key, double value); /* six digits after the point */
void field_seconds(struct buf *out, const char *key, double seconds); /* at most six */
void field_number(struct buf *out, const char *key, double value);    /* as many as it needs */
void field_bool(struct buf *out, const char *key, bool value);
void field_null(struct buf *out, const char *key);
/* A value that is JSON already; NULL → null. */
void field_json(struct buf *out, const char *key, const char *json);
/* An array of strings, up to a NULL, or of a list; NULL → []. */
void field_strings(struct buf *out, const char *key, const char *const *items);
void field_list(struct buf *out, const char *key, const struct list *list);
/* Milliseconds since 1970 as "2026-11-20T19:15:12.345Z"; 0 → null. */
void field_time(struct buf *out, const char *key, int64_t ms);
