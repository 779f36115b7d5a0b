/* The frame decoder and the lists of parts, against what a hostile guest may send. */
#include "../test.h"

#include "wire/frame.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TYPE_A = 19, TYPE_B = 20, HEAD_LIMIT = 1000, BLOB_LIMIT = 1 << 20 };

static const struct frame_rule rules[] = {
    { TYPE_A, HEAD_LIMIT, BLOB_LIMIT, true },
    { TYPE_B, 16, 0, false },
};

/* What came out of a decoder: each frame written down in full, one after the other. */
struct taken {
    struct buf text;
    unsigned count;
    int answer; /* what the receiver returns */
};

static int take(void *arg, const struct frame *f, struct error *err)
{
    struct taken *t = arg;
    t->count++;
    buf_printf(&t->text, "<%u %llu ", f->type, (unsigned long long)f->id);
    buf_append(&t->text, f->head, f->head_len);
    buf_putc(&t->text, '|');
    buf_append(&t->text, f->blob, f->blob_len);
    buf_putc(&t->text, '>');
    return t->answer < 0 ? error_set(err, ERROR_CANCELLED, "the receiver said no") : 0;
}

struct fixture {
    struct frame_decoder decoder;
    struct taken taken;
    struct buf stream;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->decoder = (struct frame_decoder){ .rules = rules, .rule_count = 2 };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    frame_decoder_free(&f->decoder);
    buf_free(&f->taken.text);
    buf_free(&f->stream);
    free(f);
    return 0;
}

static void add_frame(
    struct buf *out, uint8_t type, uint64_t id, const char *head, const char *blob)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = {
        .type = type, .id = id, .head_len = strlen(head), .blob_len = strlen(blob)
    };
    frame_write_header(header, &frame);
    buf_append(out, header, sizeof header);
    buf_puts(out, head);
    buf_puts(out, blob);
}

static int feed(struct fixture *f, const char *data, size_t len, struct error *err)
{
    return frame_feed(&f->decoder, data, len, take, &f->taken, err);
}

static void a_frame_comes_out_as_it_went_in(void **state)
{
    struct fixture *f = *state;
    add_frame(&f->stream, TYPE_A, 0xFEDCBA9876543210u, "{\"a\":1}", "blob");
    assert_ok(feed(f, f->stream.data, f->stream.len, err));
    assert_string_equal(buf_text(&f->taken.text), "<19 18364758544493064720 {\"a\":1}|blob>");
    assert_false(frame_is_partial(&f->decoder));
}

static void the_header_has_the_documented_bytes(void **state)
{
    unsigned char header[FRAME_HEADER_SIZE];
    static const unsigned char expected[FRAME_HEADER_SIZE] = { 1, 4, 1, 0, 0x44, 0x33, 0x22, 0x11,
        8, 7, 6, 5, 4, 3, 2, 1, 0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01 };
    struct frame frame = { .type = FRAME_REPLY,
        .flags = FRAME_FD,
        .id = 0x0102030405060708u,
        .head_len = 0x11223344,
        .blob_len = 0x0123456789ABCDEFu };
    frame_write_header(header, &frame);
    assert_memory_equal(header, expected, sizeof header);
}

static void empty_heads_and_blobs_are_frames_too(void **state)
{
    struct fixture *f = *state;
    add_frame(&f->stream, TYPE_A, 1, "", "");
    add_frame(&f->stream, TYPE_A, 2, "{}", "");
    add_frame(&f->stream, TYPE_A, 3, "", "b");
    assert_ok(feed(f, f->stream.data, f->stream.len, err));
    assert_string_equal(buf_text(&f->taken.text), "<19 1 |><19 2 {}|><19 3 |b>");
}

/* An empty frame is told when its header is complete, not when the next bytes come. */
static void an_empty_frame_is_delivered_at_once(void **state)
{
    struct fixture *f = *state;
    add_frame(&f->stream, TYPE_A, 1, "", "");
    assert_ok(feed(f, f->stream.data, f->stream.len - 1, err));
    assert_int_equal(f->taken.count, 0);
    assert_ok(feed(f, f->stream.data + f->stream.len - 1, 1, err));
    assert_int_equal(f->taken.count, 1);
}

