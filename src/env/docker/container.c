/* env/docker/container.c: creates, attaches, starts, watches and removes one container.
 *
 * The end of a container is observed in two ways. A request that waits for it (POST /wait) is sent
 * before the start. When the connection ends, the answer to that request says how the container
 * ended; if there is none, the container is inspected (GET /json).
 *
 * If the daemon dies, the containers' standard input is lost, even if it keeps them alive
 * (live-restore), so a connection over the Unix socket is never restored. Over TCP only the
 * connection may be lost: it is restored, and the link (wire/link.h) resends what was in transit.
 */
#include "env/docker/container.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/text.h"
#include "env/docker/create.h"
#include "jail/calls.h"
#include "net/url.h"

enum {
    SHORT_SECONDS = 60, /* for requests that create, start or remove */
    /* from the end of the connection until the container's end must be known */
    EPILOGUE_MS = 10000,
    AGAIN_MS = 500,        /* between inspections of a container whose connection was lost */
    PATIENCE_SECONDS = 60, /* for a daemon that does not answer in this state */
    /* without a message over TCP: the only way to end it if the host is gone */
    LEASE_SECONDS = 86400,
    NOISE_MAX = 2000, /* bytes of its standard error to keep */
    ID_MAX = 128,
    KILL_GRACE_MS = 5000, /* for the supervisor to end its workers */
};

enum stage {
    STAGE_CREATE,
    STAGE_PULL,
    STAGE_ATTACH,
    STAGE_START,
    STAGE_RUNS,
    STAGE_LOST,
    STAGE_ENDED
};

struct container {
    struct loop *loop;
    struct engine *engine;
    struct container_events events;
    void *arg;
    struct json_object *body;
    bool may_drop_filter; /* from the body, if the daemon rejects it */
    char *image;
    enum container_pull pull;
    bool input_once;
    enum stage stage;
    char id[ID_MAX + 1];
    struct engine_request *step;    /* the request in progress */
    struct engine_request *waiting; /* the request that waits for its end */
    struct stream *stream;
    struct remote *remote;
    struct timer *timer;
    uint64_t lost_ns; /* since when the connection is lost */
    bool attached;    /* at least once */
    bool booted;      /* the supervisor has sent its first bytes */
    bool wants_end;   /* the end was requested */
    bool leaving;
    /* the stream's frames: a header of eight bytes, then so many bytes of one of two streams */
    unsigned char header[8];
    size_t header_len, left;
    struct buf noise; /* the end of its standard error */
    struct sandbox_exit how;
    bool exited; /* its exit status is known: */
    int64_t status;
};

/* Where to set an error: the first one is kept. */
static struct error *first_error(struct container *c)
{
    return c->how.error.code == ERROR_NONE ? &c->how.error : NULL;
}

static void set_error(struct container *c, const struct error *why)
{
    if (c->how.error.code == ERROR_NONE)
        c->how.error = *why;
}

/* ---- the end of a container ---- */

/* The end of its standard error, on one line. */
static void add_noise(const struct container *c, struct buf *out)
{
    cleanup_buf struct buf output = { 0 };
    remote_noise(c->remote, &output);
    buf_append(&output, c->noise.data, c->noise.len);
    text_append_last_line(out, buf_text(&output), output.len);
}

/* Derives how it ended, unless a more serious error is known. */
static void docker_container_judge(struct container *c)
{
    struct error *why = &c->how.error;
    cleanup_buf struct buf output = { 0 };
    if (c->wants_end || why->code != ERROR_NONE || c->how.limit != LIMIT_NONE)
        return;
    add_noise(c, &output);
    if (!c->exited)
        error_set(why, ERROR_LOST,
            "the connection to the container was lost and could not be restored; the cell's "
            "outcome is unknown");
    else if (!c->booted)
        error_set(why, ERROR_ENVIRONMENT, "image %.60s: its python ended with status %lld%.120s",
            c->image, (long long)c->status, buf_text(&output));
    else if (c->status == 137)
        error_set(why, ERROR_LOST,
            "the container was killed from outside, by `docker kill`, its daemon or the kernel; "
            "the cell's outcome is unknown");
    else
        error_set(why, ERROR_LOST,
            "the container ended with status %lld%.100s; the cell's outcome is unknown",
            (long long)c->status, buf_text(&output));
}

