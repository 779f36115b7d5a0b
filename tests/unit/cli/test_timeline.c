/* Where the time of a run went, as bars of text. */
#include "../test.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/record/timeline.h"

enum { BAR_WIDTH = 38 }; /* of a line of 80 columns */

static void print_to(const struct timeline *t, struct buf *out)
{
    cleanup_fd int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    cleanup_fd int kept = dup(STDOUT_FILENO);
    fflush(stdout);
    assert_true(file >= 0 && kept >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    timeline_print(t);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    assert_ok(file_read_fd(file, "the timeline", 1 << 20, out, err));
}

/* The characters of the bar on this line, from 0. */
static void bar_of(const struct buf *out, unsigned line, char bar[BAR_WIDTH + 1])
{
    const char *at = buf_text((struct buf *)out);
    for (unsigned i = 0; at && i < line; i++)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    at = at ? strchr(at, '|') : NULL;
    assert_non_null(at);
    memcpy(bar, at + 1, BAR_WIDTH);
    bar[BAR_WIDTH] = '\0';
    assert_int_equal(at[1 + BAR_WIDTH], '|');
}

static void a_single_step_is_not_compared(void **state)
{
    struct timeline t = { 0 };
    cleanup_buf struct buf out = { 0 };
    timeline_add(&t, 1, "model", 1000, 2, 0);
    print_to(&t, &out);
    assert_int_equal(out.len, 0);
}

static void bars_share_one_scale(void **state)
{
    struct timeline t = { 0 };
    cleanup_buf struct buf out = { 0 };
    char bar[BAR_WIDTH + 1];
    timeline_add(&t, 1, "model", 1000, 1, 0);
    timeline_add(&t, 1, "cell", 2000, 1, 3);
    print_to(&t, &out);
    assert_non_null(strstr(buf_text(&out), "timeline  2.00 s\n"));
    bar_of(&out, 2, bar);
    assert_string_equal(bar, "###################                   ");
    bar_of(&out, 3, bar);
    assert_string_equal(bar, "                   ###################");
    assert_non_null(strstr(buf_text(&out), "1.000 s, 3 calls\n"));
}

/* Also a step too short for the scale, and one that begins at the end, has a mark. */
static void every_step_has_a_mark(void **state)
{
    struct timeline t = { 0 };
    cleanup_buf struct buf out = { 0 };
    char bar[BAR_WIDTH + 1];
    timeline_add(&t, 1, "model", 0, 100, 1);
    timeline_add(&t, 2, "cell", 10, 0.001, 0);
    timeline_add(&t, 3, "cell", 100000, -1, 0);
    print_to(&t, &out);
    bar_of(&out, 3, bar);
    assert_int_equal(bar[0], '#');
    assert_int_equal(bar[1], ' ');
    bar_of(&out, 4, bar);
    assert_int_equal(bar[BAR_WIDTH - 1], '#');
    assert_non_null(strstr(buf_text(&out), "| not ended\n"));
    assert_non_null(strstr(buf_text(&out), "100.000 s, 1 call\n"));
}

/* Of more steps than there is room for the longest stay, in their order. */
static void the_longest_steps_stay(void **state)
{
    struct timeline t = { 0 };
    cleanup_buf struct buf out = { 0 };
    for (int i = 0; i < TIMELINE_BARS; i++)
        timeline_add(&t, i, "short", i, i == 5 ? 0.25 : 1, 0);
    timeline_add(&t, 100, "tiny", 0, 0.125, 0);
    assert_int_equal(t.count, TIMELINE_BARS);
    assert_int_equal(t.bars[5].turn, 5);
    timeline_add(&t, 101, "long", 0, 9, 0);
    assert_int_equal(t.count, TIMELINE_BARS);
    assert_int_equal(t.bars[5].turn, 6);
    assert_int_equal(t.bars[TIMELINE_BARS - 1].turn, 101);
    print_to(&t, &out);
    assert_non_null(strstr(buf_text(&out), "; the 24 longest of 26 steps\n"));
}

/* A record is a file that anything may have written: a duration of centuries does not overflow. */
static void an_absurd_duration_counts_as_none(void **state)
{
    struct timeline t = { 0 };
    timeline_add(&t, 1, "model", 0, 1e300, 0);
    timeline_add(&t, 2, "cell", 1000, 1, 0);
    assert_true(t.bars[0].seconds == 0);
    assert_int_equal(t.last_ms, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_step_is_not_compared),
        cmocka_unit_test(bars_share_one_scale),
        cmocka_unit_test(every_step_has_a_mark),
        cmocka_unit_test(the_longest_steps_stay),
        cmocka_unit_test(an_absurd_duration_counts_as_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
