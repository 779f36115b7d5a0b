/* SHA-256: the standard's own answers (FIPS 180-4, appendix B of 180-2), and bytes of any kind. */
#include "../test.h"

#include "base/hash.h"

static void assert_hash(const void *data, size_t len, const char *expected)
{
    char out[HASH_TEXT_SIZE];
    memset(out, '!', sizeof out);
    assert_ok(hash_sha256(data, len, out, err));
    assert_string_equal(out, expected);
}

/* The published answers come out, the empty text's too. */
static void gives_the_published_answers(void **state)
{
    assert_hash("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_hash(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_hash("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* A million letters: more than one block, more than one buffer. */
static void hashes_what_is_long(void **state)
{
    char *text = malloc(1000000);
    memset(text, 'a', 1000000);
    assert_hash(text, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(text);
}

/* A NUL is a byte like the others. */
static void does_not_stop_at_a_nul(void **state)
{
    char with[HASH_TEXT_SIZE], without[HASH_TEXT_SIZE];
    assert_ok(hash_sha256("a\0b", 3, with, err));
    assert_ok(hash_sha256("a\0c", 3, without, err));
    assert_string_not_equal(with, without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_answers),
        cmocka_unit_test(hashes_what_is_long),
        cmocka_unit_test(does_not_stop_at_a_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