static void docker_container_end(struct container *c)
{
    if (c->stage == STAGE_ENDED)
        return;
    docker_container_judge(c);
    c->stage = STAGE_ENDED;
    engine_cancel(steal(&c->step));
    engine_cancel(steal(&c->waiting));
    stream_close(steal(&c->stream));
    timer_stop(c->timer);
    remote_ended(c->remote, &c->how);
}

/* Fails later, because no event may fire within a call of the user. */
static void end_soon(struct container *c)
{
    timer_start(c->timer, 0, 0);
}

/* ---- requests ---- */

static int docker_container_ask(struct container *c, struct engine_request **request,
    const char *method, const char *path, struct json_object *body, double seconds,
    engine_done_fn *done)
{
    struct engine_ask what = {
        .method = method, .path = path, .body = body, .seconds = seconds, .done = done, .arg = c
    };
    return engine_send(c->engine, &what, request, first_error(c));
}

/* Sends a request about this container. */
static int docker_container_ask_of(struct container *c, struct engine_request **request,
    const char *method, const char *rest, double seconds, engine_done_fn *done)
{
    cleanup_free char *path = text_printf("/containers/%s%s", c->id, rest);
    return path ? docker_container_ask(c, request, method, path, NULL, seconds, done)
                : error_memory(first_error(c));
}

static void docker_container_waited(void *arg, const struct engine_answer *answer)
{
    struct container *c = arg;
    c->waiting = NULL;
    if (answer->error.code != ERROR_NONE)
        return;
    c->exited = true;
    c->status = json_get_int(answer->body, "StatusCode", 0);
    /* Its last output may still be in transit. */
    if (c->stage == STAGE_RUNS)
        timer_start(c->timer, EPILOGUE_MS, 0);
    else if (c->stage == STAGE_LOST || (c->stage == STAGE_START && !c->step))
        docker_container_end(c);
    /* A container that did not start has ended as well. The pending answer to /start has the
     * reason. */
}

/* ---- the stream ---- */

static void take_noise(struct container *c, const char *data, size_t len)
{
    buf_append(&c->noise, data, len);
    if (c->noise.len > NOISE_MAX)
        buf_consume(&c->noise, c->noise.len - NOISE_MAX);
}

/* Frames of the daemon: stream number, three zero bytes, a big-endian length of four bytes. */
static void docker_container_stream_bytes(void *arg, const char *data, size_t len)
{
    struct container *c = arg;
    while (len > 0 && c->stream) {
        if (c->left == 0) {
            size_t n =
                sizeof c->header - c->header_len < len ? sizeof c->header - c->header_len : len;
            memcpy(c->header + c->header_len, data, n);
            c->header_len += n;
            data += n;
            len -= n;
            if (c->header_len < sizeof c->header)
                return;
            const unsigned char *h = c->header;
            c->left = (size_t)h[4] << 24 | (size_t)h[5] << 16 | (size_t)h[6] << 8 | h[7];
            if (c->left == 0)
                c->header_len = 0;
            continue;
        }
        size_t n = c->left < len ? c->left : len;
        c->left -= n;
        if (c->left == 0)
            c->header_len = 0;
        if (c->header[0] == 1)
            remote_feed(c->remote, data, n);
        else
            take_noise(c, data, n);
        data += n;
        len -= n;
    }
    if (c->stream)
        stream_pause(c->stream, !remote_wants_more(c->remote));
}

static int docker_container_attach(struct container *c);

