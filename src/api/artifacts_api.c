/* api/artifacts_api.c: see artifacts_api.h. */
#include "api/artifacts_api.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/fields.h"

enum { TASK_NAME_MAX = 200 }; /* most file systems allow names of 255 bytes */

static void artifacts_put_task(struct buf *out, const char *task)
{
    for (const char *p = task; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c < 0x80 && isalnum(c)) || c == '_' || c == '-' || (c == '.' && p > task);
        buf_printf(out, plain ? "%c" : "%%%02X", c);
    }
}

int artifacts_directory(const char *setting, const char *task, char **out, struct error *err)
{
    struct buf path = { 0 };
    cleanup_buf struct buf name = { 0 };
    char hash[HASH_TEXT_SIZE];
    int rc = 0;
    buf_puts(&path, setting && setting[0] ? setting : "artifacts");
    if (task) {
        artifacts_put_task(&name, task);
        if (name.len > TASK_NAME_MAX && (rc = hash_sha256(task, strlen(task), hash, err)) == 0)
            buf_printf(&path, "/%.*s-%s", TASK_NAME_MAX - HASH_TEXT_SIZE, buf_text(&name), hash);
        else
            buf_printf(&path, "/%s", buf_text(&name));
    }
    *out = buf_steal(&path);
    return rc < 0 ? rc : *out ? 0 : error_memory(err);
}

int artifacts_copy(struct artifact_list *to, const struct artifact_list *from)
{
    to->error = from->error;
    to->left_out = from->left_out;
    to->items = from->count > 0 ? calloc(from->count, sizeof *to->items) : NULL;
    if (from->count > 0 && !to->items)
        return -1;
    for (size_t i = 0; i < from->count; i++) {
        struct artifact *item = &to->items[to->count++];
        *item = from->items[i];
        item->name = strdup(from->items[i].name);
        item->path = strdup(from->items[i].path);
        if (!item->name || !item->path)
            return -1;
    }
    return 0;
}

void artifacts_put_json(const struct artifact_list *list, struct buf *out)
{
    field_open(out, "artifacts", '[');
    for (size_t i = 0; i < list->count; i++) {
        const struct artifact *item = &list->items[i];
        field_open(out, NULL, '{');
        field_string(out, "name", item->name);
        field_int(out, "size", (int64_t)item->size);
        field_string(out, "sha256", item->hash);
        field_string(out, "path", item->path); /* the directory's name may be any bytes */
        field_close(out, '}');
    }
    field_close(out, ']');
    field_string(out, "artifacts_error", list->error.code == ERROR_NONE ? NULL : list->error.text);
}
