/* Environments of the embedding program: sessions whose cells the program executes. */
#include "../test.h"

#include <stdbool.h>

#include "droste.h"

#define API_ERROR f.err
#include "assert_fine.h"

static struct {
    droste *d;
    droste_session *session;
    droste_error err;
    droste_custom_sandbox *sandbox;
    unsigned opened, closed, interrupts;
    uint64_t operation; /* of a cell that is not answered at once */
    char code[64], value[64], reply[512];
} f;

static int host_open(void *arg, droste_custom_sandbox *s, void **own)
{
    assert_ptr_equal(arg, &f);
    f.sandbox = s;
    f.opened++;
    *own = &f;
    return 0;
}

static void host_result(uint64_t operation, const char *json, const char *submit)
{
    assert_fine(droste_custom_result(
        f.sandbox, operation, json, strlen(json), submit, submit ? strlen(submit) : 0, &f.err));
}

static void host_set(
    void *own, uint64_t operation, const char *name, const char *kind, const void *data, size_t len)
{
    snprintf(f.value, sizeof f.value, "%s %s %.*s", name, kind, (int)len, (const char *)data);
    host_result(operation, "{\"status\": \"ok\"}", NULL);
}

static void host_execute(void *own, uint64_t operation, const char *code, size_t len)
{
    static const char ask[] =
        "{\"name\": \"llm_query\", \"prompts\": [\"a\", [{\"role\": \"user\", "
        "\"content\": \"b\"}]]}";
    snprintf(f.code, sizeof f.code, "%.*s", (int)len, code);
    if (strcmp(f.code, "print") == 0) {
        droste_custom_output(f.sandbox, 1, "out", 3);
        droste_custom_output(f.sandbox, 2, "err", 3);
    }
    f.operation = operation;
    if (strcmp(f.code, "ask") == 0)
        assert_fine(droste_custom_call(f.sandbox, 1, ask, sizeof ask - 1, &f.err));
    else if (strcmp(f.code, "submit") == 0)
        host_result(operation, "{\"status\": \"ok\"}", "{\"a\": 12345678901234567890123}");
    else if (strcmp(f.code, "fail") == 0)
        host_result(operation,
            "{\"status\": \"error\", \"error\": {\"type\": \"KeyError\", \"message\": \"x\"}}",
            NULL);
    else if (strcmp(f.code, "end") == 0)
        droste_custom_end(f.sandbox, "the machine is gone");
    else if (strcmp(f.code, "wait") != 0 && strcmp(f.code, "hang") != 0)
        host_result(operation, "{\"status\": \"ok\"}", NULL);
}

static void host_interrupt(void *own, uint64_t operation)
{
    f.interrupts++;
    if (strcmp(f.code, "wait") == 0)
        host_result(operation, "{\"status\": \"interrupted\"}", NULL);
}

static void host_reply(void *own, uint64_t call, const char *json, size_t len)
{
    assert_int_equal(call, 1);
    snprintf(f.reply, sizeof f.reply, "%.*s", (int)len, json);
    host_result(f.operation, "{\"status\": \"ok\"}", NULL);
}

static void host_close(void *own)
{
    f.closed++;
}

static const droste_custom_environment table = { sizeof table, NULL, host_open, host_set,
    host_execute, host_interrupt, host_reply, host_close };

static void answer(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    droste_answer(call, messages[0].text, messages[0].len);
}

static int setup(void **state)
{
    memset(&f, 0, sizeof f);
    assert_fine(droste_new(&f.d, &f.err));
    assert_fine(droste_set(f.d, "database", "none", &f.err));
    assert_fine(droste_set(f.d, "model", "callback", &f.err));
    droste_set_model(f.d, answer, NULL);
    assert_fine(droste_custom_add(f.d, "mine", &table, &f, &f.err));
    assert_fine(droste_set(f.d, "env", "mine", &f.err));
    return 0;
}

static int teardown(void **state)
{
    droste_free(f.d);
    assert_int_equal(f.opened, f.closed);
    return 0;
}

static droste_result *run_cell(const char *code)
{
    droste_result *r = NULL;
    assert_fine(droste_session_exec(f.session, code, strlen(code), 0, &r, &f.err));
    return r;
}