static void docker_container_inspected(void *arg, const struct engine_answer *answer)
{
    struct container *c = arg;
    c->step = NULL;
    struct json_object *state = json_get_typed(answer->body, "State", json_type_object);
    if (answer->error.code == ERROR_LOST && clock_seconds_since(c->lost_ns) < PATIENCE_SECONDS) {
        timer_start(c->timer, AGAIN_MS, 0);
        return;
    }
    if (state && json_get_bool(state, "Running", false)) {
        if (docker_container_attach(c) < 0)
            docker_container_end(c);
        return;
    }
    if (state) {
        c->exited = true;
        c->status = json_get_int(state, "ExitCode", 0);
        if (json_get_bool(state, "OOMKilled", false))
            c->how = (struct sandbox_exit){
                .has_status = true, .wait_status = 9, .limit = LIMIT_MEMORY
            };
    }
    docker_container_end(c);
}

static void docker_container_removed(void *arg, const struct engine_answer *answer);

/* Depending on the stage: the wait for the exit status is over, the next inspection is due, or a
 * container that was never created is gone. */
static void docker_container_timer_due(void *arg)
{
    struct container *c = arg;
    if (c->leaving && c->stage == STAGE_ENDED) {
        docker_container_removed(c, NULL);
        return;
    }
    if (c->stage == STAGE_LOST && !c->input_once && !c->exited && !c->wants_end) {
        if (docker_container_ask_of(
                c, &c->step, "GET", "/json", SHORT_SECONDS, docker_container_inspected) < 0)
            docker_container_end(c);
        return;
    }
    docker_container_end(c);
}

/* The connection is lost. */
static void docker_container_lose(struct container *c)
{
    remote_disconnected(c->remote);
    if (c->exited || c->stage == STAGE_ENDED) {
        docker_container_end(c);
        return;
    }
    if (c->stage != STAGE_LOST)
        c->lost_ns = clock_ns();
    c->stage = STAGE_LOST;
    timer_start(c->timer, c->input_once ? EPILOGUE_MS : AGAIN_MS, 0);
}

static void docker_container_stream_closed(void *arg, const struct error *why)
{
    struct container *c = arg;
    stream_close(steal(&c->stream));
    c->header_len = c->left = 0;
    if (c->stage == STAGE_START && c->step)
        return; /* It did not start, or has ended since; the answer to /start comes first. */
    if (!c->attached) {
        if (why->code != ERROR_NONE)
            set_error(c, why);
        docker_container_end(c);
        return;
    }
    docker_container_lose(c);
}

static void docker_container_started(void *arg, const struct engine_answer *answer);

static void docker_container_stream_connected(void *arg)
{
    struct container *c = arg;
    bool again = c->attached;
    c->attached = true;
    if (again) {
        c->stage = STAGE_RUNS;
        if (!c->waiting)
            docker_container_ask_of(
                c, &c->waiting, "POST", "/wait?condition=not-running", 0, docker_container_waited);
    } else {
        c->stage = STAGE_START;
        if (docker_container_ask_of(c, &c->waiting, "POST", "/wait?condition=next-exit", 0,
                docker_container_waited) < 0 ||
            docker_container_ask_of(
                c, &c->step, "POST", "/start", SHORT_SECONDS, docker_container_started) < 0) {
            docker_container_end(c);
            return;
        }
    }
    remote_connected(c->remote);
}

static int docker_container_attach(struct container *c)
{
    static const struct stream_events events = { docker_container_stream_connected,
        docker_container_stream_bytes, docker_container_stream_closed };
    cleanup_free char *path =
        text_printf("/containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1", c->id);
    return path ? engine_hijack(c->engine, path, &events, c, &c->stream, first_error(c))
                : error_memory(first_error(c));
}

/* ---- creating ---- */

