/* serve/jupyter/notebook.c: notebooks of format 4 between files and clients.
 *
 * In a file, a text is a list of its lines, members are sorted and indented by one space, so that
 * versions of a notebook can be compared line by line; that is nbformat's form, and a notebook that
 * is opened and saved stays as it was. Clients have whole texts.
 */
#include "serve/jupyter/notebook.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/jupyter/contents.h"

/* A text of more lines than are left for all of them stays whole, as format 4 allows: a line in a
 * tree takes much more memory than in a text. */
enum { NOTEBOOK_LINES = 1000000 };

static const struct json_limits notebook_limits = { CONTENTS_MAX, JSON_DEPTH_MAX, 1000000 };

/* ---- texts ---- */

static bool notebook_is_json_type(const char *media)
{
    size_t n = strlen(media);
    return strcmp(media, "application/json") == 0 ||
           (strncmp(media, "application/", 12) == 0 && n > 5 &&
               strcmp(media + n - 5, "+json") == 0);
}

static bool notebook_has_lines(const char *media)
{
    return strncmp(media, "text/", 5) == 0 || strcmp(media, "application/javascript") == 0 ||
           strcmp(media, "image/svg+xml") == 0;
}

/* NULL: it is not a list of texts. */
static struct json_object *notebook_join(const char *media, struct json_object *value, size_t *left)
{
    cleanup_buf struct buf text = { 0 };
    if (!json_object_is_type(value, json_type_array) || (media && notebook_is_json_type(media)))
        return NULL;
    for (size_t i = 0; i < json_length(value); i++) {
        struct json_object *line = json_object_array_get_idx(value, i);
        if (!json_object_is_type(line, json_type_string))
            return NULL;
        buf_append(&text, json_object_get_string(line), (size_t)json_object_get_string_len(line));
    }
    return json_object_new_string_len(buf_text(&text), (int)text.len);
}

static struct json_object *notebook_split(
    const char *media, struct json_object *value, size_t *left)
{
    if (!json_object_is_type(value, json_type_string) || (media && !notebook_has_lines(media)))
        return NULL;
    const char *at = json_object_get_string(value);
    const char *end = at + json_object_get_string_len(value);
    size_t count = 1;
    for (const char *p = at; p < end; p++)
        count += *p == '\n';
    if (count > *left)
        return NULL;
    *left -= count;
    struct json_object *lines = json_object_new_array();
    while (lines && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = newline ? newline + 1 : end;
        json_object_array_add(lines, json_object_new_string_len(at, (int)(next - at)));
        at = next;
    }
    return lines;
}

/* NULL: the value stays. *left: lines that may still become values of their own. */
typedef struct json_object *notebook_text_fn(
    const char *media, struct json_object *value, size_t *left);

static void notebook_change(
    struct json_object *o, const char *key, notebook_text_fn *change, size_t *left)
{
    struct json_object *value = NULL, *text = NULL;
    if (json_object_object_get_ex(o, key, &value))
        text = change(NULL, value, left);
    if (text)
        json_put(o, key, text);
}

/* A value for each media type. */
static void notebook_change_bundle(
    struct json_object *bundle, notebook_text_fn *change, size_t *left)
{
    if (!json_object_is_type(bundle, json_type_object))
        return;
    json_object_object_foreach(bundle, media, value)
    {
        struct json_object *text = change(media, value, left);
        if (text) /* the entry stays where it is */
            json_put(bundle, media, text);
    }
}

static void notebook_change_output(
    struct json_object *output, notebook_text_fn *change, size_t *left)
{
    const char *type = json_get_string(output, "output_type", "");
    if (strcmp(type, "execute_result") == 0 || strcmp(type, "display_data") == 0)
        notebook_change_bundle(json_get_typed(output, "data", json_type_object), change, left);
    else
        notebook_change(output, "text", change, left);
}

static void notebook_change_cell(struct json_object *cell, notebook_text_fn *change, size_t *left)
{
    struct json_object *attachments = json_get_typed(cell, "attachments", json_type_object);
    struct json_object *outputs = json_get_typed(cell, "outputs", json_type_array);
    struct json_object *metadata = json_get_typed(cell, "metadata", json_type_object);
    notebook_change(cell, "source", change, left);
    if (metadata)
        json_object_object_del(metadata, "trusted");
    if (attachments) {
        json_object_object_foreach(attachments, name, bundle)
        {
            (void)name;
            notebook_change_bundle(bundle, change, left);
        }
    }
    for (size_t i = 0; i < json_length(outputs); i++)
        notebook_change_output(json_object_array_get_idx(outputs, i), change, left);
}

