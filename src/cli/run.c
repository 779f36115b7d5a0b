/* cli/run.c: droste run: a question about a context, answered by a model that writes code. */
#include <json-c/json.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/progress.h"

static int exit_status(const droste_result *r)
{
    static const struct {
        const char *status;
        int exit;
    } statuses[] = {
        { "answered", EXIT_FINE },
        { "exhausted", EXIT_LIMIT },
        { "budget", EXIT_LIMIT },
        { "timeout", EXIT_LIMIT },
        { "cancelled", EXIT_INTERRUPTED },
    };
    droste_error why;
    for (size_t i = 0; i < array_length(statuses); i++)
        if (strcmp(statuses[i].status, droste_result_status(r)) == 0)
            return statuses[i].exit;
    droste_result_error(r, &why);
    return cli_status(why.code);
}

/* A string as its text, everything else as JSON. */
static void print_answer(const char *json, size_t len)
{
    struct json_object *o = json_tokener_parse(json);
    if (o && json_object_is_type(o, json_type_string))
        cli_print(stdout, json_object_get_string(o), (size_t)json_object_get_string_len(o));
    else
        cli_print(stdout, json, len);
    putchar('\n');
    json_object_put(o);
}

static void print_result(const droste_result *r, bool json)
{
    size_t len;
    const char *answer = droste_result_answer(r, &len);
    droste_error why;
    if (json) {
        printf("%s\n", droste_result_json(r, NULL));
        return;
    }
    droste_result_error(r, &why);
    if (why.code != DROSTE_ERROR_NONE)
        cli_error(&why);
    if (answer)
        print_answer(answer, len);
}

static int answer_question(
    droste *d, const char *question, const char *context, bool json, bool quiet)
{
    droste_result *r = NULL;
    droste_error err;
    struct progress *progress = quiet ? NULL : progress_open(stderr);
    cli_catch_interrupts(d);
    int rc = droste_run(d, question, context, progress ? progress_event : NULL, progress, &r, &err);
    progress_close(progress, r);
    if (rc < 0)
        return cli_error(&err);
    print_result(r, json);
    int status = exit_status(r);
    droste_result_free(r);
    return cli_finish(status, "the answer");
}

static int run(const struct command *self, int argc, char **argv)
{
    const char *question = NULL, *context = NULL;
    bool json = false, quiet = false, verbose = false;
    size_t count = 0;
    const struct flag flags[] = {
        { "question", "TEXT", "What to find out.", &question, NULL },
        { "context", "PATH", "A file, a directory or - (standard input).", &context, NULL },
        { "json", NULL, "Print one JSON object instead of the answer.", NULL, &json },
        { "quiet", NULL, "No progress, also on a terminal.", NULL, &quiet },
        { "verbose", NULL, "Progress also when piped.", NULL, &verbose },
        { 0 },
    };
    droste *d = NULL;
    droste_error err;
    if (droste_new(&d, &err) < 0)
        return cli_error(&err);
    int status = cli_parse(self, argc, argv, flags, d, NULL, 0, &count);
    if (status < 0 && !question)
        status = cli_usage(self, "a run needs a --question");
    if (status < 0)
        status = answer_question(
            d, question, context, json, quiet || (!verbose && !isatty(STDERR_FILENO)));
    droste_free(d);
    return status;
}

const struct command command_run = {
    .name = "run",
    .synopsis = "--question TEXT [--context PATH] [--model MODEL] [--json] [--SETTING VALUE ...]",
    .summary = "answer a question about a context of any size",
    .details =
        "With --json one object is printed: answer, status (answered, exhausted, budget, timeout,\n"
        "cancelled, error), run (its id, for `droste runs show`), iterations, usage {calls,\n"
        "attempts, input_tokens, output_tokens, cost, estimated, seconds, models, depths}, error.\n"
        "Exit status: 0 answered, 1 no answer, 2 usage, 3 a limit or deadline, 4 the environment\n"
        "failed, 130 interrupted.\n",
    .examples =
        "  droste run --question 'Which module defines the most classes?' --context "
        "/usr/lib/python3.11\n"
        "  droste run --question 'Who wrote to whom?' --context mail.txt --model gpt-5-mini\n"
        "  droste run --question 'What are the first 12 Fibonacci numbers?'\n"
        "  journalctl | droste run --question 'What failed last night?' --context -\n"
        "  droste run --question Q --context big/ --model m --base-url http://127.0.0.1:8000/v1\n"
        "  droste run --question Q --record calls.jsonl; droste run --question Q --model "
        "replay:calls.jsonl\n",
    .settings = true,
    .run = run,
};
