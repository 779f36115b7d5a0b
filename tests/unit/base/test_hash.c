/* SHA-256: the standard's examples (FIPS 180-4, appendix B of 180-2), and arbitrary bytes. */
#include "../test.h"

#include <unistd.h>

#include "base/cleanup.h"
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

/* In pieces of any length, the empty one too, the same comes out as at once. */
static void pieces_give_the_same(void **state)
{
    static const char text[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char whole[HASH_TEXT_SIZE], pieces[HASH_TEXT_SIZE];
    assert_ok(hash_sha256(text, sizeof text, whole, err));
    for (size_t step = 1; step < 9; step++) {
        cleanup_hash struct hash hash = { 0 };
        assert_ok(hash_open(&hash, err));
        hash_add(&hash, text, 0);
        for (size_t at = 0; at < sizeof text; at += step)
            hash_add(&hash, text + at, at + step < sizeof text ? step : sizeof text - at);
        assert_ok(hash_take(&hash, pieces, err));
        assert_string_equal(pieces, whole);
    }
}

/* A file has the hash of its bytes, whatever its length; what cannot be read is named. */
static void a_file_has_the_hash_of_its_bytes(void **state)
{
    static const size_t sizes[] = { 0, 1, 16384, 100000 };
    char path[] = "/tmp/droste-hash-XXXXXX", of_file[HASH_TEXT_SIZE], of_bytes[HASH_TEXT_SIZE];
    cleanup_free char *data = calloc(1, 100000);
    cleanup_fd int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < array_length(sizes); i++) {
        assert_int_equal(ftruncate(fd, (off_t)sizes[i]), 0);
        assert_ok(hash_file(path, of_file, err));
        assert_ok(hash_sha256(data, sizes[i], of_bytes, err));
        assert_string_equal(of_file, of_bytes);
    }
    unlink(path);
    assert_fails(ERROR_NOT_FOUND, hash_file(path, of_file, err));
    assert_fails(ERROR_ARGUMENT, hash_file("/tmp", of_file, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_answers),
        cmocka_unit_test(hashes_what_is_long),
        cmocka_unit_test(does_not_stop_at_a_nul),
        cmocka_unit_test(pieces_give_the_same),
        cmocka_unit_test(a_file_has_the_hash_of_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
