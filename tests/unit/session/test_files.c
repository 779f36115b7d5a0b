/* The host's side of a file service that is hostile: only well-formed answers to the oldest call
 * are taken; anything else ends the service, and the next call starts another. */
#include "fake_service.h"

#include <errno.h>
#include <sys/stat.h>

#include "session/files.h"

static void files_done(void *arg, const struct file_answer *answer, const struct error *why)
{
    fake.calls++;
    fake.why = why ? *why : (struct error){ 0 };
    fake.handle = answer ? answer->handle : 0;
    fake.more = answer && answer->more;
    fake.len = answer ? answer->len : 0;
    if (answer)
        memcpy(fake.data, answer->data, fake.len < sizeof fake.data ? fake.len : sizeof fake.data);
}

static int ask(enum file_op op, uint64_t handle, struct error *err)
{
    const struct file_call call = { .op = op,
        .path = "a\nb",
        .path_len = 3,
        .handle = handle,
        .length = op == FILE_READ ? 8 : 0,
        .depth = 1,
        .limit = 10 };
    return session_file(fake.session, &call, files_done, NULL, err);
}

enum { ENTRY = 52 }; /* its fixed part */

static size_t entry(char *out, uint64_t size, const char *name, size_t len)
{
    uint32_t mode = S_IFREG | 0644, name_len = (uint32_t)len;
    memset(out, 0, ENTRY);
    memcpy(out, &mode, 4);
    memcpy(out + 4, &name_len, 4);
    memcpy(out + 8, &size, 8);
    memcpy(out + ENTRY, name, len);
    return ENTRY + len;
}

static void answers_that_are_well_formed_are_taken(void **state)
{
    char data[128];
    assert_ok(ask(FILE_OPEN, 0, err));
    answer_with(FRAME_FILED, 1, "{\"handle\":7}", data, entry(data, 5, "", 0), 1);
    assert_int_equal(fake.calls, 1);
    assert_int_equal(fake.why.code, ERROR_NONE);
    uint64_t handle = fake.handle;
    assert_ok(ask(FILE_READ, handle, err));
    assert_ok(ask(FILE_LIST, 0, err));
    answer_with(FRAME_FILED, 2, "{}", "12345678", 8, 1);
    assert_int_equal(fake.len, 8);
    assert_memory_equal(fake.data, "12345678", 8);
    answer_with(FRAME_FILED, 3, "{\"more\":true}", data, entry(data, 5, "d/..a", 5), 1);
    assert_int_equal(fake.calls, 3);
    assert_true(fake.more);
    assert_int_equal(fake.services, 1);
}

/* The code, errno and path of an error; the text is the host's own. */
static void errors_have_an_errno_and_name_the_path(void **state)
{
    static const struct {
        int sys;
        enum error_code code;
        int expected;
    } rows[] = { { ENOENT, ERROR_NOT_FOUND, ENOENT }, { EACCES, ERROR_PERMISSION, EACCES },
        { EISDIR, ERROR_ARGUMENT, EISDIR }, { EIO, ERROR_IO, EIO },
        { 4090, ERROR_ARGUMENT, EINVAL } };
    for (size_t i = 0; i < array_length(rows); i++) {
        char head[64];
        snprintf(head, sizeof head, "{\"errno\":%d,\"text\":\"lies\"}", rows[i].sys);
        assert_ok(ask(FILE_STAT, 0, err));
        answer_with(FRAME_FILED, i + 1, head, "", 0, 1);
        assert_int_equal(fake.why.code, rows[i].code);
        assert_int_equal(fake.why.sys, rows[i].expected);
        assert_non_null(strstr(fake.why.text, "\"a\\nb\" in the sandbox: "));
        assert_null(strstr(fake.why.text, "lies"));
    }
}

