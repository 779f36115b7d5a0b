/* Reading the loader's messages however their bytes arrive: after noise, split anywhere, or
 * repeated after an incomplete message. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/remote/boot.h"

#define WORD                                                                                       \
    "\x1e"                                                                                         \
    "DROSTE 00000000 3.11.2\n"

static const struct boot_options options = { .form = LINK_TEXT };

/* The pieces one after the other; how many bytes of the last one were taken. The guest is sent
 * once. */
static size_t feed(const char *first, size_t cut, const char *all, size_t len)
{
    struct remote_boot b = { 0 };
    cleanup_buf struct buf out = { 0 };
    size_t used = 0;
    int rc = 0;
    if (first)
        assert_ok(rc = remote_boot_feed(&b, &options, first, strlen(first), &used, &out, err));
    assert_int_equal(rc, 0);
    assert_ok(rc = remote_boot_feed(&b, &options, all, cut, &used, &out, err));
    if (rc == 0) {
        assert_int_equal(out.len, 0);
        assert_ok(rc = remote_boot_feed(&b, &options, all + cut, len - cut, &used, &out, err));
        used += cut;
    }
    assert_int_equal(rc, 1);
    assert_true(out.len > 1000);
    remote_boot_free(&b);
    return used;
}

/* With a shell's noise before it and the link's bytes behind: cut at every byte, just the word is
 * taken. */
static void test_a_word_in_two_pieces(void **state)
{
    static const char stream[] = "$ exec python3\r\n" WORD "\x1e"
                                 "AAAA\n";
    size_t word = strlen("$ exec python3\r\n" WORD);
    for (size_t cut = 0; cut < sizeof stream; cut++)
        assert_int_equal(feed(NULL, cut, stream, sizeof stream - 1), word);
}

/* So much of it came, then the transport was cut, and the loader was asked to say it again. */
static void test_a_word_that_was_cut_and_sent_again(void **state)
{
    for (size_t n = 1; n < sizeof WORD - 1; n++) {
        char start[sizeof WORD] = "";
        memcpy(start, WORD, n);
        assert_int_equal(feed(start, 5, WORD, sizeof WORD - 1), sizeof WORD - 1);
    }
}

/* A Python that cannot be the guest's says why; so is a word that is none refused, and one without
 * an end. */
static void test_what_is_no_word_is_refused(void **state)
{
    static const char *const rows[] = { "\x1e"
                                        "DROSTE - this is python 2.7\n",
        "\x1e"
        "DROSTE what\n" };
    char endless[1000];
    memset(endless, 'x', sizeof endless);
    memcpy(endless,
        "\x1e"
        "DROSTE ",
        8);
    for (size_t i = 0; i <= array_length(rows); i++) {
        struct remote_boot b = { 0 };
        cleanup_buf struct buf out = { 0 };
        size_t used;
        const char *data = i < array_length(rows) ? rows[i] : endless;
        size_t len = i < array_length(rows) ? strlen(data) : sizeof endless;
        assert_fails(
            ERROR_ENVIRONMENT, remote_boot_feed(&b, &options, data, len, &used, &out, err));
        remote_boot_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_word_in_two_pieces),
        cmocka_unit_test(test_a_word_that_was_cut_and_sent_again),
        cmocka_unit_test(test_what_is_no_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
