/* session/bundles.c: reads the bundles that a hostile guest sends, and writes them as JSON.
 *
 * Nothing is allocated before the frame's size was checked (its header, in wire/frame.c, and the
 * cell's remaining bytes here). The data of a large bundle stays in the memory of its frame.
 */
#include "session/bundles.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"

enum {
    COPIED_MAX = 64 << 10, /* a frame up to so many bytes is copied; its buffer may be larger */
    TYPE_MAX = 255,
    ID_MAX = 256,
    REFUSAL_MAX = 160,
};

static const struct json_limits head_limits = { BUNDLES_HEAD_MAX, JSON_DEPTH_MAX, 65536 };
static const char *const form_names[] = { "text", "json", "bytes" };
static const char plain_type[] = "text/plain";

const char *media_form_name(enum media_form form)
{
    return form_names[form];
}

static void bundle_free(struct bundle *b)
{
    free(b->id);
    free(b->metadata);
    free(b->items);
    free(b->memory);
    free(b->frame);
    free(b->written);
    *b = (struct bundle){ 0 };
}

void bundles_free(struct bundles *bundles)
{
    for (size_t i = 0; i < bundles->count; i++)
        bundle_free(&bundles->items[i]);
    free(bundles->items);
    *bundles = (struct bundles){ 0 };
}

void bundles_clear(struct bundles *bundles)
{
    size_t limit = bundles->limit, each = bundles->each;
    bundles_free(bundles);
    bundles->limit = limit;
    bundles->each = each;
}

const struct bundle_item *bundle_find(const struct bundle *bundle, const char *type)
{
    for (size_t i = 0; i < bundle->count; i++)
        if (strcmp(bundle->items[i].type, type) == 0)
            return &bundle->items[i];
    return NULL;
}

long bundles_main(const struct bundles *bundles)
{
    for (size_t i = 0; i < bundles->count; i++)
        if (bundles->items[i].is_main)
            return (long)i;
    return -1;
}

/* ---- reading a head ---- */

static bool is_type_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$&^_.+-", c));
}