/* Adds advice to those of the daemon's errors that have a remedy. */
static void say_why_not(struct container *c, const char *what, const struct error *cause)
{
    struct error why = *cause;
    const char *program = strstr(cause->text, "exec:");
    if (strstr(cause->text, "no space left"))
        error_set(&why, ERROR_ENVIRONMENT,
            "the Docker daemon's disk is full: make room with `docker system prune`: %.100s",
            cause->text);
    else if (program && (strstr(program, "executable file not found") ||
                            strstr(program, "no such file or directory")))
        error_set(&why, ERROR_ENVIRONMENT,
            "image %.80s does not contain this Python (%.90s): name one with --python, or use "
            "another --image",
            c->image, program);
    else
        error_wrap(&why, "%s a container of %.60s", what, c->image);
    set_error(c, &why);
}

static void docker_container_started(void *arg, const struct engine_answer *answer)
{
    struct container *c = arg;
    c->step = NULL;
    if (answer->error.code != ERROR_NONE) {
        say_why_not(c, "starting", &answer->error);
        docker_container_end(c);
        return;
    }
    if (c->stage != STAGE_START)
        return;
    timer_stop(c->timer);
    c->stage = STAGE_RUNS;
    if (c->exited)
        timer_start(c->timer, EPILOGUE_MS, 0);
    else if (!c->stream)
        docker_container_lose(c);
}

static void docker_container_create(struct container *c);

static void docker_container_pulled(void *arg, const struct engine_answer *answer)
{
    struct container *c = arg;
    struct error why = answer->error;
    c->step = NULL;
    c->events.notice(c->arg, "");
    if (why.code != ERROR_NONE) {
        error_wrap(&why, "pulling %.80s", c->image);
        set_error(c, &why);
    }
    if (c->how.error.code != ERROR_NONE)
        docker_container_end(c);
    else
        docker_container_create(c);
}

static void pull_line(void *arg, struct json_object *line)
{
    struct container *c = arg;
    const char *error = json_get_string(line, "error", NULL);
    const char *status = json_get_string(line, "status", "");
    const char *layer = json_get_string(line, "id", ""),
               *progress = json_get_string(line, "progress", "");
    cleanup_buf struct buf notice = { 0 };
    if (error) {
        error_set(first_error(c), ERROR_ENVIRONMENT,
            "pulling %.80s: %.120s; is it spelled right, and can the daemon reach its registry?",
            c->image, error);
        return;
    }
    buf_printf(&notice, "pulling %.60s: %.20s%s%.40s %.40s", c->image, layer, layer[0] ? " " : "",
        status, progress);
    c->events.notice(c->arg, buf_text(&notice));
}

static void docker_container_pull(struct container *c)
{
    cleanup_buf struct buf path = { 0 };
    /* A name without a tag means `latest`; the daemon would pull all tags. */
    const char *slash = strrchr(c->image, '/');
    bool tagged = strchr(slash ? slash : c->image, ':') || strchr(c->image, '@');
    buf_puts(&path, "/images/create?fromImage=");
    url_escape(&path, c->image);
    buf_puts(&path, tagged ? "" : "&tag=latest");
    struct engine_ask what = { .method = "POST",
        .path = buf_text(&path),
        .line = pull_line,
        .done = docker_container_pulled,
        .arg = c };
    cleanup_buf struct buf notice = { 0 };
    buf_printf(&notice, "pulling %.80s", c->image);
    c->stage = STAGE_PULL;
    c->events.notice(c->arg, buf_text(&notice));
    int rc = buf_failed(&path) ? error_memory(first_error(c))
                               : engine_send(c->engine, &what, &c->step, first_error(c));
    if (rc < 0)
        end_soon(c);
}

static void say_why_not_created(struct container *c, const struct error *cause)
{
    if (cause->code == ERROR_NOT_FOUND)
        error_set(first_error(c), ERROR_ENVIRONMENT,
            "the daemon has no image %.80s: fetch it with `docker pull`, or use --pull missing",
            c->image);
    else
        say_why_not(c, "making", cause);
}

