/* Settings: defaults, precedence of the sources, units, and errors for invalid values. */
#include "../test.h"

#include <unistd.h>

#include "api/settings.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"

/* Every test starts without the caller's variables. */
static int clear_environment(void **state)
{
    const droste_option *o;
    for (size_t i = 0; (o = droste_option_at(i)); i++)
        if (o->environment)
            unsetenv(o->environment);
    return 0;
}

static struct settings *fresh(void)
{
    static struct settings s;
    assert_ok(settings_init(&s, err));
    return &s;
}

/* Reads a configuration file with this text. */
static int read_text(struct settings *s, const char *text, struct error *err)
{
    char path[] = "/tmp/droste-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
    close(fd);
    int rc = settings_from_file(s, path, false, err);
    unlink(path);
    return rc;
}

static void assert_says(const struct error *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("the error does not say '%s': %s", words, err->text);
}

/* A text can be asked for, by its name; keys and what is not text are not told. */
static void texts_can_be_asked_for(void **state)
{
    struct settings *s = fresh();
    assert_string_equal(settings_text(s, "env"), "local");
    assert_null(settings_text(s, "python"));
    assert_ok(settings_set(s, "python", "/opt/python", "test", err));
    assert_ok(settings_set(s, "api-key", "sk-secret", "test", err));
    assert_string_equal(settings_text(s, "python"), "/opt/python");
    assert_null(settings_text(s, "api-key"));
    assert_null(settings_text(s, "memory"));
    assert_null(settings_text(s, "preload"));
    assert_null(settings_text(s, "no such setting"));
    settings_free(s);
}

/* The defaults are those that the table shows to people. */
static void has_its_defaults(void **state)
{
    struct settings *s = fresh();
    assert_null(s->model);
    assert_null(s->api_key);
    assert_string_equal(s->env, "local");
    assert_string_equal(s->isolation, "auto");
    assert_true(s->stream);
    assert_int_equal(s->memory, 4ll << 30);
    assert_int_equal(s->max_llm_calls, 50);
    assert_true(s->call_timeout == 60 && s->execute_timeout == 0 && s->grace == 2);
    assert_int_equal(s->preload.count, 0);
    settings_free(s);
}

/* The environment is below the file, which is below what a program or a flag sets. */
static void takes_sources_in_rising_order(void **state)
{
    struct settings *s = fresh();
    setenv("DROSTE_MODEL", "of-environment", 1);
    setenv("DROSTE_SUB_MODEL", "of-environment", 1);
    setenv("OPENAI_BASE_URL", "http://of-environment/", 1);
    assert_ok(settings_from_environment(s, err));
    assert_ok(read_text(s, "sub-model = of-file\nbase_url = http://of-file/\n", err));
    assert_ok(settings_set(s, "base-url", "http://of-flag/", "--base-url", err));
    assert_string_equal(s->model, "of-environment");
    assert_string_equal(s->sub_model, "of-file");
    assert_string_equal(s->base_url, "http://of-flag/");
    settings_free(s);
}

/* A default is not something that somebody has set; the same value by any other way is. */
static void explicit_settings_are_distinguished_from_defaults(void **state)
{
    struct settings *s = fresh();
    assert_false(settings_is_set(s, "execute-timeout"));
    assert_ok(settings_set(s, "execute-timeout", "0", "--execute-timeout", err));
    assert_true(settings_is_set(s, "execute-timeout"));
    assert_false(settings_is_set(s, "grace"));
    assert_ok(read_text(s, "grace = 2\n", err));
    assert_true(settings_is_set(s, "grace"));
    settings_free(s);
}

/* A setting with two variables takes the one that bears its name. */
static void knows_the_weaker_of_two_variables(void **state)
{
    struct settings *s = fresh();
    setenv("GOOGLE_API_KEY", "weak", 1);
    assert_ok(settings_from_environment(s, err));
    assert_string_equal(s->gemini_key, "weak");
    setenv("GEMINI_API_KEY", "strong", 1);
    assert_ok(settings_from_environment(s, err));
    assert_string_equal(s->gemini_key, "strong");
    unsetenv("GOOGLE_API_KEY");
    unsetenv("GEMINI_API_KEY");
    settings_free(s);
}

