/* The host's side of commands that are hostile: an answer is taken if it fits an open request; any
 * other ends the service, with all commands, and not the session. */
#include "fake_service.h"

#include <errno.h>
#include <signal.h>

#include "session/commands.h"

static const char *const words[] = { "a\nb", "-c", NULL };

static void commands_done(void *arg, const struct command_answer *answer, const struct error *why)
{
    fake.calls++;
    fake.why = why ? *why : (struct error){ 0 };
    fake.handle = answer ? answer->handle : 0;
    fake.more = answer && answer->ended;
    fake.number = !answer ? 0 : answer->ended ? answer->status : answer->pid;
    fake.len = answer ? answer->out_len : 0;
    if (answer)
        memcpy(fake.data, answer->out, fake.len < sizeof fake.data ? fake.len : sizeof fake.data);
}

static int command(enum command_op op, uint64_t handle, struct error *err)
{
    const struct command_call call = { .op = op,
        .handle = handle,
        .argv = words,
        .length = op == COMMAND_OUTPUT ? 8 : 0,
        .pid = 7,
        .signal = SIGTERM };
    return session_command(fake.session, &call, commands_done, NULL, err);
}

/* Starts a command as number 1 of the service; returns its handle. */
static uint64_t started(uint64_t id)
{
    assert_ok(command(COMMAND_START, 0, err));
    answer_with(FRAME_COMMANDED, id, "{\"handle\":1,\"pid\":7}", "", 0, 2);
    assert_int_equal(fake.why.code, ERROR_NONE);
    assert_int_equal(fake.number, 7);
    return fake.handle;
}

static void answers_are_taken_in_any_order(void **state)
{
    uint64_t handle = started(1);
    assert_ok(command(COMMAND_OUTPUT, handle, err));
    assert_ok(command(COMMAND_SIGNAL, handle, err));
    answer_with(FRAME_COMMANDED, 3, "{}", "", 0, 2);
    assert_int_equal(fake.calls, 2);
    answer_with(FRAME_COMMANDED, 2, "{}", "12345678", 8, 2);
    assert_int_equal(fake.calls, 3);
    assert_int_equal(fake.len, 8);
    assert_memory_equal(fake.data, "12345678", 8);
    assert_ok(command(COMMAND_OUTPUT, handle, err));
    answer_with(FRAME_COMMANDED, 4, "{\"ended\":true,\"status\":-9}", "", 0, 2);
    assert_true(fake.more);
    assert_int_equal(fake.number, -9);
}

static void errors_name_the_program(void **state)
{
    static const struct {
        int sys;
        enum error_code code;
    } rows[] = { { ENOENT, ERROR_NOT_FOUND }, { EACCES, ERROR_PERMISSION }, { EAGAIN, ERROR_IO },
        { ENOEXEC, ERROR_ARGUMENT } };
    for (size_t i = 0; i < array_length(rows); i++) {
        char head[64];
        snprintf(head, sizeof head, "{\"errno\":%d,\"text\":\"lies\"}", rows[i].sys);
        assert_ok(command(COMMAND_START, 0, err));
        answer_with(FRAME_COMMANDED, i + 1, head, "", 0, 2);
        assert_int_equal(fake.why.code, rows[i].code);
        assert_int_equal(fake.why.sys, rows[i].sys);
        assert_non_null(strstr(fake.why.text, "starting \"a\\nb\" in the sandbox: "));
        assert_null(strstr(fake.why.text, "lies"));
    }
}

/* A list is checked as a whole; each row changes one byte of a good one. */
static void lists_are_checked(void **state)
{
    static const char good[] = "\7\0\0\0\0\0\0\0"
                               "\0\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\15\0\0\0"
                               "tag\0\0/\0ls\0A=\0";
    static const struct {
        size_t at, len;
        char byte;
        bool ok;
    } rows[] = {
        { 0, sizeof good - 2, 7, false },                                  /* cut */
        { 0, sizeof good - 1, 7, true }, { 0, sizeof good - 1, 0, false }, /* no pid */
        { 7, sizeof good - 1, -1, false },                                 /* a negative one */
        { 9, sizeof good - 1, 1, false },                                  /* a status over 255 */
        { 12, sizeof good - 1, 2, false },   /* more arguments than words */
        { 16, sizeof good - 1, 0, false },   /* fewer variables */
        { 19, sizeof good - 1, -1, false },  /* very many */
        { 24, sizeof good - 1, 12, false },  /* no NUL at the end */
        { 24, sizeof good - 1, 0, false },   /* no words */
        { 27, sizeof good - 1, 127, false }, /* longer than the answer */
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        char list[sizeof good];
        memcpy(list, good, sizeof good);
        list[rows[i].at] = rows[i].byte;
        assert_ok(command(COMMAND_LIST, 0, err));
        answer_with(FRAME_COMMANDED, i + 1, "{}", list, rows[i].len, 2);
        if (!rows[i].ok)
            service_settle();
        if ((fake.why.code == ERROR_NONE) != rows[i].ok)
            fail_msg("row %zu: %s", i, fake.why.text);
    }
    const struct command_answer answer = { .out = good, .out_len = sizeof good - 1 };
    struct command_info info;
    size_t at = 0;
    assert_true(command_info_next(&answer, &at, &info));
    assert_string_equal(info.tag, "tag");
    assert_string_equal(info.user, "");
    assert_string_equal(info.cwd, "/");
    assert_string_equal(info.argv, "ls");
    assert_string_equal(info.env, "A=");
    assert_true(info.ended && !info.terminal);
    assert_false(command_info_next(&answer, &at, &info));
}