static void remove_container(struct container *c);

/* Podman takes the profile for a file name. */
static bool docker_refused_filter(const struct container *c, const struct error *why)
{
    return why->code != ERROR_NONE && why->code != ERROR_LOST && strstr(why->text, "seccomp") &&
           docker_has_profile(c->body);
}

static void docker_container_created(void *arg, const struct engine_answer *answer)
{
    struct container *c = arg;
    c->step = NULL;
    if (answer->error.code == ERROR_NOT_FOUND && c->pull == PULL_MISSING && !c->leaving) {
        c->pull = PULL_NEVER; /* pull once only */
        docker_container_pull(c);
        return;
    }
    if (c->may_drop_filter && docker_refused_filter(c, &answer->error) && !c->leaving) {
        c->may_drop_filter = false;
        docker_drop_profile(c->body);
        c->events.notice(c->arg, "this daemon accepts no system call filter, so its own stays in "
                                 "use");
        docker_container_create(c);
        return;
    }
    if (answer->error.code == ERROR_NONE)
        snprintf(c->id, sizeof c->id, "%s", json_get_string(answer->body, "Id", ""));
    if (!text_is_name(c->id))
        c->id[0] = '\0'; /* an invalid id would become part of a path */
    if (c->leaving) {
        remove_container(c);
        return;
    }
    if (answer->error.code != ERROR_NONE) {
        say_why_not_created(c, &answer->error);
        docker_container_end(c);
        return;
    }
    if (c->id[0] == '\0') {
        error_set(
            first_error(c), ERROR_PROTOCOL, "the Docker daemon returned no id for the container");
        docker_container_end(c);
        return;
    }
    c->stage = STAGE_ATTACH;
    if (docker_container_attach(c) < 0)
        docker_container_end(c);
}

static void docker_container_create(struct container *c)
{
    char path[64] = "/containers/create?name=droste-rlm-";
    c->stage = STAGE_CREATE;
    if (random_hex(path + strlen(path), 12, first_error(c)) < 0 ||
        docker_container_ask(
            c, &c->step, "POST", path, c->body, SHORT_SECONDS, docker_container_created) < 0)
        end_soon(c);
}

/* ---- events of the remote ---- */

static void docker_container_remote_write(void *arg, const struct iovec *iov, int count)
{
    struct container *c = arg;
    if (c->stream)
        stream_send(c->stream, iov, count, NULL);
}

static size_t docker_container_remote_waiting(void *arg)
{
    const struct container *c = arg;
    return c->stream ? stream_waiting(c->stream) : 0;
}

static void docker_container_remote_ready(void *arg, struct json_object *facts)
{
    ((struct container *)arg)->booted = true;
}

static void docker_container_remote_failed(void *arg, const struct error *why)
{
    struct container *c = arg;
    c->wants_end = true; /* later errors are a consequence, not the reason */
    set_error(c, why);
    end_soon(c);
}

static void docker_container_remote_more(void *arg)
{
    struct container *c = arg;
    if (c->stream)
        stream_pause(c->stream, false);
}

/* ---- public functions ---- */

static int docker_container_set_up(
    struct container *c, const struct container_plan *plan, struct error *err)
{
    static const struct remote_events events = { docker_container_remote_write,
        docker_container_remote_ready, docker_container_remote_failed, docker_container_remote_more,
        docker_container_remote_waiting };
    struct remote_options options = { .boot.form = LINK_BARE,
        .boot.eof_ends = true,
        .boot.lease = c->input_once ? 0 : LEASE_SECONDS,
        .fair_reading = plan->fair_reading };
    memcpy(options.means, plan->means, sizeof options.means);
    c->image = strdup(plan->image);
    c->timer = timer_new(c->loop, docker_container_timer_due, c);
    if (!c->image || !c->timer)
        return error_memory(err);
    return remote_open(c->loop, &options, &events, c, &c->remote, err);
}