/* A variable that is empty is one that is not set. */
static void passes_over_empty_variables(void **state)
{
    struct settings *s = fresh();
    setenv("DROSTE_ENVIRONMENT", "", 1);
    assert_ok(settings_from_environment(s, err));
    assert_string_equal(s->env, "local");
    settings_free(s);
}

/* Sizes count in powers of 1024, times in seconds, and switches have words. */
static void knows_units(void **state)
{
    struct settings *s = fresh();
    static const struct {
        const char *text;
        int64_t bytes;
    } sizes[] = { { "65536K", 64ll << 20 }, { "64M", 64ll << 20 }, { "1.5G", 3ll << 29 },
        { "1T", 1ll << 40 }, { "67108864", 64ll << 20 } };
    static const struct {
        const char *text;
        double seconds;
    } times[] = { { "90", 90 }, { "0.5", 0.5 }, { ".5", 0.5 }, { "1500ms", 1.5 }, { "90s", 90 },
        { "5m", 300 }, { "2h", 7200 }, { "2d", 172800 }, { "0", 0 } };
    static const struct {
        const char *text;
        bool on;
    } switches[] = { { "yes", true }, { "no", false }, { "on", true }, { "off", false },
        { "true", true }, { "false", false }, { "1", true }, { "0", false } };
    for (size_t i = 0; i < array_length(sizes); i++) {
        assert_ok(settings_set(s, "memory", sizes[i].text, "test", err));
        assert_int_equal(s->memory, sizes[i].bytes);
    }
    for (size_t i = 0; i < array_length(times); i++) {
        assert_ok(settings_set(s, "timeout", times[i].text, "test", err));
        assert_true(s->timeout > times[i].seconds - 1e-9 && s->timeout < times[i].seconds + 1e-9);
    }
    for (size_t i = 0; i < array_length(switches); i++) {
        assert_ok(settings_set(s, "stream", switches[i].text, "test", err));
        assert_int_equal(s->stream, switches[i].on);
    }
    settings_free(s);
}

/* Names with commas between them are several; what would be an empty name is refused whole. */
static void takes_several_names_at_once(void **state)
{
    static const char *const wrong[] = { ",", "numpy,", ",numpy", "numpy,,pandas" };
    struct settings *s = fresh();
    assert_ok(settings_set(s, "preload", "numpy,os.path", "test", err));
    assert_ok(settings_set(s, "preload", "pandas", "test", err));
    assert_int_equal(s->preload.count, 3);
    assert_string_equal(s->preload.items[0], "numpy");
    assert_string_equal(s->preload.items[1], "os.path");
    assert_string_equal(s->preload.items[2], "pandas");
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct error why = { 0 };
        assert_int_equal(settings_set(s, "preload", wrong[i], "test", &why), -(int)ERROR_ARGUMENT);
        assert_non_null(strstr(why.text, wrong[i]));
        assert_int_equal(s->preload.count, 3);
    }
    assert_ok(settings_set(s, "read", "/a,b", "test", err)); /* other lists have commas in values */
    assert_int_equal(s->read.count, 1);
    settings_free(s);
}

/* Lists collect; an empty value empties them, and so it does a text. */
static void collects_lists(void **state)
{
    struct settings *s = fresh();
    assert_ok(settings_set(s, "preload", "numpy", "test", err));
    assert_ok(settings_set(s, "preload", "pandas", "test", err));
    assert_int_equal(s->preload.count, 2);
    assert_string_equal(s->preload.items[1], "pandas");
    assert_ok(settings_set(s, "preload", "", "test", err));
    assert_int_equal(s->preload.count, 0);
    assert_ok(settings_set(s, "model", "m", "test", err));
    assert_ok(settings_set(s, "model", "", "test", err));
    assert_null(s->model);
    settings_free(s);
}