static void the_stream_may_be_cut_at_every_byte(void **state)
{
    struct fixture *f = *state;
    static const char expected[] = "<19 1 {\"x\":2}|first><20 2 {}|><19 3 |><19 4 {}|last>";
    add_frame(&f->stream, TYPE_A, 1, "{\"x\":2}", "first");
    add_frame(&f->stream, TYPE_B, 2, "{}", "");
    add_frame(&f->stream, TYPE_A, 3, "", "");
    add_frame(&f->stream, TYPE_A, 4, "{}", "last");
    for (size_t cut = 0; cut <= f->stream.len; cut++) {
        assert_ok(feed(f, f->stream.data, cut, err));
        assert_ok(feed(f, f->stream.data + cut, f->stream.len - cut, err));
        assert_string_equal(buf_text(&f->taken.text), expected);
        buf_clear(&f->taken.text);
    }
}

static void the_stream_may_come_byte_by_byte(void **state)
{
    struct fixture *f = *state;
    add_frame(&f->stream, TYPE_A, 1, "{}", "one");
    add_frame(&f->stream, TYPE_A, 2, "", "");
    for (size_t i = 0; i < f->stream.len; i++) {
        assert_ok(feed(f, f->stream.data + i, 1, err));
        bool whole = i == FRAME_HEADER_SIZE + 4 || i == f->stream.len - 1;
        assert_int_equal(frame_is_partial(&f->decoder), !whole);
    }
    assert_string_equal(buf_text(&f->taken.text), "<19 1 {}|one><19 2 |>");
}

/* The limits themselves pass; one more does not. */
static void lengths_up_to_the_rule_pass(void **state)
{
    struct fixture *f = *state;
    unsigned char header[FRAME_HEADER_SIZE];
    char *body = calloc(1, HEAD_LIMIT + BLOB_LIMIT);
    struct frame frame = { .type = TYPE_A, .head_len = HEAD_LIMIT, .blob_len = BLOB_LIMIT };
    frame_write_header(header, &frame);
    assert_ok(feed(f, (char *)header, sizeof header, err));
    assert_ok(feed(f, body, HEAD_LIMIT + BLOB_LIMIT, err));
    assert_int_equal(f->taken.count, 1);
    free(body);
}

/* Every bad header is refused with its last byte, and nothing was allocated for its body. */
static void bad_headers_are_refused_before_anything_is_allocated(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *what;
        unsigned char version;
        struct frame frame;
    } bad[] = {
        { "version 0", 0, { .type = TYPE_A } },
        { "version 2", 2, { .type = TYPE_A } },
        { "type 0", 1, { .type = 0 } },
        { "type of the host's", 1, { .type = FRAME_EXEC } },
        { "type 255", 1, { .type = 255 } },
        { "flag FD", 1, { .type = TYPE_A, .flags = FRAME_FD, .blob_len = 1 } },
        { "high flag", 1, { .type = TYPE_A, .flags = 0x8000 } },
        { "head over the rule", 1, { .type = TYPE_A, .head_len = HEAD_LIMIT + 1 } },
        { "head of 4 GiB", 1, { .type = TYPE_A, .head_len = 0xFFFFFFFF } },
        { "blob over the rule", 1, { .type = TYPE_A, .blob_len = BLOB_LIMIT + 1 } },
        { "blob where none may be", 1, { .type = TYPE_B, .blob_len = 1 } },
        { "blob of 2^40", 1, { .type = TYPE_A, .blob_len = (size_t)1 << 40 } },
        { "negative blob", 1, { .type = TYPE_A, .blob_len = SIZE_MAX } },
        { "a sum that wraps", 1, { .type = TYPE_A, .head_len = 2, .blob_len = SIZE_MAX - 1 } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned char header[FRAME_HEADER_SIZE];
        struct error err = { 0 };
        struct frame_decoder d = { .rules = rules, .rule_count = 2 };
        frame_write_header(header, &bad[i].frame);
        header[0] = bad[i].version;
        assert_int_equal(
            frame_feed(&d, (char *)header, FRAME_HEADER_SIZE - 1, take, &f->taken, &err), 0);
        int rc = frame_feed(&d, (char *)header + FRAME_HEADER_SIZE - 1, 1, take, &f->taken, &err);
        if (rc != -(int)ERROR_PROTOCOL || err.code != ERROR_PROTOCOL)
            fail_msg("%s was let in (%d)", bad[i].what, rc);
        assert_null(d.body.data);
        frame_decoder_free(&d);
    }
    assert_int_equal(f->taken.count, 0);
}

