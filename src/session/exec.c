/* session/exec.c: sends what the guest is to do: run a cell, set a variable. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session/internal.h"

/* How large a memory file the cell may send, and how much memory its sandbox has. The files are
 * charged to the sandbox as long as the host uses them, so together they get a quarter of it. */
static void write_files(struct buf *head, const struct session *s)
{
    uint64_t memory = s->settings.limits.sandbox.memory, most = SESSION_BLOB_MAX;
    uint64_t used = sealed_total_bytes(s->decoder.total);
    if (!(s->ops->traits & TRAIT_MEMFD) || !s->decoder.total)
        return;
    if (memory > 0 && memory / 4 < most)
        most = memory / 4;
    if (used < most)
        buf_printf(head, ",\"files\":[%" PRIu64 ",%" PRIu64 "]", most - used, memory);
}

/* Omits an empty head, so that the guest need not decode it. */
static void write_exec_head(
    struct buf *head, const struct session *s, const struct session_cell *cell)
{
    if (cell->echo)
        buf_puts(head, "{\"echo\":true");
    if (cell->results)
        buf_printf(head, "%s\"results\":%zu", head->len ? "," : "{", s->settings.results_limit);
    if (cell->results && s->settings.result_size < s->settings.results_limit)
        buf_printf(head, ",\"result\":%zu", s->settings.result_size);
    if (cell->results && s->events.output)
        buf_puts(head, ",\"ordered\":true");
    if (cell->results && cell->prints)
        buf_puts(head, ",\"print\":true");
    if (cell->whole_errors)
        buf_printf(head, "%s\"whole\":%zu", head->len ? "," : "{", s->settings.result_size);
    if (cell->tools)
        buf_puts(head, head->len ? ",\"tools\":true" : "{\"tools\":true");
    if (cell->each)
        buf_puts(head, head->len ? ",\"each\":true" : "{\"each\":true");
    if (cell->values) {
        buf_printf(head, "%s\"values\":%u", head->len ? "," : "{", cell->values);
        write_files(head, s);
    }
    if (cell->item)
        buf_puts(head, head->len ? ",\"item\":true" : "{\"item\":true");
    if (cell->only_values)
        buf_puts(head, head->len ? ",\"only\":true" : "{\"only\":true");
    if (cell->script)
        buf_printf(head, "%s\"script\":%s", head->len ? "," : "{", cell->script);
    if (cell->name) {
        buf_puts(head, head->len ? ",\"name\":" : "{\"name\":");
        json_append_string(head, cell->name, strlen(cell->name));
    }
    if (head->len)
        buf_putc(head, '}');
}

int session_exec(struct session *s, const struct session_cell *cell, session_done_fn *done,
    void *arg, struct error *err)
{
    size_t bad = 0;
    if (!text_is_utf8(cell->code, cell->len, &bad))
        return error_set(err, ERROR_ARGUMENT, "the code is not UTF-8 at byte %zu", bad);
    double limit =
        cell->execute_timeout < 0 ? s->settings.limits.execute_timeout : cell->execute_timeout;
    int rc = session_check_timeout(limit, s->settings.execute_timeout_cap, err);
    if (rc == 0)
        rc = session_begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    cleanup_buf struct buf head = { 0 };
    write_exec_head(&head, s, cell);
    s->limit = limit;
    s->is_cell = true;
    s->collects = cell->results;
    s->takes_whole = cell->whole_errors;
    s->results.limit = s->settings.results_limit;
    s->results.each = s->settings.result_size;
    s->describes_tools = cell->tools;
    s->is_numbered = !cell->name;
    session_keep_before_cell(s);
    session_deadline_begin(s);
    struct session_part code = { cell->code, cell->len };
    rc = buf_failed(&head)
             ? error_memory(err)
             : session_send_blob(s, FRAME_EXEC, s->operation, head.data, head.len, &code, 1, err);
    return rc < 0 ? session_take_back(s, rc) : 0;
}

static const char *const kind_names[] = {
    [VALUE_TEXT] = "text",
    [VALUE_BYTES] = "bytes",
    [VALUE_AUTO] = "auto",
    [VALUE_JSON] = "json",
    [VALUE_JSONL] = "jsonl",
    [VALUE_TYPED] = "values",
    [VALUE_FILES] = "files",
};

static void write_set_head(
    struct buf *head, const char *const *names, size_t count, enum value_kind kind)
{
    buf_printf(head, "{\"kind\":\"%s\",\"names\":[", kind_names[kind]);
    for (size_t i = 0; i < count; i++) {
        buf_puts(head, i ? "," : "");
        json_append_string(head, names[i], strlen(names[i]));
    }
    buf_puts(head, "]}");
}

int session_set(struct session *s, const char *const *names, size_t name_count,
    enum value_kind kind, const void *data, size_t len, int fd_given, session_done_fn *done,
    void *arg, struct error *err)
{
    cleanup_fd int fd = fd_given;
    cleanup_buf struct buf head = { 0 };
    int rc = session_begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    s->limit = 0;
    write_set_head(&head, names, name_count, kind);
    struct session_part part = { data, len };
    if (buf_failed(&head))
        rc = error_memory(err);
    else if (fd >= 0 && len > 0)
        rc = session_send_memfd(
            s, FRAME_SET, s->operation, head.data, head.len, steal_fd(&fd), len, err);
    else
        rc =
            session_send_blob(s, FRAME_SET, s->operation, head.data, head.len, &part, len > 0, err);
    return rc < 0 ? session_take_back(s, rc) : 0;
}
