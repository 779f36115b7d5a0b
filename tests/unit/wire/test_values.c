/* The host's check of containers of typed values, against hostile ones. */
#include "../test.h"

#include "wire/values.h"

#include <endian.h>

#include "base/buf.h"
#include "base/cleanup.h"

struct slot {
    uint64_t offset, length;
};

static void put32(struct buf *out, uint32_t n)
{
    n = htole32(n);
    buf_append(out, &n, sizeof n);
}

static void put64(struct buf *out, uint64_t n)
{
    n = htole64(n);
    buf_append(out, &n, sizeof n);
}

/* A container with this head, whatever follows. */
static void put_head(struct buf *out, uint32_t version, uint32_t count, uint64_t tree)
{
    put32(out, version);
    put32(out, count);
    put64(out, tree);
}

static int check_slots_of(const struct slot *slots, size_t count, size_t data, struct error *err)
{
    cleanup_buf struct buf c = { 0 };
    put_head(&c, VALUES_VERSION, (uint32_t)count, 4);
    for (size_t i = 0; i < count; i++) {
        put64(&c, slots[i].offset);
        put64(&c, slots[i].length);
    }
    buf_puts(&c, "null");
    for (size_t i = 0; i < data; i++)
        buf_putc(&c, 'x');
    return values_check(c.data, c.len, err);
}

static int check_tree(const char *tree, size_t len, struct error *err)
{
    cleanup_buf struct buf c = { 0 };
    put_head(&c, VALUES_VERSION, 0, len);
    buf_append(&c, tree, len);
    return values_check(c.data, c.len, err);
}

static void refuse_tree(const char *tree)
{
    struct error err = { 0 };
    assert_true(check_tree(tree, strlen(tree), &err) < 0);
    assert_true(err.text[0] != '\0');
}

static void refuse_slots(const struct slot *slots, size_t count, size_t data)
{
    struct error err = { 0 };
    assert_int_equal(check_slots_of(slots, count, data, &err), -(int)ERROR_PROTOCOL);
    assert_non_null(strstr(err.text, "is not within it"));
}

static void a_tree_without_buffers_is_accepted(void **state)
{
    assert_ok(check_tree("{\"$droste\":[\"tuple\",1,2]}", 25, err));
    assert_ok(check_tree("1", 1, err));
}

static void buffers_in_order_are_accepted(void **state)
{
    /* three slots: the data begins at 68 */
    static const struct slot slots[] = { { 68, 2 }, { 70, 0 }, { 72, 8 } };
    assert_ok(check_slots_of(slots, 3, 12, err));
}

static void every_shortened_container_is_refused(void **state)
{
    cleanup_buf struct buf c = { 0 };
    put_head(&c, VALUES_VERSION, 1, 4);
    put64(&c, 36);
    put64(&c, 8);
    buf_puts(&c, "null12345678");
    assert_ok(values_check(c.data, c.len, err));
    for (size_t len = 0; len < c.len; len++) {
        struct error err = { 0 };
        cleanup_free char *copy = malloc(len + 1); /* a read beyond it is seen by a sanitizer */
        memcpy(copy, c.data, len);
        assert_int_equal(values_check(copy, len, &err), -(int)ERROR_PROTOCOL);
    }
}

static void another_version_is_refused(void **state)
{
    static const uint32_t versions[] = { 0, 2, UINT32_MAX };
    for (size_t i = 0; i < 3; i++) {
        cleanup_buf struct buf c = { 0 };
        struct error err = { 0 };
        put_head(&c, versions[i], 0, 4);
        buf_puts(&c, "null");
        assert_int_equal(values_check(c.data, c.len, &err), -(int)ERROR_PROTOCOL);
        assert_non_null(strstr(err.text, "version"));
    }
}

