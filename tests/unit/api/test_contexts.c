/* The contexts of a run: their names, and the same ones again for a run that is resumed. */
#include "../programs.h"

#include "api/contexts.h"
#include "api/settings.h"
#include "api/stored_run.h"
#include "base/cleanup.h"
#include "base/json/json.h"

struct fixture {
    struct settings settings;
    struct programs files;
    struct contexts all;
    struct context_paths paths;
    struct stored_run stored;
    struct json_object *several; /* what the record has of the contexts */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_ok(settings_init(&f->settings, err));
    programs_begin(&f->files);
    snprintf(f->stored.id, sizeof f->stored.id, "run-1");
    f->stored.context = f->several = json_object_new_array();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    contexts_free(&f->all);
    list_clear(&f->paths.list);
    buf_free(&f->stored.context_data);
    json_object_put(f->several);
    programs_end(&f->files);
    settings_free(&f->settings);
    free(f);
    return 0;
}

#define context_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const char *file(struct fixture *f, const char *name, const char *text)
{
    return programs_write(&f->files, name, text, 0644);
}

static int read_paths(struct fixture *f, struct error *err)
{
    return api_contexts_read(&f->settings, &f->paths, NULL, &f->all, err);
}

/* "PREFIX" and the path of a file, as one argument. */
static void add_path(struct fixture *f, const char *prefix, const char *path)
{
    char argument[256];
    snprintf(argument, sizeof argument, "%s%s", prefix, path);
    assert_ok(list_add(&f->paths.list, argument, err));
}

/* ---- names ---- */

static void a_name_stands_before_the_first_equals_sign(void **state)
{
    struct fixture *f = *state;
    add_path(f, "", file(f, "plain", "one"));
    add_path(f, "notes=", f->files.path);
    add_path(f, "", file(f, "a=b", "two")); /* a slash before the sign */
    add_path(f, "odd=", f->files.path);     /* one sign for the name, one of the file */
    assert_ok(read_paths(f, err));
    assert_int_equal(f->all.count, 4);
    assert_null(f->all.items[0]->name);
    assert_string_equal(f->all.items[1]->name, "notes");
    assert_null(f->all.items[2]->name);
    assert_string_equal(f->all.items[3]->name, "odd");
    assert_int_equal(f->all.items[3]->len, 3);
}

/* In the current directory, too, the file of the whole text wins. */
static void a_file_of_the_whole_text_is_a_path(void **state)
{
    struct fixture *f = *state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    file(f, "b.txt", "other");
    file(f, "a=b.txt", "whole");
    assert_int_equal(chdir(f->files.dir), 0);
    assert_ok(list_add(&f->paths.list, "a=b.txt", err));
    assert_ok(list_add(&f->paths.list, "x=b.txt", err));
    int rc = read_paths(f, NULL);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rc, 0);
    assert_null(f->all.items[0]->name);
    assert_string_equal(f->all.items[1]->name, "x");
}

static void names_that_cannot_be_are_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {
        "1x=", "a b=", "_x=", "print=", "llm_query=", "class=", "context="
    };
    const char *path = file(f, "plain", "one");
    for (size_t i = 0; i < array_length(names); i++) {
        list_clear(&f->paths.list);
        add_path(f, names[i], path);
        assert_fails(ERROR_ARGUMENT, read_paths(f, err));
        assert_fails(ERROR_ARGUMENT, api_contexts_look(&f->settings, &f->paths, err));
    }
    assert_int_equal(f->all.count, 0);
    list_clear(&f->paths.list);
    add_path(f, "x1=", path);
    assert_ok(api_contexts_look(&f->settings, &f->paths, err));
    assert_ok(read_paths(f, err));
}

static void two_of_one_name_are_refused(void **state)
{
    struct fixture *f = *state;
    add_path(f, "a=", file(f, "one", "1"));
    add_path(f, "b=", f->files.path);
    add_path(f, "a=", file(f, "two", "2"));
    assert_fails_saying(ERROR_ARGUMENT, "two contexts are called 'a'", read_paths(f, err));
}

/* A program's own paths have no names. */
static void unnamed_paths_are_not_split(void **state)
{
    struct fixture *f = *state;
    f->paths.unnamed = true;
    assert_ok(list_add(&f->paths.list, "x=/etc/passwd", err));
    assert_fails(ERROR_NOT_FOUND, read_paths(f, err));
    assert_fails(ERROR_NOT_FOUND, api_contexts_look(&f->settings, &f->paths, err));
}

static void a_type_that_is_none_is_refused(void **state)
{
    struct fixture *f = *state;
    add_path(f, "", file(f, "plain", "one"));
    free(f->settings.context_type);
    f->settings.context_type = strdup("xml");
    assert_fails(ERROR_ARGUMENT, read_paths(f, err));
    assert_fails(ERROR_ARGUMENT, api_contexts_look(&f->settings, &f->paths, err));
}

