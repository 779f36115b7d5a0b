/* Tools of an embedding program, as the code of a real guest meets them. */
#include "../test.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "droste.h"

#define API_ERROR f.err
#include "assert_fine.h"

enum { HELD_MAX = 64 };

static struct {
    droste *d;
    droste_session *session;
    droste_error err;
    unsigned called, cancelled, wait_for;
    droste_tool_call *held[HELD_MAX];
    char held_json[HELD_MAX][64];
    unsigned held_count;
    pthread_t threads[HELD_MAX];
    unsigned thread_count;
    char last[256];
} f;

static int setup(void **state)
{
    memset(&f, 0, sizeof f);
    assert_fine(droste_new(&f.d, &f.err));
    assert_fine(droste_set(f.d, "database", "none", &f.err));
    return 0;
}

static int teardown(void **state)
{
    droste_free(f.d);
    return 0;
}

/* ---- tools ---- */

/* Answers with its own arguments. */
static void echo(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    f.called++;
    snprintf(f.last, sizeof f.last, "%.*s", (int)len, json);
    droste_tool_answer(call, json, len);
}

/* {"type": T} raises T. */
static void raise_it(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    char type[64] = "";
    f.called++;
    sscanf(json, "{\"type\": \"%63[^\"]", type);
    droste_tool_fail(call, type, "it is so");
}

/* Keeps its calls until there are `wait_for`, and answers the latest first. */
static void hold(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    snprintf(f.held_json[f.held_count], sizeof f.held_json[0], "%.*s", (int)len, json);
    f.held[f.held_count++] = call;
    if (f.wait_for == 0 || f.held_count < f.wait_for)
        return;
    while (f.held_count > 0) {
        f.held_count--;
        droste_tool_answer(
            f.held[f.held_count], f.held_json[f.held_count], strlen(f.held_json[f.held_count]));
    }
}

static void note_cancel(void *arg, droste_tool_call *call)
{
    assert_true(droste_tool_is_cancelled(call));
    f.cancelled++;
}

/* Never answers by itself. */
static void forget(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    assert_false(droste_tool_is_cancelled(call));
    droste_tool_on_cancel(call, note_cancel, NULL);
    f.held[f.held_count++] = call;
}

static void lie(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    droste_tool_answer(call, "{oh", 3);
}

static void *answer_in_a_thread(void *arg)
{
    droste_error error = { 0 };
    assert_fine(droste_tool_post_answer(f.d, arg, "[41, 1]", 7, &error));
    return NULL;
}

static void *fail_in_a_thread(void *arg)
{
    droste_error error = { 0 };
    assert_fine(droste_tool_post_failure(f.d, arg, "ValueError", "not today", &error));
    return NULL;
}

/* Answered by a thread of their own. */
static void elsewhere(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    void *(*begin)(void *) = strstr(json, "no") ? fail_in_a_thread : answer_in_a_thread;
    assert_int_equal(pthread_create(&f.threads[f.thread_count++], NULL, begin, call), 0);
}

static const char search_schema[] =
    "{\"type\": \"object\", \"properties\": {"
    "\"limit\": {\"type\": \"integer\", \"default\": 10, \"description\": \"How many.\"},"
    "\"query\": {\"type\": \"string\", \"description\": \"What for.\"},"
    "\"order\": {\"enum\": [\"up\", \"down\"]}},"
    "\"required\": [\"query\"]}";

static void add_tools(void)
{
    static const char named[] = "{\"type\": \"object\", \"properties\": {\"a\": {}}, "
                                "\"additionalProperties\": true}";
    static const char typed[] = "{\"properties\": {\"type\": {\"type\": \"string\"}}}";
    droste *d = f.d;
    assert_fine(droste_tool_add(d, "search", "Finds things.", search_schema, echo, NULL, &f.err));
    assert_fine(droste_tool_add(d, "anything", NULL, NULL, echo, NULL, &f.err));
    assert_fine(droste_tool_add(d, "more", NULL, named, echo, NULL, &f.err));
    assert_fine(droste_tool_add(d, "fail", NULL, typed, raise_it, NULL, &f.err));
    assert_fine(droste_tool_add(d, "hold", NULL, NULL, hold, NULL, &f.err));
    assert_fine(droste_tool_add(d, "forget", NULL, NULL, forget, NULL, &f.err));
    assert_fine(droste_tool_add(d, "lie", NULL, NULL, lie, NULL, &f.err));
}