#define assert_status(code, status)                                                                \
    do {                                                                                           \
        droste_result *result = run_cell(code);                                                    \
        assert_string_equal(droste_result_status(result), status);                                 \
        droste_result_free(result);                                                                \
    } while (0)

static void cells_are_the_programs(void **state)
{
    size_t len;
    assert_fine(droste_session_open(f.d, &f.session, &f.err));
    assert_string_equal(droste_session_isolation(f.session), "custom");
    assert_fine(droste_session_set(f.session, "context", "text", "abc", 3, &f.err));
    assert_string_equal(f.value, "context text abc");
    droste_result *r = run_cell("print");
    assert_string_equal(droste_result_status(r), "ok");
    assert_string_equal(droste_result_stdout(r, &len), "out");
    assert_string_equal(droste_result_stderr(r, &len), "err");
    droste_result_free(r);
    r = run_cell("submit");
    assert_string_equal(droste_result_status(r), "submitted");
    assert_string_equal(droste_result_submit(r, &len), "{\"a\": 12345678901234567890123}");
    droste_result_free(r);
    assert_status("fail", "error");
    assert_int_equal(f.opened, 1);
    droste_session_close(f.session);
    assert_int_equal(f.closed, 1);
}

static void calls_go_to_the_broker(void **state)
{
    assert_fine(droste_set(f.d, "max-llm-calls", "2", &f.err));
    assert_fine(droste_session_open(f.d, &f.session, &f.err));
    assert_status("ask", "ok");
    assert_string_equal(f.reply, "{\"replies\":[\"a\",\"b\"]}");
    assert_status("ask", "ok");
    assert_non_null(strstr(f.reply, "\"code\":\"budget_calls\""));
}

static void a_cell_has_its_time(void **state)
{
    assert_fine(droste_set(f.d, "execute-timeout", "0.05", &f.err));
    assert_fine(droste_session_open(f.d, &f.session, &f.err));
    assert_status("wait", "timeout");
    assert_int_equal(f.interrupts, 1);
    assert_true(droste_session_is_alive(f.session));
    assert_status("hang", "timeout");
    assert_false(droste_session_is_alive(f.session));
}

static void its_failure_is_the_environments(void **state)
{
    droste_result *r = NULL;
    assert_fine(droste_session_open(f.d, &f.session, &f.err));
    assert_int_equal(
        droste_session_exec(f.session, "end", 3, 0, &r, &f.err), -DROSTE_ERROR_ENVIRONMENT);
    assert_string_equal(f.err.text, "environment 'mine': the machine is gone");
    assert_false(droste_session_is_alive(f.session));
    /* Output after the end is ignored. */
    droste_custom_output(f.sandbox, 1, "late", 4);
    assert_fine(droste_custom_result(f.sandbox, 99, "{}", 2, NULL, 0, &f.err));
}

static void what_makes_no_sense_is_refused(void **state)
{
    droste_custom_environment half = table;
    half.reply = NULL;
    assert_int_equal(droste_custom_add(f.d, "half", &half, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(droste_custom_add(f.d, "mine", &table, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(droste_custom_add(f.d, "local", &table, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(droste_custom_add(f.d, "a:b", &table, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_fine(droste_session_open(f.d, &f.session, &f.err));
    assert_int_equal(
        droste_custom_result(f.sandbox, 99, "{}", 2, NULL, 0, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(droste_custom_call(f.sandbox, 1, "{}", 2, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(droste_custom_call(f.sandbox, 1, "{", 1, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_status("ok", "ok");
    droste_session_close(f.session);
    assert_fine(droste_set(f.d, "rules", "yes", &f.err));
    assert_int_equal(droste_session_open(f.d, &f.session, &f.err), -DROSTE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(f.err.text, "'rules'"));
    assert_int_equal(f.opened, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cells_are_the_programs, setup, teardown),
        cmocka_unit_test_setup_teardown(calls_go_to_the_broker, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cell_has_its_time, setup, teardown),
        cmocka_unit_test_setup_teardown(its_failure_is_the_environments, setup, teardown),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