/* A claim of a large blob costs nothing until its bytes come. */
static void memory_grows_with_what_arrives(void **state)
{
    struct fixture *f = *state;
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = { .type = TYPE_A, .blob_len = BLOB_LIMIT };
    frame_write_header(header, &frame);
    assert_ok(feed(f, (char *)header, sizeof header, err));
    assert_ok(feed(f, "0123456789", 10, err));
    assert_true(frame_is_partial(&f->decoder));
    assert_true(f->decoder.body.cap < 4096);
}

static void the_memory_of_a_large_frame_is_released(void **state)
{
    struct fixture *f = *state;
    char *large = malloc(BLOB_LIMIT);
    memset(large, 'x', BLOB_LIMIT - 1);
    large[BLOB_LIMIT - 1] = '\0';
    add_frame(&f->stream, TYPE_A, 1, "", large);
    add_frame(&f->stream, TYPE_A, 2, "", "small");
    size_t small = FRAME_HEADER_SIZE + 5;
    assert_ok(feed(f, f->stream.data, f->stream.len - small, err));
    assert_null(f->decoder.body.data);
    assert_ok(feed(f, f->stream.data + f->stream.len - small, small, err));
    assert_non_null(f->decoder.body.data);
    assert_int_equal(f->taken.count, 2);
    free(large);
}

static void what_the_receiver_returns_ends_the_feeding(void **state)
{
    struct fixture *f = *state;
    add_frame(&f->stream, TYPE_A, 1, "", "");
    add_frame(&f->stream, TYPE_A, 2, "", "");
    f->taken.answer = -1;
    assert_fails(ERROR_CANCELLED, feed(f, f->stream.data, f->stream.len, err));
    assert_int_equal(f->taken.count, 1);
}

/* ---- parts ---- */

static void write_parts(struct buf *out, const char *const *parts, size_t count)
{
    size_t lengths[8];
    for (size_t i = 0; i < count; i++)
        lengths[i] = strlen(parts[i]);
    frame_parts_begin(out, lengths, count);
    for (size_t i = 0; i < count; i++)
        buf_puts(out, parts[i]);
}

static void parts_come_out_as_they_went_in(void **state)
{
    struct fixture *f = *state;
    static const char *const words[] = { "one", "", "three" };
    struct frame_parts parts;
    const char *data;
    size_t len;
    write_parts(&f->stream, words, 3);
    assert_ok(frame_parts_open(f->stream.data, f->stream.len, 3, &parts, err));
    for (size_t i = 0; i < 3; i++) {
        assert_true(frame_parts_next(&parts, &data, &len));
        assert_int_equal(len, strlen(words[i]));
        assert_memory_equal(data, words[i], len);
    }
    assert_false(frame_parts_next(&parts, &data, &len));
    assert_false(frame_parts_next(&parts, &data, &len));
}

static void no_parts_are_a_list_too(void **state)
{
    struct fixture *f = *state;
    struct frame_parts parts;
    const char *data;
    size_t len;
    frame_parts_begin(&f->stream, NULL, 0);
    assert_int_equal(f->stream.len, 4);
    assert_ok(frame_parts_open(f->stream.data, f->stream.len, 0, &parts, err));
    assert_false(frame_parts_next(&parts, &data, &len));
}