static void open_session(void)
{
    add_tools();
    assert_fine(droste_session_open(f.d, &f.session, &f.err));
}

static droste_result *run(const char *code, const char *status)
{
    droste_result *r = NULL;
    assert_fine(droste_session_exec(f.session, code, strlen(code), 0, &r, &f.err));
    if (strcmp(droste_result_status(r), status) != 0)
        fail_msg("%s, not %s", droste_result_json(r, NULL), status);
    return r;
}

static void submits(const char *code, const char *json)
{
    droste_result *r = run(code, "submitted");
    assert_string_equal(droste_result_submit(r, NULL), json);
    droste_result_free(r);
}

/* ---- what the guest sees ---- */

/* Those that must be given come first; what has a default is sent, what has none is not. */
static void a_tool_is_a_function_with_the_parameters_of_its_schema(void **state)
{
    open_session();
    submits("import inspect\nSUBMIT(s=str(inspect.signature(search)), d=search.__doc__)",
        "{\"s\": \"(query: str, limit: int = 10, order=...)\", \"d\": \"Finds "
        "things.\\n\\nArguments:"
        "\\n  query: What for.\\n  limit: How many.\"}");
    submits("SUBMIT(v=search('x', order='up'))",
        "{\"v\": {\"query\": \"x\", \"limit\": 10, \"order\": \"up\"}}");
    submits("SUBMIT(v=search('x', 3))", "{\"v\": {\"query\": \"x\", \"limit\": 3}}");
    submits("SUBMIT(v=anything(1, [2], k={'a': (None, True)}))",
        "{\"v\": {\"k\": {\"a\": [null, true]}, \"args\": [1, [2]]}}");
    submits("SUBMIT(v=more(a=1, b=2, more=3))", "{\"v\": {\"a\": 1, \"b\": 2, \"more\": 3}}");
    assert_int_equal(f.called, 4);
}

/* The guest's Python refuses names and numbers, the host types and choices: nothing is called. */
static void wrong_arguments_are_a_type_error_and_no_call(void **state)
{
    static const char *const wrong[] = { "search()", "search('x', 1, 'up', 2)", "search('x', no=1)",
        "search(5)", "search('x', limit='many')", "search('x', limit=True)",
        "search('x', order='left')", "anything(1, args=[2])", "anything(open)", "fail(type=3)" };
    open_session();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char code[200];
        snprintf(code, sizeof code, "try: %s\nexcept TypeError as e: SUBMIT(m=len(str(e)) > 10)\n",
            wrong[i]);
        droste_result_free(run(code, "submitted"));
    }
    assert_int_equal(f.called, 0);
    submits("SUBMIT(v=search('x', limit=2.0))", "{\"v\": {\"query\": \"x\", \"limit\": 2.0}}");
}

static void errors_are_the_exceptions_that_the_tool_named(void **state)
{
    open_session();
    submits(
        "found = []\n"
        "for t in ['ValueError', 'KeyError', 'TypeError', 'RuntimeError', 'OSError', 'Strange',\n"
        "          'SystemExit', 'UnicodeDecodeError', 'ToolError']:\n"
        "    try: fail(t)\n"
        "    except Exception as e: found.append([type(e).__name__, str(e), isinstance(e, "
        "RuntimeError)])\n"
        "SUBMIT(found=[f[0] for f in found], odd=found[5], key=found[1][1], own=found[8][1])",
        "{\"found\": [\"ValueError\", \"KeyError\", \"TypeError\", \"RuntimeError\", \"OSError\", "
        "\"ToolError\", \"ToolError\", \"ToolError\", \"ToolError\"], \"odd\": [\"ToolError\", "
        "\"Strange: it is so\", true], \"key\": \"'it is so'\", \"own\": \"it is so\"}");
    submits("try: lie()\nexcept RuntimeError as e: SUBMIT(said='not JSON' in str(e))",
        "{\"said\": true}");
}

