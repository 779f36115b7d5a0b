/* Volumes through the public interface, as the command line and other programs use them. */
#include "../test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "droste.h"

#define API_ERROR fixture.err
#include "assert_fine.h"

struct fixture {
    droste *d;
    char root[64];
    droste_error err;
};

static struct fixture fixture;

static int setup(void **state)
{
    fixture = (struct fixture){ .root = "/tmp/droste-volume-api-XXXXXX" };
    assert_non_null(mkdtemp(fixture.root));
    assert_fine(droste_new(&fixture.d, &fixture.err));
    assert_fine(droste_set(fixture.d, "volume-root", fixture.root, &fixture.err));
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    droste_free(fixture.d);
    snprintf(command, sizeof command, "rm -rf %s", fixture.root);
    return system(command);
}

static droste_volume *open_new(const char *name)
{
    droste_volume *v = NULL;
    assert_fine(droste_volume_create(fixture.d, name, &fixture.err));
    assert_fine(droste_volume_open(fixture.d, name, 0, &v, &fixture.err));
    return v;
}

static void put_text(droste_volume *v, const char *path, const char *text)
{
    droste_volume_count count;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), strlen(text));
    close(ends[1]);
    assert_fine(droste_volume_put(v, ends[0], path, &count, &fixture.err));
    assert_int_equal(count.files, 1);
    assert_int_equal(count.bytes, strlen(text));
    close(ends[0]);
}

static void assert_holds(droste_volume *v, const char *path, const char *text)
{
    char data[64] = "";
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_fine(droste_volume_read(v, path, ends[1], &fixture.err));
    close(ends[1]);
    assert_int_equal(read(ends[0], data, sizeof data - 1), strlen(text));
    assert_string_equal(data, text);
    close(ends[0]);
}

static int append_name(void *arg, const char *name)
{
    snprintf((char *)arg + strlen(arg), 64 - strlen(arg), "%s ", name);
    return 0;
}

static int append_first_name(void *arg, const char *name)
{
    append_name(arg, name);
    return 1;
}

/* Volumes are listed by name, in order, until the function ends it. */
static void volumes_are_listed_by_name(void **state)
{
    char all[64] = "", first[64] = "";
    droste_volume_close(open_new("b"));
    droste_volume_close(open_new("a"));
    assert_fine(droste_volume_names(fixture.d, append_name, all, &fixture.err));
    assert_string_equal(all, "a b ");
    assert_fine(droste_volume_names(fixture.d, append_first_name, first, &fixture.err));
    assert_string_equal(first, "a ");
    assert_string_equal(droste_volume_root(fixture.d, NULL), fixture.root);
}

static int append_entry(void *arg, const droste_volume_entry *e)
{
    char line[64];
    snprintf(line, sizeof line, "%s:%c%llu", e->path, S_ISDIR(e->mode) ? 'd' : 'f',
        S_ISDIR(e->mode) ? 0 : (unsigned long long)e->size);
    return append_name(arg, line);
}

/* What was put is listed with its directories, and read back; the result says whether there is
 * more. */
static void files_are_put_listed_and_read(void **state)
{
    char all[64] = "", one[64] = "";
    droste_volume *v = open_new("files");
    put_text(v, "deep/er/x", "hello");
    assert_int_equal(droste_volume_list(v, ".", 3, 10, append_entry, all, &fixture.err), 0);
    assert_string_equal(all, "deep:d0 deep/er:d0 deep/er/x:f5 ");
    assert_int_equal(droste_volume_list(v, ".", 3, 1, append_entry, one, &fixture.err), 1);
    assert_string_equal(one, "deep:d0 ");
    assert_holds(v, "deep/er/x", "hello");
    assert_fine(droste_volume_delete(v, "deep", &fixture.err));
    assert_int_equal(
        droste_volume_read(v, "deep/er/x", STDOUT_FILENO, &fixture.err), -DROSTE_ERROR_NOT_FOUND);
    droste_volume_close(v);
}

/* A limit that is not given stays; one that makes no sense is refused and changes nothing. */
static void limits_change_one_by_one(void **state)
{
    droste_volume_usage before, after;
    droste_volume *v = open_new("limits");
    assert_fine(droste_volume_measure(v, &before, &fixture.err));
    assert_fine(droste_volume_limit(v, "2M", NULL, &fixture.err));
    assert_int_equal(droste_volume_limit(v, "much", "7", &fixture.err), -DROSTE_ERROR_ARGUMENT);
    assert_fine(droste_volume_measure(v, &after, &fixture.err));
    assert_int_equal(after.size_limit, 2 << 20);
    assert_int_equal(after.files_limit, before.files_limit);
    droste_volume_close(v);
}

/* A snapshot needs the volume alone, and restoring it brings back what was there. */
static void a_snapshot_brings_back_what_was_there(void **state)
{
    char names[64] = "";
    droste_volume_count count;
    droste_volume *v = open_new("kept"), *alone = NULL;
    put_text(v, "x", "old");
    assert_int_equal(
        droste_volume_open(fixture.d, "kept", DROSTE_VOLUME_ALONE, &alone, &fixture.err),
        -DROSTE_ERROR_ARGUMENT);
    droste_volume_close(v);
    assert_fine(droste_volume_open(fixture.d, "kept", DROSTE_VOLUME_ALONE, &alone, &fixture.err));
    assert_fine(droste_volume_snapshot(alone, "s", &count, &fixture.err));
    put_text(alone, "x", "new");
    assert_fine(droste_volume_snapshots(alone, append_name, names, &fixture.err));
    assert_string_equal(names, "s ");
    assert_fine(droste_volume_restore(alone, "s", &count, &fixture.err));
    assert_holds(alone, "x", "old");
    droste_volume_close(alone);
    assert_fine(droste_volume_remove(fixture.d, "kept", &fixture.err));
    assert_int_equal(
        droste_volume_open(fixture.d, "kept", 0, &v, &fixture.err), -DROSTE_ERROR_NOT_FOUND);
}

/* What a provider does not offer for its volumes is refused by name; the same works on this
 * machine. */
static void a_providers_volumes_are_not_made_here(void **state)
{
    assert_false(droste_volumes_are_remote(fixture.d));
    assert_fine(droste_volume_create(fixture.d, "here", &fixture.err));
    assert_fine(droste_set(fixture.d, "env", "modal", &fixture.err));
    assert_true(droste_volumes_are_remote(fixture.d));
    assert_int_equal(
        droste_volume_create(fixture.d, "there", &fixture.err), -DROSTE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(fixture.err.text, "volumes of modal do not support"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(volumes_are_listed_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(files_are_put_listed_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_change_one_by_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_snapshot_brings_back_what_was_there, setup, teardown),
        cmocka_unit_test_setup_teardown(a_providers_volumes_are_not_made_here, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
