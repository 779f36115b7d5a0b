/* serve/native/batch.c: see batch.h. */
#include "serve/native/batch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"

enum { BATCH_OBJECT_MAX = 8 << 20 };

struct served_batch *batch_active(struct server *s, const char *id)
{
    struct served_batch *b = s->batches;
    while (b && strcmp(b->id, id) != 0)
        b = b->next;
    return b;
}

char *batch_root(struct request *r)
{
    struct error err = { 0 };
    cleanup_free char *home = NULL;
    cleanup_free char *path = NULL;
    if (file_data_home(&home, &err) == 0) {
        path = text_printf("%s/batches/%s", home, r->account->key.id);
        if (path && file_make_directories(path, &err) == 0)
            return steal(&path);
    }
    request_refuse(r, 503, "storage", "the directory of batches cannot be opened: %s", err.text);
    return NULL;
}

char *batch_directory_of(struct request *r)
{
    cleanup_free char *root = batch_root(r);
    cleanup_free char *path = root ? text_printf("%s/%s", root, r->id) : NULL;
    struct stat st;
    if (!root)
        return NULL;
    if (path && text_is_name(r->id) && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return steal(&path);
    if (!relay_on_node(r))
        nodes_refuse_absent(r, "batch", r->id, "makes");
    return NULL;
}

struct json_object *batch_read(const char *directory)
{
    cleanup_free char *path = text_printf("%s/batch.json", directory);
    cleanup_buf struct buf text = { 0 };
    struct json_object *object = NULL;
    if (path && file_read(path, BATCH_OBJECT_MAX, &text, NULL) == 0)
        json_parse(buf_text(&text), text.len, &json_limits_large, &object, NULL);
    return object;
}

int batch_save(struct served_batch *b, struct error *err)
{
    cleanup_free char *path = text_printf("%s/batch.json", b->directory);
    size_t len = 0;
    const char *text = json_text(b->object, &len);
    return path && text ? file_replace(path, text, len, err) : error_memory(err);
}

bool batch_is_locked(const char *directory)
{
    cleanup_free char *path = text_printf("%s/results.jsonl", directory);
    cleanup_fd int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}
