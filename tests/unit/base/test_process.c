/* Communicating with a program over its standard streams. */
#include "../test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/process.h"

struct talk {
    struct loop *loop;
    struct process p;
    struct buf output;
    bool over; /* its output has ended */
    bool gone; /* the process has */
    bool both;
};

static void take_output(void *arg, int status, int events)
{
    struct talk *t = arg;
    char bytes[4096];
    ssize_t n;
    while ((n = read(t->p.out, bytes, sizeof bytes)) > 0)
        buf_append(&t->output, bytes, (size_t)n);
    t->over = t->over || n == 0;
    if (t->over)
        watch_events(t->p.out_watch, 0);
    t->both = t->over && t->gone;
}

static void take_end(void *arg, int status, int events)
{
    struct talk *t = arg;
    t->gone = true;
    watch_events(t->p.exit_watch, 0);
    t->both = t->over && t->gone;
}

static int talk_open(void **state)
{
    static struct talk t;
    t = (struct talk){ 0 };
    struct error err;
    process_init(&t.p);
    *state = &t;
    return loop_open(&t.loop, &err);
}

static int talk_close(void **state)
{
    struct talk *t = *state;
    process_free(&t->p);
    buf_free(&t->output);
    loop_close(t->loop);
    return 0;
}

#define talk_test(f) cmocka_unit_test_setup_teardown(f, talk_open, talk_close)

static void start_shell(struct talk *t, const char *script)
{
    const char *words[] = { "-c", script, NULL };
    t->p.words = words;
    assert_ok(
        process_start(&t->p, t->loop, "/bin/sh", "the program ", take_output, take_end, t, err));
    assert_true(t->p.pid > 0);
}

static void run_to_its_end(struct talk *t)
{
    assert_ok(loop_run_until(t->loop, &t->both, err));
}

/* What was to be sent arrives whole, also where it is more than a socket holds, and its input ends
 * when that is sent. Its answer and its exit status come back. */
static void it_gets_its_input_and_gives_its_output(void **state)
{
    struct talk *t = *state;
    enum { MANY = 3 << 20 };
    start_shell(t, "wc -c; exit 7");
    t->p.close_when_sent = true;
    for (unsigned i = 0; i < MANY / 16; i++)
        buf_append(&t->p.to_send, "0123456789abcdef", 16);
    assert_int_equal(process_send(&t->p), 0);
    run_to_its_end(t);
    assert_int_equal(atoi(buf_text(&t->output)), MANY);
    assert_int_equal(WEXITSTATUS(process_end(&t->p, 0)), 7);
    assert_int_equal(t->p.pid, 0);
}

/* The last line of its complaints explains its end, without control characters; a long text before
 * it is not kept. */
static void its_last_words_are_kept(void **state)
{
    struct talk *t = *state;
    char words[PROCESS_WORDS_SIZE];
    process_last_words(&t->p, words);
    assert_string_equal(words, "");
    start_shell(
        t, "yes early | head -c 100000 >&2; printf '\\nno \\033[31mkey\\n\\n ' >&2; exit 1");
    run_to_its_end(t);
    process_read_complaints(&t->p);
    process_end(&t->p, 0);
    assert_true(t->p.tail.len <= 2048);
    process_last_words(&t->p, words);
    assert_null(strchr(words, '\033'));
    assert_memory_equal(words, ": no ", 5);
    assert_non_null(strstr(words, "key"));
    assert_null(strstr(words, "early"));
}

/* A last line that is too long is cut between characters, not within one. */
static void long_last_words_are_cut(void **state)
{
    struct talk *t = *state;
    char words[PROCESS_WORDS_SIZE];
    for (unsigned i = 0; i < 100; i++)
        buf_puts(&t->p.tail, "\xE2\x82\xAC"); /* three bytes each; 100 are not a multiple */
    process_last_words(&t->p, words);
    assert_int_equal(strlen(words), 2 + 99);
    assert_memory_equal(words + strlen(words) - 3, "\xE2\x82\xAC", 3);
}

/* Its whole group ends with it: also a child that would go on. */
static void its_children_end_with_it(void **state)
{
    struct talk *t = *state;
    bool never = false;
    start_shell(t, "sleep 1000 & echo $!; wait");
    while (t->output.len == 0 || t->output.data[t->output.len - 1] != '\n')
        assert_true(loop_wait_soon(t->loop, &never, &never, 10, NULL) >= 0);
    pid_t child = atoi(buf_text(&t->output));
    assert_int_equal(kill(child, 0), 0);
    assert_int_equal(WTERMSIG(process_end(&t->p, 0)), SIGKILL);
    run_to_its_end(t); /* its output ends when the last process that has it is gone */
}

/* A program that ends when it is asked to is not killed, and its own status is known. */
static void it_may_end_by_itself_when_asked(void **state)
{
    struct talk *t = *state;
    bool never = false;
    start_shell(t, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done");
    while (t->output.len < 6)
        assert_true(loop_wait_soon(t->loop, &never, &never, 10, NULL) >= 0);
    int status = process_end(&t->p, 60000);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 9);
}

/* A program that does not read has its input closed under the writer: that is not a signal, and no
 * end of the host. */
static void a_closed_input_is_no_signal(void **state)
{
    struct talk *t = *state;
    start_shell(t, "exec <&-; echo gone");
    run_to_its_end(t);
    buf_puts(&t->p.to_send, "text");
    process_send_now(&t->p);
    process_end(&t->p, 0);
    assert_string_equal(buf_text(&t->output), "gone\n");
}

/* A missing program is an error with its name, and leaves nothing open. */
static void a_missing_program_leaves_nothing(void **state)
{
    struct talk *t = *state;
    assert_fails(ERROR_NOT_FOUND,
        process_start(&t->p, t->loop, "/not/there", "the program ", take_output, take_end, t, err));
    assert_int_equal(t->p.in, -1);
    assert_int_equal(t->p.out, -1);
    assert_int_equal(t->p.complaints, -1);
    assert_null(t->p.exit_watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        talk_test(it_gets_its_input_and_gives_its_output),
        talk_test(its_last_words_are_kept),
        talk_test(long_last_words_are_cut),
        talk_test(its_children_end_with_it),
        talk_test(it_may_end_by_itself_when_asked),
        talk_test(a_closed_input_is_no_signal),
        talk_test(a_missing_program_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