/* Many threads, each of which gets its own answer, whatever the order. */
static void several_calls_are_under_way_at_once(void **state)
{
    open_session();
    f.wait_for = 20;
    submits("from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(20) as pool:\n"
            "    SUBMIT(v=[x['n'] for x in pool.map(lambda n: hold(n=n), range(20))] == "
            "list(range(20)))",
        "{\"v\": true}");
}

/* Shadowing and del are the user's own affair: the built-in stays. */
static void what_hides_a_tool_does_not_lose_it(void **state)
{
    open_session();
    submits("search = 5\nx = search\ndel search\nSUBMIT(v=search('y')['query'], x=x)",
        "{\"v\": \"y\", \"x\": 5}");
    submits("try: del search\nexcept NameError: SUBMIT(v=search('z')['query'])", "{\"v\": \"z\"}");
    submits("SUBMIT(v=SHOW_VARS())", "{\"v\": \"Available variables: {'x': 'int'}\"}");
}

static void values_and_source_are_there_from_the_start(void **state)
{
    static const char code[] = "def double(n):\n    'Twice.'\n    return 2 * n + base\n";
    assert_fine(droste_tool_data(f.d, "base", "40", 2, &f.err));
    assert_fine(droste_tool_source(f.d, "mine.py", code, sizeof code - 1, &f.err));
    open_session();
    submits("SUBMIT(v=double(1))", "{\"v\": 42}");
    droste_result *r = run("double('x' + 1)", "error");
    droste_result_free(r);
    r = run("double(None)", "error");
    assert_non_null(strstr(droste_result_traceback(r), "File \"<tools mine.py>\", line 3"));
    assert_non_null(strstr(droste_result_traceback(r), "return 2 * n + base"));
    droste_result_free(r);
}

/* ---- answers from other threads ---- */

/* The loop sleeps meanwhile, for it alone; a failure is raised as one. */
static void other_threads_answer_calls(void **state)
{
    assert_fine(droste_tool_add(f.d, "elsewhere", NULL, NULL, elsewhere, NULL, &f.err));
    open_session();
    submits("SUBMIT(v=elsewhere('yes'))", "{\"v\": [41, 1]}");
    submits(
        "try: elsewhere('no')\nexcept ValueError as e: SUBMIT(m=str(e))", "{\"m\": \"not today\"}");
    while (f.thread_count > 0)
        pthread_join(f.threads[--f.thread_count], NULL);
}

/* What comes after a droste's last turn is freed with it. */
static void an_answer_that_is_not_taken_is_freed(void **state)
{
    assert_fine(droste_set(f.d, "tool-timeout", "100ms", &f.err));
    open_session();
    submits("try: forget()\nexcept TimeoutError: SUBMIT(m=1)", "{\"m\": 1}");
    assert_int_equal(f.held_count, 1);
    answer_in_a_thread(f.held[0]);
}

/* ---- calls that nobody waits for ---- */

/* The cell is over, the tool is told, and its late answer is nobody's. */
static void a_call_whose_cell_is_over_is_cancelled(void **state)
{
    assert_fine(droste_set(f.d, "tool-timeout", "100ms", &f.err));
    open_session();
    submits("try: forget()\nexcept TimeoutError as e: SUBMIT(m=str(e))",
        "{\"m\": \"no answer within 0.1 s (tool-timeout); the call was cancelled\"}");
    assert_int_equal(f.cancelled, 1);
    assert_true(droste_tool_is_cancelled(f.held[0]));
    droste_tool_answer(f.held[0], "1", 1);
    submits("SUBMIT(v=search('x')['limit'])", "{\"v\": 10}");
}

#define IN_A_THREAD "import threading, time\nthreading.Thread(target=forget, daemon=True).start()\n"

/* What a thread of the cell waits for at its deadline is nobody's either. A deadline that is over
 * before the call has come is followed by a longer one. */