/* Only the exact length is a list: every truncation and a byte too many are refused. */
static void parts_must_fill_their_blob_exactly(void **state)
{
    struct fixture *f = *state;
    static const char *const words[] = { "one", "two" };
    struct frame_parts parts;
    write_parts(&f->stream, words, 2);
    for (size_t len = 0; len < f->stream.len; len++) {
        char *exact = malloc(len + 1); /* so that a read past the end is seen */
        memcpy(exact, f->stream.data, len);
        exact = realloc(exact, len ? len : 1);
        assert_fails(ERROR_PROTOCOL, frame_parts_open(exact, len, 9, &parts, err));
        free(exact);
    }
    assert_ok(frame_parts_open(f->stream.data, f->stream.len, 9, &parts, err));
    buf_putc(&f->stream, 'x');
    assert_fails(ERROR_PROTOCOL, frame_parts_open(f->stream.data, f->stream.len, 9, &parts, err));
}

static void more_parts_than_allowed_are_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const words[] = { "a", "b", "c" };
    struct frame_parts parts;
    write_parts(&f->stream, words, 3);
    assert_ok(frame_parts_open(f->stream.data, f->stream.len, 3, &parts, err));
    assert_fails(ERROR_PROTOCOL, frame_parts_open(f->stream.data, f->stream.len, 2, &parts, err));
    memset(f->stream.data, 0xFF, 4); /* a count of 2^32 - 1 */
    assert_fails(
        ERROR_PROTOCOL, frame_parts_open(f->stream.data, f->stream.len, SIZE_MAX, &parts, err));
}

/* Lengths whose sum wraps around to the right one are still too long, each for itself. */
static void lengths_that_wrap_are_refused(void **state)
{
    static const uint64_t lengths[][2] = { { UINT64_MAX, 9 }, { 9, UINT64_MAX },
        { UINT64_MAX - 3, 12 }, { (uint64_t)1 << 63, (uint64_t)1 << 63 }, { 9, 0 } };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct {
            uint32_t count, first[2], second[2];
            char data[8];
        } blob = { .count = htole32(2) };
        struct frame_parts parts;
        uint64_t a = htole64(lengths[i][0]), b = htole64(lengths[i][1]);
        memcpy(blob.first, &a, 8);
        memcpy(blob.second, &b, 8);
        assert_fails(ERROR_PROTOCOL, frame_parts_open((char *)&blob, 4 + 16 + 8, 2, &parts, err));
    }
}

/* ---- garbage ---- */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Random bytes, half of them behind a header that is nearly right: refused or waited for, never
 * more memory than the rules allow. */
static void garbage_is_refused_or_waited_for(void **state)
{
    struct fixture *f = *state;
    uint32_t seed = 20260801;
    unsigned refused = 0, let_in = 0;
    for (int round = 0; round < 20000; round++) {
        struct frame_decoder d = { .rules = rules, .rule_count = 2 };
        char data[96];
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = (char)next_random(&seed);
        if (round % 2) {
            struct frame frame = { .type = TYPE_A,
                .head_len = next_random(&seed) % 40,
                .blob_len = next_random(&seed) % 40 };
            frame_write_header((unsigned char *)data, &frame);
        }
        struct error err = { 0 };
        int rc = 0;
        for (size_t at = 0, n; at < sizeof data && rc == 0; at += n) {
            n = 1 + next_random(&seed) % (sizeof data - at);
            rc = frame_feed(&d, data + at, n, take, &f->taken, &err);
        }
        assert_true(rc == 0 || rc == -(int)ERROR_PROTOCOL);
        refused += rc < 0;
        let_in += f->taken.count;
        f->taken.count = 0;
        buf_clear(&f->taken.text);
        assert_true(d.body.cap <= 4096);
        frame_decoder_free(&d);
    }
    assert_true(refused > 10000);
    assert_true(let_in > 5000);
}

static void garbage_is_no_list_of_parts(void **state)
{
    uint32_t seed = 42;
    unsigned lists = 0;
    for (int round = 0; round < 20000; round++) {
        size_t len = next_random(&seed) % 64, part_len;
        char *data = malloc(len ? len : 1);
        struct frame_parts parts;
        const char *part;
        for (size_t i = 0; i < len; i++) /* small numbers, so that some are lists */
            data[i] = (char)(next_random(&seed) % 8 ? 0 : next_random(&seed) % 16);
        if (frame_parts_open(data, len, 100, &parts, NULL) == 0) {
            size_t total = 0;
            while (frame_parts_next(&parts, &part, &part_len)) {
                assert_true(part >= data && part + part_len <= data + len);
                total += part_len;
            }
            assert_true(total <= len);
            lists++;
        }
        free(data);
    }
    assert_true(lists > 0);
}

