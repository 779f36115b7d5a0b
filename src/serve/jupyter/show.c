/* serve/jupyter/show.c: what a cell shows, as messages on iopub.
 *
 * Nothing that a cell shows runs in the page of a notebook, as python/droste/rich.py has it: HTML
 * is in a frame without scripts and network, an SVG is an image, JavaScript is not shown.
 */
#include <string.h>

#include "base/json/fields.h"
#include "base/text.h"
#include "serve/sandbox/cell_events.h"
#include "serve/jupyter/jupyter.h"

#define FRAME "<iframe sandbox='' style='width:100%;height:22em;border:0;resize:vertical' srcdoc=\""
#define POLICY                                                                                     \
    "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src "          \
    "'unsafe-inline'; img-src data:\">"

/* ---- output ---- */

static void show_stream(struct jupyter_kernel *k, int stream, const struct buf *text)
{
    cleanup_buf struct buf content = { 0 };
    if (text->len == 0 || k->is_silent)
        return;
    buf_putc(&content, '{');
    field_string(&content, "name", stream == 2 ? "stderr" : "stdout");
    field_text(&content, "text", buf_text(text), text->len);
    buf_putc(&content, '}');
    jupyter_publish(k, "stream", &content);
}

void jupyter_show_output(struct jupyter_kernel *k, int stream, const char *data, size_t len)
{
    cleanup_buf struct buf text = { 0 };
    text_append_piece(&text, &k->rest[stream == 2], data, len);
    show_stream(k, stream, &text);
}

void jupyter_show_rest(struct jupyter_kernel *k)
{
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf text = { 0 };
        text_append_rest(&text, &k->rest[i]);
        show_stream(k, i + 1, &text);
    }
}

/* ---- rich results ---- */

static bool show_is(const droste_media *media, const char *type)
{
    return strcmp(media->type, type) == 0;
}

/* What every client may show as it is. */
static bool show_is_harmless(const droste_media *media)
{
    bool is_image = strncmp(media->type, "image/", 6) == 0 && strcmp(media->form, "bytes") == 0;
    return is_image || show_is(media, "text/latex") || show_is(media, "text/plain") ||
           strncmp(media->type, "application/vnd.", 16) == 0;
}

/* A page or an SVG, for a result without an image. */
static void show_append_page(struct buf *data, const droste_media *html, const droste_media *svg)
{
    cleanup_buf struct buf page = { 0 };
    if (html->type) {
        buf_puts(&page, FRAME);
        text_append_html(&page, POLICY, sizeof POLICY - 1);
        text_append_html(&page, html->data, html->len);
        buf_puts(&page, "\"></iframe>");
    } else {
        buf_puts(&page, "<img src='data:image/svg+xml;base64,");
        json_append_base64(&page, svg->data, svg->len);
        buf_puts(&page, "'>");
    }
    field_text(data, "text/html", buf_text(&page), page.len);
    data->failed |= buf_failed(&page);
}

/* The forms that a client gets; *kept has their names. */
static void show_append_data(
    struct buf *data, const droste_bundles *bundles, size_t index, struct json_object *kept)
{
    droste_media media, html = { 0 }, svg = { 0 };
    bool has_image = false, has_text = false;
    field_open(data, "data", '{');
    for (size_t i = 0; droste_bundles_media(bundles, index, i, &media); i++) {
        has_image = has_image || show_is(&media, "image/png") || show_is(&media, "image/jpeg");
        has_text = has_text || show_is(&media, "text/plain");
        if (show_is(&media, "text/html"))
            html = media;
        if (show_is(&media, "image/svg+xml"))
            svg = media;
        if (!show_is_harmless(&media))
            continue;
        field_key(data, media.type);
        cell_append_media(data, &media);
        json_put(kept, media.type, NULL);
    }
    if (!has_text)
        field_string(data, "text/plain", "<a rich result without text>");
    if (!has_image && (html.type || svg.type)) {
        show_append_page(data, &html, &svg);
        json_put(kept, "text/html", NULL);
    }
    field_close(data, '}');
}

/* Of the forms that are there. */
static void show_append_metadata(
    struct buf *out, const droste_bundles *bundles, size_t index, struct json_object *kept)
{
    const char *text = droste_bundles_metadata(bundles, index);
    cleanup_json struct json_object *all = NULL;
    field_open(out, "metadata", '{');
    if (text)
        (void)json_parse(text, strlen(text), &json_limits_large, &all, NULL);
    if (json_object_is_type(all, json_type_object)) {
        json_object_object_foreach(all, name, value)
        {
            if (json_object_object_get_ex(kept, name, NULL))
                field_json(out, name, json_text(value, NULL));
        }
    }
    field_close(out, '}');
}

void jupyter_show_result(struct jupyter_kernel *k, const droste_bundles *bundles, size_t index)
{
    static const char *const kinds[] = { "display_data", "execute_result", "update_display_data" };
    cleanup_buf struct buf content = { 0 };
    cleanup_json struct json_object *kept = json_object_new_object();
    static const char clear[] = "{\"wait\": false}"; /* the sandbox has waited */
    if (k->is_silent || !kept)
        return;
    if (index >= droste_bundles_count(bundles)) {
        buf_append(&content, clear, sizeof clear - 1);
        jupyter_publish(k, "clear_output", &content);
        return;
    }
    const char *name = droste_bundles_display_id(bundles, index);
    size_t kind = droste_bundles_is_main(bundles, index)     ? 1
                  : droste_bundles_is_update(bundles, index) ? 2
                                                             : 0;
    buf_putc(&content, '{');
    show_append_data(&content, bundles, index, kept);
    show_append_metadata(&content, bundles, index, kept);
    field_open(&content, "transient", '{');
    if (name)
        field_string(&content, "display_id", name);
    field_close(&content, '}');
    if (kind == 1)
        field_int(&content, "execution_count", (int64_t)k->count);
    buf_putc(&content, '}');
    jupyter_publish(k, kinds[kind], &content);
}