/* A bad value is refused with its source, itself and what is expected, and changes nothing. */
static void explains_bad_values(void **state)
{
    static const struct {
        const char *name, *value, *words;
    } bad[] = {
        { "retries", "x", "--retries: 'x' is not a value for retries (N)" },
        { "retries", "", "(N)" },
        { "retries", "-1", "(N)" },
        { "retries", "1.5", "(N)" },
        { "retries", "5K", "(N)" },
        { "retries", "101", "101 is too large; use 0 to 100" },
        { "memory", "4X", "(SIZE)" },
        { "memory", "4 G", "(SIZE)" },
        { "memory", "1M", "1M is too small; use 32 MiB to 1 PiB" },
        { "memory", "nan", "(SIZE)" },
        { "timeout", "1w", "(SECONDS)" },
        { "timeout", "inf", "(SECONDS)" },
        { "timeout", "1e400", "(SECONDS)" },
        { "stream", "maybe", "(yes|no)" },
        { "stream", "", "(yes|no)" },
    };
    struct settings *s = fresh();
    for (size_t i = 0; i < array_length(bad); i++) {
        struct error err = { 0 };
        char source[64];
        snprintf(source, sizeof source, "--%s", bad[i].name);
        int rc = settings_set(s, bad[i].name, bad[i].value, source, &err);
        if (rc >= 0)
            fail_msg("%s = '%s' was taken", bad[i].name, bad[i].value);
        assert_int_equal(err.code, ERROR_ARGUMENT);
        assert_says(&err, source);
        assert_says(&err, bad[i].words);
    }
    assert_int_equal(s->retries, 5);
    assert_int_equal(s->memory, 4ll << 30);
    assert_true(s->stream);
    settings_free(s);
}

static void refuses_unknown_names(void **state)
{
    struct settings *s = fresh();
    struct error err = { 0 };
    assert_int_equal(settings_set(s, "modle", "m", "--modle", &err), -(int)ERROR_ARGUMENT);
    assert_says(&err, "there is no setting 'modle'; did you mean model?");
    assert_int_equal(settings_set(s, "frobnicate", "m", "test", &err), -(int)ERROR_ARGUMENT);
    assert_says(&err, "there is no setting 'frobnicate'");
    assert_null(strstr(err.text, "did you mean"));
    settings_free(s);
}

/* The bound of a setting is written as people write it, not as 3.35544e+07. */
static void prints_bounds_as_people_write_them(void **state)
{
    static const struct {
        const char *name, *value, *words;
    } bad[] = {
        { "memory", "10M", "10M is too small; use 32 MiB to 1 PiB" },
        { "memory", "2000T", "2000T is too large; use 32 MiB to 1 PiB" },
        { "output-limit", "1", "1 is too small; use 1 KiB to 1 GiB" },
    };
    struct settings *s = fresh();
    for (size_t i = 0; i < array_length(bad); i++) {
        struct error err = { 0 };
        assert_int_equal(
            settings_set(s, bad[i].name, bad[i].value, "--it", &err), -(int)ERROR_ARGUMENT);
        assert_says(&err, bad[i].words);
    }
    assert_ok(settings_set(s, "memory", "32M", "--it", err));
    settings_free(s);
}

/* A comment may stand behind a value, after white space. Without the space, or between double
 * quotes, the same characters belong to the value. */
static void reads_comments_behind_values(void **state)
{
    static const struct {
        const char *line, *value;
    } lines[] = {
        { "model = gpt-5-nano      ; answers llm_query", "gpt-5-nano" },
        { "model = gpt-5-nano\t# answers llm_query", "gpt-5-nano" },
        { "model = a;b#c", "a;b#c" },
        { "model = \"a ; b\"   ; c", "a ; b" },
        { "model = \"a # b\"", "a # b" },
        { "model = \"a\" and \"b\" # c", "\"a\" and \"b\"" },
        { "model = \"open ; c", "\"open" },
        { "model = \"\"", NULL },
        { "model = ; nothing", NULL },
    };
    for (size_t i = 0; i < array_length(lines); i++) {
        struct settings *s = fresh();
        assert_ok(read_text(s, lines[i].line, err));
        if (lines[i].value)
            assert_string_equal(s->model, lines[i].value);
        else
            assert_null(s->model);
        settings_free(s);
    }
}

/* Comments, sections, blanks, a byte order mark and Windows' line ends are fine, a value may be
 * long, and an indented line is a line like others. */
