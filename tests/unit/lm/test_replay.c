/* Recording calls and answering from the recording. */
#include "fixture.h"

#include <signal.h>
#include <sys/resource.h>

struct files {
    char path[64], model[80];
    struct loop *loop;
};

static int with_file(void **state)
{
    struct files *s = calloc(1, sizeof *s);
    snprintf(s->path, sizeof s->path, "/tmp/droste-replay-XXXXXX");
    close(mkstemp(s->path));
    snprintf(s->model, sizeof s->model, "replay:%s", s->path);
    assert_ok(loop_open(&s->loop, err));
    *state = s;
    return 0;
}

static int without_file(void **state)
{
    struct files *s = *state;
    loop_close(s->loop);
    unlink(s->path);
    free(s);
    return 0;
}

static void write_file(const struct files *s, const char *text)
{
    FILE *f = fopen(s->path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct lm *open_replay(const struct files *s)
{
    struct lm_options options = { .model = s->model };
    return open_lm(s->loop, &options);
}

/* Asks the lm at a depth, and gives "text" or "!code" back, valid until the next. */
static const char *reply_of(const struct files *s, struct lm *lm, const char *text, unsigned depth)
{
    static char result[ERROR_TEXT_SIZE + 300];
    cleanup_answer struct answer a = { 0 };
    start(lm, NULL, text, strlen(text), depth, &a);
    assert_ok(loop_run_until(s->loop, &a.done, err));
    if (a.error.code == ERROR_NONE)
        snprintf(result, sizeof result, "%s", buf_text(&a.text));
    else
        snprintf(result, sizeof result, "!%s: %s", error_code_name(a.error.code), a.error.text);
    return result;
}

/* Answers with the call's number, or refuses. */
static void counting(void *arg, const struct lm_request *request, struct lm_call *call)
{
    static const struct error refused = { .code = ERROR_MODEL_RATE, .text = "too many \xE2\x9F" };
    struct lm_usage usage = { 100, ++*(int *)arg, false };
    char text[64];
    int n = snprintf(text, sizeof text, "answer \"%d\"\n\xC3\xA9", *(int *)arg);
    if (memmem(request->messages[0].text, request->messages[0].len, "refuse", 6))
        lm_answer(call, NULL, 0, NULL, &refused);
    else
        lm_answer(call, text, (size_t)n, &usage, NULL);
}

static struct lm *open_recording(const struct files *s, int *count)
{
    struct lm_options options = {
        .model = "callback", .callback = counting, .callback_arg = count, .record = s->path
    };
    return open_lm(s->loop, &options);
}

static void assert_same_usage(const struct lm_usage *a, const struct lm_usage *b)
{
    assert_int_equal(a->input_tokens, b->input_tokens);
    assert_int_equal(a->output_tokens, b->output_tokens);
    assert_int_equal(a->estimated, b->estimated);
}

/* Record, then replay: the same texts, usage and errors, repeated questions in their order. */
static void a_recording_gives_the_same_answers(void **state)
{
    static const char *const asked[] = { "one", "same", "same", "refuse", "\"\\\n\x01\xC3\xA9" };
    struct files *s = *state;
    struct answer recorded[array_length(asked)] = { 0 }, replayed[array_length(asked)] = { 0 };
    int count = 0;
    struct lm *lm = open_recording(s, &count);
    for (size_t i = 0; i < array_length(asked); i++)
        ask(s->loop, lm, asked[i], &recorded[i]);
    lm_close(lm);
    lm = open_replay(s);
    for (size_t i = 0; i < array_length(asked); i++)
        ask(s->loop, lm, asked[i], &replayed[i]);
    lm_close(lm);
    for (size_t i = 0; i < array_length(asked); i++) {
        assert_int_equal(replayed[i].error.code, recorded[i].error.code);
        assert_string_equal(buf_text(&replayed[i].text), buf_text(&recorded[i].text));
        assert_string_equal(replayed[i].finish, recorded[i].finish);
        assert_same_usage(&replayed[i].usage, &recorded[i].usage);
        answer_free(&recorded[i]);
        answer_free(&replayed[i]);
    }
}

/* Another depth, another limit or another text is another call. */
static void another_request_is_not_answered(void **state)
{
    struct files *s = *state;
    int count = 0;
    struct lm *lm = open_recording(s, &count);
    reply_of(s, lm, "one", 0);
    lm_close(lm);
    lm = open_replay(s);
    assert_non_null(strstr(reply_of(s, lm, "one", 1), "!model_replay"));
    assert_non_null(strstr(reply_of(s, lm, "two", 0), "!model_replay"));
    cleanup_answer struct answer a = { 0 };
    struct lm_message message = { "user", "one", 3 };
    struct lm_request request = { .messages = &message, .message_count = 1, .temperature = 0.5 };
    assert_ok(lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
    assert_ok(loop_run_until(s->loop, &a.done, err));
    assert_failed(&a, ERROR_MODEL_REPLAY, "--record");
    assert_non_null(strstr(reply_of(s, lm, "one", 0), "answer \"1\""));
    lm_close(lm);
}

/* A line that is used up answers again below the root, but not at it. */
static void used_lines_answer_again_only_below_the_root(void **state)
{
    struct files *s = *state;
    int count = 0;
    struct lm *lm = open_recording(s, &count);
    reply_of(s, lm, "root", 0);
    reply_of(s, lm, "sub", 1);
    reply_of(s, lm, "sub", 1);
    lm_close(lm);
    lm = open_replay(s);
    assert_non_null(strstr(reply_of(s, lm, "root", 0), "answer \"1\""));
    assert_non_null(strstr(reply_of(s, lm, "root", 0), "depth 0 (1 of the 1 lines"));
    assert_non_null(strstr(reply_of(s, lm, "sub", 1), "answer \"2\""));
    assert_non_null(strstr(reply_of(s, lm, "sub", 1), "answer \"3\""));
    assert_non_null(strstr(reply_of(s, lm, "sub", 1), "answer \"2\""));
    lm_close(lm);
}

/* Lines of several models: a call that names one gets that one's answer. */
static void a_named_model_gets_its_own_lines(void **state)
{
    struct files *s = *state;
    cleanup_answer struct answer a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    int count = 0;
    struct lm *lm = open_recording(s, &count);
    start(lm, "big", "x", 1, 0, &a);
    start(lm, "openai/small", "x", 1, 0, &b);
    assert_ok(loop_run_until(s->loop, &b.done, err));
    lm_close(lm);
    lm = open_replay(s);
    start(lm, "small", "x", 1, 0, &c);
    start(lm, "big", "x", 1, 0, &d);
    assert_ok(loop_run_until(s->loop, &d.done, err));
    lm_close(lm);
    assert_answered(&c, "answer \"2\"\n\xC3\xA9");
    assert_answered(&d, "answer \"1\"\n\xC3\xA9");
}

/* Lines written by hand: file order, depth, `contains`, `repeat`. */
static void scripted_lines_are_matched_in_order(void **state)
{
    struct files *s = *state;
    write_file(s, "{\"content\":\"first\"}\n"
                  "\n"
                  "{\"content\":\"about cats\",\"contains\":\"cat\"}\n"
                  "{\"content\":\"sub\",\"depth\":1,\"repeat\":true}\n"
                  "{\"content\":\"slow\",\"delay_ms\":30}\n"
                  "{\"error\":{\"code\":\"model_rate\",\"message\":\"enough\"}}\n");
    struct lm *lm = open_replay(s);
    assert_string_equal(reply_of(s, lm, "dog", 1), "sub");
    assert_string_equal(reply_of(s, lm, "dog", 0), "first");
    assert_string_equal(reply_of(s, lm, "dog", 1), "sub");
    assert_string_equal(reply_of(s, lm, "dog", 0), "slow");
    assert_string_equal(reply_of(s, lm, "a cat", 0), "about cats");
    assert_string_equal(reply_of(s, lm, "a cat", 0), "!model_rate: enough");
    assert_non_null(strstr(reply_of(s, lm, "a cat", 0), "4 of the 4 lines"));
    lm_close(lm);
}

/* An answer whose delay lasts can be cancelled, and the lm be closed under it. */
static void a_delayed_answer_can_be_cancelled(void **state)
{
    struct files *s = *state;
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    write_file(s, "{\"content\":\"late\",\"delay_ms\":60000,\"repeat\":true}\n");
    struct lm *lm = open_replay(s);
    struct lm_call *call = start(lm, NULL, "x", 1, 0, &a);
    start(lm, NULL, "x", 1, 0, &b);
    loop_turn(s->loop, 0);
    loop_turn(s->loop, 0);
    lm_cancel(call, NULL);
    lm_close(lm);
    assert_int_equal(a.times_done + b.times_done, 0);
}

/* A line that is wrong is found at lm_open, with the file's name, its number and what is wrong. */
static void a_malformed_line_is_named(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "{\"content\":\"a\"}\n{\"content\":\n", "line 2: JSON is invalid" },
        { "\n\n[1]\n", "line 3: it is not a JSON object" },
        { "{\"content\":7}\n", "line 1: 'content' is not a string" },
        { "{\"depth\":1}\n", "line 1: it has neither 'content' nor 'error'" },
        { "{\"v\":2,\"content\":\"a\"}\n", "line 1: its version" },
        { "{\"content\":\"a\",\"depth\":-1}\n", "line 1: it has a negative" },
        { "{\"content\":\"a\",\"depth\":4294967296}\n", "line 1: its 'depth' is too large" },
        { "{\"content\":\"a\",\"repeat\":1}\n", "line 1: 'repeat'" },
        { "{\"content\":\"\xff\"}\n", "line 1: JSON is not UTF-8" },
    };
    struct files *s = *state;
    struct lm_options options = { .model = s->model };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct lm *lm = NULL;
        struct error err = { 0 };
        write_file(s, cases[i].text);
        assert_int_equal(lm_open(s->loop, &options, &lm, &err), -ERROR_ARGUMENT);
        if (!strstr(err.text, cases[i].words) || !strstr(err.text, s->path))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].words);
    }
    struct lm *lm = NULL;
    options.model = "replay:/nonexistent/file";
    assert_fails(ERROR_NOT_FOUND, lm_open(s->loop, &options, &lm, err));
}

