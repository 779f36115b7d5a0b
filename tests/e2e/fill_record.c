/* tests/e2e/fill_record.c: writes records that no run of today makes, through the store's own
 * functions: fill_record FILE KIND [NUMBER]
 *
 *   tree        a run with children and grandchildren, which the loop does not start yet
 *   crossed     a run whose two children have children of their own, which began in the other order
 *   hostile     a run in which every text tries to get out of a page, and to fetch the URL NUMBER
 *   many        a run with NUMBER calls in one cell
 *   large       a run with an output of NUMBER MiB
 *   long        a run with NUMBER turns, each with an output of 100 KiB
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/store.h"

static struct store *store;
static struct error why;

static void must(int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "fill_record: %s\n", why.text);
    exit(1);
}

static void pass(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static void begin(const char *id, const char *parent, int64_t cell, int64_t depth, const char *what)
{
    char made[STORE_RUN_ID_SIZE];
    droste_record_run run = { .id = id,
        .parent = parent,
        .parent_cell = cell,
        .depth = depth,
        .model = "openai/gpt-5-mini",
        .environment = "local",
        .isolation = "full",
        .version = "0.1.0",
        .question = store_text(what),
        .context = store_text("{\"source\":\"notes.txt\",\"bytes\":1234}"),
        .limits = store_text("{\"calls\":100}") };
    must(store_run_begin(store, &run, made, &why));
    must(store_turn_begin(store, id, 1, &why));
}

static void end(const char *id, const char *answer, int64_t calls, double cost)
{
    droste_record_run run = { .status = answer ? "answered" : "error",
        .error = answer ? NULL : "the model did not answer",
        .answer = store_text(answer),
        .iterations = 1,
        .calls = calls,
        .input_tokens = 2310,
        .output_tokens = 418,
        .cost = cost,
        .seconds = 0.2 };
    must(store_run_end(store, id, &run, &why));
}

static void ask(const char *run, int64_t cell, const char *request, const char *reply)
{
    int64_t call;
    droste_record_call b = { .run = run,
        .turn = 1,
        .cell = cell,
        .kind = cell ? "sub" : "root",
        .model = cell ? "openai/gpt-5-nano" : "openai/gpt-5-mini",
        .request = store_text(request) };
    droste_record_call e = { .status = reply ? "ok" : "error",
        .error = reply ? NULL : "model_rate: again later",
        .finish = "stop",
        .reply = store_text(reply),
        .input_tokens = 120,
        .output_tokens = 34,
        .attempts = reply ? 1 : 3,
        .seconds = 0.02 };
    must(store_call_begin(store, &b, &call, &why));
    must(store_call_end(store, call, &e, &why));
}

static int64_t begin_cell(const char *run, const char *code)
{
    int64_t cell;
    droste_record_cell b = { .run = run, .turn = 1, .code = store_text(code) };
    must(store_cell_begin(store, &b, &cell, &why));
    return cell;
}

static void end_cell(int64_t cell, const char *output, const char *submit, int64_t calls)
{
    droste_record_cell e = { .status = submit ? "submitted" : "ok",
        .standard_output = store_text(output),
        .submit = store_text(submit),
        .variables = store_text("[{\"name\":\"parts\",\"type\":\"list\",\"length\":3}]"),
        .calls = calls,
        .seconds = 0.05 };
    must(store_cell_end(store, cell, &e, &why));
}

static void fill_tree(void)
{
    static const char *const names[] = { "child-one", "child-two" };
    begin("root", NULL, 0, 0, "Which of the three reports contradict each other?");
    ask("root", 0, "[{\"role\":\"user\",\"content\":\"Which?\"}]",
        "I hand each report to a run of its own.\n```repl\nparts = "
        "rlm_query_batched(reports)\n```");
    pass(20);
    int64_t cell = begin_cell("root", "parts = rlm_query_batched(reports)\nprint(parts)\n");
    for (size_t i = 0; i < 2; i++)
        begin(names[i], "root", cell, 1,
            i ? "What does report two say?" : "What does report one say?");
    for (size_t i = 0; i < 2; i++) {
        pass(15);
        ask(names[i], 0, "[]", "```repl\nSUBMIT(answer=llm_query('?'))\n```");
        int64_t inner = begin_cell(names[i], "SUBMIT(answer=llm_query('?'))\n");
        ask(names[i], inner, "What is in it?", i ? NULL : "Sales rose.");
        if (i == 0) {
            begin("grandchild", names[i], inner, 2, "Is the table in it whole?");
            ask("grandchild", 0, "[]", "FINAL(yes)");
            end("grandchild", "\"yes\"", 1, -1);
        }
        end_cell(inner, "", "{\"answer\":\"Sales rose.\"}", 1);
        end(names[i], i ? NULL : "\"Sales rose.\"", 2, 0.01);
    }
    end_cell(cell, "['Sales rose.', None]\n", "{\"answer\":[\"one\",\"two\"]}", 0);
    end("root", "[\"one\",\"two\"]", 6, 0.0312);
}

/* Two children at once: the second's own child begins before the first's. */
static void fill_crossed(void)
{
    int64_t cells[2];
    static const char *const names[] = { "child-one", "child-two" };
    static const char *const below[] = { "below-one", "below-two" };
    begin("root", NULL, 0, 0, "Which?");
    int64_t cell = begin_cell("root", "rlm_query_batched(reports)\n");
    for (size_t i = 0; i < 2; i++)
        begin(names[i], "root", cell, 1, "What does it say?");
    for (size_t i = 0; i < 2; i++)
        cells[i] = begin_cell(names[i], "rlm_query('?')\n");
    for (size_t i = 2; i-- > 0;)
        begin(below[i], names[i], cells[i], 2, "Is it whole?");
    for (size_t i = 0; i < 2; i++) {
        end(below[i], "\"yes\"", 1, -1);
        end_cell(cells[i], "", NULL, 1);
        end(names[i], "\"yes\"", 1, -1);
    }
    end_cell(cell, "", "{\"answer\":1}", 0);
    end("root", "1", 1, 0.01);
}

