/* Repositories: accepted URLs and refs, and how git ends. tests/e2e/test_staging.py covers the
 * staged files. */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "volume/git.h"
#include "volume/repository.h"

static struct git_bounds bounds(uint64_t ms)
{
    return (struct git_bounds){ .deadline_ns = clock_ns() + ms * 1000000, .interrupt = -1 };
}

/* The ways that are used, and none of the others; nothing that git or ssh would take for a flag. */
static void urls_are_checked(void **state)
{
    static const char *const fine[] = { "https://host/a/b.git", "https://user@host:8443/a",
        "ssh://git@host/a/b", "ssh://APKA0123456789ABCDEF@host/a", "file:///srv/a" };
    static const char *const refused[] = { "", "-u", "http://host/a", "git://host/a",
        "ext::sh -c x", "host:path", "/srv/a", "file://srv/a", "file:///a b", "https://",
        "https://-x/a", "ssh://-oProxyCommand=x@host/a", "https://a:secret@host/b",
        "https://glpat-0123456789abcd@host/a", "https://a:b@c@host/a", "https://host/\n",
        "HTTPS://h/a", "https://host/\xc3\xa4" };
    for (size_t i = 0; i < array_length(fine); i++)
        assert_ok(repository_check(fine[i], NULL, err));
    for (size_t i = 0; i < array_length(refused); i++)
        assert_fails(ERROR_ARGUMENT, repository_check(refused[i], NULL, err));
    char longest[2002] = "file:///";
    memset(longest + 8, 'a', 2000 - 8);
    assert_ok(repository_check(longest, NULL, err));
    longest[2000] = 'a';
    assert_fails(ERROR_ARGUMENT, repository_check(longest, NULL, err));
}

/* Names as git has them, and commit ids; no revision that is looked for in another way. */
static void refs_are_checked(void **state)
{
    static const char *const fine[] = { "main", "v1.2", "topic/a-b", "refs/heads/x", "0123abc",
        "HEAD", "a@b", "\xc3\xa4" };
    static const char *const refused[] = { "", "-x", "a..b", "a b", "HEAD~1", "a^", "a:b", "@{1}",
        "x.lock", "x.lock/y", "/a", "a/", "a//b", ".a", "a/.b", "a.", "*", "[a", "a\\b", "\x01" };
    for (size_t i = 0; i < array_length(fine); i++)
        assert_ok(repository_check("file:///a", fine[i], err));
    for (size_t i = 0; i < array_length(refused); i++)
        assert_fails(ERROR_ARGUMENT, repository_check("file:///a", refused[i], err));
    char longest[257] = "";
    memset(longest, 'a', 255);
    assert_ok(repository_check("file:///a", longest, err));
    longest[255] = 'a';
    assert_fails(ERROR_ARGUMENT, repository_check("file:///a", longest, err));
}

/* A directory's name is made of the end of the URL, and of nothing that leads elsewhere. */
static void directories_are_named_after_urls(void **state)
{
    static const struct {
        const char *url, *name;
    } all[] = { { "https://host/a/project.git", "project" }, { "file:///srv/project/", "project" },
        { "https://host/..", "repository" }, { "https://host/a%20b", "a-20b" },
        { "file:///", "repository" }, { "file:///srv/context", "context-repository" },
        { "file:///srv/.hidden", "hidden" }, { "file:///srv/a/.git", "a" } };
    char name[65], url[400];
    for (size_t i = 0; i < array_length(all); i++) {
        repository_name(all[i].url, name);
        assert_string_equal(name, all[i].name);
    }
    memset(url, 'x', sizeof url - 1);
    url[sizeof url - 1] = '\0';
    repository_name(url, name);
    assert_true(strlen(name) <= 60);
}