/* Lengths and counts whose sums overflow 64 bits are as false as others. */
static void lengths_beyond_the_container_are_refused(void **state)
{
    static const uint64_t trees[] = { 5, UINT32_MAX, UINT64_MAX - 15, UINT64_MAX };
    static const uint32_t counts[] = { 1, 1 << 28, UINT32_MAX };
    for (size_t i = 0; i < 4; i++) {
        cleanup_buf struct buf c = { 0 };
        put_head(&c, VALUES_VERSION, 0, trees[i]);
        buf_puts(&c, "null");
        assert_int_equal(values_check(c.data, c.len, NULL), -(int)ERROR_PROTOCOL);
    }
    for (size_t i = 0; i < 3; i++) {
        cleanup_buf struct buf c = { 0 };
        put_head(&c, VALUES_VERSION, counts[i], 4);
        buf_puts(&c, "null");
        assert_int_equal(values_check(c.data, c.len, NULL), -(int)ERROR_PROTOCOL);
    }
}

static void buffers_outside_of_the_container_are_refused(void **state)
{
    /* one slot: the data begins at 36 */
    static const struct slot outside[] = { { 0, 1 }, { 35, 1 }, { 36, 9 }, { 44, 1 }, { 45, 0 },
        { 36, UINT64_MAX }, { UINT64_MAX, 0 }, { UINT64_MAX - 3, 8 }, { UINT64_MAX, UINT64_MAX } };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        refuse_slots(&outside[i], 1, 8);
    assert_ok(check_slots_of(&(struct slot){ 36, 8 }, 1, 8, err));
    assert_ok(check_slots_of(&(struct slot){ 44, 0 }, 1, 8, err));
}

static void buffers_that_overlap_or_go_back_are_refused(void **state)
{
    /* two slots: the data begins at 52 */
    refuse_slots((struct slot[]){ { 52, 4 }, { 55, 1 } }, 2, 8);
    refuse_slots((struct slot[]){ { 56, 4 }, { 52, 4 } }, 2, 8);
    refuse_slots((struct slot[]){ { 52, 8 }, { 52, 8 } }, 2, 8);
    assert_ok(check_slots_of((struct slot[]){ { 52, 4 }, { 56, 4 } }, 2, 8, err));
}

static void a_tree_that_is_not_strict_json_is_refused(void **state)
{
    static const char *const trees[] = { "", "nul", "NaN", "Infinity", "-Infinity", "{", "[1,]",
        "{\"a\":1,}", "1 2", "'a'", "[1] // one", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\\ud800\"",
        "\"\x01\"", "01", "1.", "+1" };
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        refuse_tree(trees[i]);
    assert_true(check_tree("\"a\0b\"", 5, NULL) < 0);
}

static void a_tree_that_is_too_deep_is_refused(void **state)
{
    cleanup_buf struct buf deep = { 0 };
    for (int i = 0; i < 1000000; i++)
        buf_putc(&deep, '[');
    assert_true(check_tree(deep.data, deep.len, NULL) < 0);
    assert_ok(check_tree("[[[[[[[[[[[[]]]]]]]]]]]]", 24, err));
}

static void a_tree_with_too_many_nodes_is_refused(void **state)
{
    cleanup_buf struct buf many = { 0 };
    buf_puts(&many, "[0");
    for (int i = 0; i < 5000000; i++)
        buf_puts(&many, ",0");
    buf_putc(&many, ']');
    assert_true(check_tree(many.data, many.len, NULL) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_without_buffers_is_accepted),
        cmocka_unit_test(buffers_in_order_are_accepted),
        cmocka_unit_test(every_shortened_container_is_refused),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(lengths_beyond_the_container_are_refused),
        cmocka_unit_test(buffers_outside_of_the_container_are_refused),
        cmocka_unit_test(buffers_that_overlap_or_go_back_are_refused),
        cmocka_unit_test(a_tree_that_is_not_strict_json_is_refused),
        cmocka_unit_test(a_tree_that_is_too_deep_is_refused),
        cmocka_unit_test(a_tree_with_too_many_nodes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
