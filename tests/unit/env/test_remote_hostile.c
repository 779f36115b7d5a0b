/* A hostile supervisor: the tests feed its bytes to the host's side. */
#include "../test.h"

#include <zlib.h>

#include "base/cleanup.h"
#include "env/remote/remote.h"
#include "wire/mux.h"

/* A host, what it has written, and the guest's stream so far. */
struct host {
    struct loop *loop;
    struct remote *remote;
    struct sandbox *sandbox;
    size_t written;
    size_t unsent;   /* of that, as its transport says */
    struct buf last; /* what was written last */
    uint64_t seq;    /* bytes of the guest's stream */
    uint64_t acked;  /* those of the host's that it says it has */
    bool ready, failed, ended;
    struct error why;
    struct sandbox_exit how;
    struct buf output;
};

static void on_write(void *arg, const struct iovec *iov, int count)
{
    struct host *h = arg;
    buf_clear(&h->last);
    for (int i = 0; i < count; i++) {
        h->written += iov[i].iov_len;
        buf_append(&h->last, iov[i].iov_base, iov[i].iov_len);
    }
}

static size_t on_waiting(void *arg)
{
    return ((struct host *)arg)->unsent;
}

static void on_ready(void *arg, struct json_object *facts)
{
    ((struct host *)arg)->ready = true;
}

static void on_failed(void *arg, const struct error *why)
{
    struct host *h = arg;
    assert_false(h->failed);
    h->failed = true;
    h->why = *why;
}

static bool on_bytes(void *arg, const char *data, size_t len)
{
    return true;
}

static void on_output(void *arg, int stream, const char *data, size_t len)
{
    buf_append(&((struct host *)arg)->output, data, len);
}

static void on_ended(void *arg, const struct sandbox_exit *how)
{
    struct host *h = arg;
    assert_false(h->ended);
    h->ended = true;
    h->how = *how;
}

/* The guest's stream. */
static void say(struct host *h, const void *data, size_t len)
{
    unsigned char header[LINK_HEADER_SIZE] = { 0x1E, 'D', 'L', 1, LINK_DATA, 0, (unsigned char)len,
        (unsigned char)(len >> 8) };
    for (int i = 0; i < 8; i++) {
        header[8 + i] = (unsigned char)(h->seq >> 8 * i);
        header[16 + i] = (unsigned char)(h->acked >> 8 * i);
    }
    uint32_t sum = (uint32_t)crc32_z(crc32(0, header, 24), data, len);
    for (int i = 0; i < 4; i++)
        header[24 + i] = (unsigned char)(sum >> 8 * i);
    h->seq += len;
    remote_feed(h->remote, (char *)header, sizeof header);
    remote_feed(h->remote, data, len);
}

static void say_message(
    struct host *h, enum mux_kind kind, uint32_t worker, const void *data, size_t len)
{
    unsigned char header[MUX_HEADER_SIZE];
    mux_write_header(header, kind, worker, len);
    header[1] = kind == MUX_OUTPUT;
    say(h, header, sizeof header);
    if (len)
        say(h, data, len);
}

static void say_text(struct host *h, enum mux_kind kind, uint32_t worker, const char *text)
{
    say_message(h, kind, worker, text, strlen(text));
}

static int setup(void **state)
{
    static const struct remote_events events = { on_write, on_ready, on_failed, NULL, on_waiting };
    static const struct sandbox_events sandbox_events = { on_bytes, on_output, on_ended };
    struct remote_options options = { .boot.form = LINK_BARE };
    struct sandbox_spec spec = { .isolation = ISOLATION_PROCESS };
    struct host *h = calloc(1, sizeof *h);
    assert_ok(loop_open(&h->loop, err));
    assert_ok(remote_open(h->loop, &options, &events, h, &h->remote, err));
    assert_ok(remote_open_sandbox(h->remote, &spec, &sandbox_events, h, &h->sandbox, err));
    remote_connected(h->remote);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    struct host *h = *state;
    struct sandbox_exit gone = { 0 };
    remote_ended(h->remote, &gone);
    assert_true(h->ended);
    remote_close_sandbox(h->sandbox);
    remote_free(h->remote);
    loop_close(h->loop);
    buf_free(&h->last);
    buf_free(&h->output);
    free(h);
    return 0;
}

static void say_word(struct host *h)
{
    static const char word[] = "\x1e"
                               "DROSTE 00000000 3.99.0\n";
    remote_feed(h->remote, word, sizeof word - 1);
}

