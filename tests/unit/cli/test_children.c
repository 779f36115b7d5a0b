/* The tree of child runs: which of them a screen shows, and in which order. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/terminal/children.h"

static struct children *children;
static struct screen screen;
static struct buf drawing;

static int children_begin(void **state)
{
    screen = (struct screen){ .utf8 = true, .visible = true };
    children = children_new();
    return children ? 0 : -1;
}

static int children_end(void **state)
{
    children_free(children);
    buf_free(&drawing);
    return 0;
}

#define children_test(f) cmocka_unit_test_setup_teardown(f, children_begin, children_end)

static void child(unsigned parent, uint64_t number, const char *prompt)
{
    assert_true(children_take(children, &(droste_event){ .kind = "child",
                                            .run = parent,
                                            .call = number,
                                            .text = prompt,
                                            .len = strlen(prompt) }));
}

static void child_ends(uint64_t number, const char *status, const char *why)
{
    assert_true(children_take(children, &(droste_event){ .kind = "child_end",
                                            .call = number,
                                            .status = status,
                                            .text = why,
                                            .len = strlen(why) }));
}

static bool does(unsigned run, const char *kind)
{
    return children_take(
        children, &(droste_event){ .kind = kind, .run = run, .turn = 2, .turns = 8, .text = "" });
}

/* Without times, which differ from run to run: "0.1 s" becomes "T". */
static void keep_line(void *arg, const char *line, size_t columns)
{
    for (const char *at = line; *at; at++) {
        int n = 0;
        sscanf(at, "%*[0-9].%*[0-9] s%n", &n);
        if (n == 0) {
            buf_putc(&drawing, *at);
            continue;
        }
        buf_putc(&drawing, 'T');
        at += n - 1;
    }
    buf_putc(&drawing, '\n');
}

static void draws(size_t rows, size_t columns, const char *expected)
{
    buf_clear(&drawing);
    children_draw(children, &screen, rows, columns, keep_line, NULL);
    assert_string_equal(buf_text(&drawing), expected);
}

static void each_run_stands_below_its_parent(void **state)
{
    child(0, 1, "first");
    child(0, 2, "second");
    child(1, 3, "below the first");
    does(3, "cell");
    draws(10, 80,
        "  ├─ starts, T: first\n"
        "  │  └─ turn 2/8 runs code, T: below the first\n"
        "  └─ starts, T: second\n");
    screen.utf8 = false;
    draws(10, 80,
        "  |- starts, T: first\n"
        "  |  `- turn 2/8 runs code, T: below the first\n"
        "  `- starts, T: second\n");
}

static void a_run_that_failed_has_its_error(void **state)
{
    child(0, 1, "asked");
    child(0, 2, "asked, too");
    child_ends(1, "answered", "the answer is not shown");
    child_ends(2, "budget", "no calls are left");
    draws(10, 80,
        "  ├─ answered in T: asked\n"
        "  └─ budget in T: no calls are left\n");
}

static void what_a_run_does_follows_its_events(void **state)
{
    static const char *const steps[][2] = { { "turn", "asks the model" }, { "cell", "runs code" },
        { "result", "reads output" }, { "retry", "waits to ask again" },
        { "reply", "waits to ask again" } };
    child(0, 1, "q");
    for (size_t i = 0; i < array_length(steps); i++) {
        cleanup_buf struct buf expected = { 0 };
        assert_true(does(1, steps[i][0]));
        buf_printf(&expected, "  └─ turn 2/8 %s, T: q\n", steps[i][1]);
        draws(10, 80, buf_text(&expected));
    }
}

/* Those at work come first, with their parents, then the ones that ended last. */
static void a_small_screen_shows_those_at_work(void **state)
{
    child(0, 1, "one");
    child(0, 2, "two");
    child(2, 3, "of two");
    child(0, 4, "four");
    child_ends(1, "answered", "");
    child_ends(2, "answered", "");
    child_ends(4, "answered", "");
    draws(3, 80,
        "  ├─ answered in T: two\n"
        "  │  └─ starts, T: of two\n"
        "  └─ 2 more child runs\n");
    child(0, 5, "five");
    child(0, 6, "six");
    draws(2, 80,
        "  ├─ starts, T: six\n"
        "  └─ 5 more child runs, 2 at work\n");
    draws(0, 80, "  └─ 6 more child runs, 3 at work\n");
}

/* Its own events, and those of runs that are not known, are not taken for a child's. */
static void other_events_change_nothing(void **state)
{
    child(0, 1, "q");
    assert_false(does(0, "turn"));
    assert_true(does(7, "turn"));
    child_ends(7, "error", "never began");
    draws(10, 80, "  └─ starts, T: q\n");
    children_clear(children);
    draws(10, 80, "");
}

static void a_long_prompt_is_cut_between_characters(void **state)
{
    cleanup_buf struct buf prompt = { 0 };
    buf_putc(&prompt, 'x');
    for (int i = 0; i < 200; i++)
        buf_puts(&prompt, "\xC3\xA9");
    child(0, 1, buf_text(&prompt));
    buf_clear(&drawing);
    children_draw(children, &screen, 10, 400, keep_line, NULL);
    assert_int_equal(text_utf8_floor(buf_text(&drawing), drawing.len, drawing.len), drawing.len);
    assert_null(strstr(buf_text(&drawing), "\\x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        children_test(each_run_stands_below_its_parent),
        children_test(a_run_that_failed_has_its_error),
        children_test(what_a_run_does_follows_its_events),
        children_test(a_small_screen_shows_those_at_work),
        children_test(other_events_change_nothing),
        children_test(a_long_prompt_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