static void a_call_of_a_cell_at_its_deadline_is_cancelled(void **state)
{
    static const char code[] = IN_A_THREAD "time.sleep(1e6)";
    open_session();
    for (double limit = 0.5; f.held_count == 0 && limit < 60; limit *= 10) {
        droste_result *r = NULL;
        assert_fine(droste_session_exec_start(f.session, code, sizeof code - 1, 0, limit, &f.err));
        assert_fine(droste_session_wait(f.session, -1, &r, &f.err));
        assert_string_equal(droste_result_status(r), "timeout");
        droste_result_free(r);
    }
    assert_int_equal(f.held_count, 1);
    assert_int_equal(f.cancelled, 1);
    droste_tool_fail(f.held[0], "ValueError", "too late");
    submits("SUBMIT(v=search('x')['limit'])", "{\"v\": 10}");
}

static void a_call_of_a_session_that_closes_is_cancelled(void **state)
{
    open_session();
    droste_result_free(run(IN_A_THREAD, "ok"));
    while (f.held_count == 0) /* it may come later than the end of its cell */
        droste_result_free(run("x = search('x')", "ok"));
    assert_int_equal(f.cancelled, 0);
    droste_session_close(f.session);
    assert_int_equal(f.cancelled, 1);
    droste_tool_fail(f.held[0], "ValueError", "too late");
}

/* ---- hostile guests ---- */

#define FORGE                                                                                      \
    "link = llm_query.__globals__['state'].link\n"                                                 \
    "def forge(name, *parts, **head):\n"                                                           \
    "    reply, answer = link.call(dict(head, name='tool', tool=name), list(parts))\n"             \
    "    error = reply.get('error') or reply.get('errors', {}).get('0')\n"                         \
    "    return (error['message'] if error else 'answered')[:60]\n"

/* Whatever the guest sends, the tool is called with an object that fits its schema, or not at
 * all. */