static void reads_files(void **state)
{
    struct settings *s = fresh();
    cleanup_buf struct buf text = { 0 };
    buf_puts(&text, "\xEF\xBB\xBF# one\r\n; two\n\n[models]\r\n  model = a;b#c = d\r\n"
                    "\tretries=7\n");
    buf_puts(&text, "instructions = ");
    for (int i = 0; i < 2000; i++)
        buf_puts(&text, "word ");
    buf_puts(&text, "end");
    assert_ok(read_text(s, buf_text(&text), err));
    assert_string_equal(s->model, "a;b#c = d");
    assert_int_equal(s->retries, 7);
    assert_int_equal(strlen(s->instructions), 2000 * 5 + 3);
    settings_free(s);
}

/* A file that is wrong is an error of the configuration, and names the first bad line. */
static void names_the_line(void **state)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        { "model = a\n\ngarbage\nretries = x\n", ", line 3: expected `name = value`" },
        { "model = a\nretries = x\ngarbage\n", ", line 2: 'x' is not a value for retries" },
        { "# c\n[s]\nmodle = a\n", ", line 3: there is no setting 'modle'" },
        { "= a\n", ", line 1: expected" },
        { "[open\n", ", line 1: expected" },
    };
    for (size_t i = 0; i < array_length(bad); i++) {
        struct settings *s = fresh();
        struct error err = { 0 };
        assert_int_equal(read_text(s, bad[i].text, &err), -(int)ERROR_CONFIG);
        assert_int_equal(err.code, ERROR_CONFIG);
        assert_says(&err, bad[i].words);
        settings_free(s);
    }
}

/* Only the default file may be absent. */
static void misses_a_file_that_was_named(void **state)
{
    struct settings *s = fresh();
    assert_ok(settings_from_file(s, "/nonexistent/config.ini", true, err));
    assert_fails(ERROR_CONFIG, settings_from_file(s, "/nonexistent/config.ini", false, err));
    assert_fails(ERROR_CONFIG, settings_from_file(s, "/tmp", false, err));
    settings_free(s);
}

/* Whatever is wrong around a secret, its value is in no error. */
static void keeps_secrets_out_of_errors(void **state)
{
    static const char secret[] = "sk-very-secret";
    const droste_option *o;
    for (size_t i = 0; (o = droste_option_at(i)); i++)
        if (strcmp(o->name, "api-key") == 0)
            assert_true(o->secret);
    static const char *const files[] = {
        "api-key sk-very-secret\n",
        "api-kye = sk-very-secret\n",
        "api-key = sk-very-secret\nretries = x\n",
    };
    for (size_t i = 0; i < array_length(files); i++) {
        struct settings *s = fresh();
        struct error err = { 0 };
        assert_int_equal(read_text(s, files[i], &err), -(int)ERROR_CONFIG);
        assert_null(strstr(err.text, secret));
        settings_free(s);
    }
}

/* ---- the documentation ---- */

/* True if a line begins with "| `NAME` |" and has as many columns as the tables of settings. */
static bool is_setting_line(const char *line, size_t len, char *name, size_t size)
{
    size_t bars = 0;
    if (len < 4 || strncmp(line, "| `", 3) != 0)
        return false;
    for (size_t i = 0; i < len; i++)
        bars += line[i] == '|' && line[i - (i > 0)] != '\\';
    size_t n = strcspn(line + 3, "`\n");
    snprintf(name, size, "%.*s", (int)n, line + 3);
    return bars == 6;
}

/* docs/configuration.md lists every setting, in the table's order, with its default and its
 * variable, and no other. */
static void documents_every_setting(void **state)
{
    const char *root = getenv("DROSTE_TEST_SOURCE");
    cleanup_buf struct buf path = { 0 }, text = { 0 };
    size_t at = 0;
    buf_printf(&path, "%s/docs/configuration.md", root ? root : ".");
    assert_ok(file_read(buf_text(&path), 1 << 20, &text, err));
    for (const char *line = buf_text(&text); *line; line += strcspn(line, "\n") + 1) {
        char name[64], needed[160];
        size_t len = strcspn(line, "\n");
        if (!is_setting_line(line, len, name, sizeof name))
            continue;
        const droste_option *o = droste_option_at(at++);
        if (!o || strcmp(o->name, name) != 0)
            fail_msg(
                "configuration.md has '%s' where '%s' belongs", name, o ? o->name : "(the end)");
        cleanup_free char *row = strndup(line, len);
        snprintf(needed, sizeof needed, "`%s`", o->environment ? o->environment : o->name);
        if (!strstr(row, needed) || (o->fallback[0] && !strstr(row, o->fallback)))
            fail_msg(
                "the row of '%s' lacks %s or its default '%s': %s", name, needed, o->fallback, row);
        if (line[len] == '\0')
            break;
    }
    if (droste_option_at(at))
        fail_msg("configuration.md lacks '%s'", droste_option_at(at)->name);
}