static void answers_that_are_malformed_end_the_service_alone(void **state)
{
    static const struct {
        enum command_op op;
        uint8_t type;
        uint64_t id; /* more than that of the call */
        const char *head;
        size_t len, parts;
    } rows[] = {
        { COMMAND_SIGNAL, FRAME_FILED, 0, "{}", 0, 2 },
        { COMMAND_SIGNAL, FRAME_COMMANDED, 1, "{}", 0, 2 },
        { COMMAND_SIGNAL, FRAME_COMMANDED, 0, "[]", 0, 2 },
        { COMMAND_SIGNAL, FRAME_COMMANDED, 0, "{}", 0, 1 },
        { COMMAND_SIGNAL, FRAME_COMMANDED, 0, "{}", 1, 2 },
        { COMMAND_SIGNAL, FRAME_COMMANDED, 0, "{\"errno\":4096}", 0, 2 },
        { COMMAND_SIGNAL, FRAME_COMMANDED, 0, "{\"errno\":-1}", 0, 2 },
        { COMMAND_OUTPUT, FRAME_COMMANDED, 0, "{}", 9, 2 },
        { COMMAND_OUTPUT, FRAME_COMMANDED, 0, "{\"ended\":true,\"status\":256}", 0, 2 },
        { COMMAND_OUTPUT, FRAME_COMMANDED, 0, "{\"ended\":true,\"status\":-65}", 0, 2 },
        { COMMAND_OUTPUT, FRAME_COMMANDED, 0, "{\"status\":4294967296}", 0, 2 },
        { COMMAND_START, FRAME_COMMANDED, 0, "{\"pid\":1}", 0, 2 },
        { COMMAND_START, FRAME_COMMANDED, 0, "{\"handle\":1}", 0, 2 },
        { COMMAND_START, FRAME_COMMANDED, 0, "{\"handle\":-1,\"pid\":1}", 0, 2 },
        { COMMAND_START, FRAME_COMMANDED, 0, "{\"handle\":1,\"pid\":9999999}", 0, 2 },
        { COMMAND_ATTACH, FRAME_COMMANDED, 0, "{\"handle\":1}", 0, 2 },
        { COMMAND_LIST, FRAME_COMMANDED, 0, "{}", 9, 2 },
    };
    uint64_t id = 0;
    for (size_t i = 0; i < array_length(rows); i++) {
        uint64_t handle = started(++id);
        assert_ok(command(rows[i].op, handle, err));
        answer_with(
            rows[i].type, ++id + rows[i].id, rows[i].head, "123456789", rows[i].len, rows[i].parts);
        service_settle();
        if (fake.why.code != ERROR_PROTOCOL)
            fail_msg("row %zu: %s", i, fake.why.text);
        assert_true(session_is_alive(fake.session));
        assert_int_equal(fake.services, i + 1);
    }
}

/* Commands end with the process that runs them; the next one starts another. */
static void handles_end_with_their_service(void **state)
{
    static const struct sandbox_exit how = { .has_status = true };
    uint64_t handle = started(1);
    assert_ok(command(COMMAND_OUTPUT, handle, err));
    fake.service->events.ended(fake.service->arg, &how);
    service_settle();
    assert_int_equal(fake.why.code, ERROR_LOST);
    assert_int_equal(command(COMMAND_OUTPUT, handle, NULL), -(int)ERROR_LOST);
    assert_ok(command(COMMAND_OUTPUT, started(3), err));
}

static void calls_that_make_no_sense_are_refused(void **state)
{
    static const char *const none[] = { NULL }, *const empty[] = { "", NULL };
    static const char *const bad[] = { "NAME", NULL }, *const nameless[] = { "=1", NULL };
    uint64_t handle = started(1);
    const struct command_call rows[] = {
        { .op = COMMAND_START, .argv = none },
        { .op = COMMAND_START, .argv = empty },
        { .op = COMMAND_START, .argv = words, .env = bad },
        { .op = COMMAND_START, .argv = words, .env = nameless },
        { .op = COMMAND_START, .argv = words, .timeout_ms = UINT64_MAX },
        { .op = COMMAND_OUTPUT, .handle = handle, .length = 0 },
        { .op = COMMAND_OUTPUT, .handle = handle, .length = COMMANDS_PIECE + 1 },
        { .op = COMMAND_INPUT, .handle = handle, .data = "", .len = COMMANDS_PIECE + 1 },
        { .op = COMMAND_SIGNAL, .handle = handle, .signal = 0 },
        { .op = COMMAND_SIGNAL, .handle = handle, .signal = 65 },
        { .op = COMMAND_START, .argv = words, .terminal = true, .columns = 80 },
        { .op = COMMAND_START, .argv = words, .tag = "" },
        { .op = COMMAND_START, .argv = words, .user = "" },
        { .op = COMMAND_RESIZE, .handle = handle, .columns = 80, .rows = COMMANDS_SIDE_MAX + 1 },
        { .op = COMMAND_ATTACH, .pid = 0 },
    };
    fake.calls = 0;
    for (size_t i = 0; i < array_length(rows); i++)
        assert_int_equal(session_command(fake.session, &rows[i], commands_done, NULL, NULL),
            -(int)ERROR_ARGUMENT);
    assert_int_equal(fake.calls, 0);
    assert_ok(command(COMMAND_OUTPUT, handle, err));
}

int main(void)
{
#define COMMANDS(name) cmocka_unit_test_setup_teardown(name, service_set_up, service_tear_down)
    const struct CMUnitTest tests[] = {
        COMMANDS(answers_are_taken_in_any_order),
        COMMANDS(errors_name_the_program),
        COMMANDS(lists_are_checked),
        COMMANDS(answers_that_are_malformed_end_the_service_alone),
        COMMANDS(handles_end_with_their_service),
        COMMANDS(calls_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
