/* env/remote/files.c: transfers directories through workers of the supervisor.
 *
 * A dedicated worker unpacks the files (guest/python/remote/unpack.py). It ends when everything is
 * unpacked, and reports the time from which to look for changes. The files are first copied to a
 * temporary file, so that the session sees them as they were when it was opened. Files that come
 * back also go to a temporary file first, and are checked there.
 */
#include "env/remote/files.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/text.h"
#include "volume/pack.h"

enum {
    ERRORS_MAX = 4000,
    SILENT_MS = 60000, /* without data during a fetch */
};
/* For data that comes back: room for names and headers. */
#define OVERHEAD_OF_ALL   ((uint64_t)1 << 20)
#define OVERHEAD_OF_FILES ((uint64_t)512)

struct delivery {
    struct remote *remote;
    struct volume *volume;
    struct sandbox *worker; /* NULL: no transfer is running */
    /* the worker that unpacked the files, if they end with it; NULL: none */
    struct sandbox *holder;
    struct timer *over;   /* defers the callback */
    struct timer *silent; /* no data for too long */
    char *to;
    bool ephemeral, delivered;
    struct pack_state state;
    struct sandbox_exit how; /* the result of the transfer */
    struct buf errors;       /* the worker's standard error */
    /* received: the time at the end of a delivery */
    unsigned char time[sizeof(int64_t)];
    int file;
    uint64_t came, most;
    bool failed; /* writing to the file failed */
    delivery_fetched_fn *fetched;
    void *arg;
};

void delivery_close(struct delivery *d)
{
    if (!d)
        return;
    remote_close_sandbox(d->worker);
    remote_close_sandbox(d->holder);
    timer_free(d->over);
    timer_free(d->silent);
    volume_release(d->volume);
    list_clear(&d->state.paths);
    buf_free(&d->errors);
    close_fd(&d->file);
    free(d->to);
    free(d);
}

const char *delivery_directory(const struct delivery *d)
{
    return d->to;
}

/* ---- the worker ---- */

/* The time, sent after everything is unpacked. Later bytes are ignored. */
static bool time_came(void *arg, const char *data, size_t len)
{
    struct delivery *d = arg;
    size_t room = sizeof d->time - (size_t)d->came;
    size_t n = len < room ? len : room;
    memcpy(d->time + d->came, data, n);
    d->came += n;
    if (d->ephemeral && n > 0 && n == room)
        timer_start(d->over, 0, 0);
    return true;
}

static bool changes_came(void *arg, const char *data, size_t len)
{
    struct delivery *d = arg;
    d->came += len;
    if (d->came > d->most) {
        remote_kill(d->worker);
    } else if (!d->failed && file_write_all(d->file, data, len) < 0) {
        d->failed = true;
        error_set_errno(&d->how.error, ERROR_IO,
            "volume '%s': storing the files that the sandbox sends", volume_name(d->volume));
        remote_kill(d->worker);
    }
    timer_start(d->silent, SILENT_MS, 0);
    return true;
}

static void too_silent(void *arg)
{
    struct delivery *d = arg;
    d->failed = true;
    error_set(&d->how.error, ERROR_TIMEOUT, "volume '%s': no data arrived for %d s",
        volume_name(d->volume), SILENT_MS / 1000);
    remote_kill(d->worker);
}

static void output_came(void *arg, int stream, const char *data, size_t len)
{
    struct delivery *d = arg;
    if (d->errors.len < ERRORS_MAX)
        buf_append(&d->errors, data, len);
}

static bool went_well(const struct sandbox_exit *how)
{
    return how->has_status && WIFEXITED(how->wait_status) && WEXITSTATUS(how->wait_status) == 0;
}

static void files_explain(struct delivery *d, const char *what, const struct sandbox_exit *how)
{
    cleanup_buf struct buf shown = { 0 };
    text_append_visible(&shown, buf_text(&d->errors), d->errors.len);
    d->how.error = how->error;
    if (how->error.code != ERROR_NONE)
        error_wrap(&d->how.error, "%s %.80s", what, d->to);
    else if (!went_well(how))
        error_set(&d->how.error, ERROR_ENVIRONMENT, "%s %.80s failed in the sandbox: %.120s", what,
            d->to, shown.len ? buf_text(&shown) : "it was ended");
}

static void deliverer_ended(void *arg, const struct sandbox_exit *how)
{
    struct delivery *d = arg;
    if (d->holder)
        return; /* it had finished */
    files_explain(d, "sending files to", how);
    timer_start(d->over, 0, 0);
}