/* docs/batch.md names the settings that a task may have, all of them and no others; among them is
 * nothing that says where keys go, what is shown or what is run. */
static void documents_what_tasks_may_set(void **state)
{
    static const char *const never[] = { "base-url", "api-key", "isolation", "read", "setup-code",
        "tool", "tools", "memory", "record", "database" };
    const char *root = getenv("DROSTE_TEST_SOURCE");
    cleanup_buf struct buf path = { 0 }, text = { 0 };
    const droste_option *o;
    buf_printf(&path, "%s/docs/batch.md", root ? root : ".");
    assert_ok(file_read(buf_text(&path), 1 << 20, &text, err));
    char *list = strstr(buf_text(&text), "`settings` may have "), *end = strchr(list, '.');
    assert_non_null(list);
    assert_non_null(end);
    *end = '\0';
    for (size_t i = 0; (o = droste_option_at(i)); i++) {
        char quoted[80];
        snprintf(quoted, sizeof quoted, "`%s`", o->name);
        if (!strstr(list, quoted) != !o->task)
            fail_msg("%s: %s", o->name, o->task ? "docs/batch.md lacks it" : "no task may set it");
    }
    for (size_t i = 0; i < array_length(never); i++)
        assert_false(settings_option(never[i])->task);
    assert_true(settings_option("answer-schema")->task && settings_option("model-window")->task);
    assert_null(settings_option("nothing"));
}

/* A schema that is made of fields is saved as the fields, also where another schema was taken
 * back. */
static void saves_fields_as_fields(void **state)
{
    struct settings *s = fresh(), then;
    struct settings_texts texts = { .answer_schema = "{\"type\":\"object\"}" };
    cleanup_buf struct buf json = { 0 };
    assert_ok(settings_set(s, "answer-schema", "{}", "test", err));
    assert_ok(settings_set(s, "answer-schema", "", "test", err));
    assert_ok(settings_set(s, "answer-field", "total:number", "test", err));
    settings_save(s, &texts, &json);
    assert_ok(settings_init(&then, err));
    assert_ok(settings_restore(&then, buf_text(&json), json.len, err));
    assert_null(then.answer_schema);
    assert_int_equal(then.answer_field.count, 1);
    settings_free(&then);
    settings_free(s);
}

/* What was set comes back, and is set; what was not keeps its default. Keys and the place of the
 * record stay behind, and come from where they are known. */
static void saves_and_restores(void **state)
{
    struct settings *s = fresh(), then;
    struct settings_texts texts = { "@decorator\ndef f(): pass", NULL };
    cleanup_buf struct buf json = { 0 };
    static const char *const set[][2] = { { "model", "m" }, { "retries", "7" },
        { "timeout", "1.5h" }, { "memory", "1G" }, { "stream", "no" }, { "include", "*.c" },
        { "include", "*.h" }, { "setup-code", "@x.py" }, { "api-key", "secret" },
        { "database", "here.db" } };
    for (size_t i = 0; i < array_length(set); i++)
        assert_ok(settings_set(s, set[i][0], set[i][1], "test", err));
    settings_save(s, &texts, &json);
    assert_null(strstr(buf_text(&json), "secret"));
    assert_ok(settings_init(&then, err));
    assert_ok(settings_restore(&then, buf_text(&json), json.len, err));
    assert_string_equal(then.model, "m");
    assert_int_equal(then.retries, 7);
    assert_true(then.timeout == 5400);
    assert_int_equal(then.memory, 1 << 30);
    assert_false(then.stream);
    assert_int_equal(then.include.count, 2);
    assert_string_equal(then.setup_code, "\n@decorator\ndef f(): pass");
    assert_true(settings_is_set(&then, "retries"));
    assert_false(settings_is_set(&then, "grace"));
    assert_null(then.api_key);
    assert_null(then.database);
    assert_ok(settings_take_secrets(&then, s, err));
    assert_string_equal(then.api_key, "secret");
    assert_string_equal(then.database, "here.db");
    settings_free(&then);
    settings_free(s);
}

