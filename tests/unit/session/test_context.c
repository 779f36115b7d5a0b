/* Contexts from files, directories, pipes and memory: what is in them, what is left out and why,
 * and that nothing can change or block them. */
#include "../test.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "session/context.h"

static char dir[64];
static struct context *context;

static int context_begin(void **state)
{
    context = NULL;
    snprintf(dir, sizeof dir, "/tmp/droste-context-XXXXXX");
    return mkdtemp(dir) ? chdir(dir) : -1;
}

static int context_over(void **state)
{
    context_free(context);
    tree_remove(AT_FDCWD, dir);
    return chdir("/");
}

#define context_test(f) cmocka_unit_test_setup_teardown(f, context_begin, context_over)

static void write_bytes(const char *name, const char *data, size_t len)
{
    cleanup_fd int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, data, len), 0);
}

static void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static int load(const char *path, const struct context_filter *filter, struct error *err)
{
    context_free(context);
    context = NULL;
    return context_load(path, VALUE_AUTO, filter, &context, err);
}

/* What the guest will read. */
static void read_context(struct buf *out)
{
    while (out->len < context->len) {
        char data[4096];
        ssize_t n = pread(context->fd, data, sizeof data, (off_t)out->len);
        assert_true(n > 0);
        buf_append(out, data, (size_t)n);
    }
}

/* "path=text;" of each file of a directory. */
static void read_files(struct buf *out)
{
    cleanup_buf struct buf all = { 0 };
    uint32_t count, path_len;
    uint64_t text_len;
    size_t at = sizeof count;
    read_context(&all);
    memcpy(&count, all.data, sizeof count);
    assert_int_equal(le32toh(count), context->files);
    for (uint32_t i = 0; i < le32toh(count); i++) {
        memcpy(&path_len, all.data + at, 4);
        memcpy(&text_len, all.data + at + 4, 8);
        at += 12;
        buf_append(out, all.data + at, le32toh(path_len));
        buf_putc(out, '=');
        at += le32toh(path_len);
        buf_append(out, all.data + at, le64toh(text_len));
        buf_putc(out, ';');
        at += le64toh(text_len);
    }
    assert_int_equal(at, all.len);
}

static void assert_files(const char *expected)
{
    cleanup_buf struct buf files = { 0 };
    read_files(&files);
    assert_string_equal(buf_text(&files), expected);
}

/* ---- files ---- */

/* A file's bytes, its kind by name, and its absolute path. */
static void a_file_is_its_bytes(void **state)
{
    cleanup_buf struct buf text = { 0 };
    write_bytes("a.json", "[1]\0x", 5);
    assert_ok(load("a.json", NULL, err));
    assert_int_equal(context->kind, VALUE_JSON);
    read_context(&text);
    assert_int_equal(text.len, 5);
    assert_memory_equal(text.data, "[1]\0x", 5);
    assert_true(context->path[0] == '/');
    assert_string_equal(context->source, "a.json");
    write_text("b.ndjson", "1\n");
    assert_ok(load("b.ndjson", NULL, err));
    assert_int_equal(context->kind, VALUE_JSONL);
    write_text("json", "1\n");
    assert_ok(load("json", NULL, err));
    assert_int_equal(context->kind, VALUE_AUTO);
}