/* ---- the same again ---- */

/* Records a context as a run does: with its path, or, of a pipe, with its bytes. */
static void record(struct fixture *f, const struct context *c, const char *path)
{
    char hash[HASH_TEXT_SIZE] = "";
    struct json_object *was = json_object_new_object();
    struct buf *data = &f->stored.context_data;
    size_t before = data->len;
    assert_ok(context_keep(c, hash, data, err));
    if (path)
        data->len = before;
    json_object_object_add(was, "sha256", json_object_new_string(hash));
    json_object_object_add(was, "name", json_object_new_string("notes"));
    json_object_object_add(was, "source", json_object_new_string(path ? path : "standard input"));
    if (path)
        json_object_object_add(was, "path", json_object_new_string(path));
    else
        json_object_object_add(was, "bytes", json_object_new_int64((int64_t)c->len));
    json_object_array_add(f->several, was);
}

static void record_file(struct fixture *f, const char *path)
{
    struct context *c = NULL;
    assert_ok(context_load(path, VALUE_AUTO, NULL, &c, err));
    record(f, c, path);
    context_free(c);
}

static void record_bytes(struct fixture *f, const char *text)
{
    struct context *c = NULL;
    assert_ok(context_from_memory(text, strlen(text), VALUE_AUTO, &c, err));
    record(f, c, NULL);
    context_free(c);
}

static int again(struct fixture *f, struct error *err)
{
    return api_contexts_again(&f->stored, &f->settings, NULL, &f->all, err);
}

static void files_and_kept_bytes_are_loaded_again(void **state)
{
    struct fixture *f = *state;
    record_bytes(f, "first");
    record_file(f, file(f, "notes", "from a file"));
    record_bytes(f, "second");
    assert_ok(again(f, err));
    assert_int_equal(f->all.count, 3);
    assert_int_equal(f->all.items[0]->len, 5);
    assert_int_equal(f->all.items[1]->len, 11);
    assert_int_equal(f->all.items[2]->len, 6);
    assert_string_equal(f->all.items[1]->name, "notes");
    assert_string_equal(f->all.items[2]->source, "standard input");
}

static void a_run_without_a_context_has_none_again(void **state)
{
    struct fixture *f = *state;
    f->stored.context = NULL;
    assert_ok(again(f, err));
    assert_int_equal(f->all.count, 0);
}

static void one_that_changed_is_named(void **state)
{
    struct fixture *f = *state;
    const char *path = file(f, "notes", "before");
    record_file(f, path);
    file(f, "notes", "after!");
    assert_fails_saying(ERROR_ARGUMENT, "has changed since run 'run-1' began", again(f, err));
    contexts_free(&f->all);
    f->all = (struct contexts){ 0 };
    file(f, "notes", "before");
    assert_ok(again(f, err));
}

static void one_that_is_gone_is_named(void **state)
{
    struct fixture *f = *state;
    record_file(f, file(f, "notes", "x"));
    unlink(f->files.path);
    assert_fails_saying(ERROR_NOT_FOUND, "/notes", again(f, err));
}

/* The record keeps 64 MiB; of a larger context it has none, whatever it says of its length. */
static void one_that_was_too_large_to_keep_is_named(void **state)
{
    struct fixture *f = *state;
    record_bytes(f, "first");
    record_bytes(f, "second");
    f->stored.context_data.len -= 1;
    assert_fails_saying(ERROR_NOT_FOUND, "too large for the record", again(f, err));
}

/* A caller that gives contexts must give the recorded ones. */
static void contexts_of_a_resumed_run_are_compared(void **state)
{
    struct fixture *f = *state;
    record_file(f, file(f, "notes", "x"));
    add_path(f, "other=", f->files.path);
    assert_ok(read_paths(f, err));
    assert_ok(again(f, err));
    assert_string_equal(f->all.items[0]->name, "notes");
    record_bytes(f, "y");
    assert_fails_saying(ERROR_ARGUMENT, "run 'run-1' had another number", again(f, err));
    f->stored.context = NULL;
    assert_fails_saying(ERROR_ARGUMENT, "run 'run-1' had no context", again(f, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(a_name_stands_before_the_first_equals_sign),
        context_test(a_file_of_the_whole_text_is_a_path),
        context_test(names_that_cannot_be_are_refused),
        context_test(two_of_one_name_are_refused),
        context_test(unnamed_paths_are_not_split),
        context_test(a_type_that_is_none_is_refused),
        context_test(files_and_kept_bytes_are_loaded_again),
        context_test(a_run_without_a_context_has_none_again),
        context_test(one_that_changed_is_named),
        context_test(one_that_is_gone_is_named),
        context_test(one_that_was_too_large_to_keep_is_named),
        context_test(contexts_of_a_resumed_run_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
