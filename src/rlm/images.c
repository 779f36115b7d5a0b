/* rlm/images.c: images of rich results, which the model sees with the next message.
 *
 * They are chosen when their cell ends, in the same way when a run is resumed: PNG and JPEG whose
 * headers are sound, within what all providers accept (below). The record has them with the results
 * of the cell; a request names them by their hash. With the setting show-images, images among the
 * contexts go with the question, and so do the addresses of the setting image-url, which only the
 * provider reads.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/text.h"
#include "lm/vision.h"
#include "rlm/run.h"

/* Anthropic: 5 MB of base64 and 8000 pixels for an image, from 21 images on 2000 pixels; Gemini:
 * 20 MB for a request. */
enum {
    IMAGE_BYTES = 3 << 20,
    IMAGE_PIXELS = 8000,     /* of a side */
    IMAGES_OF_RUN = 20,      /* of the messages that the model sees */
    IMAGES_BYTES = 12 << 20, /* of them */
};

void images_free(struct images *images)
{
    for (size_t i = 0; i < images->count; i++)
        free(images->items[i].data);
    free(images->items);
    *images = (struct images){ 0 };
}

static int images_add(
    struct images *images, const char *type, const char *data, size_t len, struct error *err)
{
    struct image image = { .type = type, .data = malloc(len + 1), .len = len };
    if (!image.data || !array_room(images->items, images->count, &images->cap)) {
        free(image.data);
        return error_memory(err);
    }
    memcpy(image.data, data, len);
    int rc = hash_sha256(data, len, image.hash, err);
    if (rc < 0) {
        free(image.data);
        return rc;
    }
    images->items[images->count++] = image;
    return 0;
}

int images_copy(struct images *to, const struct images *from, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->count; i++) {
        const struct image *image = &from->items[i];
        rc = images_add(to, image->type, image->data, image->len, err);
    }
    return rc;
}

/* ---- which ones ---- */

size_t images_most(const struct rlm_run *r)
{
    const struct rlm_options *o = &r->tree->o;
    bool sees = o->images_of_all || lm_sees_images(r->model ? r->model : lm_name(r->lm));
    return sees ? o->max_images : 0;
}

static bool is_side(unsigned pixels)
{
    return pixels >= 1 && pixels <= IMAGE_PIXELS;
}