static void forged_calls_are_refused_by_the_host(void **state)
{
    static const struct {
        const char *call, *says;
    } cases[] = {
        { "forge('nothing', b'{}')", "no tool 'nothing'" },
        { "forge('', b'{}')", "no tool ''" },
        { "forge(['search'], b'{}')", "no tool ''" },
        { "forge('search')", "the call has no prompt" },
        { "forge('search', b'{}', b'{}')", "must consist of its arguments" },
        { "forge('search', b'')", "search(): JSON is invalid" },
        { "forge('search', b'[]')", "search(): the arguments are not a JSON object" },
        { "forge('search', b'null')", "search(): the arguments are not a JSON object" },
        { "forge('search', b'{\"query\": \"x\"} ;')", "search(): JSON is invalid" },
        { "forge('search', b'{\"query\": NaN}')", "search(): JSON is invalid" },
        { "forge('search', b'{\"query\": \"\\xff\"}')", "search(): JSON is" },
        { "forge('anything', b'{\"a\": 1, \"a\": 1}')", "an argument is given twice" },
        { "forge('search', b'{\"query\": \"/etc\", \"qu\\\\u0065ry\": \"x\"}')", "given twice" },
        { "forge('search', b'{\"query\\\\u0000\": \"x\"}')", "contains a zero byte" },
        { "forge('search', b'{}')", "'query' is missing" },
        { "forge('search', b'{\"query\": 1}')", "'query' must be of type string" },
        { "forge('search', b'{\"query\": \"\", \"path\": \"/etc/passwd\"}')",
            "no parameter 'path'" },
        { "forge('anything', b'{\"a\":' + b'[' * 10**6)", "anything(): JSON" },
        { "forge('anything', b'{\"a\":[' + b'1,' * 300000 + b'1]}')", "anything(): JSON" },
        { "forge('anything', b'{\"a\":\"' + b'x' * (20 << 20) + b'\"}')", "anything(): JSON" },
        { "forge('anything', b'{}', kinds=['text'])", "the call has no prompt" },
    };
    open_session();
    droste_result_free(run(FORGE, "ok"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char code[256];
        snprintf(code, sizeof code, "SUBMIT(v=%s)", cases[i].call);
        droste_result *r = run(code, "submitted");
        if (!strstr(droste_result_submit(r, NULL), cases[i].says))
            fail_msg("%s says %s", cases[i].call, droste_result_submit(r, NULL));
        droste_result_free(r);
    }
    assert_int_equal(f.called, 0);
    submits("SUBMIT(v=forge('search', b'{\"query\": \"x\\\\u0000:\\\\\\\"\"}'))",
        "{\"v\": \"answered\"}");
    submits("SUBMIT(v=forge('anything', b'{\"a\": {\"a\": [{\"a\": \":\"}]}, \"b\\\\\\\":\": 1}'))",
        "{\"v\": \"answered\"}");
    assert_int_equal(f.called, 2);
}

/* Those that the host refuses count too: a flood ends either way. */
static void calls_of_tools_are_counted(void **state)
{
    assert_fine(droste_set(f.d, "max-tool-calls", "5", &f.err));
    open_session();
    submits("made = 0\n"
            "try:\n"
            "    for i in range(1000): search(str(i)); made += 1\n"
            "except BudgetExceeded as e: SUBMIT(made=made, said=str(e))",
        "{\"made\": 5, \"said\": \"tool call limit exceeded: 5 + 1 > 5 (max-tool-calls)\"}");
    assert_int_equal(f.called, 5);
    submits(
        "try: llm_query('x')\nexcept LLMError as e: SUBMIT(code=e.code)", "{\"code\": \"config\"}");
}

/* ---- conversations ---- */

/* Writes code that counts up in its session, and says how many messages it was shown. */
static void count_up(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    char text[200];
    snprintf(text, sizeof text,
        "```repl\nn = globals().get('n', 0) + search('x')['limit']\nSUBMIT(answer=[n, %zu, "
        "len(globals().get('history', []))])\n```",
        count);
    droste_answer(call, text, strlen(text));
}

static void answers(droste_chat *chat, const char *json)
{
    droste_result *r = NULL;
    assert_fine(droste_chat_ask(chat, "How many?", NULL, NULL, NULL, &r, &f.err));
    if (!droste_result_answer(r, NULL) || strcmp(droste_result_answer(r, NULL), json) != 0)
        fail_msg("%s, not %s", droste_result_json(r, NULL), json);
    droste_result_free(r);
}

/* Variables, tools and messages go on from question to question, without a record. */
static void a_conversation_has_one_session(void **state)
{
    droste_chat *chat = NULL;
    droste_result *r = NULL;
    add_tools();
    droste_set_model(f.d, count_up, NULL);
    assert_fine(droste_set(f.d, "model", "callback", &f.err));
    assert_fine(droste_chat_open(f.d, &chat, &f.err));
    answers(chat, "[10,2,0]");
    answers(chat, "[20,4,2]");
    assert_int_equal(
        droste_chat_ask(chat, "", NULL, NULL, NULL, &r, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(
        droste_chat_ask(chat, "q", "/nowhere", NULL, NULL, &r, &f.err), -DROSTE_ERROR_NOT_FOUND);
    answers(chat, "[30,6,4]");
    droste_chat_close(chat);
    assert_int_equal(f.called, 3);
    assert_int_equal(
        droste_chat_continue(f.d, "any", &chat, &f.err), -DROSTE_ERROR_CONFIG); /* no record */
}

/* ---- a run that is resumed ---- */

static char place[] = "/tmp/droste-tools-XXXXXX";

static void hold_code(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    static const char code[] = "```repl\nSUBMIT(answer=[base, double(1), hold(n=1)['n']])\n```";
    droste_answer(call, code, sizeof code - 1);
}

/* A program with these tools; NULL: it has none of that kind. */
static void begin_life(const char *base, const char *source, bool has_hold)
{
    char path[64];
    snprintf(path, sizeof path, "%s/runs.db", place);
    droste_free(f.d);
    assert_fine(droste_new(&f.d, &f.err));
    assert_fine(droste_set(f.d, "database", path, &f.err));
    assert_fine(droste_set(f.d, "model", "callback", &f.err));
    droste_set_model(f.d, hold_code, NULL);
    if (has_hold)
        assert_fine(droste_tool_add(f.d, "hold", NULL, NULL, hold, NULL, &f.err));
    if (base)
        assert_fine(droste_tool_data(f.d, "base", base, strlen(base), &f.err));
    if (source)
        assert_fine(droste_tool_source(f.d, "s.py", source, strlen(source), &f.err));
}

static void note_run(void *arg, droste_result *r)
{
    const char *at = strstr(droste_result_json(r, NULL), "\"run\":\"");
    assert_string_equal(droste_result_status(r), "interrupted");
    assert_non_null(at);
    sscanf(at, "\"run\":\"%63[^\"]", f.last);
    droste_result_free(r);
}

static void suspend_one(void)
{
    droste_running *running = NULL;
    droste_request q = { .question = "q", .done = note_run };
    assert_fine(droste_start(f.d, &q, &running, &f.err));
    while (f.held_count == 0)
        assert_fine(droste_turn(f.d, -1, &f.err));
    droste_suspend(running);
    while (!f.last[0])
        assert_fine(droste_turn(f.d, -1, &f.err));
    droste_tool_fail(f.held[0], "ValueError", "too late");
    f.held_count = 0;
    f.wait_for = 1;
}

static void remove_directory(void)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    char path[64];
    droste_free(f.d);
    f.d = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s/runs.db%s", place, ends[i]);
        unlink(path);
    }
    rmdir(place);
}

static void refuses_to_resume(const char *says)
{
    droste_result *r = NULL;
    assert_int_equal(droste_resume(f.d, f.last, NULL, NULL, &r, &f.err), -DROSTE_ERROR_ARGUMENT);
    if (!strstr(f.err.text, says))
        fail_msg("'%s' does not say '%s'", f.err.text, says);
}

/* Another program than the one that began a run must have the same values and source, and functions
 * of the same names; what lacks or differs is named, and the run can be gone on with by one that
 * has all. */
static void a_run_is_resumed_with_its_tools_only(void **state)
{
    static const char twice[] = "def double(n):\n    'Twice.'\n    return 2 * n\n";
    static const char thrice[] = "def double(n):\n    'Twice.'\n    return 3 * n\n";
    droste_result *r = NULL;
    assert_non_null(mkdtemp(place));
    begin_life("40", twice, true);
    suspend_one();
    begin_life("41", twice, true);
    refuses_to_resume("tool-data 'base' has changed since run '");
    begin_life(NULL, twice, true);
    refuses_to_resume("tool-data 'base' of run '");
    begin_life("40", thrice, true);
    refuses_to_resume("the source of tools 's.py' has changed");
    begin_life("40", twice, false);
    refuses_to_resume("the tool 'hold' of run '");
    begin_life("40", twice, true);
    assert_fine(droste_tool_data(f.d, "one_more", "1", 1, &f.err));
    assert_fine(droste_resume(f.d, f.last, NULL, NULL, &r, &f.err));
    assert_string_equal(droste_result_answer(r, NULL), "[40,2,1]");
    droste_result_free(r);
    remove_directory();
}

/* ---- contexts beside them ---- */

/* A name of both is refused, in sessions and in runs, whichever was there first; another one is
 * fine. */
static void no_context_hides_a_tool(void **state)
{
    static const char code[] = "def double(n):\n    'Twice.'\n    return 2 * n\n";
    static const char *const names[] = { "search", "base", "double" };
    droste_result *r = NULL;
    char context[64];
    assert_fine(droste_set(f.d, "model", "callback", &f.err));
    droste_set_model(f.d, hold_code, NULL);
    assert_fine(droste_tool_data(f.d, "base", "40", 2, &f.err));
    assert_fine(droste_tool_source(f.d, "s.py", code, sizeof code - 1, &f.err));
    open_session();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(context, sizeof context, "%s=/etc/passwd", names[i]);
        assert_fine(droste_context_add(f.d, context, &f.err));
        assert_int_equal(droste_session_load_contexts(f.session, &f.err), -DROSTE_ERROR_ARGUMENT);
        assert_non_null(strstr(f.err.text, "has the same name as a tool"));
        if (i < 2) { /* what a source defines is known once it has run */
            assert_int_equal(
                droste_run(f.d, "q", NULL, NULL, NULL, &r, &f.err), -DROSTE_ERROR_ARGUMENT);
            assert_non_null(strstr(f.err.text, names[i]));
        } else {
            assert_fine(droste_run(f.d, "q", NULL, NULL, NULL, &r, &f.err));
            assert_non_null(strstr(droste_result_json(r, NULL), "has the same name as a tool"));
            droste_result_free(r);
        }
        droste_context_clear(f.d);
    }
    assert_fine(droste_context_add(f.d, "other=/etc/hostname", &f.err));
    assert_fine(droste_session_load_contexts(f.session, &f.err));
    submits("SUBMIT(v=[base, double(2), type(other).__name__])", "{\"v\": [40, 4, \"str\"]}");
}