static void say_hello(struct host *h)
{
    say_word(h);
    say_text(h, MUX_HELLO, 0, "{}");
}

static void assert_failed(const struct host *h)
{
    assert_true(h->failed);
    assert_int_equal(h->why.code, ERROR_PROTOCOL);
}

static void an_honest_one_is_heard(void **state)
{
    struct host *h = *state;
    say_hello(h);
    assert_true(h->ready);
    say_text(h, MUX_OUTPUT, 1, "said");
    assert_string_equal(buf_text(&h->output), "said");
    say_text(h, MUX_EXIT, 1, "{\"status\": 256, \"rss\": 1000, \"cpu\": 2.5}");
    assert_true(h->ended && h->how.has_status);
    assert_int_equal(h->how.wait_status, 256);
    struct sandbox_usage usage;
    remote_usage(h->sandbox, &usage);
    assert_int_equal(usage.memory_peak, 1024000);
    assert_true(usage.cpu_seconds == 2.5);
    assert_false(h->failed);
}

static void messages_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        bool hello;
        enum mux_kind kind;
        uint32_t worker;
        const char *text;
    } rows[] = {
        { false, MUX_OUTPUT, 1, "before HELLO" },
        { true, MUX_HELLO, 0, "{}" },
        { true, MUX_OUTPUT, 2, "of nobody" },
        { true, MUX_CREDIT_MORE, 1, "\1\0\0\1" },
        { true, MUX_CREDIT_MORE, 1, "abc" },
        { true, MUX_EXIT, 1, "[]" },
        { true, MUX_EXIT, 1, "{\"status\": 1" },
        { false, MUX_HELLO, 0, "not JSON" },
        { true, MUX_START, 1, "{}" },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        void *own = NULL;
        setup(&own);
        struct host *h = own;
        if (rows[i].hello)
            say_hello(h);
        else
            say_word(h);
        assert_false(h->failed);
        say_text(h, rows[i].kind, rows[i].worker, rows[i].text);
        assert_failed(h);
        say_text(h, MUX_OUTPUT, 1, "more"); /* which nobody hears */
        assert_int_equal(h->output.len, 0);
        teardown(&own);
    }
}

/* Beyond what any process can have: it counts as not known. */
static void figures_of_nowhere_are_none(void **state)
{
    struct host *h = *state;
    struct sandbox_usage usage;
    say_hello(h);
    say_text(h, MUX_EXIT, 1, "{\"status\": 99999999, \"rss\": -5, \"cpu\": 1e300, \"oom\": 7}");
    assert_true(h->ended);
    assert_false(h->how.has_status);
    assert_int_equal(h->how.limit, LIMIT_NONE);
    remote_usage(h->sandbox, &usage);
    assert_int_equal(usage.memory_peak, 0);
    assert_true(usage.cpu_seconds == 0);
}

static void why_it_could_not_start_is_shown_safely(void **state)
{
    struct host *h = *state;
    say_hello(h);
    say_text(h, MUX_EXIT, 1, "{\"error\": \"no \\u001b[1mroom\"}");
    assert_int_equal(h->how.error.code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(h->how.error.text, "no \\x1b[1mroom"));
}

static void what_a_closed_worker_says_is_passed_over(void **state)
{
    struct host *h = *state;
    say_hello(h);
    say_text(h, MUX_EXIT, 1, "{\"status\": 0}");
    say_text(h, MUX_OUTPUT, 1, "a ghost");
    say_text(h, MUX_EXIT, 1, "{\"status\": 9}");
    assert_int_equal(h->output.len, 0);
    assert_int_equal(h->how.wait_status, 0);
    assert_false(h->failed);
}

/* What it has no credit for waits; each credit lets as much go. */
static void no_more_than_the_credit_is_sent(void **state)
{
    enum { LEN = 3 << 20 };
    struct host *h = *state;
    cleanup_free char *data = calloc(1, LEN);
    struct iovec iov = { data, LEN };
    say_hello(h);
    size_t before = h->written;
    assert_ok(remote_send(h->sandbox, &iov, 1, -1, err));
    assert_true(h->written - before < MUX_CREDIT + MUX_CREDIT / 100);
    assert_fails(ERROR_UNSUPPORTED, remote_send(h->sandbox, &iov, 1, dup(0), err));
}

/* It says that it has taken what still waits to be sent to it: credit for more would have the host
 * keep all of that. */