static unsigned big_endian(const unsigned char *at, size_t bytes)
{
    unsigned value = 0;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

/* The signature and IHDR (PNG specification, sections 5.2 and 11.2.2). */
static bool is_png(const unsigned char *data, size_t len)
{
    static const char head[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    return len >= 33 && memcmp(data, head, sizeof head - 1) == 0 &&
           is_side(big_endian(data + 16, 4)) && is_side(big_endian(data + 20, 4));
}

/* Looks for the frame header, SOF0 to SOF15 without DHT, JPG and DAC (ITU T.81, table B.1). */
static bool is_jpeg(const unsigned char *data, size_t len)
{
    size_t at = 2;
    if (len < 4 || data[0] != 0xFF || data[1] != 0xD8)
        return false;
    while (at + 9 <= len && data[at] == 0xFF) {
        unsigned mark = data[at + 1];
        if (mark >= 0xC0 && mark <= 0xCF && mark != 0xC4 && mark != 0xC8 && mark != 0xCC)
            return is_side(big_endian(data + at + 5, 2)) && is_side(big_endian(data + at + 7, 2));
        at += mark == 0xFF ? 1 : 2 + big_endian(data + at + 2, 2); /* 0xFF: a fill byte */
    }
    return false;
}

static const struct bundle_item *find_image(const struct bundle *b, const char **type)
{
    static const char png[] = "image/png", jpeg[] = "image/jpeg";
    const struct bundle_item *item = bundle_find(b, png);
    if (item && item->form == MEDIA_BYTES && is_png((const unsigned char *)item->data, item->len)) {
        *type = png;
        return item;
    }
    item = bundle_find(b, jpeg);
    *type = jpeg;
    return item && item->form == MEDIA_BYTES &&
                   is_jpeg((const unsigned char *)item->data, item->len)
               ? item
               : NULL;
}

static void images_count(const struct images *images, size_t *count, size_t *bytes)
{
    *count += images->count;
    for (size_t i = 0; i < images->count; i++)
        *bytes += images->items[i].len;
}

/* `most`: of the message that is being made. */
static bool image_fits(const struct rlm_run *r, size_t len, size_t most)
{
    size_t count = 0, bytes = 0;
    for (size_t i = 0; i < r->message_count; i++)
        images_count(&r->messages[i].images, &count, &bytes);
    images_count(&r->images, &count, &bytes);
    return len <= IMAGE_BYTES && r->images.count < most && count < IMAGES_OF_RUN &&
           bytes + len <= IMAGES_BYTES;
}

int images_take(struct rlm_run *r, const struct bundles *results, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && images_most(r) > 0 && i < results->count; i++) {
        const char *type;
        const struct bundle_item *item = find_image(&results->items[i], &type);
        if (!item)
            continue;
        if (image_fits(r, item->len, images_most(r)))
            rc = images_add(&r->images, type, item->data, item->len, err);
        else
            r->images_left_out++;
    }
    return rc;
}

/* The bytes of a context that is an image; empty: it is none, or too large. */
static void image_read(const struct context *context, struct buf *out, const char **type)
{
    unsigned char head[4];
    bool is_image = context->len <= IMAGE_BYTES && context->fd >= 0 &&
                    pread(context->fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
                    (memcmp(head, "\x89PNG", 4) == 0 || memcmp(head, "\xff\xd8\xff", 3) == 0);
    if (!is_image || !buf_reserve(out, context->len) ||
        pread(context->fd, out->data, context->len, 0) != (ssize_t)context->len)
        return;
    const unsigned char *data = (const unsigned char *)out->data;
    *type = is_png(data, context->len)    ? "image/png"
            : is_jpeg(data, context->len) ? "image/jpeg"
                                          : NULL;
    out->len = *type ? context->len : 0;
}

static size_t image_url_count(const struct rlm_run *r)
{
    const struct list *urls = r->tree->o.image_urls;
    return urls && !r->place.parent ? urls->count : 0;
}

int images_check(const struct rlm_run *r, struct error *err)
{
    if (image_url_count(r) == 0 || images_most(r) == 0 || lm_reads_urls(r->lm))
        return 0;
    return error_set(err, ERROR_ARGUMENT,
        "the provider of %.64s takes images as data, and does not read them by their addresses",
        lm_name(r->lm));
}

static int images_take_urls(struct rlm_run *r, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < image_url_count(r); i++) {
        const char *url = r->tree->o.image_urls->items[i];
        if (images_most(r) > 0 && image_fits(r, strlen(url), IMAGES_OF_RUN))
            rc = images_add(&r->images, NULL, url, strlen(url), err);
        else
            r->images_left_out++;
    }
    return rc;
}

int images_take_contexts(struct rlm_run *r, struct error *err)
{
    const struct contexts *contexts = r->place.contexts;
    bool shows = r->tree->o.show_images && !r->place.parent && contexts;
    int rc = 0;
    for (size_t i = 0; shows && rc == 0 && i < contexts->count; i++) {
        cleanup_buf struct buf data = { 0 };
        const char *type = NULL;
        image_read(contexts->items[i], &data, &type);
        if (data.len == 0)
            continue;
        if (images_most(r) > 0 && image_fits(r, data.len, IMAGES_OF_RUN))
            rc = images_add(&r->images, type, data.data, data.len, err);
        else
            r->images_left_out++;
    }
    return rc < 0 ? rc : images_take_urls(r, err);
}

bool images_have(const struct rlm_run *r, const struct bundle_item *item)
{
    for (size_t i = 0; i < r->images.count; i++) {
        const struct image *image = &r->images.items[i];
        if (item->form == MEDIA_BYTES && image->len == item->len &&
            memcmp(image->data, item->data, item->len) == 0)
            return true;
    }
    return false;
}

/* ---- in messages ---- */

void images_tell(const struct rlm_run *r, const char *whose, struct buf *out)
{
    if (r->images.count > 0)
        buf_printf(out, "\n[%zu image%s %s: below, in order]\n", r->images.count,
            text_plural((int64_t)r->images.count), whose);
    if (r->images_left_out > 0)
        buf_printf(out, "\n[%zu further image%s not shown to you: too many or too large]\n",
            r->images_left_out, r->images_left_out == 1 ? " is" : "s are");
}

void images_attach(struct rlm_run *r)
{
    r->messages[r->message_count - 1].images = r->images;
    r->images = (struct images){ 0 };
    r->images_left_out = 0;
}

void images_drop(struct rlm_run *r)
{
    images_free(&r->images);
    r->images_left_out = 0;
}

void images_put_json(const struct images *images, struct buf *out)
{
    buf_puts(out, ",\"images\":[");
    for (size_t i = 0; i < images->count; i++) {
        const struct image *image = &images->items[i];
        if (i > 0)
            buf_putc(out, ',');
        if (image->type) {
            buf_printf(out, "{\"type\":\"%s\",\"bytes\":%zu,\"sha256\":\"%s\"}", image->type,
                image->len, image->hash);
            continue;
        }
        buf_puts(out, "{\"url\":");
        json_append_string(out, image->data, image->len);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

/* An image of a context is not in the record. */
static const struct context *image_find(const struct rlm_run *r, const char *hash)
{
    const struct contexts *contexts = r->place.contexts;
    for (size_t i = 0; contexts && i < contexts->count; i++) {
        cleanup_buf struct buf data = { 0 };
        const char *type = NULL;
        char of[HASH_TEXT_SIZE] = "";
        image_read(contexts->items[i], &data, &type);
        if (data.len > 0 && hash_sha256(data.data, data.len, of, NULL) == 0 &&
            strcmp(of, hash) == 0)
            return contexts->items[i];
    }
    return NULL;
}

static int image_recall(
    const struct rlm_run *r, struct json_object *o, struct images *images, struct error *err)
{
    cleanup_buf struct buf data = { 0 };
    const char *url = json_get_string(o, "url", NULL);
    if (url)
        return images_add(images, NULL, url, strlen(url), err);
    const char *type = json_get_string(o, "type", ""), *hash = json_get_string(o, "sha256", "");
    int64_t len = json_get_int(o, "bytes", 0);
    struct recorded_value value = { .len = len > 0 ? (size_t)len : 0 };
    snprintf(value.hash, sizeof value.hash, "%s", hash);
    const struct context *context = image_find(r, hash);
    int rc = 0;
    if (context)
        image_read(context, &data, &type);
    else
        rc = replay_log_read(resume_recorded(r->resume), &value, &data, err);
    return rc < 0 ? rc
                  : images_add(images, strcmp(type, "image/png") == 0 ? "image/png" : "image/jpeg",
                        buf_text(&data), data.len, err);
}

int images_recall(
    const struct rlm_run *r, struct json_object *message, struct images *images, struct error *err)
{
    struct json_object *list = json_get_typed(message, "images", json_type_array);
    size_t count = json_length(list);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count && i < IMAGES_OF_RUN; i++)
        rc = image_recall(r, json_object_array_get_idx(list, i), images, err);
    return rc;
}

size_t images_parts(const struct message *m, struct lm_part *parts)
{
    size_t count = 0;
    parts[count++] = (struct lm_part){ .kind = LM_PART_TEXT, .data = m->text, .len = m->len };
    for (size_t i = 0; i < m->images.count; i++)
        parts[count++] =
            (struct lm_part){ .kind = m->images.items[i].type ? LM_PART_IMAGE : LM_PART_IMAGE_URL,
                .media_type = m->images.items[i].type,
                .data = m->images.items[i].data,
                .len = m->images.items[i].len };
    return count;
}
