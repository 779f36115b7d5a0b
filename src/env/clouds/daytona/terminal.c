/* env/clouds/daytona/terminal.c: the state machine of one terminal.
 *
 *   create ──► connect ──► typed ── the loader's mark ──► ready
 *    ▲          ▲                                           │ cut
 *    └──────────┴─── wait ◄── doubt (does it still exist?) ◄─┘
 *
 * The shell receives a single line, which replaces it with the program. The line is well below the
 * 4096 bytes that a terminal in canonical mode accepts (termios(3)), and contains the program in
 * base64, which has no special meaning to a shell or a line editor. Nothing else is sent until the
 * program's first output, so the shell cannot consume it.
 */
#include "env/clouds/daytona/terminal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/json.h"
#include "base/os/random.h"
#include "base/text.h"
#include "net/websocket.h"
#include "wire/link.h"

enum {
    MESSAGE_SIZE = 32768,  /* of a message to it; the service disconnects above 65536 */
    MESSAGE_MAX = 1 << 20, /* of a message from it */
    MAKE_SECONDS = 30,
    CONNECT_SECONDS = 15,
    SPEAK_MS = 20000, /* from the line to the program's first output */
    AGAIN_MS = 100,   /* before the first retry */
    AGAIN_MOST_MS = 5000,
    PATIENCE_SECONDS = 60,
    BEAT_MS = 15000,
    BEATS = 3, /* unanswered pings: the connection is dead */
    NOISE_MAX = 2000,
    NAME_SIZE = 32,
};

enum stage {
    STAGE_MAKE,
    STAGE_CONNECT,
    STAGE_TYPED,
    STAGE_STANDS,
    STAGE_DOUBT,
    STAGE_WAIT,
    STAGE_OVER
};

struct terminal {
    const struct daytona_account *account;
    struct terminal_events events;
    void *arg;
    struct rest *toolbox;
    struct rest_request *request;
    struct websocket *socket;
    struct timer *timer;
    enum stage stage;
    char name[NAME_SIZE];
    struct buf line;  /* for the shell */
    struct buf noise; /* the end of the shell's output */
    bool spoken;      /* the program has written its mark */
    bool gone;        /* the terminal does not exist any more */
    bool exited;      /* its program has ended: */
    int64_t status;
    uint64_t lost_ns; /* since when the connection is lost; 0: it is not */
    unsigned tries, silent_beats;
    struct error last; /* of the last attempt to connect */
};

/* ---- the end ---- */

static void daytona_terminal_finish(struct terminal *t, const struct error *why)
{
    struct error cause = *why;
    t->stage = STAGE_OVER;
    timer_stop(t->timer);
    rest_cancel(steal(&t->request));
    websocket_close(steal(&t->socket));
    t->events.ended(t->arg, &cause);
}

/* The last line of the shell's output, without its `exit`. */
static void daytona_terminal_last_words(const struct terminal *t, struct buf *out)
{
    static const char goodbye[] = "logout";
    const size_t n = sizeof goodbye - 1;
    size_t line, len = t->noise.len;
    for (;;) {
        line = text_last_line(buf_text(&t->noise), &len);
        if (len - line != n || memcmp(t->noise.data + line, goodbye, n) != 0)
            break;
        len = line;
    }
    text_append_last_line(out, buf_text(&t->noise), len);
}

/* ---- losses ---- */

static void daytona_terminal_doubt(struct terminal *t, const struct error *why)
{
    websocket_close(steal(&t->socket));
    timer_stop(t->timer);
    if (t->lost_ns == 0)
        t->lost_ns = clock_ns();
    t->last = *why;
    if (why->code == ERROR_PERMISSION) {
        daytona_terminal_finish(t, &t->last);
        return;
    }
    t->stage = STAGE_DOUBT;
    t->events.doubt(t->arg, &t->last);
}