/* `what`, and then all that could end a text, a script, a comment or an element, and run or fetch
 * something. What it gives lives as long as the process. */
static const char *out(const char *what, const char *url)
{
    char *text = NULL;
    if (asprintf(&text,
            "%s </script></pre></title><script>document.title='owned'</script><!--<script>"
            "--><img src='%s' onerror=\"document.title='owned'\">\x1b[31m\xe2\x80\xae"
            "evil\xe2\x80\xac\xff\x85{{}}",
            what, url) < 0)
        exit(1);
    return text;
}

static void fill_hostile(const char *url)
{
    begin("hostile", NULL, 0, 0, out("question", url));
    ask("hostile", 0, out("prompt", url), out("reply", url));
    int64_t cell = begin_cell("hostile", out("code = '''", url));
    ask("hostile", cell, out("subprompt", url), out("subreply", url));
    ask("hostile", cell, out("failed", url), NULL);
    droste_record_cell e = { .status = out("status", url),
        .killed = out("killed", url),
        .standard_output = store_text(out("output", url)),
        .standard_error = store_text(out("stderr", url)),
        .submit = store_text(out("submitted, and no JSON", url)),
        .error = store_text("{\"type\":\"</script><b>E\",\"message\":\"<i>m\",\"traceback\":null}"),
        .variables = store_text("[{\"name\":\"<b>name\",\"type\":\"</table>\",\"length\":\"<u>\","
                                "\"preview\":\"</script><script>document.title='owned'</script>\"},"
                                "null, 7]"),
        .calls = 2,
        .seconds = 1 };
    must(store_cell_end(store, cell, &e, &why));
    droste_record_run run = { .status = "answered",
        .error = out("error", url),
        .answer = store_text(out("answer", url)),
        .cost = -1,
        .seconds = 2 };
    must(store_run_end(store, "hostile", &run, &why));
}

static void fill_many(long calls)
{
    begin("many", NULL, 0, 0, "How many?");
    ask("many", 0, "[]", "```repl\nllm_query_batched(prompts)\n```");
    int64_t cell = begin_cell("many", "llm_query_batched(prompts)\n");
    for (long i = 0; i < calls; i++) {
        char prompt[64];
        snprintf(prompt, sizeof prompt, "prompt number %ld", i);
        ask("many", cell, prompt, "fine");
    }
    end_cell(cell, "", "{}", calls);
    end("many", "{}", calls + 1, -1);
}

static void fill_large(long mib)
{
    size_t len = (size_t)mib << 20;
    char *data = malloc(len);
    if (!data)
        exit(1);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(i % 80 == 79 ? '\n' : 'a' + i % 26);
    begin("large", NULL, 0, 0, "How large?");
    int64_t cell = begin_cell("large", "print(text)");
    droste_record_cell e = { .status = "ok", .standard_output = { data, len }, .seconds = 1 };
    must(store_cell_end(store, cell, &e, &why));
    end("large", "{}", 0, -1);
    free(data);
}

static void fill_long(long turns)
{
    enum { LONG_OUTPUT = 100 << 10 };
    static char data[LONG_OUTPUT];
    begin("long", NULL, 0, 0, "How long?");
    for (long i = 1; i <= turns; i++) {
        char code[64];
        int64_t call, cell;
        if (i > 1)
            must(store_turn_begin(store, "long", i, &why));
        for (size_t j = 0; j < sizeof data; j++)
            data[j] = (char)(j % 80 == 79 ? '\n' : 'a' + (j * 31 + (size_t)i * 7 + j / 26) % 26);
        snprintf(code, sizeof code, "print(text)  # turn number %ld", i);
        droste_record_call b = { .run = "long",
            .turn = i,
            .kind = "root",
            .model = "openai/gpt-5-mini",
            .request = store_text("[]") };
        droste_record_call e = { .status = "ok", .reply = store_text("I look."), .seconds = 0.1 };
        must(store_call_begin(store, &b, &call, &why));
        must(store_call_end(store, call, &e, &why));
        droste_record_cell c = { .run = "long", .turn = i, .code = store_text(code) };
        droste_record_cell ended = {
            .status = "ok", .standard_output = { data, sizeof data }, .seconds = 0.1
        };
        must(store_cell_begin(store, &c, &cell, &why));
        must(store_cell_end(store, cell, &ended, &why));
    }
    end("long", "{}", turns, -1);
}

int main(int argc, char **argv)
{
    long number = argc > 3 ? atol(argv[3]) : 1;
    if (argc < 3)
        return 2;
    must(store_open(argv[1], &store, &why));
    if (strcmp(argv[2], "tree") == 0)
        fill_tree();
    else if (strcmp(argv[2], "crossed") == 0)
        fill_crossed();
    else if (strcmp(argv[2], "hostile") == 0)
        fill_hostile(argc > 3 ? argv[3] : "x");
    else if (strcmp(argv[2], "many") == 0)
        fill_many(number);
    else if (strcmp(argv[2], "large") == 0)
        fill_large(number);
    else if (strcmp(argv[2], "long") == 0)
        fill_long(number);
    store_close(store);
    return 0;
}
