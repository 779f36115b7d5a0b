/* The file of API keys: scopes and limits as words, and what a file must be to be believed. */
#include "../test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "serve/access/keys.h"

static char place[64], path[96];

static int keys_setup(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-keys-XXXXXX");
    assert_non_null(mkdtemp(place));
    snprintf(path, sizeof path, "%s/keys.json", place);
    return 0;
}

static int keys_teardown(void **state)
{
    static const char *const names[] = { "", ".lock", ".new" };
    for (size_t i = 0; i < array_length(names); i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", path, names[i]);
        unlink(name);
    }
    return rmdir(place);
}

static void keys_file(const char *text, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void scopes_are_words_of_a_list(void **state)
{
    cleanup_buf struct buf out = { 0 };
    unsigned scopes = 0;
    assert_ok(key_scopes_parse("metrics,read", &scopes, err));
    assert_int_equal(scopes, SCOPE_METRICS | SCOPE_READ);
    key_scopes_print(scopes | SCOPE_ADMIN, &out);
    assert_string_equal(buf_text(&out), "read,metrics,admin");
    static const char *const wrong[] = { "", "reads", "rea", "read,", ",read", "read, admin",
        "READ" };
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_fails_saying(
            ERROR_ARGUMENT, "is not one of read", key_scopes_parse(wrong[i], &scopes, err));
}

static void limits_are_read_as_they_are_printed(void **state)
{
    static const char *const words[] = { "sandboxes=10", "starts=0.5", "memory=512M", "cpus=1.5",
        "life=1h", "idle=90s" };
    struct key_limits limits = { 0 };
    cleanup_buf struct buf out = { 0 };
    key_limits_print(&limits, &out);
    assert_string_equal(buf_text(&out), "");
    for (size_t i = 0; i < array_length(words); i++)
        assert_ok(key_limit_parse(&limits, words[i], err));
    key_limits_print(&limits, &out);
    assert_string_equal(
        buf_text(&out), "sandboxes=10 starts=0.5 memory=512M cpus=1.5 life=3600 idle=90");
}

static void a_limit_that_is_none_is_refused(void **state)
{
    static const char *const wrong[] = { "sandboxes=0", "sandboxes=-1", "sandboxes=1.5",
        "sandboxes=", "sandboxes=1x", "sandboxes=1e10", "starts=0", "starts=nan", "starts=inf",
        "memory=", "memory=1 G", "memory=\"",
        "memory=1234567890123456789012345678901234567890123456789012345678901234", "life=0",
        "life=soon", "idle=-1s" };
    static const char *const unknown[] = { "", "sandboxes", "sandbox=1", "sandboxess=1", "=1" };
    struct key_limits limits = { 0 }, none = { 0 };
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_fails_saying(
            ERROR_ARGUMENT, "is not a valid", key_limit_parse(&limits, wrong[i], err));
    for (size_t i = 0; i < array_length(unknown); i++)
        assert_fails_saying(
            ERROR_ARGUMENT, "is not a limit", key_limit_parse(&limits, unknown[i], err));
    assert_memory_equal(limits.memory, none.memory, sizeof none.memory);
}

static void destinations_are_rules_and_have_an_end(void **state)
{
    struct key key = { 0 };
    static const char *const wrong[] = { "", "none", "a.example", "http://a/b?c" };
    struct error why = { 0 };
    size_t count = 0;
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_fails_saying(ERROR_ARGUMENT, "use HOST:PORT", key_net_add(&key, wrong[i], err));
    assert_null(key_net_next(&key, NULL));
    while (key_net_add(&key, "a.example:443", &why) == 0)
        count++;
    assert_int_equal(why.code, ERROR_ARGUMENT);
    assert_non_null(strstr(why.text, "2047 bytes"));
    assert_int_equal(count, (KEY_NET_SIZE - 1) / sizeof "a.example:443");
    for (const char *rule = NULL; (rule = key_net_next(&key, rule)); count--)
        assert_string_equal(rule, "a.example:443");
    assert_int_equal(count, 0);
}

static void a_key_is_found_by_its_text_until_it_expires_or_is_revoked(void **state)
{
    struct key one = { .name = "one", .scopes = SCOPE_READ }, two = { .name = "two \"quoted\"" };
    char first[KEY_TEXT_SIZE], second[KEY_TEXT_SIZE];
    struct keys keys;
    size_t count = 0;
    two.scopes = SCOPE_SANDBOXES;
    two.expires_ms = 1000;
    assert_ok(key_limit_parse(&two.limits, "memory=1G", err));
    assert_ok(key_net_add(&two, "GET https://a.example/x/**", err));
    assert_ok(key_net_add(&two, "b.example:443", err));
    assert_fails(ERROR_NOT_FOUND, keys_read(path, &keys, err));
    assert_ok(keys_create(path, &one, first, err));
    assert_ok(keys_create(path, &two, second, err));
    assert_int_equal(strncmp(first, "e2b_", 4), 0);
    assert_int_equal(strlen(first), KEY_TEXT_SIZE - 1);
    assert_string_not_equal(first, second);

    assert_ok(keys_read(path, &keys, err));
    assert_int_equal(keys.count, 2);
    assert_string_equal(keys_find(&keys, first, 0)->name, "one");
    const struct key *found = keys_find(&keys, second, 999);
    assert_string_equal(found->name, "two \"quoted\"");
    assert_string_equal(found->limits.memory, "1G");
    assert_string_equal(key_net_next(found, NULL), "GET https://a.example/x/**");
    assert_string_equal(key_net_next(found, key_net_next(found, NULL)), "b.example:443");
    assert_null(key_net_next(keys_find(&keys, first, 0), NULL));
    assert_int_equal(found->scopes, SCOPE_SANDBOXES);
    assert_null(keys_find(&keys, second, 1000));
    first[KEY_TEXT_SIZE - 2] ^= 1;
    assert_null(keys_find(&keys, first, 0));
    assert_null(keys_find(&keys, "", 0));
    assert_null(keys_find(&keys, found->hash, 0)); /* what the file has opens nothing */
    keys_free(&keys);

    assert_fails_saying(ERROR_NOT_FOUND, "has no key", keys_revoke(path, "three", &count, err));
    assert_ok(keys_revoke(path, "one", &count, err));
    assert_int_equal(count, 1);
    assert_ok(keys_revoke(path, two.id, &count, err));
    assert_ok(keys_read(path, &keys, err));
    assert_int_equal(keys.count, 0);
    keys_free(&keys);
}

/* The text of a key is nowhere in the file, and no other user reads the file. */
static void the_file_has_no_secret(void **state)
{
    struct key key = { .name = "k", .scopes = SCOPE_READ };
    char text[KEY_TEXT_SIZE], data[4096];
    struct stat st;
    assert_ok(keys_create(path, &key, text, err));
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, data, sizeof data - 1);
    assert_true(n > 0);
    assert_int_equal(fstat(fd, &st), 0);
    close(fd);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_null(memmem(data, (size_t)n, text + 4, strlen(text) - 4));
    assert_non_null(memmem(data, (size_t)n, key.hash, strlen(key.hash)));
}

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void a_file_that_is_none_of_keys_is_refused(void **state)
{
    static const char *const wrong[] = { "", "[]", "{}", "{\"keys\": {}}", "{\"keys\": [{}]}",
        "{\"keys\": [1]}", "{\"keys\": [{\"hash\": \"abc\"}]}",
        "{\"keys\": [{\"hash\": \"" HASH "0\"}]}",
        "{\"keys\": [{\"hash\": \"" HASH "\", \"scopes\": [\"root\"]}]}",
        "{\"keys\": [{\"hash\": \"" HASH "\", \"scopes\": [null]}]}",
        "{\"keys\": [{\"hash\": \"" HASH "\", \"limits\": [\"sandboxes=many\"]}]}",
        "{\"keys\": [{\"hash\": \"" HASH "\", \"net\": [\"none\"]}]}",
        "{\"keys\": [{\"hash\": \"" HASH "\", \"net\": [null]}]}" };
    struct keys keys = { 0 };
    struct error why = { 0 };
    for (size_t i = 0; i < array_length(wrong); i++) {
        keys_file(wrong[i], 0600);
        if (keys_read(path, &keys, &why) >= 0)
            fail_msg("%s was read", wrong[i]);
        assert_null(keys.rows);
    }
    keys_file("{\"keys\": [{\"hash\": \"" HASH "\", \"scopes\": [\"read\"]}]}", 0600);
    assert_ok(keys_read(path, &keys, err));
    assert_int_equal(keys.count, 1);
    keys_free(&keys);
}

static void a_file_that_others_may_write_is_refused(void **state)
{
    struct keys keys = { 0 };
    keys_file("{\"keys\": []}", 0622);
    assert_fails_saying(ERROR_PERMISSION, "others may write", keys_read(path, &keys, err));
    keys_file("{\"keys\": []}", 0644);
    assert_ok(keys_read(path, &keys, err));
    keys_free(&keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scopes_are_words_of_a_list),
        cmocka_unit_test(limits_are_read_as_they_are_printed),
        cmocka_unit_test(a_limit_that_is_none_is_refused),
        cmocka_unit_test(destinations_are_rules_and_have_an_end),
        cmocka_unit_test_setup_teardown(
            a_key_is_found_by_its_text_until_it_expires_or_is_revoked, keys_setup, keys_teardown),
        cmocka_unit_test_setup_teardown(the_file_has_no_secret, keys_setup, keys_teardown),
        cmocka_unit_test_setup_teardown(
            a_file_that_is_none_of_keys_is_refused, keys_setup, keys_teardown),
        cmocka_unit_test_setup_teardown(
            a_file_that_others_may_write_is_refused, keys_setup, keys_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