void terminal_retry(struct terminal *t)
{
    struct error why = t->last;
    if (t->stage != STAGE_DOUBT)
        return;
    if (t->exited) {
        daytona_terminal_finish(t, &why);
        return;
    }
    if (t->gone && t->spoken) {
        error_set(
            &why, ERROR_LOST, "the terminal in the sandbox is gone; the cell's outcome is unknown");
        daytona_terminal_finish(t, &why);
        return;
    }
    if (clock_seconds_since(t->lost_ns) > PATIENCE_SECONDS) {
        if (t->spoken)
            why.code = ERROR_LOST;
        error_wrap(&why, "the sandbox could not be reached for %d s", PATIENCE_SECONDS);
        daytona_terminal_finish(t, &why);
        return;
    }
    uint64_t ms = (uint64_t)AGAIN_MS << (t->tries < 6 ? t->tries : 6);
    t->tries++;
    t->stage = STAGE_WAIT;
    timer_start(t->timer, ms < AGAIN_MOST_MS ? ms : AGAIN_MOST_MS, 0);
}

/* Its program has ended. If the whole sandbox has, its state explains why. */
static void daytona_terminal_exited(struct terminal *t)
{
    struct error why = { 0 };
    cleanup_buf struct buf words = { 0 };
    if (t->spoken) {
        t->gone = true;
        daytona_terminal_doubt(t, &why);
        return;
    }
    daytona_terminal_last_words(t, &words);
    error_set(&why, ERROR_ENVIRONMENT, "its Python did not start (status %lld)%.150s",
        (long long)t->status, buf_text(&words));
    daytona_terminal_finish(t, &why);
}

/* Reconnects at once. If that fails, `doubt` asks about the sandbox. */
static void daytona_terminal_cut(struct terminal *t, const struct error *why)
{
    bool stood = t->stage == STAGE_STANDS;
    websocket_close(steal(&t->socket));
    if (!stood) {
        daytona_terminal_doubt(t, why);
        return;
    }
    t->last = *why;
    t->lost_ns = clock_ns();
    t->tries = 0;
    t->stage = STAGE_WAIT;
    timer_start(t->timer, AGAIN_MS, 0);
    t->events.cut(t->arg);
}

/* ---- output ---- */

static void daytona_terminal_ready(struct terminal *t)
{
    t->stage = STAGE_STANDS;
    t->lost_ns = 0;
    t->tries = t->silent_beats = 0;
    timer_start(t->timer, BEAT_MS, BEAT_MS);
    t->events.joined(t->arg);
}

static void daytona_terminal_connected(struct terminal *t)
{
    if (t->stage != STAGE_CONNECT)
        return;
    if (t->spoken) {
        daytona_terminal_ready(t);
        return;
    }
    struct error why = { 0 };
    t->stage = STAGE_TYPED;
    timer_start(t->timer, SPEAK_MS, 0);
    if (websocket_send(t->socket, &(struct iovec){ t->line.data, t->line.len }, 1, &why) < 0)
        daytona_terminal_finish(t, &why);
}

static void take_exit(struct terminal *t, struct json_object *o)
{
    struct json_object *status = NULL;
    if (!json_object_object_get_ex(o, "exitCode", &status))
        return;
    t->exited = true;
    t->status = json_get_int(o, "exitCode", -1);
}

static void socket_text(void *arg, const char *data, size_t len)
{
    struct terminal *t = arg;
    cleanup_json struct json_object *o = NULL;
    struct error why = { 0 };
    if (json_parse(data, len, &json_limits_small, &o, NULL) < 0 ||
        strcmp(json_get_string(o, "type", ""), "control") != 0)
        return;
    const char *status = json_get_string(o, "status", "");
    if (strcmp(status, "connected") == 0) {
        daytona_terminal_connected(t);
    } else if (strcmp(status, "exited") == 0) {
        take_exit(t, o);
    } else if (strcmp(status, "error") == 0) {
        cleanup_buf struct buf words = { 0 };
        const char *reason = json_get_string(o, "error", "");
        text_append_visible(&words, reason, strlen(reason));
        error_set(&why, ERROR_ENVIRONMENT, "its terminal: %.150s", buf_text(&words));
        daytona_terminal_cut(t, &why);
    }
}

/* Output before the program's mark is the shell's. */
static void socket_bytes(void *arg, const char *data, size_t len)
{
    struct terminal *t = arg;
    if (t->stage == STAGE_TYPED) {
        const char *mark = memchr(data, LINK_MARK, len);
        size_t before = mark ? (size_t)(mark - data) : len;
        buf_append(&t->noise, data, before);
        if (t->noise.len > NOISE_MAX)
            buf_consume(&t->noise, t->noise.len - NOISE_MAX);
        data += before;
        len -= before;
        if (!mark)
            return;
        t->spoken = true;
        daytona_terminal_ready(t);
    }
    if (t->stage == STAGE_STANDS)
        t->events.bytes(t->arg, data, len);
}