int container_open(struct loop *loop, struct engine *engine, const struct container_plan *plan,
    const struct container_events *events, void *arg, struct container **out, struct error *err)
{
    struct container *c = calloc(1, sizeof *c);
    if (!c) {
        json_object_put(plan->body);
        return error_memory(err);
    }
    *c = (struct container){ .loop = loop,
        .engine = engine,
        .events = *events,
        .arg = arg,
        .body = plan->body,
        .may_drop_filter = plan->may_drop_filter,
        .pull = plan->pull,
        .input_once = plan->input_once };
    int rc = docker_container_set_up(c, plan, err);
    if (rc < 0) {
        container_free(c);
        return rc;
    }
    if (c->pull == PULL_ALWAYS)
        docker_container_pull(c);
    else
        docker_container_create(c);
    *out = c;
    return 0;
}

struct remote *container_remote(const struct container *c)
{
    return c->remote;
}

void *container_arg(const struct container *c)
{
    return c->arg;
}

void container_describe(const struct container *c, struct buf *out)
{
    cleanup_json struct json_object *body = NULL;
    if (json_object_deep_copy(c->body, &body, NULL) < 0)
        return;
    bool filtered = docker_has_profile(body);
    if (filtered)
        docker_name_profile(body);
    buf_puts(out, json_object_to_json_string_ext(
                      body, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    buf_putc(out, '\n');
    if (filtered)
        calls_print(CALL_IN_CONTAINER, out);
    else
        buf_puts(out, "system calls: those that the daemon's own filter allows\n");
}

const char *container_id(const struct container *c)
{
    return c->id;
}

bool container_lives(const struct container *c)
{
    return c->stage != STAGE_ENDED && !c->wants_end && !c->leaving;
}

static void docker_container_killed(void *arg, const struct engine_answer *answer)
{
    struct container *c = arg;
    c->step = NULL;
    if (answer->error.code != ERROR_NONE && c->stage != STAGE_ENDED)
        docker_container_end(c);
}

void container_kill(struct container *c, enum limit limit)
{
    if (c->stage == STAGE_ENDED || c->wants_end)
        return;
    c->wants_end = true;
    c->how.limit = limit;
    if (c->stage < STAGE_START)
        timer_start(c->timer, 0, 0);
    else if (c->stage != STAGE_START && !c->step)
        docker_container_ask_of(
            c, &c->step, "POST", "/kill", SHORT_SECONDS, docker_container_killed);
    if (c->stage >= STAGE_START)
        timer_start(c->timer, KILL_GRACE_MS, 0);
}

/* ---- removal ---- */

static void docker_container_removed(void *arg, const struct engine_answer *answer)
{
    struct container *c = arg;
    void (*gone)(void *arg) = c->events.gone;
    void *whose = c->arg;
    c->step = NULL;
    /* 404: it is gone. 409: the daemon is removing it. No daemon: the next start collects it
     * (orphans.h). */
    container_free(c);
    gone(whose);
}

static void remove_container(struct container *c)
{
    c->stage = STAGE_ENDED;
    if (c->id[0] == '\0' || docker_container_ask_of(c, &c->step, "DELETE", "?force=1&v=1",
                                SHORT_SECONDS, docker_container_removed) < 0)
        timer_start(c->timer, 0, 0);
}

void container_leave(struct container *c)
{
    if (c->leaving)
        return;
    c->leaving = true;
    if (c->stage == STAGE_CREATE && c->step)
        return; /* wait until a pending creation has its answer */
    engine_cancel(steal(&c->step));
    docker_container_end(c);
    remove_container(c);
}

void container_free(struct container *c)
{
    if (!c)
        return;
    engine_cancel(c->step);
    engine_cancel(c->waiting);
    stream_close(c->stream);
    timer_free(c->timer);
    remote_free(c->remote);
    json_object_put(c->body);
    buf_free(&c->noise);
    free(c->image);
    free(c);
}