/* Holds the decoder at each frame. */
static int take_and_hold(void *arg, const struct frame *frame, struct error *err)
{
    struct fixture *f = arg;
    frame_hold(&f->decoder);
    return take(&f->taken, frame, err);
}

/* Nothing behind the frame at which it is held is looked at; later it goes on where it stopped, a
 * frame at a time. */
static void a_held_decoder_keeps_what_comes(void **state)
{
    struct fixture *f = *state;
    add_frame(&f->stream, TYPE_A, 1, "a", "one");
    add_frame(&f->stream, TYPE_A, 2, "b", "two");
    add_frame(&f->stream, TYPE_A, 3, "c", "three");
    for (size_t i = 0; i < f->stream.len; i++)
        assert_ok(frame_feed(&f->decoder, f->stream.data + i, 1, take_and_hold, f, err));
    assert_string_equal(buf_text(&f->taken.text), "<19 1 a|one>");
    assert_false(frame_is_partial(&f->decoder));
    assert_ok(frame_go_on(&f->decoder, take_and_hold, f, err));
    assert_string_equal(buf_text(&f->taken.text), "<19 1 a|one><19 2 b|two>");
    assert_ok(frame_go_on(&f->decoder, take_and_hold, f, err));
    assert_ok(frame_go_on(&f->decoder, take_and_hold, f, err));
    assert_int_equal(f->taken.count, 3);
}

static void what_a_held_decoder_keeps_is_bounded(void **state)
{
    static const char piece[1 << 20];
    struct fixture *f = *state;
    frame_hold(&f->decoder);
    for (int i = 0; i < FRAME_LATER_MAX >> 20; i++)
        assert_ok(feed(f, piece, sizeof piece, err));
    assert_fails(ERROR_PROTOCOL, feed(f, piece, 1, err));
    assert_int_equal(f->taken.count, 0);
}

/* ---- blobs in memory files ---- */

/* A sealed file with this text; its number is kept to see whether it is closed. */
static int sealed_file(const char *text)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    return fd;
}

static void add_fd_frame(struct buf *out, uint8_t type, uint64_t id, const char *head, size_t len)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = {
        .type = type, .flags = FRAME_FD, .id = id, .head_len = strlen(head), .blob_len = len
    };
    frame_write_header(header, &frame);
    buf_append(out, header, sizeof header);
    buf_puts(out, head);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* In pieces of any size: the first byte of the header comes with the descriptor. */
static void a_blob_may_come_in_a_memory_file(void **state)
{
    struct fixture *f = *state;
    add_fd_frame(&f->stream, TYPE_A, 1, "a", 3);
    add_frame(&f->stream, TYPE_A, 2, "b", "two");
    for (size_t step = 1; step <= f->stream.len; step++) {
        int fd = sealed_file("one");
        buf_clear(&f->taken.text);
        frame_take_fd(&f->decoder, fd);
        for (size_t at = 0; at < f->stream.len; at += step)
            assert_ok(feed(f, f->stream.data + at,
                step < f->stream.len - at ? step : f->stream.len - at, err));
        assert_string_equal(buf_text(&f->taken.text), "<19 1 a|one><19 2 b|two>");
        assert_false(is_open(fd));
    }
}

/* The second one's descriptor comes while the first one's header is incomplete. */
static void memory_files_belong_to_their_frames_in_order(void **state)
{
    struct fixture *f = *state;
    add_fd_frame(&f->stream, TYPE_A, 1, "a", 3);
    add_fd_frame(&f->stream, TYPE_A, 2, "b", 4);
    frame_take_fd(&f->decoder, sealed_file("one"));
    assert_ok(feed(f, f->stream.data, 5, err));
    frame_take_fd(&f->decoder, sealed_file("two2"));
    assert_ok(feed(f, f->stream.data + 5, f->stream.len - 5, err));
    assert_string_equal(buf_text(&f->taken.text), "<19 1 a|one><19 2 b|two2>");
}