static void socket_connected(void *arg)
{
}

/* The reason in a close frame may say how the program ended. */
static void socket_closed(void *arg, const struct websocket_end *end)
{
    struct terminal *t = arg;
    cleanup_json struct json_object *o = NULL;
    struct error why = end->error;
    if (!t->exited && end->status &&
        json_parse(end->reason, strlen(end->reason), &json_limits_small, &o, NULL) == 0 &&
        json_object_is_type(o, json_type_object))
        take_exit(t, o);
    if (t->exited) {
        daytona_terminal_exited(t);
        return;
    }
    t->gone = end->http == 404;
    if (end->http == 401 || end->http == 403)
        error_set(
            &why, ERROR_PERMISSION, "Daytona rejects the key: check %s", t->account->key_variable);
    else if (end->error.code == ERROR_NONE)
        error_set(
            &why, ERROR_LOST, "the terminal was closed (%u): %.100s", end->status, end->reason);
    daytona_terminal_cut(t, &why);
}

/* ---- creating and connecting ---- */

static void connect_it(struct terminal *t)
{
    static const struct websocket_events events = { socket_connected, socket_bytes, socket_text,
        socket_closed };
    const struct daytona_account *a = t->account;
    cleanup_free char *url =
        text_printf("%s/process/pty/%s/connect", rest_base(t->toolbox), t->name);
    struct error why = { 0 };
    struct websocket_options options = { .url = url,
        .connect_options = { .ca_file = a->ca_file },
        .peer = "Daytona",
        .code = ERROR_LOST,
        .connect_timeout = CONNECT_SECONDS,
        .headers = (const char *const *)a->headers.items,
        .header_count = a->headers.count,
        .message_max = MESSAGE_MAX };
    t->stage = STAGE_CONNECT;
    timer_start(t->timer, (uint64_t)CONNECT_SECONDS * 1000, 0);
    int rc =
        url ? websocket_open(a->loop, &options, &events, t, &t->socket, &why) : error_memory(&why);
    if (rc < 0)
        daytona_terminal_finish(t, &why);
}

static void daytona_terminal_made(void *arg, const struct rest_answer *answer)
{
    struct terminal *t = arg;
    t->request = NULL;
    /* created by an earlier attempt */
    if (answer->error.code == ERROR_NONE || answer->status == 409)
        connect_it(t);
    else
        daytona_terminal_doubt(t, &answer->error);
}

static int daytona_terminal_make(struct terminal *t, struct error *err)
{
    size_t n = (size_t)snprintf(t->name, sizeof t->name, "droste-");
    int rc = random_hex(t->name + n, 16, err);
    if (rc < 0)
        return rc;
    /* TERM=dumb keeps the shell from sending control sequences; the width avoids line breaks. */
    cleanup_free char *text =
        text_printf("{\"envs\":{\"TERM\":\"dumb\",\"PYTHONDONTWRITEBYTECODE\":"
                    "\"1\"},\"id\":\"%s\",\"cols\":1000,\"rows\":24,\"lazyStart\":true}",
            t->name);
    if (!text)
        return error_memory(err);
    buf_clear(&t->noise);
    t->stage = STAGE_MAKE;
    timer_stop(t->timer);
    struct rest_ask ask = { .method = "POST",
        .path = "/process/pty",
        .data = text,
        .len = strlen(text),
        .type = "application/json",
        .again = true, /* idempotent: the name is unique */
        .seconds = MAKE_SECONDS,
        .done = daytona_terminal_made,
        .arg = t };
    return rest_send(t->toolbox, &ask, &t->request, err);
}

/* ---- timers ---- */

static void daytona_terminal_beat(struct terminal *t)
{
    struct error why = { 0 };
    if (websocket_heard(t->socket))
        t->silent_beats = 0;
    if (++t->silent_beats <= BEATS) {
        websocket_ping(t->socket);
        return;
    }
    error_set(&why, ERROR_LOST, "no message from Daytona for %d s", BEATS * BEAT_MS / 1000);
    daytona_terminal_cut(t, &why);
}