static void credit_for_what_was_not_read_ends_it(void **state)
{
    enum { LEN = MUX_CREDIT };
    struct host *h = *state;
    cleanup_free char *data = calloc(1, LEN);
    struct iovec iov = { data, LEN };
    say_hello(h);
    h->unsent = 15 << 20; /* a slow way is no crime */
    assert_ok(remote_send(h->sandbox, &iov, 1, -1, err));
    assert_false(h->failed);
    h->unsent = 17 << 20;
    assert_ok(remote_send(h->sandbox, &iov, 1, -1, err));
    h->acked = MUX_CREDIT / 2;
    say_message(h, MUX_CREDIT_MORE, 1, "\0\0\1", 4);
    assert_failed(h);
    assert_non_null(strstr(h->why.text, "acknowledges data that it does not read"));
}

/* While a session holds its guest, the supervisor is told so, once for each time. */
static void a_worker_that_is_stopped_is_reported(void **state)
{
    struct host *h = *state;
    say_hello(h);
    for (int on = 1; on >= 0; on--) {
        remote_hold_channel(h->sandbox, on);
        const char *message = h->last.data + h->last.len - MUX_HEADER_SIZE - 1;
        assert_int_equal(message[0], MUX_HOLD);
        assert_int_equal(message[MUX_HEADER_SIZE], on);
    }
}

/* Endless noise instead of the word is not kept; the last of it can be shown. */
static void noise_is_bounded_and_shown(void **state)
{
    struct host *h = *state;
    cleanup_buf struct buf shown = { 0 };
    for (int i = 0; i < 10000; i++)
        remote_feed(h->remote, "some banner \a of theirs\n", 24);
    remote_noise(h->remote, &shown);
    assert_true(shown.len < 1000);
    assert_non_null(strstr(shown.data, "\\x07"));
    say_word(h);
    assert_false(h->failed);
    assert_true(h->written > 10000); /* the guest */
}

static void words_that_are_none_are_refused(void **state)
{
    static const char *const words[] = { "\x1e"
                                         "DROSTE \n",
        "\x1e"
        "DROSTE zz 3\n",
        "\x1e"
        "DROSTE - an old one\n",
        "\x1e"
        "DROSTE 00" };
    for (size_t i = 0; i < array_length(words); i++) {
        void *own = NULL;
        setup(&own);
        struct host *h = own;
        remote_feed(h->remote, words[i], strlen(words[i]));
        for (int more = 0; more < 1000 && !h->failed; more++)
            remote_feed(h->remote, "00", 2); /* without an end */
        assert_true(h->failed);
        assert_int_equal(h->why.code, ERROR_ENVIRONMENT);
        assert_int_equal(h->written, 0);
        teardown(&own);
    }
}

/* A supervisor that does not say EXIT when it is told to: ten seconds later the worker counts as
 * gone. */
static void a_kill_that_is_not_answered_is_taken_as_done(void **state)
{
    struct host *h = *state;
    say_hello(h);
    remote_kill(h->sandbox);
    assert_false(h->ended);
    assert_ok(loop_run_until(h->loop, &h->ended, err));
    assert_false(h->how.has_status);
    say_text(h, MUX_EXIT, 1, "{\"status\": 9}");
    assert_false(h->failed);
}

static void nothing_can_be_opened_in_what_is_gone(void **state)
{
    struct host *h = *state;
    struct sandbox_exit how = { 0 };
    struct sandbox_spec spec = { .isolation = ISOLATION_PROCESS };
    struct sandbox_events none = { on_bytes, on_output, on_ended };
    struct sandbox *s = NULL;
    error_set(&how.error, ERROR_LOST, "the machine is gone");
    remote_ended(h->remote, &how);
    assert_true(h->ended);
    assert_string_equal(h->how.error.text, "the machine is gone");
    assert_fails(ERROR_LOST, remote_open_sandbox(h->remote, &spec, &none, h, &s, err));
    struct iovec iov = { (void *)(uintptr_t) "x", 1 };
    assert_ok(remote_send(h->sandbox, &iov, 1, -1, err));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_honest_one_is_heard),
        cmocka_unit_test(messages_that_do_not_fit_are_refused),
        T(figures_of_nowhere_are_none),
        T(why_it_could_not_start_is_shown_safely),
        T(what_a_closed_worker_says_is_passed_over),
        T(no_more_than_the_credit_is_sent),
        T(credit_for_what_was_not_read_ends_it),
        T(a_worker_that_is_stopped_is_reported),
        T(noise_is_bounded_and_shown),
        cmocka_unit_test(words_that_are_none_are_refused),
        T(a_kill_that_is_not_answered_is_taken_as_done),
        T(nothing_can_be_opened_in_what_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