static void fetcher_ended(void *arg, const struct sandbox_exit *how)
{
    struct delivery *d = arg;
    if (d->came > d->most)
        d->how.limit = LIMIT_VOLUME_SIZE;
    else if (!d->failed)
        files_explain(d, "fetching files from", how);
    timer_stop(d->silent);
    timer_start(d->over, 0, 0);
}

static void take_what_came(struct delivery *d)
{
    bool over = false;
    if (d->how.error.code != ERROR_NONE || d->how.limit != LIMIT_NONE)
        return;
    if (volume_unpack(d->volume, d->file, &d->state, &over, &d->how.error) == 0 && over)
        d->how.limit = LIMIT_VOLUME_SIZE;
}

static void files_delivered(struct delivery *d)
{
    int64_t time;
    bool failed = d->how.error.code != ERROR_NONE;
    struct sandbox *worker = steal(&d->worker);
    if (d->ephemeral && !failed)
        d->holder = worker;
    else
        remote_close_sandbox(worker);
    memcpy(&time, d->time, sizeof time);
    d->state.since = (int64_t)le64toh((uint64_t)time);
    d->delivered = !failed;
    remote_release(d->remote, failed ? &d->how.error : NULL);
}

static void delivery_report(void *arg)
{
    struct delivery *d = arg;
    delivery_fetched_fn *fetched = d->fetched;
    if (!d->delivered) {
        files_delivered(d);
        return;
    }
    remote_close_sandbox(steal(&d->worker));
    take_what_came(d);
    close_fd(&d->file);
    d->fetched = NULL;
    fetched(d->arg, &d->how);
}

static int start_worker(struct delivery *d, int source, struct error *err)
{
    static const struct sandbox_events delivering = { time_came, output_came, deliverer_ended };
    static const struct sandbox_events fetching = { changes_came, output_came, fetcher_ended };
    const struct sandbox_events *events = d->delivered ? &fetching : &delivering;
    cleanup_buf struct buf json = { 0 };
    buf_puts(&json, "{\"files\":");
    json_append_string(&json, d->to, strlen(d->to));
    if (d->delivered)
        buf_printf(
            &json, ",\"since\":%lld,\"sum\":\"%.64s\"", (long long)d->state.since, d->state.sum);
    buf_puts(&json, d->ephemeral && !d->delivered ? ",\"ephemeral\":true}" : "}");
    d->came = 0;
    d->failed = false;
    d->how = (struct sandbox_exit){ 0 };
    buf_clear(&d->errors);
    return remote_open_worker(d->remote, &json, source, events, d, &d->worker, err);
}

/* ---- transfers ---- */

static int files_begin(struct delivery *d, struct error *err)
{
    cleanup_fd int file = -1;
    int rc = volume_pack(d->volume, &file, &d->state.paths, err);
    return rc < 0 ? rc : start_worker(d, steal_fd(&file), err);
}

int delivery_open(struct loop *loop, struct remote *r, const struct volume *v, const char *to,
    struct delivery **out, struct error *err)
{
    char number[17];
    int rc = random_hex(number, 16, err);
    if (rc < 0)
        return rc;
    struct delivery *d = calloc(1, sizeof *d);
    if (!d)
        return error_memory(err);
    *d = (struct delivery){ .remote = r,
        .volume = volume_hold((struct volume *)v),
        .ephemeral = !to,
        .to = to ? strdup(to) : text_printf("/tmp/droste-files-%s", number),
        .over = timer_new(loop, delivery_report, d),
        .silent = timer_new(loop, too_silent, d),
        .file = -1 };
    rc = d->to && d->over && d->silent ? files_begin(d, err) : error_memory(err);
    if (rc < 0) {
        delivery_close(d);
        return rc;
    }
    remote_hold(r);
    *out = d;
    return 0;
}

bool delivery_is_there(const struct delivery *d)
{
    return d->delivered;
}

bool delivery_is_fetching(const struct delivery *d)
{
    return d->fetched != NULL;
}

int delivery_fetch(struct delivery *d, delivery_fetched_fn *done, void *arg, struct error *err)
{
    const struct volume_limits *limits = volume_limits_of(d->volume);
    int rc = volume_pack_file(d->volume, &d->file, err);
    if (rc < 0)
        return rc;
    d->fetched = done;
    d->arg = arg;
    d->most = limits->size + limits->files * OVERHEAD_OF_FILES + OVERHEAD_OF_ALL;
    rc = start_worker(d, -1, err);
    if (rc < 0)
        close_fd(&d->file);
    else
        timer_start(d->silent, SILENT_MS, 0);
    return rc;
}
