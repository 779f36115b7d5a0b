/* Commands with verbs: finding one, and flags that do not belong to it. */
#include "../test.h"

#include "base/cleanup.h"
#include "cli/options/verbs.h"

struct row {
    struct verb verb;
    int more; /* rows are larger than a verb */
};

enum { SHOW = 1, LIST = 2, REMOVE = 4 };

static const struct row rows[] = {
    { { "show", SHOW, 1, 1, NULL, "a NAME" }, 10 },
    { { "ls", LIST, 0, 1 }, 20 },
    { { "rm", REMOVE, 1, 9 }, 30 },
};

static const struct command thing = { .name = "thing",
    .verbs = { rows, array_length(rows), sizeof rows[0] } };

static char *text;
static size_t len;
static FILE *errors;

/* What is printed on standard error is in `text`. */
static int verbs_begin(void **state)
{
    errors = stderr;
    stderr = open_memstream(&text, &len);
    return stderr ? 0 : -1;
}

static int verbs_end(void **state)
{
    fclose(stderr);
    stderr = errors;
    free(text);
    return 0;
}

#define verbs_test(f) cmocka_unit_test_setup_teardown(f, verbs_begin, verbs_end)

static const struct row *find(const char *word)
{
    return verb_find(rows, array_length(rows), sizeof rows[0], word);
}

static void says(const char *words)
{
    fflush(stderr);
    if (!strstr(text, words))
        fail_msg("not '%s' in: %s", words, text);
}

static void a_verb_is_found_by_its_whole_name(void **state)
{
    assert_int_equal(find("ls")->more, 20);
    assert_int_equal(find("rm")->more, 30);
    assert_null(find("l"));
    assert_null(find("lss"));
    assert_null(find(""));
    assert_null(find(NULL));
}

static void a_mistyped_verb_gets_a_suggestion(void **state)
{
    assert_int_equal(verb_refuse(&thing, "shwo"), EXIT_USAGE);
    says("there is no 'thing shwo'; did you mean show?");
}

static void without_one_the_verbs_are_listed(void **state)
{
    assert_int_equal(verb_refuse(&thing, NULL), EXIT_USAGE);
    says("expected one of: show, ls, rm");
}

static void a_word_like_none_gets_the_list(void **state)
{
    assert_int_equal(verb_refuse(&thing, "xxxxxxxxxxxx"), EXIT_USAGE);
    says("expected one of: show, ls, rm");
}

/* Only flags that were used count. */
static void a_flag_of_another_verb_is_refused(void **state)
{
    const struct verb_flag flags[] = { { "json", true, SHOW | LIST }, { "limit", true, LIST },
        { "force", false, REMOVE } };
    assert_int_equal(verb_check_flags(&thing, &find("ls")->verb, flags, 3), -1);
    assert_int_equal(verb_check_flags(&thing, &find("show")->verb, flags, 3), EXIT_USAGE);
    says("--limit does not apply to `thing show`; leave it out");
    assert_int_equal(verb_check_flags(&thing, &find("rm")->verb, flags, 3), EXIT_USAGE);
    says("--json does not apply to `thing rm`");
    assert_int_equal(verb_check_flags(&thing, &find("rm")->verb, flags, 0), -1);
}

static const struct row *pick(size_t count, const char *word, bool limit, int *status)
{
    const char *const words[] = { word, "a", "b" };
    const struct verb_flag flags[] = { { "limit", limit, LIST } };
    *status = -1;
    return verb_pick(&thing, words, count, flags, 1, status);
}

static void a_verb_is_picked_if_its_arguments_and_flags_fit(void **state)
{
    int status;
    assert_int_equal(pick(2, "show", false, &status)->more, 10);
    assert_int_equal(status, -1);
    assert_int_equal(pick(1, "ls", true, &status)->more, 20);
    assert_null(pick(1, "show", false, &status));
    assert_int_equal(status, EXIT_USAGE);
    says("thing show takes a NAME");
    assert_null(pick(3, "ls", false, &status));
    says("thing ls takes no argument");
    assert_null(pick(2, "show", true, &status));
    says("--limit does not apply");
    assert_null(pick(0, NULL, false, &status));
    says("expected one of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        verbs_test(a_verb_is_found_by_its_whole_name),
        verbs_test(a_mistyped_verb_gets_a_suggestion),
        verbs_test(without_one_the_verbs_are_listed),
        verbs_test(a_word_like_none_gets_the_list),
        verbs_test(a_flag_of_another_verb_is_refused),
        verbs_test(a_verb_is_picked_if_its_arguments_and_flags_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