/* What it prints is there, and what it complains of is an error with its words. */
static void git_is_heard(void **state)
{
    static const char *const says[] = { "version", NULL }, *const fails[] = { "no-such-command",
        NULL };
    cleanup_buf struct buf output = { 0 };
    struct git_bounds b = bounds(60000);
    struct git_end end;
    struct git_call call = {
        .words = says, .input = -1, .lock = -1, .take = git_keep, .arg = &output
    };
    assert_ok(git_run(&call, &b, &end, err));
    assert_int_equal(strncmp(buf_text(&output), "git version ", 12), 0);
    call.words = fails;
    assert_fails(ERROR_IO, git_run(&call, &b, &end, err));
    assert_true(end.quiet && end.status == 1);
}

/* A host that ignores its children's ends cannot know how git's was: that is never taken for a
 * success. */
static void an_unknown_end_is_none(void **state)
{
    static const char *const fails[] = { "no-such-command", NULL };
    struct git_bounds b = bounds(60000);
    struct git_call call = { .words = fails, .input = -1, .lock = -1 };
    struct git_end end;
    signal(SIGCHLD, SIG_IGN);
    assert_fails(ERROR_IO, git_run(&call, &b, &end, err));
    assert_false(end.quiet);
    signal(SIGCHLD, SIG_DFL);
    assert_fails(ERROR_IO, git_run(&call, &b, &end, err));
    assert_true(end.quiet);
}

/* A host without standard streams, as a daemon is, has git's all the same. */
static void a_host_without_streams_hears_git(void **state)
{
    static const char *const says[] = { "hash-object", "--stdin", NULL };
    cleanup_buf struct buf output = { 0 };
    struct error err = { 0 };
    struct git_bounds b = bounds(60000);
    struct git_call call = { .words = says, .lock = -1, .take = git_keep, .arg = &output };
    int kept[3];
    for (int i = 0; i < 3; i++)
        kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
    for (int i = 0; i < 3; i++)
        close(i);
    call.input = file_memfd("input", &err); /* it is 0 */
    bool written = write(call.input, "text", 4) == 4 && lseek(call.input, 0, SEEK_SET) == 0;
    int rc = git_run(&call, &b, NULL, &err);
    for (int i = 0; i < 3; i++) {
        dup2(kept[i], i);
        close(kept[i]);
    }
    assert_true(written && call.input == 0);
    assert_int_equal(rc, 0);
    assert_string_equal(buf_text(&output), "f3a34851d44d6b97c90fbb99dd3d18c261b9a237\n");
}

/* git, its helpers and what it starts get of our environment what reaches the network, and no keys;
 * no configuration of the user's; files no larger than is said; and a lock that lasts as long as
 * they do. (That the machine's configuration is not read could be tried only by writing one.) */
static void git_ignores_the_users_configuration(void **state)
{
    static const char *const words[] = { "-c",
        "alias.e=!env; echo \"limit $(ulimit -f)\"; git config --list; "
        "readlink /proc/$$/fd/* || true",
        "e", NULL };
    char home[] = "/tmp/droste-repository-XXXXXX", path[64];
    assert_non_null(mkdtemp(home));
    snprintf(path, sizeof path, "%s/.gitconfig", home);
    FILE *config = fopen(path, "w");
    assert_true(config && fputs("[droste]\nkey = secret\n", config) > 0 && fclose(config) == 0);
    const char *before = getenv("HOME");
    cleanup_free char *old = before ? strdup(before) : NULL;
    setenv("HOME", home, 1);
    setenv("OPENAI_API_KEY", "secret", 1);
    setenv("GIT_EXTERNAL_DIFF", "secret", 1);
    setenv("no_proxy", "passed", 1);
    cleanup_buf struct buf output = { 0 };
    struct git_bounds b = bounds(60000);
    b.file_bytes = 1 << 20;
    char lock[32];
    int ends[2];
    struct stat st;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct git_call call = {
        .words = words, .input = -1, .lock = ends[1], .take = git_keep, .arg = &output
    };
    assert_ok(git_run(&call, &b, NULL, err));
    assert_null(strstr(buf_text(&output), "secret"));
    assert_non_null(strstr(buf_text(&output), "no_proxy=passed\n"));
    assert_non_null(strstr(buf_text(&output), "GIT_CONFIG_NOSYSTEM=1\n"));
    assert_non_null(strstr(buf_text(&output), "limit 2048\n")); /* of 512 bytes */
    assert_int_equal(fstat(ends[1], &st), 0);
    snprintf(lock, sizeof lock, "pipe:[%ju]\n", (uintmax_t)st.st_ino);
    assert_non_null(strstr(buf_text(&output), lock));
    close(ends[0]);
    close(ends[1]);
    unlink(path);
    rmdir(home);
    unsetenv("OPENAI_API_KEY");
    unsetenv("GIT_EXTERNAL_DIFF");
    unsetenv("no_proxy");
    if (old)
        setenv("HOME", old, 1);
    else
        unsetenv("HOME");
}

