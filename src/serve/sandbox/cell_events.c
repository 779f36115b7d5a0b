/* serve/sandbox/cell_events.c: see cell_events.h. */
#include "serve/sandbox/cell_events.h"

#include <string.h>

/* JSON has line breaks only as white space. */
void cell_event(struct request *r, const char *name, const struct buf *data)
{
    cleanup_buf struct buf event = { 0 };
    buf_printf(&event, "event: %s\ndata: ", name);
    size_t at = event.len;
    buf_append(&event, buf_text(data), data->len);
    for (; at < event.len; at++)
        if (event.data[at] == '\n' || event.data[at] == '\r')
            event.data[at] = ' ';
    buf_puts(&event, "\n\n");
    request_push(r, buf_text(&event), event.len);
}

void cell_append_media(struct buf *out, const droste_media *media)
{
    if (strcmp(media->form, "json") == 0) {
        buf_append(out, media->data, media->len);
    } else if (strcmp(media->form, "bytes") == 0) {
        buf_puts(out, "\"");
        json_append_base64(out, media->data, media->len);
        buf_puts(out, "\"");
    } else {
        json_append_string(out, media->data, media->len);
    }
}
