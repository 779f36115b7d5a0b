/* Sets on disk: what names them, who holds them, and what a hostile build may leave. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/os/tree.h"
#include "packages/cache.h"
#include "packages/contents.h"

#define REQUEST "1111111111111111111111111111111111111111111111111111111111111111"
#define OTHER   "2222222222222222222222222222222222222222222222222222222222222222"

static char home[64];
static int top = -1; /* of the packages */
static struct package_cache *cache;

static int open_cache(void **state)
{
    struct error err = { 0 };
    char path[96];
    snprintf(home, sizeof home, "/tmp/droste-packages-XXXXXX");
    if (!mkdtemp(home) || setenv("XDG_CACHE_HOME", home, 1) < 0 ||
        package_cache_open(&cache, &err) < 0 ||
        package_cache_lock(cache, NULL, NULL, NULL, &err) < 0)
        return -1;
    snprintf(path, sizeof path, "%s/droste/packages", home);
    top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0 ? -1 : 0;
}

static int close_cache(void **state)
{
    close_fd(&top);
    package_cache_close(cache);
    cache = NULL;
    return tree_remove(AT_FDCWD, home) ? 0 : -1;
}

#define cache_test(f) cmocka_unit_test_setup_teardown(f, open_cache, close_cache)

static void put(const char *path, const char *text)
{
    cleanup_fd int fd = openat(top, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* What a build leaves: a module and what says its name and version. */
static void stage(const char *text)
{
    static const char *const directories[] = { "building/site", "building/site/hello",
        "building/site/hello-1.0.dist-info" };
    for (size_t i = 0; i < array_length(directories); i++)
        assert_int_equal(mkdirat(top, directories[i], 0700), 0);
    put("building/site/hello/__init__.py", text);
}

static struct package_set *published(const char *request, const char *text, const char *facts)
{
    struct package_set *set = NULL;
    stage(text);
    assert_ok(package_cache_publish(cache, request, "site", facts, &set, err));
    assert_non_null(set);
    return set;
}

static bool is_there(const char *path)
{
    return faccessat(top, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_found(const char *request)
{
    struct package_set *set = NULL;
    assert_ok(package_cache_find(cache, request, &set, err));
    bool found = set;
    package_set_drop(set);
    return found;
}

/* ---- names of sets ---- */

static int count_set(void *arg, const struct package_set_facts *facts, struct error *err)
{
    ++*(int *)arg;
    return 0;
}

static int sets(void)
{
    int count = 0;
    assert_ok(package_cache_list(cache, count_set, &count, err));
    return count;
}

static void equal_contents_of_two_requests_are_one_set(void **state)
{
    struct package_set *a = published(REQUEST, "x = 1\n", "python"),
                       *b = published(OTHER, "x = 1\n", "python");
    assert_string_equal(package_set_id(a), package_set_id(b));
    assert_int_equal(sets(), 1);
    package_set_drop(a);
    package_set_drop(b);
}

static void a_byte_a_mode_a_name_or_the_interpreter_makes_another_set(void **state)
{
    package_set_drop(published(REQUEST, "x = 1\n", "python"));
    package_set_drop(published(REQUEST, "x = 2\n", "python"));
    package_set_drop(published(REQUEST, "x = 1\n", "python 2"));
    assert_int_equal(sets(), 3);
    struct package_set *set = NULL;
    stage("x = 1\n");
    fchmodat(top, "building/site/hello/__init__.py", 0755, 0);
    assert_ok(package_cache_publish(cache, REQUEST, "site", "python", &set, err));
    package_set_drop(set);
    assert_int_equal(sets(), 4);
    stage("x = 1\n");
    assert_int_equal(renameat(top, "building/site/hello", top, "building/site/hell"), 0);
    assert_ok(package_cache_publish(cache, REQUEST, "site", "python", &set, err));
    package_set_drop(set);
    assert_int_equal(sets(), 5);
}

static void a_set_is_readable_for_all_and_writable_for_none_but_the_user(void **state)
{
    struct package_set *set = NULL;
    struct stat st;
    char path[256];
    stage("x = 1\n");
    fchmodat(top, "building/site/hello/__init__.py", 06777, 0);
    fchmodat(top, "building/site/hello", 0, 0);
    assert_ok(package_cache_publish(cache, REQUEST, "site", "python", &set, err));
    snprintf(path, sizeof path, "%s/hello", package_set_site(set));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    snprintf(path, sizeof path, "%s/hello/__init__.py", package_set_site(set));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755); /* neither setuid nor setgid */
    package_set_drop(set);
}

/* ---- hostile results ---- */

static void leave_link(void)
{
    assert_int_equal(symlinkat("/etc/passwd", top, "building/site/link"), 0);
}

static void leave_fifo(void)
{
    assert_int_equal(mkfifoat(top, "building/site/hello/fifo", 0666), 0);
}

static void leave_socket(void)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s/droste/packages/building/site/s", home);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
}

static void leave_link_as_site(void)
{
    assert_int_equal(renameat(top, "building/site", top, "building/other"), 0);
    assert_int_equal(symlinkat("other", top, "building/site"), 0);
}

static void what_is_neither_file_nor_directory_is_not_published(void **state)
{
    static void (*const leave[])(
        void) = { leave_link, leave_fifo, leave_socket, leave_link_as_site };
    for (size_t i = 0; i < array_length(leave); i++) {
        struct package_set *set = NULL;
        struct error why = { 0 };
        stage("x = 1\n");
        leave[i]();
        assert_true(package_cache_publish(cache, REQUEST, "site", "python", &set, &why) < 0);
        assert_null(set);
        assert_false(is_found(REQUEST));
        assert_int_equal(sets(), 0);
        tree_remove(top, "building/other");
        assert_ok(package_cache_lock(cache, NULL, NULL, NULL, err)); /* removes what is left */
    }
    package_set_drop(published(REQUEST, "x = 1\n", "python"));
    assert_true(is_found(REQUEST));
}

static void names_that_are_no_text_are_kept_and_not_shown(void **state)
{
    static const char *const names[] = { "building/site/\xff-1.dist-info",
        "building/site/nodash.dist-info", "building/site/.dist-info",
        "building/site/a\nb-2.0.dist-info" };
    struct package_contents contents;
    struct package_set *set = NULL;
    stage("x = 1\n");
    for (size_t i = 0; i < array_length(names); i++)
        assert_int_equal(mkdirat(top, names[i], 0700), 0);
    cleanup_fd int site = openat(top, "building/site", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(package_contents_take(site, &contents, err));
    assert_int_equal(contents.names.count, 2);
    assert_string_equal(contents.names.items[0], "a\nb==2.0");
    assert_string_equal(contents.names.items[1], "hello==1.0");
    package_contents_free(&contents);
    assert_ok(package_cache_publish(cache, REQUEST, "site", "python", &set, err));
    package_set_drop(set);
    assert_true(is_found(REQUEST));
}

static void a_deep_tree_is_taken_whole_or_refused(void **state)
{
    struct package_set *set = NULL;
    struct error err = { 0 };
    stage("x = 1\n");
    cleanup_fd int at = openat(top, "building/site", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    int rc = package_cache_publish(cache, REQUEST, "site", "python", &set, &err);
    assert_int_equal(rc == 0, set != NULL);
    assert_int_equal(rc == 0, is_found(REQUEST));
    package_set_drop(set);
}

/* ---- a cache that was changed ---- */

static void a_request_that_names_no_set_is_not_resolved(void **state)
{
    static const char *const texts[] = { "", "../../../etc", "0", "..", "/",
        "00000000000000000000000000000000", "00000000000000000000000000000000\n" };
    for (size_t i = 0; i < array_length(texts); i++) {
        put("requests/" REQUEST, texts[i]);
        assert_false(is_found(REQUEST));
    }
    package_set_drop(published(REQUEST, "x = 1\n", "python"));
    assert_true(is_found(REQUEST));
}

static void a_set_whose_facts_or_files_were_changed_is_not_found(void **state)
{
    static const char *const changed[] = { "set.json", "site/hello/__init__.py", "site/new.py" };
    for (size_t i = 0; i < array_length(changed); i++) {
        char path[128];
        struct package_set *set = published(REQUEST, "x = 1\n", "python");
        snprintf(path, sizeof path, "sets/%s/%s", package_set_id(set), changed[i]);
        package_set_drop(set);
        assert_true(is_found(REQUEST));
        put(path, "{\"version\":1,\"files\":\"many\"}");
        assert_false(is_found(REQUEST));
    }
}

static void links_in_the_cache_are_not_followed(void **state)
{
    char path[128], away[128];
    struct package_set *set = published(REQUEST, "x = 1\n", "python");
    snprintf(path, sizeof path, "sets/%s/lock", package_set_id(set));
    package_set_drop(set);
    assert_int_equal(unlinkat(top, path, 0), 0);
    snprintf(away, sizeof away, "%s/away", home);
    close(open(away, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(symlinkat(away, top, path), 0);
    assert_false(is_found(REQUEST));
}

/* ---- holding and removing ---- */

static void a_set_that_is_held_is_not_removed(void **state)
{
    struct package_set *set = published(REQUEST, "x = 1\n", "python");
    char id[40];
    snprintf(id, sizeof id, "%s", package_set_id(set));
    assert_fails_saying(ERROR_ARGUMENT, "in use", package_cache_remove(cache, id, err));
    package_set_drop(set);
    assert_ok(package_cache_remove(cache, id, err));
    assert_false(is_found(REQUEST));
    assert_fails(ERROR_NOT_FOUND, package_cache_remove(cache, id, err));
}

static void an_id_is_found_by_a_beginning_that_only_it_has(void **state)
{
    static const char *const wrong[] = { "", "00", "../..", "zzzzzzzz",
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000" };
    char begin[9];
    struct package_set *set = published(REQUEST, "x = 1\n", "python"), *found = NULL;
    snprintf(begin, sizeof begin, "%s", package_set_id(set));
    assert_ok(package_cache_find_id(cache, begin, &found, err));
    assert_string_equal(package_set_id(found), package_set_id(set));
    package_set_drop(found);
    package_set_drop(set);
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct error err = { 0 };
        assert_true(package_cache_find_id(cache, wrong[i], &found, &err) < 0);
        assert_null(found);
    }
}

static void the_next_holder_of_the_lock_removes_what_a_build_has_left(void **state)
{
    stage("x = 1\n");
    leave_link();
    put("requests/." REQUEST "-0123456789abcdef", "half");
    fchmodat(top, "building/site/hello", 0, 0);
    assert_ok(package_cache_lock(cache, NULL, NULL, NULL, err));
    assert_false(is_there("building/site"));
    assert_false(is_there("requests/." REQUEST "-0123456789abcdef"));
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static bool cancels(void *arg)
{
    return ++*(int *)arg > 1;
}

static void waiting_for_the_lock_can_be_cancelled(void **state)
{
    struct package_cache *second = NULL;
    int asked = 0;
    assert_ok(package_cache_open(&second, err));
    assert_fails(ERROR_CANCELLED, package_cache_lock(second, cancels, NULL, &asked, err));
    package_cache_close(cache);
    cache = NULL;
    assert_ok(package_cache_lock(second, cancels, NULL, &asked, err));
    package_cache_close(second);
}

static void notes_are_kept_by_their_hash(void **state)
{
    char *text = NULL;
    assert_ok(package_cache_read_note(cache, REQUEST, &text, err));
    assert_null(text);
    assert_ok(package_cache_write_note(cache, REQUEST, "cpython", err));
    assert_ok(package_cache_read_note(cache, REQUEST, &text, err));
    assert_string_equal(text, "cpython");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cache_test(equal_contents_of_two_requests_are_one_set),
        cache_test(a_byte_a_mode_a_name_or_the_interpreter_makes_another_set),
        cache_test(a_set_is_readable_for_all_and_writable_for_none_but_the_user),
        cache_test(what_is_neither_file_nor_directory_is_not_published),
        cache_test(names_that_are_no_text_are_kept_and_not_shown),
        cache_test(a_deep_tree_is_taken_whole_or_refused),
        cache_test(a_request_that_names_no_set_is_not_resolved),
        cache_test(a_set_whose_facts_or_files_were_changed_is_not_found),
        cache_test(links_in_the_cache_are_not_followed),
        cache_test(a_set_that_is_held_is_not_removed),
        cache_test(an_id_is_found_by_a_beginning_that_only_it_has),
        cache_test(the_next_holder_of_the_lock_removes_what_a_build_has_left),
        cache_test(waiting_for_the_lock_can_be_cancelled),
        cache_test(notes_are_kept_by_their_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
