/* volume/error.c: what went wrong with a file of a volume, from errno. */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "volume/internal.h"

int volume_failed(const struct volume *v, const char *what, const char *path, struct error *err)
{
    static const struct {
        int sys;
        enum error_code code;
        const char *text;
    } texts[] = {
        { ENOENT, ERROR_NOT_FOUND, "there is no such file" },
        { ELOOP, ERROR_PERMISSION, "the path contains a link, and links are not followed here" },
        { EXDEV, ERROR_PERMISSION, "it leads out of the volume" },
        { ENOTDIR, ERROR_ARGUMENT, "a part of the path is not a directory" },
        { ENOSPC, ERROR_IO, "the disk is full; free some space" },
        { EDQUOT, ERROR_IO, "the disk quota is used up; free some space" },
        { EACCES, ERROR_PERMISSION, "you may not" },
    };
    cleanup_buf struct buf shown = { 0 };
    text_append_visible(&shown, path, strnlen(path, 100));
    for (size_t i = 0; i < array_length(texts); i++)
        if (texts[i].sys == errno)
            return error_set(err, texts[i].code, "volume '%s': %s %s: %s", v->name, what,
                buf_text(&shown), texts[i].text);
    return error_set_errno(err, ERROR_IO, "volume '%s': %s %s", v->name, what, buf_text(&shown));
}
