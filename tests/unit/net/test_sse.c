/* The event stream's parser: the same events however the bytes are split. */
#include "../test.h"

#include "net/sse.h"

/* Feeds the parts one after another; events come out joined, each in brackets. */
static int parse(struct sse *s, const char *const *parts, const size_t *lens, size_t count,
    struct buf *out, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc >= 0; i++) {
        const char *p = parts[i], *end = p + lens[i];
        while ((rc = sse_next(s, &p, end, err)) > 0)
            buf_printf(out, "[%s]", buf_text(&s->data));
    }
    return rc;
}

static void assert_events(const char *stream, const char *expected)
{
    size_t len = strlen(stream);
    for (size_t cut = 0; cut <= len; cut++) {
        struct sse s = { .limit = 1000, .code = ERROR_PROTOCOL };
        cleanup_buf struct buf out = { 0 };
        const char *parts[] = { stream, stream + cut };
        size_t lens[] = { cut, len - cut };
        assert_ok(parse(&s, parts, lens, 2, &out, err));
        sse_free(&s);
        if (strcmp(buf_text(&out), expected) != 0)
            fail_msg("cut at %zu: %s, not %s", cut, buf_text(&out), expected);
    }
}

/* LF, CR and CRLF end lines, also when the pair is cut in two. */
static void events_are_the_same_wherever_the_bytes_are_cut(void **state)
{
    assert_events("data: one\n\ndata: two\n\n", "[one][two]");
    assert_events("data: one\r\n\r\ndata: two\r\n\r\n", "[one][two]");
    assert_events("data: one\r\rdata: two\r\r", "[one][two]");
    assert_events("data: \xE2\x9F\xA8"
                  "1\r\n\ndata:2\r\r\n",
        "[\xE2\x9F\xA8"
        "1][2]");
}

/* Each byte in a part of its own. */
static void events_survive_a_byte_at_a_time(void **state)
{
    static const char stream[] = "data: a\r\ndata: b\r\n\r\n: c\r\n\r\ndata: [DONE]\n\n";
    const char *parts[sizeof stream - 1];
    size_t lens[sizeof stream - 1];
    struct sse s = { .limit = 100, .code = ERROR_PROTOCOL };
    cleanup_buf struct buf out = { 0 };
    for (size_t i = 0; i < sizeof stream - 1; i++) {
        parts[i] = stream + i;
        lens[i] = 1;
    }
    assert_ok(parse(&s, parts, lens, sizeof stream - 1, &out, err));
    sse_free(&s);
    assert_string_equal(buf_text(&out), "[a\nb][[DONE]]");
}

/* What is not data makes no event; several data lines make one. */
static void only_data_counts(void **state)
{
    assert_events(": comment\n\nevent: x\nid: 7\nretry: 1\n\ndata: y\n\n", "[y]");
    assert_events("data: 1\ndata:  2\ndata:3\ndata\n\n", "[1\n 2\n3\n]");
    assert_events("database: no\ndata: yes\n\n\n\n", "[yes]");
    assert_events("data\n\n", "[]");
    assert_events("\xEF\xBB\xBF"
                  "data: after the mark\n\n",
        "[after the mark]");
}

/* An event without its empty line was cut off, and is none. */
static void an_unfinished_event_is_not_delivered(void **state)
{
    assert_events("data: one\n\ndata: tw", "[one]");
    assert_events("data: one\n\ndata: two\n", "[one]");
}

/* A server cannot make us keep more than the limit: in one line, or in many. */
static void the_size_of_an_event_is_bounded(void **state)
{
    char line[64];
    struct sse s = { .limit = 100, .code = ERROR_PROTOCOL };
    const char *p;
    memset(line, 'x', sizeof line);
    p = line;
    assert_ok(sse_next(&s, &p, line + sizeof line, err));
    p = line;
    assert_fails(ERROR_PROTOCOL, sse_next(&s, &p, line + sizeof line, err));
    sse_free(&s);

    s = (struct sse){ .limit = 100, .code = ERROR_PROTOCOL };
    memcpy(line, "data: 345678901234567890\n", 25);
    for (int i = 0; i < 5; i++) {
        p = line;
        assert_ok(sse_next(&s, &p, line + 25, err));
    }
    p = line;
    assert_fails(ERROR_PROTOCOL, sse_next(&s, &p, line + 25, err));
    sse_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_wherever_the_bytes_are_cut),
        cmocka_unit_test(events_survive_a_byte_at_a_time),
        cmocka_unit_test(only_data_counts),
        cmocka_unit_test(an_unfinished_event_is_not_delivered),
        cmocka_unit_test(the_size_of_an_event_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