/* A recording is its owner's alone, and each line is a JSON object with the fields of the format.
 */
static void a_recorded_line_has_the_documented_fields(void **state)
{
    struct files *s = *state;
    cleanup_buf struct buf b = { 0 };
    cleanup_json struct json_object *o = NULL;
    struct stat st;
    int count = 0;
    unlink(s->path);
    struct lm *lm = open_recording(s, &count);
    reply_of(s, lm, "refuse", 3);
    lm_close(lm);
    assert_int_equal(stat(s->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_ok(file_read(s->path, 1 << 20, &b, err));
    assert_int_equal(b.data[b.len - 1], '\n');
    assert_ok(json_parse(b.data, b.len, &json_limits_small, &o, err));
    assert_int_equal(json_get_int(o, "v", 0), 1);
    assert_int_equal(json_get_int(o, "depth", 0), 3);
    assert_int_equal(strlen(json_get_string(o, "key", "")), 64);
    assert_string_equal(json_get_string(o, "model", ""), "callback");
    struct json_object *messages = json_get_typed(o, "messages", json_type_array);
    struct json_object *message = json_object_array_get_idx(messages, 0);
    assert_string_equal(json_get_string(message, "content", ""), "refuse");
    assert_string_equal(json_get_string(message, "role", ""), "user");
    struct json_object *error = json_get_typed(o, "error", json_type_object);
    assert_string_equal(json_get_string(error, "code", ""), "model_rate");
    assert_string_equal(json_get_string(error, "message", ""), "too many \xEF\xBF\xBD");
}

/* What cannot be written is the call's error; a torn file is not appended to. */
static void a_failing_record_is_an_error_of_the_call(void **state)
{
    struct files *s = *state;
    int count = 0;
    struct lm_options options = {
        .model = "callback", .callback = counting, .callback_arg = &count, .record = s->path
    };
    struct rlimit was, none = { 0, RLIM_INFINITY };
    struct lm *lm = open_lm(s->loop, &options);
    signal(SIGXFSZ, SIG_IGN); /* write(2) fails with EFBIG, as it fails on a full disk */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    none.rlim_max = was.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    const char *words = reply_of(s, lm, "x", 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_non_null(strstr(words, "!io: recording to "));
    lm_close(lm);
    write_file(s, "{\"content\":\"a\"}\n{\"cont");
    assert_fails(ERROR_PROTOCOL, lm_open(s->loop, &options, &lm, err));
    options.record = "/nonexistent/file";
    assert_fails(ERROR_NOT_FOUND, lm_open(s->loop, &options, &lm, err));
}

/* Over real HTTP: what was recorded replays, and the key is nowhere in the file. */
static void an_http_recording_replays_without_the_key(void **state)
{
    static const char *const models[] = { "ok", "echo", "leak", "auth", "stream-cut", "nousage" };
    struct files *s = *state;
    struct fake f;
    struct answer a[array_length(models)] = { 0 }, b[array_length(models)] = { 0 };
    cleanup_buf struct buf file = { 0 };
    fake_start(&f, NULL, NULL);
    struct lm_options options = options_for(&f, "ok");
    options.record = s->path;
    options.stream = true;
    struct lm *lm = open_lm(f.loop, &options);
    for (size_t i = 0; i < array_length(models); i++) {
        start(lm, models[i], "hi", 2, 0, &a[i]);
        assert_ok(loop_run_until(f.loop, &a[i].done, err));
    }
    lm_close(lm);
    fake_stop(&f);
    lm = open_replay(s);
    for (size_t i = 0; i < array_length(models); i++) {
        start(lm, models[i], "hi", 2, 0, &b[i]);
        assert_ok(loop_run_until(s->loop, &b[i].done, err));
        assert_int_equal(b[i].error.code, a[i].error.code);
        assert_string_equal(b[i].error.text, a[i].error.text);
        assert_string_equal(buf_text(&b[i].text), buf_text(&a[i].text));
        assert_same_usage(&b[i].usage, &a[i].usage);
        answer_free(&a[i]);
        answer_free(&b[i]);
    }
    lm_close(lm);
    assert_ok(file_read(s->path, 1 << 20, &file, err));
    assert_null(strstr(file.data, TEST_KEY));
    assert_non_null(strstr(file.data, "your key is ****"));
}

#define file_test(f) cmocka_unit_test_setup_teardown(f, with_file, without_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(a_recording_gives_the_same_answers),
        file_test(another_request_is_not_answered),
        file_test(used_lines_answer_again_only_below_the_root),
        file_test(a_named_model_gets_its_own_lines),
        file_test(scripted_lines_are_matched_in_order),
        file_test(a_delayed_answer_can_be_cancelled),
        file_test(a_malformed_line_is_named),
        file_test(a_recorded_line_has_the_documented_fields),
        file_test(a_failing_record_is_an_error_of_the_call),
        file_test(an_http_recording_replays_without_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