/* RFC 6838, section 4.2: two names of at most 127 characters. */
static bool is_media_type(const char *type)
{
    const char *slash = strchr(type, '/');
    size_t len = strlen(type);
    if (!slash || slash == type || !slash[1] || len > TYPE_MAX || slash - type > 127)
        return false;
    if (strchr("!#$&^_.+-", type[0]) || strchr("!#$&^_.+-", slash[1]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (type + i != slash && !is_type_character(type[i]))
            return false;
    return strlen(slash + 1) <= 127;
}

static int form_parse(const char *name)
{
    for (size_t i = 0; name && i < array_length(form_names); i++)
        if (strcmp(form_names[i], name) == 0)
            return (int)i;
    return -1;
}

static const char *string_at(struct json_object *array, size_t index)
{
    struct json_object *o = json_object_array_get_idx(array, index);
    if (!json_object_is_type(o, json_type_string))
        return NULL;
    const char *text = json_object_get_string(o);
    return strlen(text) == (size_t)json_object_get_string_len(o) ? text : NULL;
}

/* Reads one pair of a type and a form. */
static int item_read(
    struct json_object *pair, const struct bundle *b, struct bundle_item *item, struct error *err)
{
    if (!json_object_is_type(pair, json_type_array) || json_length(pair) != 2)
        return error_set(err, ERROR_PROTOCOL, "a result's type is not a pair");
    int form = form_parse(string_at(pair, 1));
    item->type = string_at(pair, 0);
    if (!item->type || !is_media_type(item->type))
        return error_set(err, ERROR_PROTOCOL, "a result with a malformed media type");
    if (form < 0)
        return error_set(err, ERROR_PROTOCOL, "a result of an unknown form");
    if (bundle_find(b, item->type))
        return error_set(err, ERROR_PROTOCOL, "a result with two items of one type");
    item->form = (enum media_form)form;
    return 0;
}

/* Reads the types and finds their data, which stays in the frame for now. */
static int items_read(
    struct json_object *head, struct frame_parts *parts, struct bundle *b, struct error *err)
{
    struct json_object *types = json_get_typed(head, "types", json_type_array);
    size_t count = json_length(types);
    if (count == 0 || count != parts->count)
        return error_set(
            err, ERROR_PROTOCOL, "a result with %zu types and %zu parts", count, parts->count);
    b->items = calloc(count + 1, sizeof *b->items); /* and room for a text */
    if (!b->items)
        return error_memory(err);
    while (b->count < count) {
        struct bundle_item *item = &b->items[b->count];
        int rc = item_read(json_object_array_get_idx(types, b->count), b, item, err);
        if (rc < 0)
            return rc;
        frame_parts_next(parts, &item->data, &item->len);
        b->count++;
    }
    return 0;
}

static int marks_read(struct json_object *head, struct bundle *b, struct error *err)
{
    struct json_object *metadata = json_get_typed(head, "metadata", json_type_object);
    const char *id = json_get_string(head, "id", NULL);
    b->is_main = json_get_bool(head, "main", false);
    b->is_update = id && json_get_bool(head, "update", false);
    if (id && strlen(id) > ID_MAX)
        return error_set(err, ERROR_PROTOCOL, "a result with an id of over %d bytes", ID_MAX);
    if (id && !(b->id = strdup(id)))
        return error_memory(err);
    const char *text = metadata ? json_text(metadata, NULL) : NULL;
    if (metadata && !(b->metadata = text ? strdup(text) : NULL))
        return error_memory(err);
    return 0;
}

/* ---- checking and keeping the data ---- */

static void item_remove(struct bundle *b, size_t index)
{
    b->bytes -= b->items[index].len;
    b->count--;
    memmove(&b->items[index], &b->items[index + 1], (b->count - index) * sizeof *b->items);
}

/* Puts a text of the host's first; there is room for one. */
static int text_put(struct bundle *b, const char *text, struct error *err)
{
    if (!(b->written = strdup(text)))
        return error_memory(err);
    memmove(&b->items[1], &b->items[0], b->count * sizeof *b->items);
    b->items[0] = (struct bundle_item){ plain_type, MEDIA_TEXT, b->written, strlen(text) };
    b->bytes += b->items[0].len;
    b->count++;
    return 0;
}

static size_t items_bytes(const struct bundle *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < b->count; i++)
        bytes += b->items[i].len;
    return bytes;
}

/* Removes JSON that the host would not pass on; a text says why, unless the bundle has one. */
static int items_check(struct bundle *b, struct error *err)
{
    char note[TYPE_MAX + sizeof err->text + 80] = "";
    b->bytes = items_bytes(b);
    for (size_t i = b->count; i-- > 0;) {
        const struct bundle_item *item = &b->items[i];
        struct error why = { 0 };
        if (item->form == MEDIA_TEXT && !text_is_utf8(item->data, item->len, NULL))
            return error_set(err, ERROR_PROTOCOL, "a text of a result is not UTF-8");
        if (item->form != MEDIA_JSON ||
            json_check(item->data, item->len, &json_limits_large, &why) == 0)
            continue;
        snprintf(
            note, sizeof note, "[%s of %zu bytes left out: %s]", item->type, item->len, why.text);
        item_remove(b, i);
    }
    return note[0] && !bundle_find(b, plain_type) ? text_put(b, note, err) : 0;
}

/* Copies the types, and the data of a small frame; takes the memory of a large one. */
static int items_keep(struct bundle *b, const struct frame *frame, struct error *err)
{
    bool copies = frame->blob_len <= COPIED_MAX;
    size_t len = 1;
    for (size_t i = 0; i < b->count; i++)
        len += strlen(b->items[i].type) + 1 + (copies ? b->items[i].len : 0);
    char *at = b->memory = malloc(len);
    if (!b->memory)
        return error_memory(err);
    for (size_t i = 0; i < b->count; i++) {
        struct bundle_item *item = &b->items[i];
        size_t type_len = strlen(item->type) + 1;
        item->type = memcpy(at, item->type, type_len);
        at += type_len;
        if (!copies || item->data == b->written)
            continue;
        if (item->len > 0)
            memcpy(at, item->data, item->len);
        item->data = at;
        at += item->len;
    }
    if (!copies)
        b->frame = buf_steal(frame->body);
    return 0;
}

/* ---- adding ---- */

static void cleanup_bundle_fn(struct bundle *b)
{
    bundle_free(b);
}

#define cleanup_bundle __attribute__((cleanup(cleanup_bundle_fn)))

static int bundle_add(struct bundles *bundles, struct bundle *b, struct error *err)
{
    if (!array_room(bundles->items, bundles->count, &bundles->cap))
        return error_memory(err);
    bundles->bytes += b->bytes;
    bundles->latest = (long)bundles->count;
    bundles->items[bundles->count++] = *b;
    *b = (struct bundle){ 0 };
    return 0;
}

/* A bundle that has only a text of the host's. */
static int text_add(struct bundles *bundles, const char *text, bool is_main, struct error *err)
{
    cleanup_bundle struct bundle b = { .is_main = is_main };
    if (!(b.items = calloc(1, sizeof *b.items)))
        return error_memory(err);
    int rc = text_put(&b, text, err);
    return rc < 0 ? rc : bundle_add(bundles, &b, err);
}

/* The bundle that an update replaces; NULL if this cell has none of that id. */
static struct bundle *find_updated(const struct bundles *bundles, const struct bundle *b)
{
    if (!b->is_update)
        return NULL;
    for (size_t i = bundles->count; i-- > 0;)
        if (bundles->items[i].id && strcmp(bundles->items[i].id, b->id) == 0)
            return &bundles->items[i];
    return NULL;
}

static int bundles_put(
    struct bundles *bundles, struct bundle *old, struct bundle *b, struct error *err)
{
    if (!old)
        return bundle_add(bundles, b, err);
    bundles->bytes += b->bytes - old->bytes;
    bundles->latest = old - bundles->items;
    b->is_main = old->is_main;
    bundle_free(old);
    *old = *b;
    *b = (struct bundle){ 0 };
    return 0;
}

static size_t bundles_limit(const struct bundles *bundles)
{
    return bundles->limit ? bundles->limit : BUNDLES_BYTES;
}

/* Whether a bundle of this size exceeds a limit; tells which. */
static bool is_refused(const struct bundles *bundles, size_t len, size_t replaced, char *text)
{
    bool alone = bundles->each > 0 && len > bundles->each;
    if (!alone && bundles->bytes - replaced + len <= bundles_limit(bundles))
        return false;
    snprintf(text, REFUSAL_MAX,
        alone ? "[a result of %zu bytes left out: one result may have %zu bytes (result-size)]"
              : "[a result of %zu bytes left out: the results of a cell may have %zu bytes "
                "(results-limit)]",
        len, alone ? bundles->each : bundles_limit(bundles));
    return true;
}

static int bundles_take_one(
    struct bundles *bundles, const struct frame *frame, struct json_object *head, struct error *err)
{
    cleanup_bundle struct bundle b = { 0 };
    struct frame_parts parts = { 0 };
    char refusal[REFUSAL_MAX];
    int rc = frame_parts_open(frame->blob, frame->blob_len, BUNDLES_TYPES_MAX, &parts, err);
    if (rc == 0)
        rc = items_read(head, &parts, &b, err);
    if (rc == 0)
        rc = marks_read(head, &b, err);
    if (rc == 0 && b.is_main && bundles_main(bundles) >= 0)
        rc = error_set(err, ERROR_PROTOCOL, "a second value of the last expression");
    if (rc < 0)
        return rc;
    struct bundle *old = find_updated(bundles, &b);
    if (!old && bundles->count >= BUNDLES_MAX) {
        bundles->left_out++;
        return 0;
    }
    if (is_refused(bundles, items_bytes(&b), old ? old->bytes : 0, refusal))
        return text_add(bundles, refusal, b.is_main, err);
    rc = items_check(&b, err);
    if (rc == 0)
        rc = items_keep(&b, frame, err);
    return rc < 0 ? rc : bundles_put(bundles, old, &b, err);
}

int bundles_take(struct bundles *bundles, const struct frame *frame, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    bundles->latest = -1;
    int rc = json_parse(frame->head, frame->head_len, &head_limits, &head, err);
    if (rc < 0)
        return rc;
    if (!json_object_is_type(head, json_type_object))
        return error_set(err, ERROR_PROTOCOL, "a result's head is not an object");
    if (!json_get_bool(head, "clear", false))
        return bundles_take_one(bundles, frame, head, err);
    if (frame->blob_len > 0)
        return error_set(err, ERROR_PROTOCOL, "a removal of results with data");
    if (json_get_bool(head, "wait", false))
        bundles->clear_waits = true;
    else
        bundles_clear(bundles);
    return 0;
}

int bundles_end(struct bundles *bundles, const char *text, struct error *err)
{
    long main_index = bundles_main(bundles);
    char note[96];
    int rc = 0;
    if (text && main_index < 0)
        rc = text_add(bundles, text, true, err);
    else if (text && !bundle_find(&bundles->items[main_index], plain_type))
        rc = text_put(&bundles->items[main_index], text, err);
    if (rc < 0 || bundles->left_out == 0)
        return rc;
    snprintf(note, sizeof note, "[%zu further results left out: a cell may have %d]",
        bundles->left_out, BUNDLES_MAX);
    return text_add(bundles, note, false, err);
}

/* ---- as JSON ---- */

static void item_put_json(const struct bundle_item *item, struct buf *out)
{
    json_append_string(out, item->type, strlen(item->type));
    buf_putc(out, ':');
    if (item->form == MEDIA_TEXT) {
        json_append_string(out, item->data, item->len);
    } else if (item->form == MEDIA_JSON) {
        buf_append(out, item->data, item->len);
    } else {
        buf_putc(out, '"');
        json_append_base64(out, item->data, item->len);
        buf_putc(out, '"');
    }
}

void bundles_put_json(const struct bundles *bundles, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < bundles->count; i++) {
        const struct bundle *b = &bundles->items[i];
        buf_puts(out, i ? ",{" : "{");
        for (size_t j = 0; j < b->count; j++) {
            buf_puts(out, j ? "," : "");
            item_put_json(&b->items[j], out);
        }
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}
