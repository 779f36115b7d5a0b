/* The words of a command line: flags of the command, settings of the library, arguments, and what
 * is said of a mistake. */
#include "../test.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/options/flags.h"

static droste *d;
static const char *text, *once;
static bool on;
static struct buf values;

static int add_value(droste *unused, const char *value, droste_error *err)
{
    buf_printf(&values, "<%s>", value);
    return 0;
}

static const struct flag flags[] = {
    { "text", "TEXT", "a text", &text, NULL, NULL, false },
    { "t", "TEXT", "the same", &text, NULL, NULL, false },
    { "once", "TEXT", "a text, once", &once, NULL, NULL, true },
    { "on", NULL, "a switch", NULL, &on, NULL, false },
    { "add", "TEXT", "some texts", NULL, NULL, add_value, false },
    { NULL, NULL, NULL, NULL, NULL, NULL, false },
};

static const struct command command = {
    .name = "test", .synopsis = "[FLAG]...", .summary = "Tests", .settings = SETTINGS_RUN
};

static int flags_begin(void **state)
{
    text = once = NULL;
    on = false;
    buf_clear(&values);
    setenv("DROSTE_CONFIG", "/dev/null", 1);
    return droste_new(&d, NULL);
}

static int flags_over(void **state)
{
    droste_free(d);
    buf_free(&values);
    return 0;
}

#define flags_test(f) cmocka_unit_test_setup_teardown(f, flags_begin, flags_over)

struct parsed {
    const char *words[3];
    size_t count;
    int status;
    struct buf errors; /* what was printed to standard error */
};

static void cleanup_parsed_fn(struct parsed *p)
{
    buf_free(&p->errors);
}

#define cleanup_parsed __attribute__((cleanup(cleanup_parsed_fn)))

/* Parses words that end with NULL; at most three of them may be arguments. */
static void parse(struct parsed *p, const char *const *words)
{
    char *argv[16] = { (char *)(uintptr_t) "test" };
    int argc = 1, kept = dup(STDERR_FILENO);
    cleanup_fd int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    fflush(NULL);
    dup2(file, STDERR_FILENO);
    p->status = cli_parse(&command, argc, argv, flags, d, p->words, 3, &p->count);
    fflush(NULL);
    dup2(kept, STDERR_FILENO);
    close(kept);
    lseek(file, 0, SEEK_SET);
    assert_ok(file_read_fd(file, "errors", 1 << 16, &p->errors, err));
}

#define PARSE(p, ...) parse(p, (const char *const[]){ __VA_ARGS__, NULL })

/* A mistake ends with the status of usage and these words. */
#define assert_mistake(expected, ...)                                                              \
    do {                                                                                           \
        cleanup_parsed struct parsed p_ = { .status = 0 };                                         \
        PARSE(&p_, __VA_ARGS__);                                                                   \
        assert_int_equal(p_.status, EXIT_USAGE);                                                   \
        if (!strstr(buf_text(&p_.errors), expected))                                               \
            fail_msg("'%s' is not in: %s", expected, buf_text(&p_.errors));                        \
    } while (0)

/* A value stands behind '=' or is the next word, whatever that begins with; of several the last
 * counts. */
static void a_value_is_behind_or_next(void **state)
{
    cleanup_parsed struct parsed p = { .status = 0 };
    PARSE(&p, "--text=a=b", "--once", "--on", "word");
    assert_int_equal(p.status, -1);
    assert_string_equal(text, "a=b");
    assert_string_equal(once, "--on");
    assert_false(on);
    assert_int_equal(p.count, 1);
    assert_string_equal(p.words[0], "word");
    PARSE(&p, "--text", "1", "-t", "2", "--text=");
    assert_int_equal(p.status, -1);
    assert_string_equal(text, "");
    PARSE(&p, "--add=1", "--on", "--add", "2");
    assert_string_equal(buf_text(&values), "<1><2>");
    assert_true(on);
}

/* What follows `--` is an argument, and so is a single dash. */
static void two_dashes_end_the_flags(void **state)
{
    cleanup_parsed struct parsed p = { .status = 0 };
    PARSE(&p, "-", "--", "--on", "--");
    assert_int_equal(p.status, -1);
    assert_int_equal(p.count, 3);
    assert_string_equal(p.words[0], "-");
    assert_string_equal(p.words[1], "--on");
    assert_string_equal(p.words[2], "--");
    assert_false(on);
}

/* Settings of the library are flags, and take the values that the library takes. */
static void settings_are_flags(void **state)
{
    cleanup_parsed struct parsed p = { .status = 0 };
    PARSE(&p, "--max-iterations=7", "--timeout", "2.5");
    assert_int_equal(p.status, -1);
    assert_mistake("max-iterations", "--max-iterations=many");
}

/* A mistake is named, with what was probably meant. */
static void a_mistake_is_explained(void **state)
{
    assert_mistake("unknown flag '--txet'; did you mean --text?", "--txet=1");
    assert_mistake(
        "unknown flag '--max-iteration'; did you mean --max-iterations?", "--max-iteration");
    assert_mistake("unknown flag '--qqqqqqqqqq'\n", "--qqqqqqqqqq");
    assert_mistake("unknown flag '-z'\n", "-z");
    assert_mistake("--text needs a value (TEXT)", "--text");
    assert_mistake("--on=yes takes no value", "--on=yes");
    assert_mistake("--once appears twice", "--once", "1", "--once", "2");
    assert_mistake("unexpected argument 'four'", "one", "two", "three", "four");
    assert_mistake("Try 'droste test --help'", "--text");
}

/* A secret on the command line would be seen by everybody: its variable is named instead, and the
 * value is not repeated. */
static void a_secret_is_no_flag(void **state)
{
    const droste_option *o, *secret = NULL;
    for (size_t i = 0; (o = droste_option_at(i)); i++)
        secret = o->secret ? o : secret;
    assert_non_null(secret);
    char word[128];
    cleanup_parsed struct parsed p = { .status = 0 };
    snprintf(word, sizeof word, "--%s=hunter2", secret->name);
    PARSE(&p, word);
    assert_int_equal(p.status, EXIT_USAGE);
    assert_non_null(strstr(buf_text(&p.errors), secret->environment));
    assert_null(strstr(buf_text(&p.errors), "hunter2"));
}

/* Flags are found by their whole names; completion walks the settings that a flag of the command
 * does not replace, without secrets. */
static void names_are_whole(void **state)
{
    const struct flag timeout[] = { { "timeout", "S", "", &text, NULL, NULL, false },
        { NULL, NULL, NULL, NULL, NULL, NULL, false } };
    const droste_option *o;
    size_t index = 0, count = 0;
    assert_non_null(flag_find(flags, "text=x", 4));
    assert_null(flag_find(flags, "tex", 3));
    assert_null(flag_find(flags, "", 0));
    assert_non_null(flag_find_option("timeout", 7));
    assert_null(flag_find_option("timeou", 6));
    for (; (o = flag_next_option(timeout, &index)); count++)
        assert_true(!o->secret && strcmp(o->name, "timeout") != 0);
    assert_true(count > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        flags_test(a_value_is_behind_or_next),
        flags_test(two_dashes_end_the_flags),
        flags_test(settings_are_flags),
        flags_test(a_mistake_is_explained),
        flags_test(a_secret_is_no_flag),
        flags_test(names_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