/* `as` is JSON. */
static void assert_saved_json(const char *name, const char *value, const char *as)
{
    struct settings *s = fresh();
    struct settings_texts none = { NULL, NULL };
    cleanup_buf struct buf json = { 0 }, wanted = { 0 };
    assert_ok(settings_set(s, name, value, "test", err));
    settings_save(s, &none, &json);
    buf_printf(&wanted, "{\"%s\":%s}", name, as);
    assert_string_equal(buf_text(&json), buf_text(&wanted));
    settings_free(s);
}

static void assert_saved(const char *name, const char *value, const char *as)
{
    char json[4300];
    snprintf(json, sizeof json, "\"%s\"", as);
    assert_saved_json(name, value, json);
}

/* Paths are whole, wherever the run is resumed; names that only look like some are left alone. */
static void saves_whole_paths(void **state)
{
    char *here = getcwd(NULL, 0), whole[4200];
    snprintf(whole, sizeof whole, "%s/calls.jsonl", here);
    assert_saved("record", "calls.jsonl", whole);
    assert_saved("record", "/tmp/calls.jsonl", "/tmp/calls.jsonl");
    snprintf(whole, sizeof whole, "replay:%s/r.jsonl", here);
    assert_saved("model", "replay:r.jsonl", whole);
    assert_saved("model", "replay:/r.jsonl", "replay:/r.jsonl");
    snprintf(whole, sizeof whole, "[\"2=replay:%s/r.jsonl\"]", here);
    assert_saved_json("depth-model", "2=replay:r.jsonl", whole);
    assert_saved("model", "openai/gpt-5", "openai/gpt-5");
    assert_saved("model", "exec:program", "exec:program");
    snprintf(whole, sizeof whole, "exec:%s/bin/program", here);
    assert_saved("model", "exec:bin/program", whole);
    assert_saved("python", "python3.11", "python3.11");
    free(here);
}

/* A damaged record is an error, not a surprise. */
static void refuses_damaged_settings(void **state)
{
    static const char *const damaged[] = { "", "[]", "{", "{\"retries\":null}", "{\"retries\":7}",
        "{\"include\":[null]}", "{\"retries\":\"x\"}", "{\"nonsense\":\"x\"}" };
    for (size_t i = 0; i < array_length(damaged); i++) {
        struct settings *s = fresh();
        struct error err = { 0 };
        if (settings_restore(s, damaged[i], strlen(damaged[i]), &err) >= 0)
            fail_msg("'%s' was taken", damaged[i]);
        settings_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(texts_can_be_asked_for, clear_environment),
        cmocka_unit_test_setup(has_its_defaults, clear_environment),
        cmocka_unit_test_setup(takes_sources_in_rising_order, clear_environment),
        cmocka_unit_test_setup(
            explicit_settings_are_distinguished_from_defaults, clear_environment),
        cmocka_unit_test_setup(knows_the_weaker_of_two_variables, clear_environment),
        cmocka_unit_test_setup(passes_over_empty_variables, clear_environment),
        cmocka_unit_test_setup(knows_units, clear_environment),
        cmocka_unit_test_setup(collects_lists, clear_environment),
        cmocka_unit_test_setup(takes_several_names_at_once, clear_environment),
        cmocka_unit_test_setup(explains_bad_values, clear_environment),
        cmocka_unit_test(refuses_unknown_names),
        cmocka_unit_test(prints_bounds_as_people_write_them),
        cmocka_unit_test(reads_comments_behind_values),
        cmocka_unit_test(reads_files),
        cmocka_unit_test(names_the_line),
        cmocka_unit_test(misses_a_file_that_was_named),
        cmocka_unit_test(keeps_secrets_out_of_errors),
        cmocka_unit_test(documents_every_setting),
        cmocka_unit_test(saves_fields_as_fields),
        cmocka_unit_test(documents_what_tasks_may_set),
        cmocka_unit_test_setup(saves_and_restores, clear_environment),
        cmocka_unit_test(saves_whole_paths),
        cmocka_unit_test(refuses_damaged_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
