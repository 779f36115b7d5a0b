/* lm/dialect.c: what dialects share when they write requests. */
#include "lm/dialect.h"

#include <string.h>

const struct lm_part *dialect_parts(
    const struct lm_message *message, struct lm_part *room, size_t *count)
{
    if (message->part_count > 0) {
        *count = message->part_count;
        return message->parts;
    }
    *room = (struct lm_part){ .kind = LM_PART_TEXT, .data = message->text, .len = message->len };
    *count = 1;
    return room;
}

bool dialect_is_system(const struct lm_message *message)
{
    return strcmp(message->role, "system") == 0;
}

void dialect_append_system(struct buf *out, const struct lm_request *request)
{
    cleanup_buf struct buf text = { 0 };
    for (size_t i = 0; i < request->message_count; i++) {
        struct lm_part room;
        size_t count;
        if (!dialect_is_system(&request->messages[i]))
            continue;
        const struct lm_part *parts = dialect_parts(&request->messages[i], &room, &count);
        for (size_t k = 0; k < count; k++) {
            if (text.len > 0)
                buf_puts(&text, "\n\n");
            buf_append(&text, parts[k].data, parts[k].len);
        }
    }
    if (buf_failed(&text))
        out->failed = true;
    json_append_string(out, buf_text(&text), text.len);
}

int dialect_refuse_part(const struct lm_part *part, const char *takes, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED,
        "this model's provider does not accept content of the type %.60s: it accepts text, %s",
        part->media_type, takes);
}
