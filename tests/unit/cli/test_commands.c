/* Whole commands within this process, where the sanitizers see them: what they print, and how they
 * end. */
#include "../test.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/cli.h"

enum { WORDS_MAX = 24 };

int cli_main(int argc, char **argv);

static char place[64], run_id[64];
static struct buf out, err_out;

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static const char *in_place(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", place, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(in_place(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int commands_setup(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-commands-XXXXXX");
    assert_non_null(mkdtemp(place));
    setenv("HOME", place, 1);
    setenv("XDG_DATA_HOME", in_place("data"), 1);
    setenv("XDG_CONFIG_HOME", in_place("config"), 1);
    setenv("DROSTE_DATABASE", in_place("runs.db"), 1);
    setenv("DROSTE_VOLUME_ROOT", in_place("volumes"), 1);
    assert_int_equal(chdir(place), 0);
    return 0;
}

static int commands_teardown(void **state)
{
    buf_free(&out);
    buf_free(&err_out);
    assert_int_equal(chdir("/"), 0);
    return nftw(place, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int redirect(int fd, int *kept)
{
    int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    *kept = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    assert_true(file >= 0 && *kept >= 0 && dup2(file, fd) >= 0);
    return file;
}

static void restore(int fd, int kept, int file, struct buf *text)
{
    assert_true(dup2(kept, fd) >= 0);
    close(kept);
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    buf_clear(text);
    assert_ok(file_read_fd(file, "output", 64 << 20, text, err));
    close(file);
}

/* Runs `droste WORDS…` (ends with NULL); returns its exit status. */
static int droste_command(const char *word, ...)
{
    char *argv[WORDS_MAX + 2] = { strdup("droste"), strdup(word) };
    int argc = 2, kept_out, kept_err;
    va_list words;
    va_start(words, word);
    for (const char *w; argc < WORDS_MAX && (w = va_arg(words, const char *));)
        argv[argc++] = strdup(w);
    va_end(words);
    fflush(NULL);
    int file_out = redirect(STDOUT_FILENO, &kept_out),
        file_err = redirect(STDERR_FILENO, &kept_err);
    int status = cli_main(argc, argv);
    fflush(NULL);
    clearerr(stdout);
    restore(STDOUT_FILENO, kept_out, file_out, &out);
    restore(STDERR_FILENO, kept_err, file_err, &err_out);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return status;
}

static void assert_says(struct buf *where, const char *words)
{
    if (!strstr(buf_text(where), words))
        fail_msg("'%s' is not in:\n%s%s", words, buf_text(&out), buf_text(&err_out));
}

static void assert_does(int status, int expected)
{
    if (status != expected)
        fail_msg(
            "exit status %d, not %d:\n%s%s", status, expected, buf_text(&out), buf_text(&err_out));
}

/* A run with two turns, output, an error, a call of the code and a child run. */
static void record_a_run(void)
{
    write_file("model.jsonl",
        "{\"content\": \"I look.\\n```repl\\nprint('found <b>')\\nimport sys\\n"
        "print('odd', file=sys.stderr)\\nx = llm_query('q')\\n1/0\\n```\"}\n"
        "{\"content\": \"an answer\", \"contains\": \"q\", \"depth\": 1}\n"
        "{\"content\": \"```repl\\nopen('made.txt', 'w').write('made')\\n"
        "display({'text/html': '<i>rich</i>', 'text/plain': 'rich'}, raw=True)\\n"
        "SUBMIT(answer=[x, rlm_query('child')])\\n```\"}\n"
        "{\"content\": \"```repl\\nSUBMIT(answer='of a child')\\n```\", \"depth\": 1}\n");
    assert_does(droste_command("run", "What is it?", "--model", "replay:model.jsonl", "--artifacts",
                    "*.txt", "--json", NULL),
        EXIT_FINE);
    assert_says(&out, "\"answer\":[\"an answer\",\"of a child\"]");
    const char *at = strstr(buf_text(&out), "\"run\":\"");
    assert_non_null(at);
    snprintf(run_id, sizeof run_id, "%.*s", (int)strcspn(at + 7, "\""), at + 7);
}

static void a_recorded_run_is_listed_and_shown(void **state)
{
    record_a_run();
    assert_does(droste_command("runs", "ls", NULL), EXIT_FINE);
    assert_says(&out, run_id);
    assert_says(&out, "What is it?");
    assert_does(droste_command("runs", "ls", "--json", "--status", "answered", NULL), EXIT_FINE);
    assert_says(&out, run_id);
    assert_does(droste_command("runs", "ls", "--status", "error", NULL), EXIT_FINE);
    assert_null(strstr(buf_text(&out), run_id));
    assert_does(droste_command("runs", "show", run_id, NULL), EXIT_FINE);
    assert_says(&out, "| found <b>");
    assert_says(&out, "|!odd");
    assert_says(&out, "ZeroDivisionError");
    assert_says(&out, "of a child");
    assert_does(droste_command("runs", "show", run_id, "--full", "--save-results", "results",
                    "--save-artifacts", "artifacts.again", NULL),
        EXIT_FINE);
    assert_int_equal(access("results/2.1.1.html", F_OK), 0);
    assert_int_equal(access("artifacts.again/made.txt", F_OK), 0);
    assert_does(droste_command("runs", "show", run_id, "--json", NULL), EXIT_FINE);
    assert_says(&out, "\"an answer\"");
}

static void a_recorded_run_is_exported_and_removed(void **state)
{
    record_a_run();
    assert_does(droste_command("runs", "export", run_id, NULL), EXIT_FINE);
    assert_says(&out, "\"type\":\"run\"");
    assert_says(&out, "\"type\":\"cell\"");
    assert_does(
        droste_command("runs", "export", run_id, "--format", "html", "--out", "run.html", NULL),
        EXIT_FINE);
    cleanup_buf struct buf page = { 0 };
    assert_ok(file_read("run.html", 64 << 20, &page, err));
    assert_non_null(strstr(buf_text(&page), "<!doctype html>"));
    assert_null(strstr(buf_text(&page), "found <b>")); /* escaped */
    assert_does(droste_command("runs", "rm", run_id, NULL), EXIT_FINE);
    assert_does(droste_command("runs", "show", run_id, NULL), EXIT_USAGE);
    assert_says(&err_out, run_id);
    assert_does(droste_command("runs", "show", NULL), EXIT_USAGE);
}

static void code_runs_like_a_program(void **state)
{
    write_file("script.py", "import sys\nprint(__name__, sys.argv[1:])\nsys.exit(5)\n");
    assert_does(droste_command("exec", "-c", "print(6 * 7)", NULL), EXIT_FINE);
    assert_string_equal(buf_text(&out), "42\n");
    assert_does(droste_command("exec", "script.py", "one", "--", "--two", NULL), 5);
    assert_string_equal(buf_text(&out), "__main__ ['one', '--two']\n");
    assert_does(droste_command("exec", "-c", "1/0", NULL), EXIT_RAISED);
    assert_says(&err_out, "ZeroDivisionError");
    assert_does(droste_command("exec", "-c", "SUBMIT(a=1)", "--json", NULL), EXIT_FINE);
    assert_says(&out, "\"submit\":{\"a\": 1}");
    write_file("in.txt", "given");
    assert_does(droste_command("exec", "-c", "open('out.txt', 'w').write(open('in').read()*2)",
                    "--put", "in.txt:in", "--get", "out.txt:back.txt", NULL),
        EXIT_FINE);
    cleanup_buf struct buf back = { 0 };
    assert_ok(file_read("back.txt", 100, &back, err));
    assert_string_equal(buf_text(&back), "givengiven");
}

static void a_batch_writes_results(void **state)
{
    write_file("model.jsonl",
        "{\"content\": \"```repl\\nSUBMIT(answer=len(context))\\n```\", \"repeat\": true}\n");
    write_file("tasks.jsonl", "{\"question\": \"?\", \"context_text\": \"xx\", \"expected\": 2}\n"
                              "{\"question\": \"?\", \"context_text\": \"x\", \"expected\": 2}\n");
    assert_does(droste_command("batch", "tasks.jsonl", "--out", "results.jsonl", "--grader",
                    "exact", "--model", "replay:model.jsonl", NULL),
        EXIT_FINE);
    cleanup_buf struct buf results = { 0 };
    assert_ok(file_read("results.jsonl", 1 << 20, &results, err));
    assert_non_null(strstr(buf_text(&results), "\"passed\":true"));
    assert_non_null(strstr(buf_text(&results), "\"passed\":false"));
    assert_does(droste_command("runs", "export", "--batch", "results.jsonl", "--format", "html",
                    "--out", "batch.html", NULL),
        EXIT_FINE);
    assert_int_equal(access("batch.html", F_OK), 0);
    write_file("wrong.jsonl", "{\"question\": 1}\n");
    assert_does(droste_command("batch", "wrong.jsonl", "--out", "r2.jsonl", "--model",
                    "replay:model.jsonl", NULL),
        EXIT_USAGE);
    assert_says(&err_out, "line 1");
}

static void volumes_are_kept_and_copied(void **state)
{
    write_file("in.txt", "kept");
    assert_does(droste_command("volume", "create", "data", "--volume-size", "1M", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "put", "data", "in.txt", "sub/a.txt", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "ls", "data", "sub", NULL), EXIT_FINE);
    assert_says(&out, "a.txt");
    assert_does(droste_command("volume", "tree", "data", "--json", NULL), EXIT_FINE);
    assert_says(&out, "a.txt");
    assert_does(droste_command("volume", "get", "data", "sub/a.txt", "-", NULL), EXIT_FINE);
    assert_string_equal(buf_text(&out), "kept");
    assert_does(droste_command("volume", "snapshot", "data", "one", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "rm", "data", "sub/a.txt", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "get", "data", "sub/a.txt", "-", NULL), EXIT_USAGE);
    assert_says(&err_out, "there is no such file");
    assert_does(droste_command("volume", "restore", "data", "one", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "get", "data", "sub/a.txt", "-", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "du", "data", "--json", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "limit", "data", NULL), EXIT_FINE);
    assert_says(&out, "1");
    assert_does(droste_command("volume", "ls", "../data", NULL), EXIT_USAGE);
    assert_does(droste_command("volume", "rm", "data", NULL), EXIT_FINE);
    assert_does(droste_command("volume", "ls", NULL), EXIT_FINE);
    assert_null(strstr(buf_text(&out), "data"));
}

/* What only prints: tables of the program, as text and as JSON. */
static void tables_are_printed(void **state)
{
    static const char *const lines[][4] = { { "help" }, { "help", "run", "all" }, { "--version" },
        { "env", "ls" }, { "env", "ls", "--json" }, { "prompts" }, { "prompts", "system" },
        { "completion", "bash" }, { "completion", "zsh" }, { "completion", "fish" },
        { "runs", "ls" }, { "volume", "ls" } };
    for (size_t i = 0; i < array_length(lines); i++) {
        assert_does(
            droste_command(lines[i][0], lines[i][1], lines[i][2], lines[i][3], NULL), EXIT_FINE);
        if (i + 2 < array_length(lines))
            assert_true(out.len > 0);
    }
}

static void mistakes_are_named_with_what_to_write(void **state)
{
    assert_does(droste_command("exce", NULL), EXIT_USAGE);
    assert_says(&err_out, "did you mean exec?");
    assert_does(droste_command("exec", "-c", "1", "--memroy", "1G", NULL), EXIT_USAGE);
    assert_says(&err_out, "--memory");
    assert_does(droste_command("exec", "-c", "1", "--memory", "much", NULL), EXIT_USAGE);
    assert_says(&err_out, "memory");
    assert_does(droste_command("exec", "nowhere.py", NULL), EXIT_USAGE);
    assert_says(&err_out, "nowhere.py");
    assert_does(droste_command("run", "?", "--model", "replay:none.jsonl", NULL), EXIT_USAGE);
    assert_says(&err_out, "none.jsonl");
    assert_does(droste_command("runs", "export", "--all", "--format", "pdf", NULL), EXIT_USAGE);
    assert_says(&err_out, "--format 'pdf' is not one of jsonl, html, otlp");
}

#define commands_test(f) cmocka_unit_test_setup_teardown(f, commands_setup, commands_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        commands_test(a_recorded_run_is_listed_and_shown),
        commands_test(a_recorded_run_is_exported_and_removed),
        commands_test(code_runs_like_a_program),
        commands_test(a_batch_writes_results),
        commands_test(volumes_are_kept_and_copied),
        commands_test(tables_are_printed),
        commands_test(mistakes_are_named_with_what_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
