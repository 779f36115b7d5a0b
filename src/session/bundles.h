/* session/bundles.h: the rich results of a cell: bundles, each one value in several media types.
 *
 * A bundle arrives in a DISPLAY frame. Its head is {"types": [[TYPE, FORM], …], "metadata": {…},
 * "main": true, "id": ID, "update": true}, all but the types optional; its parts have the data, one
 * for each type. FORM is "text" (UTF-8), "json" or "bytes". `main` marks the value of the last
 * expression, `id` names a result that a later one with `update` replaces. {"clear": true}, without
 * parts, removes the cell's bundles.
 */
#pragma once

#include "base/error.h"
#include "base/json/json.h"
#include "wire/frame.h"

enum {
    BUNDLES_BYTES = 64 << 20, /* at most, of all bundles of a cell; guest/python/core/session.py */
    BUNDLES_MAX = 1000,       /* bundles of a cell */
    BUNDLES_TYPES_MAX = 33,   /* media types of a bundle */
    BUNDLES_HEAD_MAX = 256 << 10, /* bytes of a head: types and metadata */
};

enum media_form {
    MEDIA_TEXT, /* UTF-8 */
    MEDIA_JSON, /* checked */
    MEDIA_BYTES,
};

const char *media_form_name(enum media_form form);

struct bundle_item {
    const char *type;
    enum media_form form;
    const char *data; /* without a NUL */
    size_t len;
};

struct bundle {
    bool is_main;
    bool is_update; /* of a result with this id, of this cell or an earlier one */
    char *id;       /* NULL: none */
    char *metadata; /* a JSON object; NULL: none */
    struct bundle_item *items;
    size_t count;
    size_t bytes;  /* of all items */
    char *memory;  /* holds the types and, unless `frame` does, the data */
    char *frame;   /* memory of a large frame, or NULL */
    char *written; /* text that the host has written, or NULL */
};

struct bundles {
    struct bundle *items;
    size_t count, cap;
    size_t limit;     /* of them, in bytes; 0: BUNDLES_BYTES, which is the most */
    size_t each;      /* of one of them; 0: `limit` */
    size_t bytes;     /* of all bundles */
    size_t left_out;  /* bundles after BUNDLES_MAX */
    long latest;      /* the bundle that the last frame added or replaced; -1: it was left out;
                        0 without bundles: the frame removed them */
    bool clear_waits; /* a frame asked to remove them as soon as the cell prints or shows more */
};

/* Removes them; the cell may show as much again. */
void bundles_clear(struct bundles *bundles);
/* Adds the bundle of a DISPLAY frame, whose memory it may take. A text replaces what exceeds
 * the limit, and JSON beyond json_limits_large. ERROR_PROTOCOL if the frame is malformed. */
int bundles_take(struct bundles *bundles, const struct frame *frame, struct error *err);
/* The cell has ended: adds the text of its last expression's value (NULL: none). */
int bundles_end(struct bundles *bundles, const char *text, struct error *err);
/* The item of this type; NULL if there is none. */
const struct bundle_item *bundle_find(const struct bundle *bundle, const char *type);
void bundles_free(struct bundles *bundles);

/* Appends a JSON array of objects from media types to data: strings of text, JSON values as they
 * are, and base64 of bytes. */
void bundles_put_json(const struct bundles *bundles, struct buf *out);
/* The index of the value of the last expression; -1 if there is none. */
long bundles_main(const struct bundles *bundles);