/* Transports that a redirect, or whoever else, may lead to are refused by git too. The twin finds
 * nobody. */
static void git_speaks_few_protocols(void **state)
{
    static const char *const refused[] = { "http://127.0.0.1:1/x", "git://127.0.0.1:1/x",
        "ext::true" };
    const char *words[] = { "ls-remote", "--", NULL, NULL };
    struct git_bounds b = bounds(60000);
    struct git_call call = { .words = words, .input = -1, .lock = -1 };
    for (size_t i = 0; i < array_length(refused); i++) {
        words[2] = refused[i];
        assert_fails(ERROR_PERMISSION, git_run(&call, &b, NULL, err));
    }
    words[2] = "https://127.0.0.1:1/x";
    assert_fails(ERROR_IO, git_run(&call, &b, NULL, err));
}

/* What it prints is kept up to a size; more is refused, and not kept. */
static void what_git_prints_is_bounded(void **state)
{
    struct buf kept = { .len = 64 << 20 };
    assert_fails(ERROR_ARGUMENT, git_keep(&kept, "x", 1, err));
    kept.len = 0;
    assert_ok(git_keep(&kept, "x", 1, err));
    assert_string_equal(buf_text(&kept), "x");
    buf_free(&kept);
}

static int refuse(void *arg, const char *data, size_t len, struct error *err)
{
    return error_set(err, ERROR_BUDGET, "enough");
}

/* The callback that takes git's output may end git. */
static void git_is_ended_by_who_takes(void **state)
{
    static const char *const says[] = { "version", NULL };
    struct git_bounds b = bounds(60000);
    struct git_call call = { .words = says, .input = -1, .lock = -1, .take = refuse };
    assert_fails(ERROR_BUDGET, git_run(&call, &b, NULL, err));
}

/* It waits for its input, which does not come: the deadline ends it, and so does an interrupt. */
static void git_is_ended_by_its_bounds(void **state)
{
    static const char *const waits[] = { "hash-object", "--stdin", NULL };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct git_call call = { .words = waits, .input = ends[0], .lock = -1 };
    struct git_bounds b = bounds(100);
    struct git_end end;
    assert_fails(ERROR_TIMEOUT, git_run(&call, &b, &end, err));
    assert_false(end.quiet);
    b = bounds(60000);
    b.interrupt = eventfd(1, EFD_CLOEXEC);
    assert_fails(ERROR_CANCELLED, git_run(&call, &b, &end, err));
    close(ends[1]); /* the twin: its input is at its end */
    close_fd(&b.interrupt);
    assert_ok(git_run(&call, &b, &end, err));
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_checked),
        cmocka_unit_test(refs_are_checked),
        cmocka_unit_test(directories_are_named_after_urls),
        cmocka_unit_test(git_is_heard),
        cmocka_unit_test(an_unknown_end_is_none),
        cmocka_unit_test(a_host_without_streams_hears_git),
        cmocka_unit_test(git_ignores_the_users_configuration),
        cmocka_unit_test(what_git_prints_is_bounded),
        cmocka_unit_test(git_speaks_few_protocols),
        cmocka_unit_test(git_is_ended_by_who_takes),
        cmocka_unit_test(git_is_ended_by_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