/* What was read cannot be changed, not even by who has its descriptor. */
static void a_context_is_sealed(void **state)
{
    write_text("a", "text");
    assert_ok(load("a", NULL, err));
    assert_int_equal(pwrite(context->fd, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(context->fd, 0), -1);
    write_text("a", "other");
    cleanup_buf struct buf text = { 0 };
    read_context(&text);
    assert_string_equal(buf_text(&text), "text");
}

/* A file as large as is allowed is read; of a larger one, the error names the setting to raise. */
static void a_size_has_a_limit(void **state)
{
    const struct context_filter exact = { .most = 4 }, less = { .most = 3 };
    write_text("a", "text");
    assert_ok(load("a", &exact, err));
    assert_ok(context_look("a", &exact, err));
    assert_fails_saying(ERROR_ARGUMENT, "context-size", load("a", &less, err));
    assert_fails_saying(ERROR_ARGUMENT, "context-size", context_look("a", &less, err));
}

/* What does not exist, and what is neither a file nor a directory, is refused without waiting. */
static void other_files_are_refused(void **state)
{
    assert_fails_saying(ERROR_NOT_FOUND, "give a file, a directory, or -", load("none", NULL, err));
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_fails(ERROR_ARGUMENT, load("pipe", NULL, err));
    assert_fails(ERROR_ARGUMENT, load("/dev/zero", NULL, err));
    assert_null(context);
}

/* ---- standard input ---- */

/* Standard input as a pipe, with this text in it; its writer has ended. */
static int begin_input(const char *text)
{
    int ends[2], kept = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(file_write_all(ends[1], text, strlen(text)), 0);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    return kept;
}

static void end_input(int kept)
{
    dup2(kept, STDIN_FILENO);
    close(kept);
}

/* A pipe is read to its end, within the limit; it cannot be read again, so it has no path. */
static void standard_input_may_be_a_pipe(void **state)
{
    const struct context_filter less = { .most = 6 };
    cleanup_buf struct buf text = { 0 };
    int kept = begin_input("piped\n\n");
    struct error err = { 0 };
    int rc = load("-", NULL, &err);
    end_input(kept);
    assert_int_equal(rc, 0);
    read_context(&text);
    assert_string_equal(buf_text(&text), "piped\n\n");
    assert_string_equal(context->source, "standard input");
    assert_null(context->path);
    kept = begin_input("piped\n\n");
    rc = load("-", &less, &err);
    end_input(kept);
    assert_int_equal(rc, -(int)ERROR_ARGUMENT);
}

/* A pipe whose writer says nothing is left when the interrupt is readable. */
static void an_interrupt_ends_the_reading(void **state)
{
    int ends[2], stop[2], kept = dup(STDIN_FILENO);
    struct error err = { 0 };
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(stop), 0);
    dup2(ends[0], STDIN_FILENO);
    assert_int_equal(write(stop[1], "x", 1), 1);
    const struct context_filter filter = { .interrupt = &stop[0] };
    int rc = load("-", &filter, &err);
    end_input(kept);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(stop[i]);
    }
    assert_int_equal(rc, -(int)ERROR_CANCELLED);
    assert_non_null(strstr(err.text, "interrupted while reading"));
}

/* ---- directories ---- */

/* Files are in the order of their paths, with their directories; links and version control are no
 * documents. */
static void a_directory_is_its_texts(void **state)
{
    mkdir("d", 0755);
    mkdir("d/sub", 0755);
    mkdir("d/.git", 0755);
    write_text("d/.git/config", "hidden");
    write_text("d/sub/z", "");
    write_text("d/b", "B");
    write_text("d/a.md", "A\xC3\xA9");
    assert_int_equal(symlink("/etc/passwd", "d/link"), 0);
    assert_int_equal(mkfifo("d/fifo", 0600), 0);
    assert_ok(load("d", NULL, err));
    assert_int_equal(context->kind, VALUE_FILES);
    assert_files("a.md=A\xC3\xA9;b=B;sub/z=;");
    assert_int_equal(context->left_out, 0);
    assert_null(context_notice(context));
    assert_ok(load("d///", NULL, err));
    assert_files("a.md=A\xC3\xA9;b=B;sub/z=;");
}

/* What is not text is left out, and one line names the first, harmless to a terminal. */
static void what_is_no_text_is_left_out(void **state)
{
    mkdir("d", 0755);
    write_bytes("d/a\x1b[31m", "\xFF", 1);
    write_bytes("d/b", "\xC3", 1);
    write_text("d/c", "text");
    assert_ok(load("d", NULL, err));
    assert_files("c=text;");
    cleanup_free char *notice = context_notice(context);
    assert_non_null(strstr(notice, "2 of 3 files were left out"));
    assert_non_null(strstr(notice, "not UTF-8 text"));
    assert_null(strchr(notice, '\x1b'));
}

/* Patterns are of names or of paths; without a file that matches, the directory is refused, with
 * the reason of the first that was left out. */
static void patterns_choose_files(void **state)
{
    const char *const names[] = { "*.c", "sub/*" };
    const struct context_filter c = { names, 1, 0, NULL }, both = { names, 2, 0, NULL };
    mkdir("d", 0755);
    mkdir("d/sub", 0755);
    write_text("d/x.c", "1");
    write_text("d/y.h", "2");
    write_text("d/sub/x.c", "3");
    write_text("d/sub/y.h", "4");
    assert_ok(load("d", &c, err));
    assert_files("sub/x.c=3;x.c=1;");
    assert_ok(load("d", &both, err));
    assert_files("sub/x.c=3;sub/y.h=4;x.c=1;");
    const char *const none[] = { "*.rs" };
    const struct context_filter rust = { none, 1, 0, NULL };
    assert_fails_saying(ERROR_ARGUMENT, "no text files", load("d", &rust, err));
    write_bytes("d/main.rs", "\xFF", 1);
    assert_fails_saying(ERROR_ARGUMENT, "main.rs (not UTF-8", load("d", &rust, err));
}