static void answers_that_are_malformed_end_the_service_alone(void **state)
{
    static const struct {
        enum file_op op;
        uint8_t type;
        uint64_t id; /* more than that of the call */
        const char *head, *name;
        size_t name_len, cut, parts;
    } rows[] = {
        { FILE_STAT, FRAME_RESULT, 0, "{}", "", 0, 0, 1 },
        { FILE_STAT, FRAME_FILED, 1, "{}", "", 0, 0, 1 },
        { FILE_STAT, FRAME_FILED, 0, "[]", "", 0, 0, 1 },
        { FILE_STAT, FRAME_FILED, 0, "{", "", 0, 0, 1 },
        { FILE_STAT, FRAME_FILED, 0, "{\"errno\":4096}", "", 0, 0, 1 },
        { FILE_STAT, FRAME_FILED, 0, "{\"errno\":-1}", "", 0, 0, 1 },
        { FILE_STAT, FRAME_FILED, 0, "{}", "", 0, 0, 2 },
        { FILE_STAT, FRAME_FILED, 0, "{}", "", 0, 1, 1 },
        { FILE_STAT, FRAME_FILED, 0, "{}", "", 0, ENTRY, 1 },
        { FILE_STAT, FRAME_FILED, 0, "{}", "a", 1, 0, 1 },
        { FILE_OPEN, FRAME_FILED, 0, "{}", "", 0, 0, 1 },
        { FILE_OPEN, FRAME_FILED, 0, "{\"handle\":-1}", "", 0, 0, 1 },
        { FILE_OPEN, FRAME_FILED, 0, "{\"handle\":4294967297}", "", 0, 0, 1 },
        { FILE_READ, FRAME_FILED, 0, "{}", "more than 8 bytes", 17, 0, 1 },
        { FILE_WRITE, FRAME_FILED, 0, "{}", "", 0, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "..", 2, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "a/../../b", 9, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "/etc", 4, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "a//b", 4, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "a/", 2, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "a\0b", 3, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "", 0, 0, 1 },
        { FILE_LIST, FRAME_FILED, 0, "{}", "cut", 3, 2, 1 },
        { FILE_GLOB, FRAME_FILED, 0, "{}", "/a/../b", 7, 0, 1 },
    };
    uint64_t id = 0;
    for (size_t i = 0; i < array_length(rows); i++) {
        char data[128];
        assert_ok(ask(FILE_OPEN, 0, err));
        answer_with(FRAME_FILED, ++id, "{\"handle\":1}", data, entry(data, 0, "", 0), 1);
        assert_int_equal(fake.why.code, ERROR_NONE);
        assert_ok(ask(rows[i].op, fake.handle, err));
        size_t len = entry(data, 5, rows[i].name, rows[i].name_len) - rows[i].cut;
        answer_with(rows[i].type, ++id + rows[i].id, rows[i].head, data, len, rows[i].parts);
        service_settle();
        if (fake.why.code != ERROR_PROTOCOL)
            fail_msg("row %zu: %s", i, fake.why.text);
        assert_true(session_is_alive(fake.session));
        assert_int_equal(fake.services, i + 1);
    }
}

/* They are lines of printable ASCII; anything else ends the service. */
static void attributes_are_printable(void **state)
{
    static const char *const rows[] = { "", "user.a=b\nuser.c=d\n", "user.a=\x1b[31m\n" };
    for (size_t i = 0; i < array_length(rows); i++) {
        char data[128];
        uint32_t len = (uint32_t)strlen(rows[i]);
        assert_ok(ask(FILE_STAT, 0, err));
        size_t size = entry(data, 5, "", 0);
        memcpy(data + 48, &len, sizeof len);
        memcpy(data + size, rows[i], len);
        answer_with(FRAME_FILED, i + 1, "{}", data, size + len, 1);
        if (i == 2)
            service_settle();
        assert_int_equal(fake.why.code, i < 2 ? ERROR_NONE : ERROR_PROTOCOL);
    }
}

/* A handle of a service that has ended means nothing to the next one. */
static void handles_end_with_their_service(void **state)
{
    static const struct sandbox_exit how = { .has_status = true };
    char data[128];
    assert_ok(ask(FILE_OPEN, 0, err));
    answer_with(FRAME_FILED, 1, "{\"handle\":1}", data, entry(data, 0, "", 0), 1);
    uint64_t handle = fake.handle;
    assert_ok(ask(FILE_READ, handle, err));
    fake.service->events.ended(fake.service->arg, &how);
    service_settle();
    assert_int_equal(fake.why.code, ERROR_LOST);
    assert_int_equal(ask(FILE_READ, handle, NULL), -(int)ERROR_LOST);
    assert_ok(ask(FILE_OPEN, 0, err));
    answer_with(FRAME_FILED, 3, "{\"handle\":1}", data, entry(data, 0, "", 0), 1);
    assert_ok(ask(FILE_READ, fake.handle, err));
}

/* Each open call is answered once, also when the session closes. */
static void calls_end_with_the_session(void **state)
{
    assert_ok(ask(FILE_STAT, 0, err));
    assert_ok(ask(FILE_STAT, 0, err));
    session_close(steal(&fake.session));
    assert_int_equal(fake.calls, 2);
    assert_int_equal(fake.why.code, ERROR_CANCELLED);
}

static void calls_that_make_no_sense_are_refused(void **state)
{
    static const struct file_call rows[] = {
        { .op = FILE_STAT, .path = "", .path_len = 0 },
        { .op = FILE_STAT, .path = "a\0b", .path_len = 3 },
        { .op = FILE_STAT, .path = "a", .path_len = FILES_PATH_MAX + 1 },
        { .op = FILE_OPEN, .path = "a", .path_len = 1, .mode = "rw" },
        { .op = FILE_OPEN, .path = "a", .path_len = 1, .mode = "\"" },
    };
    for (size_t i = 0; i < array_length(rows); i++)
        assert_int_equal(
            session_file(fake.session, &rows[i], files_done, NULL, NULL), -(int)ERROR_ARGUMENT);
    assert_int_equal(fake.calls, 0);
}

int main(void)
{
#define FILES(name) cmocka_unit_test_setup_teardown(name, service_set_up, service_tear_down)
    const struct CMUnitTest tests[] = {
        FILES(answers_that_are_well_formed_are_taken),
        FILES(errors_have_an_errno_and_name_the_path),
        FILES(answers_that_are_malformed_end_the_service_alone),
        FILES(attributes_are_printable),
        FILES(handles_end_with_their_service),
        FILES(calls_end_with_the_session),
        FILES(calls_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