/* ---- what cannot be a tool ---- */

static void refuses(const char *name, const char *schema, const char *says)
{
    droste_error why = { 0 };
    assert_int_equal(droste_tool_add(f.d, name, NULL, schema, echo, NULL, &why),
        schema && strstr(says, "JSON is") ? -DROSTE_ERROR_PROTOCOL : -DROSTE_ERROR_ARGUMENT);
    if (!strstr(why.text, says))
        fail_msg("'%s': %s", name, why.text);
}

static void names_and_schemas_that_make_no_sense_are_refused(void **state)
{
    static const char *const names[] = { "", "2nd", "a-b", "a b", "\xc3\xa9", "a.b" };
    static const char *const reserved[] = { "print", "open", "for", "match", "None", "llm_query",
        "rlm_query_batched", "context", "context_3", "SUBMIT", "answer", "history", "_x",
        "__import__", "ToolError", "ExceptionGroup" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        refuses(names[i], NULL, "is not a valid name for a tool");
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        refuses(reserved[i], NULL, "is reserved");
    refuses("x", "[]", "must be a JSON schema of an object");
    refuses("x", "{\"type\": \"array\"}", "must be a JSON schema of an object");
    refuses("x", "{\"properties\": []}", "`properties` must be an object");
    refuses("x", "{\"properties\": {\"a\": 1}}", "'a' is not a schema");
    refuses("x", "{\"properties\": {\"a\": {\"type\": \"str\"}}}", "'a' has an unknown type");
    refuses(
        "x", "{\"properties\": {\"a\": {\"type\": [\"string\", 1]}}}", "'a' has an unknown type");
    refuses("x", "{\"required\": \"a\"}", "`required` must be an array");
    refuses("x", "{oh", "JSON is");
    assert_fine(droste_tool_add(f.d, "x", NULL, "{}", echo, NULL, &f.err));
    refuses("x", NULL, "two tools with the name 'x'");
    assert_fine(droste_tool_data(f.d, "y", "[]", 2, &f.err));
    refuses("y", NULL, "two tools with the name 'y'");
    assert_int_equal(droste_tool_data(f.d, "z", "[1", 2, &f.err), -DROSTE_ERROR_PROTOCOL);
    assert_int_equal(
        droste_tool_data_values(f.d, "z", "[1", 2, "", 0, &f.err), -DROSTE_ERROR_PROTOCOL);
    assert_int_equal(droste_tool_data(f.d, "x", "1", 1, &f.err), -DROSTE_ERROR_ARGUMENT);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_tool_is_a_function_with_the_parameters_of_its_schema),
        T(wrong_arguments_are_a_type_error_and_no_call),
        T(errors_are_the_exceptions_that_the_tool_named),
        T(several_calls_are_under_way_at_once),
        T(what_hides_a_tool_does_not_lose_it),
        T(values_and_source_are_there_from_the_start),
        T(other_threads_answer_calls),
        T(an_answer_that_is_not_taken_is_freed),
        T(a_call_whose_cell_is_over_is_cancelled),
        T(a_call_of_a_cell_at_its_deadline_is_cancelled),
        T(a_call_of_a_session_that_closes_is_cancelled),
        T(forged_calls_are_refused_by_the_host),
        T(calls_of_tools_are_counted),
        T(a_conversation_has_one_session),
        T(a_run_is_resumed_with_its_tools_only),
        T(no_context_hides_a_tool),
        T(names_and_schemas_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
