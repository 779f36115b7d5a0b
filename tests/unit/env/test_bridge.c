/* A bridge's messages, from a shell script in its place: what it says about one sandbox concerns
 * that one, and what is not a message ends all that it has, with a reason. */
#include "../test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "env/common/environment.h"

enum { SANDBOXES = 2, DEADLINE_SECONDS = 30 };

static struct {
    struct loop *loop;
    char path[64];
    struct buf notices;
    uint64_t asked; /* features of both sandboxes */
    struct sandbox *sandboxes[SANDBOXES];
    struct error errors[SANDBOXES];
    bool ended[SANDBOXES];
} f;

static bool on_bytes(void *arg, const char *data, size_t len)
{
    return false;
}

static void on_output(void *arg, int stream, const char *data, size_t len)
{
}

static void on_ended(void *arg, const struct sandbox_exit *how)
{
    size_t i = (size_t)((struct error *)arg - f.errors);
    assert_false(f.ended[i]); /* once */
    f.ended[i] = true;
    f.errors[i] = how->error;
}

static void on_notice(void *arg, const char *text)
{
    buf_printf(&f.notices, "%s;", text);
}

/* What the script prints after it has got the requests for all sandboxes; then it waits for the end
 * of its input. */
static void write_bridge(const char *text)
{
    snprintf(f.path, sizeof f.path, "/tmp/droste-bridge-XXXXXX");
    int fd = mkstemp(f.path);
    assert_true(fd >= 0);
    dprintf(fd,
        "#!/bin/sh\nread -r a\nread -r b\ncat <<'END'\n%s\nEND\nwhile read -r a; do :; done\n",
        text);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
}

/* Runs two sandboxes of a bridge until `enough` of them have ended. */
static void run(const char *text, size_t enough)
{
    static const struct sandbox_events events = {
        .bytes = on_bytes, .output = on_output, .ended = on_ended
    };
    struct sandbox_spec spec = { .limits = jail_default_limits, .asked = f.asked };
    struct environment *env = NULL;
    char name[80];
    uint64_t begun = clock_ns();
    memset(f.ended, 0, sizeof f.ended);
    memset(f.errors, 0, sizeof f.errors);
    buf_clear(&f.notices);
    if (text)
        write_bridge(text);
    snprintf(name, sizeof name, "bridge:%s", f.path);
    assert_ok(environment_open(name, f.loop, NULL, &env, err));
    environment_on_notice(env, on_notice, NULL);
    for (size_t i = 0; i < SANDBOXES; i++)
        assert_ok(
            environment_ops_of(env)->open(env, &spec, &events, &f.errors[i], &f.sandboxes[i], err));
    while ((size_t)(f.ended[0] + f.ended[1]) < enough) {
        assert_true(clock_seconds_since(begun) < DEADLINE_SECONDS);
        loop_turn(f.loop, 100);
    }
    for (size_t i = 0; i < SANDBOXES; i++)
        environment_ops_of(env)->close(f.sandboxes[i]);
    environment_close(env);
    unlink(f.path);
}

static int bridge_setup(void **state)
{
    memset(&f, 0, sizeof f);
    return loop_open(&f.loop, &(struct error){ 0 });
}

static int bridge_teardown(void **state)
{
    loop_close(f.loop);
    buf_free(&f.notices);
    return 0;
}

static void says(size_t i, int code, const char *words)
{
    if (f.errors[i].code != code || !strstr(f.errors[i].text, words))
        fail_msg("sandbox %zu: %s: %s", i, error_code_name(f.errors[i].code), f.errors[i].text);
}

/* A sandbox that cannot start says why, in the program's words and with its kind of error. */
static void one_sandbox_ends_alone(void **state)
{
    run("{\"bridge\": 1}\n{\"notice\": 2, \"text\": \"making an image\"}\n"
        "{\"ended\": 2, \"why\": \"no such image\", \"kind\": \"permission\"}",
        1);
    assert_true(f.ended[1] && !f.ended[0]);
    says(1, ERROR_PERMISSION, "no such image");
    assert_string_equal(buf_text(&f.notices), "making an image;");
}

static void messages_about_no_sandbox_are_ignored(void **state)
{
    run("{\"bridge\": 1}\n{\"joined\": 77}\n{\"lost\": 77}\n{\"closed\": 1}\n"
        "{\"read\": 77, \"bytes\": 4}\nabc\n{\"ended\": 77, \"why\": \"x\"}\n"
        "{\"ended\": 1, \"why\": \"the last\"}",
        1);
    assert_true(f.ended[0] && !f.ended[1]);
    says(0, ERROR_ENVIRONMENT, "the last");
}

static void what_is_no_message_ends_all(void **state)
{
    static const char *const lines[] = { "hello", "[1]", "{}", "{\"unknown\": 1}",
        "{\"read\": 1, \"bytes\": -1}", "{\"joined\": 0}", "{\"bridge\": 1}\n{\"bridge\": 1}" };
    for (size_t i = 0; i < array_length(lines); i++) {
        run(lines[i], SANDBOXES);
        for (size_t s = 0; s < SANDBOXES; s++)
            says(s, ERROR_ENVIRONMENT, "sent a line that is not a message");
    }
}

static void a_line_without_an_end_ends_all(void **state)
{
    cleanup_buf struct buf line = { 0 };
    for (int i = 0; i < 40000; i++)
        buf_puts(&line, "12345678901234567890123456789012345678901234567890");
    run(buf_text(&line), SANDBOXES);
    says(0, ERROR_ENVIRONMENT, "sent a line that is too long");
}

/* The greeting says what the program can do; the rest is refused by the name of its setting. */
static void a_feature_that_was_not_declared_is_refused(void **state)
{
    f.asked = (uint64_t)1 << FEATURE_GPUS;
    run("{\"bridge\": 1, \"features\": {\"image\": true}}", SANDBOXES);
    says(0, ERROR_UNSUPPORTED, "gpus");
    run("{\"bridge\": 1, \"features\": {\"gpus\": \"A100\"}}\n{\"ended\": 1, \"why\": \"all are taken\"}",
        1);
    says(0, ERROR_ENVIRONMENT, "all are taken");
    assert_false(f.ended[1]);
}

static void a_program_that_ends_takes_its_sandboxes_with_it(void **state)
{
    write_bridge("");
    FILE *script = fopen(f.path, "w");
    assert_non_null(script);
    fputs("#!/bin/sh\necho 'the token has expired' >&2\nexit 3\n", script);
    fclose(script);
    run(NULL, SANDBOXES);
    says(0, ERROR_LOST, "ended with status 3");
    says(1, ERROR_LOST, "the token has expired");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, bridge_setup, bridge_teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_sandbox_ends_alone),
        TEST(messages_about_no_sandbox_are_ignored),
        TEST(what_is_no_message_ends_all),
        TEST(a_line_without_an_end_ends_all),
        TEST(a_feature_that_was_not_declared_is_refused),
        TEST(a_program_that_ends_takes_its_sandboxes_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