static void daytona_terminal_timer_due(void *arg)
{
    struct terminal *t = arg;
    struct error why = { 0 };
    cleanup_buf struct buf words = { 0 };
    if (t->stage == STAGE_STANDS) {
        daytona_terminal_beat(t);
    } else if (t->stage == STAGE_WAIT && t->spoken) {
        connect_it(t);
    } else if (t->stage == STAGE_WAIT) {
        if (daytona_terminal_make(t, &why) < 0)
            daytona_terminal_finish(t, &why);
    } else {
        daytona_terminal_last_words(t, &words);
        error_set(
            &why, ERROR_TIMEOUT, "its shell did not start Python in time%.150s", buf_text(&words));
        daytona_terminal_doubt(t, &why);
    }
}

/* ---- the command line ---- */

static void daytona_terminal_quote(struct buf *out, const char *word)
{
    buf_putc(out, '\'');
    for (; *word; word++)
        if (*word == '\'')
            buf_puts(out, "'\\''");
        else
            buf_putc(out, *word);
    buf_putc(out, '\'');
}

/* A shell that cannot execute the program exits, so the failure is noticed. The space in front is
 * for zsh, which takes one key to answer its questions if its user has no ~/.zshrc. */
static int write_line(
    struct terminal *t, const char *first, const char *const *words, struct error *err)
{
    buf_putc(&t->line, ' ');
    buf_puts(&t->line, first);
    buf_puts(&t->line, "exec");
    for (size_t i = 0; words[i]; i++) {
        buf_putc(&t->line, ' ');
        if (!strchr(words[i], '\n')) {
            daytona_terminal_quote(&t->line, words[i]);
            continue;
        }
        buf_puts(&t->line, "'exec(__import__(\"base64\").b64decode(\"");
        json_append_base64(&t->line, words[i], strlen(words[i]));
        buf_puts(&t->line, "\"))'");
    }
    buf_puts(&t->line, "; exit 127\n");
    return buf_failed(&t->line) ? error_memory(err) : 0;
}

/* ---- public functions ---- */

int terminal_open(const struct daytona_account *account, const char *base, const char *first,
    const char *const *words, const struct terminal_events *events, void *arg,
    struct terminal **out, struct error *err)
{
    struct terminal *t = calloc(1, sizeof *t);
    if (!t)
        return error_memory(err);
    *t = (struct terminal){ .account = account, .events = *events, .arg = arg };
    t->timer = timer_new(account->loop, daytona_terminal_timer_due, t);
    int rc = t->timer ? daytona_account_reach(account, base, &t->toolbox, err) : error_memory(err);
    if (rc == 0)
        rc = write_line(t, first, words, err);
    if (rc == 0)
        rc = daytona_terminal_make(t, err);
    if (rc < 0) {
        terminal_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

/* Sends one message with as much as fits. */
static int daytona_terminal_send_some(
    struct terminal *t, const struct iovec **iov, int *count, size_t *at)
{
    struct iovec part[8];
    int n = 0;
    size_t room = MESSAGE_SIZE;
    while (*count > 0 && room > 0 && n < (int)array_length(part)) {
        size_t left = (*iov)->iov_len - *at, len = left < room ? left : room;
        part[n++] = (struct iovec){ (char *)(*iov)->iov_base + *at, len };
        room -= len;
        *at += len;
        if (*at < (*iov)->iov_len)
            continue;
        (*iov)++;
        (*count)--;
        *at = 0;
    }
    return websocket_send(t->socket, part, n, NULL);
}

void terminal_write(struct terminal *t, const struct iovec *iov, int count)
{
    size_t at = 0;
    if (t->stage != STAGE_STANDS)
        return;
    /* If memory runs out, the message is lost, and the link sends it again. */
    while (count > 0 && daytona_terminal_send_some(t, &iov, &count, &at) == 0)
        ;
}

size_t terminal_waiting(const struct terminal *t)
{
    return t->socket ? websocket_waiting(t->socket) : 0;
}

void terminal_pause(struct terminal *t, bool paused)
{
    if (t->socket)
        websocket_pause(t->socket, paused);
}

void terminal_close(struct terminal *t)
{
    if (!t)
        return;
    rest_cancel(t->request);
    websocket_close(t->socket);
    rest_close(t->toolbox);
    timer_free(t->timer);
    buf_free(&t->line);
    buf_free(&t->noise);
    free(t);
}
