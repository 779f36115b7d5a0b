/* Files that pass through the server: ranges of them, errors as statuses, and what happens to a
 * transfer whose request or sandbox ends first. The sandbox answers when the test says so. */
#include "../test.h"

#include <errno.h>

#include "base/cleanup.h"
#include "serve/native/native.h"

static struct sandbox sandbox;
static struct request request;
static bool sandbox_is_there;
static const char *range;
static struct buf story; /* what the client and the sandbox were told */

static droste_file_fn *answer_fn; /* of the request that the sandbox has not answered */
static void *answer_arg;

/* ---- what transfers.c and exchange.c need of the other files ---- */

int droste_file_start(droste_session *s, const droste_file_request *r, droste_file_fn *fn,
    void *arg, droste_error *err)
{
    assert_null(answer_fn); /* one at a time */
    answer_fn = fn;
    answer_arg = arg;
    buf_printf(&story, "%s", r->op);
    if (strcmp(r->op, "read") == 0)
        buf_printf(&story, " %lld+%zu", (long long)r->offset, r->length);
    if (strcmp(r->op, "write") == 0)
        buf_printf(&story, " %.*s", (int)r->len, (const char *)r->data);
    if (strcmp(r->op, "open") == 0)
        buf_printf(&story, " %s %s", r->path, r->mode);
    buf_puts(&story, ";");
    return 0;
}

int droste_command_start(droste_session *s, const droste_command_request *r, droste_command_fn *fn,
    void *arg, droste_error *err)
{
    fail_msg("a file has no commands");
    return -1;
}

void trace_step_begin(
    struct trace_step *step, const struct sandbox *sb, const struct request *r, const char *program)
{
}

void trace_command_end(struct trace_step *step, int64_t pid, const droste_command_reply *end)
{
}

struct sandbox *sandbox_find(struct server *s, const char *id)
{
    return sandbox_is_there ? &sandbox : NULL;
}

struct sandbox *sandbox_of(struct request *r)
{
    return &sandbox;
}

const char *request_query(struct request *r, const char *name, const char *fallback)
{
    return strcmp(name, "path") == 0 ? "/data/a" : fallback;
}

unsigned request_query_number(
    struct request *r, const char *name, const char *fallback, unsigned most)
{
    return most;
}

const char *request_header_of(struct request *r, const char *name)
{
    return range;
}

void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    buf_printf(&story, "%u %s;", status, code);
}

void request_fail(struct request *r, const droste_error *err)
{
    buf_puts(&story, "failed;");
}

void request_header(struct request *r, const char *name, const char *value)
{
    if (strcmp(name, MHD_HTTP_HEADER_CONTENT_RANGE) == 0)
        buf_printf(&story, "%s;", value);
}

void request_stream_as(struct request *r, unsigned status, const char *type)
{
    r->streaming = true;
    buf_printf(&story, "%u;", status);
}

void request_push(struct request *r, const void *data, size_t len)
{
    buf_printf(&story, "<%.*s>;", (int)len, (const char *)data);
}

void request_reply(
    struct request *r, unsigned status, const char *type, const void *data, size_t len)
{
    buf_printf(&story, "%u;", status);
}

void request_reply_written(struct request *r, unsigned status, const struct buf *json)
{
}

void request_end(struct request *r)
{
    buf_puts(&story, "end;");
}

void request_cut(struct request *r)
{
    buf_puts(&story, "cut;");
}

void request_suspend(struct request *r)
{
    buf_puts(&story, "wait;");
}

void request_resume(struct request *r)
{
    buf_puts(&story, "go on;");
}

/* ---- the tests ---- */

static int transfers_setup(void **state)
{
    sandbox = (struct sandbox){ 0 };
    request = (struct request){ 0 };
    sandbox_is_there = true;
    range = NULL;
    answer_fn = NULL;
    return 0;
}

static int transfers_teardown(void **state)
{
    if (request.on_free)
        request.on_free(&request);
    if (answer_fn)
        answer_fn(answer_arg, NULL, &(droste_error){ .sys = EIO });
    assert_int_equal(sandbox.transfers, 0); /* none is left */
    buf_free(&story);
    return 0;
}

static void assert_range(const char *expected)
{
    assert_string_equal(buf_text(&story), expected);
    buf_clear(&story);
}

static void answers(const droste_file_reply *reply, int sys)
{
    droste_file_fn *fn = answer_fn;
    droste_error err = { .code = DROSTE_ERROR_IO, .sys = sys };
    assert_non_null(fn);
    answer_fn = NULL;
    fn(answer_arg, sys ? NULL : reply, sys ? &err : NULL);
}

static void opens(uint64_t size)
{
    const droste_file_entry entry = { .size = size };
    answers(&(droste_file_reply){ .handle = 1, .entries = &entry, .count = 1 }, 0);
}

static void client_goes(void)
{
    void (*on_free)(struct request * r) = request.on_free;
    request.on_free = NULL;
    on_free(&request);
}

static void a_file_is_read_in_pieces_as_the_client_takes_them(void **state)
{
    handle_file_read(&request);
    assert_range("open /data/a r;");
    opens(5);
    assert_range("200;");
    request.on_drained(&request);
    request.on_drained(&request); /* while one is under way, no other */
    answers(&(droste_file_reply){ .data = "hello", .len = 5 }, 0);
    request.on_drained(&request); /* it has the size that was told, and may grow meanwhile */
    answers(&(droste_file_reply){ 0 }, 0);
    assert_range("read 0+5;<hello>;close;end;");
}