static void a_descriptor_that_no_frame_announces_is_closed(void **state)
{
    struct fixture *f = *state;
    int fds[FRAME_FDS_MAX + 1];
    add_frame(&f->stream, TYPE_A, 1, "a", "one");
    for (int i = 0; i <= FRAME_FDS_MAX; i++) {
        fds[i] = sealed_file("x");
        frame_take_fd(&f->decoder, fds[i]);
    }
    assert_false(is_open(fds[FRAME_FDS_MAX])); /* more than may wait */
    assert_ok(feed(f, f->stream.data, f->stream.len, err));
    for (int i = 0; i <= FRAME_FDS_MAX; i++)
        assert_false(is_open(fds[i]));
    assert_string_equal(buf_text(&f->taken.text), "<19 1 a|one>");
}

static void a_memory_file_is_refused_where_none_is_expected(void **state)
{
    struct fixture *f = *state;
    int fd = sealed_file("12345678");
    add_fd_frame(&f->stream, TYPE_B, 1, "", 0);
    frame_take_fd(&f->decoder, fd);
    assert_fails(ERROR_PROTOCOL, feed(f, f->stream.data, f->stream.len, err));
    assert_false(is_open(fd));
}

static void an_announced_memory_file_must_have_come(void **state)
{
    struct fixture *f = *state;
    add_fd_frame(&f->stream, TYPE_A, 1, "a", 3);
    assert_fails(ERROR_PROTOCOL, feed(f, f->stream.data, f->stream.len, err));
}

/* The limit of the type holds for the file, too, before it is mapped. */
static void a_memory_file_is_bounded_like_other_blobs(void **state)
{
    struct fixture *f = *state;
    add_fd_frame(&f->stream, TYPE_A, 1, "a", BLOB_LIMIT + 1);
    frame_take_fd(&f->decoder, sealed_file("x"));
    assert_fails(ERROR_PROTOCOL, feed(f, f->stream.data, f->stream.len, err));
}

/* Ended in the middle of a frame, the decoder leaves no descriptor and no mapping. */
static void what_waits_is_freed_with_the_decoder(void **state)
{
    struct fixture *f = *state;
    int one = sealed_file("one"), two = sealed_file("two");
    f->decoder.total = sealed_total_new();
    add_fd_frame(&f->stream, TYPE_A, 1, "a", 3);
    frame_take_fd(&f->decoder, one);
    assert_ok(feed(f, f->stream.data, f->stream.len - 1, err));
    assert_int_equal(sealed_total_bytes(f->decoder.total), 3);
    frame_take_fd(&f->decoder, two);
    frame_decoder_free(&f->decoder);
    assert_int_equal(sealed_total_bytes(f->decoder.total), 0);
    assert_false(is_open(two));
    sealed_total_drop(f->decoder.total);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_frame_comes_out_as_it_went_in),
        T(the_header_has_the_documented_bytes),
        T(empty_heads_and_blobs_are_frames_too),
        T(an_empty_frame_is_delivered_at_once),
        T(a_blob_may_come_in_a_memory_file),
        T(memory_files_belong_to_their_frames_in_order),
        T(a_descriptor_that_no_frame_announces_is_closed),
        T(a_memory_file_is_refused_where_none_is_expected),
        T(an_announced_memory_file_must_have_come),
        T(a_memory_file_is_bounded_like_other_blobs),
        T(what_waits_is_freed_with_the_decoder),
        T(the_stream_may_be_cut_at_every_byte),
        T(the_stream_may_come_byte_by_byte),
        T(lengths_up_to_the_rule_pass),
        T(bad_headers_are_refused_before_anything_is_allocated),
        T(memory_grows_with_what_arrives),
        T(the_memory_of_a_large_frame_is_released),
        T(what_the_receiver_returns_ends_the_feeding),
        T(parts_come_out_as_they_went_in),
        T(no_parts_are_a_list_too),
        T(parts_must_fill_their_blob_exactly),
        T(more_parts_than_allowed_are_refused),
        T(lengths_that_wrap_are_refused),
        T(garbage_is_refused_or_waited_for),
        T(garbage_is_no_list_of_parts),
        T(a_held_decoder_keeps_what_comes),
        T(what_a_held_decoder_keeps_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
