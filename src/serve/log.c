/* serve/log.c: see log.h. A line is one write(2) to a file that was opened with O_APPEND, so that
 * lines of several workers do not mix. */
#include "serve/log.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "base/text.h"
#include "serve/http/request.h"

static const char *const log_names[] = { "error", "warning", "info", "debug" };

int log_level_parse(const char *name)
{
    for (size_t i = 0; i < array_length(log_names); i++)
        if (strcmp(log_names[i], name) == 0)
            return (int)i;
    return -1;
}

static void log_begin(struct buf *line)
{
    int64_t ms = clock_wall_ms();
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    char text[32];
    gmtime_r(&seconds, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    buf_printf(line, "{\"time\": \"%s.%03dZ\"", text, (int)(ms % 1000));
}

static void log_text(struct buf *line, const char *name, const char *value)
{
    cleanup_buf struct buf valid = { 0 };
    if (!value || !*value)
        return;
    text_append_utf8(&valid, value, strlen(value));
    buf_printf(line, ", \"%s\": ", name);
    json_append_string(line, buf_text(&valid), valid.len);
}

static void log_end(struct buf *line, int fd)
{
    buf_puts(line, "}\n");
    if (!buf_failed(line))
        (void)file_write_all(fd, line->data, line->len);
}

void log_event(struct server *s, enum log_level level, const char *format, ...)
{
    cleanup_buf struct buf line = { 0 }, text = { 0 };
    va_list args;
    if ((int)level > s->options->log_level)
        return;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    log_begin(&line);
    log_text(&line, "level", log_names[level]);
    log_text(&line, "message", buf_text(&text));
    buf_printf(&line, ", \"worker\": %u", s->worker);
    log_end(&line, STDERR_FILENO);
}

/* The path without the query, which has paths of files. */
static void log_about(struct buf *line, const struct request *r)
{
    cleanup_free char *path = text_copy(r->target, strcspn(r->target, "?"));
    log_text(line, "request_id", r->request_id);
    log_text(line, "client", r->client ? r->client->address : NULL);
    log_text(line, "key", r->account ? r->account->key.id : NULL);
    log_text(line, "key_name", r->account ? r->account->key.name : NULL);
    log_text(line, "method", r->method);
    log_text(line, "path", path);
    log_text(line, "route", r->route ? r->route->path : NULL);
    log_text(line, "about", r->about);
    buf_printf(line, ", \"status\": %u", r->status);
    if (r->status == 201 && r->reply)
        log_text(line, "created", MHD_get_response_header(r->reply, MHD_HTTP_HEADER_LOCATION));
}

static bool log_is_audited(const struct request *r)
{
    bool reads = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;
    return !reads || r->status == 401 || r->status == 403;
}

void log_request(struct request *r)
{
    struct server *s = r->server;
    cleanup_buf struct buf line = { 0 }, audit = { 0 };
    bool is_public = r->route && route_scopes(r->route) == SCOPE_NONE;
    if (!r->begun || r->client->is_relay) /* the other worker logs it */
        return;
    if ((int)(is_public ? LOG_DEBUG : LOG_INFO) <= s->options->log_level) {
        log_begin(&line);
        log_text(&line, "level", is_public ? "debug" : "info");
        log_text(&line, "message", "request");
        log_about(&line, r);
        buf_printf(&line, ", \"received\": %llu, \"seconds\": ", (unsigned long long)r->received);
        json_append_seconds(&line, clock_seconds_since(r->began_ns));
        buf_printf(&line, ", \"worker\": %u", s->worker);
        log_end(&line, STDERR_FILENO);
    }
    if (s->audit_fd >= 0 && log_is_audited(r)) {
        log_begin(&audit);
        log_about(&audit, r);
        log_end(&audit, s->audit_fd);
    }
}

int log_open_file(const char *path, const char *what, int *fd, struct error *err)
{
    *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return error_set_errno(err, ERROR_IO, "opening the %s %s", what, path);
    return 0;
}