/* False: it is no notebook. */
static bool notebook_change_all(
    struct json_object *notebook, notebook_text_fn *change, struct error *err)
{
    static const char *const transient[] = { "orig_nbformat", "orig_nbformat_minor", "signature" };
    struct json_object *cells = json_get_typed(notebook, "cells", json_type_array);
    struct json_object *metadata = json_get_typed(notebook, "metadata", json_type_object);
    size_t left = NOTEBOOK_LINES;
    int64_t format = json_get_int(notebook, "nbformat", 0);
    if (format > 0 && format != 4) {
        error_set(err, ERROR_ARGUMENT,
            "it has format %lld of notebooks, and this server reads 4; 'jupyter nbconvert --to "
            "notebook' converts it",
            (long long)format);
        return false;
    }
    if (format != 4 || !cells || !metadata) {
        error_set(err, ERROR_ARGUMENT, "it is not a notebook");
        return false;
    }
    for (size_t i = 0; i < array_length(transient); i++)
        json_object_object_del(metadata, transient[i]);
    for (size_t i = 0; i < json_length(cells); i++)
        notebook_change_cell(json_object_array_get_idx(cells, i), change, &left);
    return true;
}

bool notebook_read(const char *text, size_t len, struct buf *out, struct error *err)
{
    cleanup_json struct json_object *notebook = NULL;
    size_t n = 0;
    if (json_parse(text, len, &notebook_limits, &notebook, err) < 0 ||
        !notebook_change_all(notebook, notebook_join, err))
        return false;
    const char *whole = json_text(notebook, &n);
    if (whole)
        buf_append(out, whole, n);
    else
        out->failed = true;
    return true;
}

/* ---- the file ---- */

struct notebook_member {
    const char *name;
    struct json_object *value;
};

static int notebook_by_name(const void *a, const void *b)
{
    const struct notebook_member *one = a, *two = b;
    return strcmp(one->name, two->name);
}

static void notebook_indent(struct buf *out, unsigned depth)
{
    buf_putc(out, '\n');
    for (unsigned i = 0; i < depth; i++)
        buf_putc(out, ' ');
}

static void notebook_put(struct buf *out, struct json_object *value, unsigned depth);

static void notebook_put_object(struct buf *out, struct json_object *o, unsigned depth)
{
    size_t count = 0, most = (size_t)json_object_object_length(o);
    cleanup_free struct notebook_member *members = calloc(most + 1, sizeof *members);
    out->failed |= !members;
    if (!members)
        return;
    json_object_object_foreach(o, key, member) members[count++] =
        (struct notebook_member){ key, member };
    qsort(members, count, sizeof *members, notebook_by_name);
    buf_putc(out, '{');
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buf_putc(out, ',');
        notebook_indent(out, depth + 1);
        json_append_string(out, members[i].name, strlen(members[i].name));
        buf_puts(out, ": ");
        notebook_put(out, members[i].value, depth + 1);
    }
    if (count > 0)
        notebook_indent(out, depth);
    buf_putc(out, '}');
}

/* The depth is bounded by that of parsed JSON. */
static void notebook_put(struct buf *out, struct json_object *value, unsigned depth)
{
    size_t n = 0;
    if (json_object_is_type(value, json_type_object)) {
        notebook_put_object(out, value, depth);
    } else if (json_object_is_type(value, json_type_string)) {
        json_append_string(
            out, json_object_get_string(value), (size_t)json_object_get_string_len(value));
    } else if (json_object_is_type(value, json_type_array)) {
        buf_putc(out, '[');
        for (size_t i = 0; i < json_length(value); i++) {
            if (i > 0)
                buf_putc(out, ',');
            notebook_indent(out, depth + 1);
            notebook_put(out, json_object_array_get_idx(value, i), depth + 1);
        }
        if (json_length(value) > 0)
            notebook_indent(out, depth);
        buf_putc(out, ']');
    } else {
        const char *text = value ? json_text(value, &n) : "null";
        buf_puts(out, text ? text : "null");
    }
}

bool notebook_write(struct json_object *notebook, struct buf *out, struct error *err)
{
    if (!notebook_change_all(notebook, notebook_split, err))
        return false;
    notebook_put(out, notebook, 0);
    buf_putc(out, '\n');
    return true;
}