/* The limit is of all files together. */
static void a_directorys_size_has_a_limit(void **state)
{
    mkdir("d", 0755);
    write_text("d/a", "12345");
    write_text("d/b", "12345");
    /* a count, and for each file its lengths, its path and its text */
    const struct context_filter exact = { .most = 4 + 2 * (12 + 1 + 5) },
                                less = { .most = 4 + 2 * (12 + 1 + 5) - 14 };
    assert_ok(load("d", &exact, err));
    assert_fails_saying(ERROR_ARGUMENT, "the context d is larger", load("d", &less, err));
}

/* ---- memory, names, the record ---- */

/* Parts follow each other; nothing at all is a context, too. */
static void parts_follow_each_other(void **state)
{
    const struct session_part parts[] = { { "ab", 2 }, { "", 0 }, { "\0c", 2 } };
    cleanup_buf struct buf text = { 0 };
    assert_ok(context_from_parts(parts, 3, VALUE_BYTES, &context, err));
    read_context(&text);
    assert_int_equal(text.len, 4);
    assert_memory_equal(text.data, "ab\0c", 4);
    context_free(context);
    assert_ok(context_from_memory(NULL, 0, VALUE_TEXT, &context, err));
    assert_int_equal(context->len, 0);
}

/* A record has the hash of every context, and the bytes of one that cannot be read again. */
static void the_record_keeps_what_cannot_be_read_again(void **state)
{
    static const char abc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    char hash[HASH_TEXT_SIZE];
    cleanup_buf struct buf kept = { 0 }, file = { 0 };
    assert_ok(context_from_memory("abc", 3, VALUE_TEXT, &context, err));
    assert_ok(context_keep(context, hash, &kept, err));
    assert_string_equal(hash, abc);
    assert_string_equal(buf_text(&kept), "abc");
    write_text("a", "abc");
    assert_ok(load("a", NULL, err));
    assert_ok(context_keep(context, hash, &file, err));
    assert_string_equal(hash, abc);
    assert_int_equal(file.len, 0);
}

/* The first is `context`, all have a number, and one may have a name of its own. */
static void contexts_have_names(void **state)
{
    struct context named = { .name = (char *)(uintptr_t) "log" };
    struct context_names names;
    context_names(NULL, 0, &names);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.names[0], "context");
    assert_string_equal(names.names[1], "context_0");
    context_names(&named, 12, &names);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.names[0], "context_12");
    assert_string_equal(names.names[1], "log");
}

/* A kind is one of the words, and nothing else. */
static void a_kind_is_a_word(void **state)
{
    enum value_kind kind;
    assert_ok(context_kind_parse("jsonl", &kind, err));
    assert_int_equal(kind, VALUE_JSONL);
    assert_fails_saying(
        ERROR_ARGUMENT, "'JSON' is not one of", context_kind_parse("JSON", &kind, err));
    assert_fails(ERROR_ARGUMENT, context_kind_parse("", &kind, err));
}

/* What Python said of it, or why the cell did not run. */
static void a_refusal_has_its_reason(void **state)
{
    struct cell_result parsed = { 0 }, lost = { 0 };
    write_text("a.json", "[");
    assert_ok(load("a.json", NULL, err));
    parsed.error.type = (char *)(uintptr_t) "JSONDecodeError";
    parsed.error.message = (char *)(uintptr_t) "line 1";
    assert_fails_saying(ERROR_ARGUMENT, "a.json is not of the requested type",
        context_refused(context, &parsed, err));
    assert_fails_saying(
        ERROR_ARGUMENT, "JSONDecodeError: line 1", context_refused(context, &parsed, err));
    error_set(&lost.reason, ERROR_CANCELLED, "the sandbox is gone");
    assert_fails_saying(ERROR_CANCELLED, "the sandbox is gone", context_refused(NULL, &lost, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(a_file_is_its_bytes),
        context_test(a_context_is_sealed),
        context_test(a_size_has_a_limit),
        context_test(other_files_are_refused),
        context_test(standard_input_may_be_a_pipe),
        context_test(an_interrupt_ends_the_reading),
        context_test(a_directory_is_its_texts),
        context_test(what_is_no_text_is_left_out),
        context_test(patterns_choose_files),
        context_test(a_directorys_size_has_a_limit),
        context_test(parts_follow_each_other),
        context_test(the_record_keeps_what_cannot_be_read_again),
        context_test(contexts_have_names),
        context_test(a_kind_is_a_word),
        context_test(a_refusal_has_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
