/* Files that a run saves at its end. The code chooses names and contents. */
#include "runs.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"

static char directory[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static int artifacts_setup(void **state)
{
    int rc = runs_setup(state);
    snprintf(directory, sizeof directory, "%s/saved", runs.place);
    assert_fine(droste_set(runs.d, "artifacts-dir", directory, &runs.err));
    assert_fine(droste_set(runs.d, "artifacts", "out/**", &runs.err));
    return rc;
}

static int artifacts_teardown(void **state)
{
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return runs_teardown(state);
}

static droste_result *run_code(const char *code)
{
    static const char *replies[1];
    static char reply[1024];
    droste_result *r = NULL;
    snprintf(reply, sizeof reply,
        "```repl\nimport os\nos.makedirs('out/sub', exist_ok=True)\n%s\nSUBMIT(answer=1)\n```",
        code);
    replies[0] = reply;
    runs.replies = replies;
    runs.turns = 0;
    assert_fine(droste_run(runs.d, "?", NULL, NULL, NULL, &r, &runs.err));
    assert_string_equal(droste_result_answer(r, NULL), "1");
    return r;
}

static void assert_saved(const char *name, const char *text)
{
    cleanup_buf struct buf all = { 0 };
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_ok(file_read(path, 1 << 16, &all, err));
    assert_string_equal(buf_text(&all), text);
}

static bool is_saved(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static void files_that_match_are_saved(void **state)
{
    droste_artifact one;
    droste_error why;
    droste_result *r = run_code("open('out/a', 'w').write('first')\n"
                                "open('out/sub/b', 'w').write('second')\n"
                                "open('other', 'w').write('no')");
    assert_int_equal(droste_result_artifacts_error(r, &why), 0);
    assert_int_equal(why.code, DROSTE_ERROR_NONE);
    assert_true(droste_result_artifact(r, 0, &one));
    assert_string_equal(one.name, "out/a");
    assert_int_equal(one.size, 5);
    assert_true(droste_result_artifact(r, 1, &one));
    assert_string_equal(one.name, "out/sub/b");
    assert_false(droste_result_artifact(r, 2, &one));
    assert_saved("out/a", "first");
    assert_saved("out/sub/b", "second");
    assert_false(is_saved("other"));
    droste_result_free(r);
}

/* A link that leads nowhere, a FIFO and a name that would act on a terminal: the others are
 * saved, and the answer stays. */
static void what_is_no_plain_file_is_left_out_with_a_reason(void **state)
{
    droste_error why;
    droste_result *r = run_code("os.mkfifo('out/fifo')\nos.symlink('/nowhere', 'out/link')\n"
                                "open('out/bad\\x1b[0m', 'w').write('x')\n"
                                "open('out/good', 'w').write('y')");
    assert_true(droste_result_artifacts_error(r, &why) > 0);
    assert_non_null(strstr(why.text, "control characters"));
    assert_saved("out/good", "y");
    assert_false(is_saved("out/fifo"));
    assert_false(is_saved("out/link"));
    droste_result_free(r);
}

/* A link on this machine, at a place where a file is to be saved, is replaced and not followed; a
 * directory that is a link is not entered. */
static void links_of_this_machine_are_not_followed(void **state)
{
    char target[64], path[128];
    droste_error why;
    snprintf(target, sizeof target, "%s/target", runs.place);
    snprintf(path, sizeof path, "%s/out", directory);
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, path), 0);
    droste_result *r = run_code("open('out/a', 'w').write('x')");
    assert_true(droste_result_artifacts_error(r, &why) > 0);
    droste_result_free(r);
    assert_int_equal(rmdir(target), 0); /* nothing was written there */
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/out/a", directory);
    droste_result_free(run_code("open('out/a', 'w').write('x')"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(runs.database, path), 0);
    r = run_code("open('out/a', 'w').write('again')");
    assert_int_equal(droste_result_artifacts_error(r, &why), 0);
    assert_saved("out/a", "again");
    droste_result_free(r);
}

/* One file of the run is recorded: it can be written again from the record alone. */
static void the_record_has_the_contents(void **state)
{
    droste_result *r = run_code("open('out/a', 'w').write('kept')");
    size_t len;
    const char *json = droste_result_json(r, &len);
    assert_non_null(strstr(json, "\"artifacts\":[{\"name\":\"out/a\",\"size\":4"));
    assert_non_null(strstr(json, "\"artifacts_error\":null"));
    droste_result_free(r);
}

static void a_directory_that_cannot_be_made_costs_no_answer(void **state)
{
    droste_error why;
    int fd = open(directory, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    droste_result *r = run_code("open('out/a', 'w').write('x')");
    assert_true(droste_result_artifacts_error(r, &why) > 0);
    assert_non_null(strstr(why.text, directory));
    droste_result_free(r);
}

#define artifacts_test(f) cmocka_unit_test_setup_teardown(f, artifacts_setup, artifacts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        artifacts_test(files_that_match_are_saved),
        artifacts_test(what_is_no_plain_file_is_left_out_with_a_reason),
        artifacts_test(links_of_this_machine_are_not_followed),
        artifacts_test(the_record_has_the_contents),
        artifacts_test(a_directory_that_cannot_be_made_costs_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