/* RFC 9110, 14.1.2. What is not a range of bytes is ignored; what is outside is refused. */
static void ranges_are_those_of_http(void **state)
{
    static const struct {
        const char *range, *headers;
    } cases[] = { { "bytes=0-0", "206;bytes 0-0/10;" }, { "bytes=2-4", "206;bytes 2-4/10;" },
        { "bytes=7-", "206;bytes 7-9/10;" }, { "bytes=-3", "206;bytes 7-9/10;" },
        { "bytes=-99", "206;bytes 0-9/10;" }, { "bytes=5-99", "206;bytes 5-9/10;" },
        { "bytes=9-18446744073709551615", "200;" }, { "bytes=10-", "416 range;bytes */10;" },
        { "bytes=-0", "416 range;bytes */10;" }, { "bytes=4-2", "200;" }, { "bytes=-", "200;" },
        { "bytes=1-2,4-5", "200;" }, { "lines=1-2", "200;" }, { "bytes=a-b", "200;" } };
    for (size_t i = 0; i < array_length(cases); i++) {
        transfers_setup(state);
        range = cases[i].range;
        handle_file_read(&request);
        buf_clear(&story);
        opens(10);
        assert_range(cases[i].headers);
        transfers_teardown(state);
    }
    transfers_setup(state);
    range = "bytes=0-0";
    handle_file_read(&request);
    buf_clear(&story);
    opens(0); /* an empty file has no range */
    assert_range("200;");
}

static void a_range_ends_where_it_was_asked_to(void **state)
{
    range = "bytes=2-4";
    handle_file_read(&request);
    opens(10);
    buf_clear(&story);
    request.on_drained(&request);
    answers(&(droste_file_reply){ .data = "ab", .len = 2 }, 0);
    request.on_drained(&request);
    answers(&(droste_file_reply){ .data = "c", .len = 1 }, 0);
    request.on_drained(&request);
    answers(&(droste_file_reply){ 0 }, 0);
    assert_range("read 2+3;<ab>;read 4+1;<c>;close;end;");
}

static void errors_are_statuses(void **state)
{
    static const struct {
        int sys;
        const char *headers;
    } cases[] = { { ENOENT, "404 not_found;" }, { ENOTDIR, "404 not_found;" },
        { EISDIR, "400 argument;" }, { EACCES, "403 permission;" }, { EROFS, "403 permission;" },
        { ENOSPC, "507 full;" }, { EDQUOT, "507 full;" }, { EIO, "failed;" } };
    for (size_t i = 0; i < array_length(cases); i++) {
        transfers_setup(state);
        handle_file_read(&request);
        buf_clear(&story);
        answers(NULL, cases[i].sys);
        assert_range(cases[i].headers);
        transfers_teardown(state);
    }
    transfers_setup(state);
}

/* The status is sent: only a cut tells the client that the rest is missing. */
static void an_error_in_the_middle_cuts_the_answer(void **state)
{
    handle_file_read(&request);
    opens(5);
    request.on_drained(&request);
    buf_clear(&story);
    answers(NULL, EIO);
    assert_range("cut;");
}

static void a_file_that_its_client_left_is_closed(void **state)
{
    handle_file_read(&request);
    buf_clear(&story);
    client_goes();
    assert_range(""); /* the sandbox owes a reply */
    assert_int_equal(sandbox.transfers, 1);
    opens(5);
    assert_range("close;");
    answers(&(droste_file_reply){ 0 }, 0);
    assert_int_equal(sandbox.transfers, 0);
}

static void a_sandbox_that_ended_takes_its_transfers_with_it(void **state)
{
    handle_file_read(&request);
    opens(5);
    buf_clear(&story);
    sandbox_is_there = false;
    sandbox.transfers = 0; /* it is gone */
    request.on_drained(&request);
    assert_range("cut;");
}

/* What arrives while the sandbox opens the file, or writes, is one piece for its next write. */
static void a_file_is_written_as_the_sandbox_takes_it(void **state)
{
    handle_file_write(&request);
    request.on_piece(&request, "one", 3);
    buf_clear(&story);
    request.on_piece(&request, "two", 3);
    opens(0);
    assert_range("go on;write onetwo;go on;");
    request.on_piece(&request, "three", 5);
    request.complete = true;
    request.on_complete(&request);
    buf_clear(&story);
    answers(&(droste_file_reply){ 0 }, 0);
    answers(&(droste_file_reply){ 0 }, 0);
    answers(&(droste_file_reply){ 0 }, 0);
    assert_range("write three;close;204;");
}

/* It fills at most one piece of memory, however slow the sandbox is. */
static void a_client_waits_for_a_slow_sandbox(void **state)
{
    static const char piece[SERVE_UNREAD_MAX];
    handle_file_write(&request);
    buf_clear(&story);
    request.on_piece(&request, piece, sizeof piece);
    assert_range("open /data/a w;wait;");
    opens(0);
    buf_consume(&story, story.len - strlen("go on;"));
    assert_range("go on;");
    answers(&(droste_file_reply){ 0 }, 0);
}

static void an_empty_file_is_written_too(void **state)
{
    handle_file_write(&request);
    request.complete = true;
    request.on_complete(&request);
    opens(0);
    answers(&(droste_file_reply){ 0 }, 0);
    assert_range("open /data/a w;close;204;");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, transfers_setup, transfers_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_read_in_pieces_as_the_client_takes_them),
        TEST(ranges_are_those_of_http),
        TEST(a_range_ends_where_it_was_asked_to),
        TEST(errors_are_statuses),
        TEST(an_error_in_the_middle_cuts_the_answer),
        TEST(a_file_that_its_client_left_is_closed),
        TEST(a_sandbox_that_ended_takes_its_transfers_with_it),
        TEST(a_file_is_written_as_the_sandbox_takes_it),
        TEST(a_client_waits_for_a_slow_sandbox),
        TEST(an_empty_file_is_written_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
