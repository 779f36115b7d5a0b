/* cli/run.c: droste run: a question about a context, answered by a model that writes code. */
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/progress.h"

static int answer_question(droste *d, const char *question, bool json, bool quiet)
{
    droste_result *r = NULL;
    droste_error err;
    struct progress *progress = quiet ? NULL : progress_open(stderr);
    cli_catch_interrupts(d);
    int rc = droste_run(d, question, NULL, progress ? progress_event : NULL, progress, &r, &err);
    progress_close(progress, r);
    if (rc < 0)
        return cli_error(&err);
    return answer_print(r, json);
}

static int run(const struct command *self, int argc, char **argv)
{
    const char *question = NULL;
    bool json = false, quiet = false, verbose = false;
    size_t count = 0;
    const struct flag flags[] = {
        { "question", "TEXT", "What to find out.", &question, NULL },
        FLAG_CONTEXT("A file, a directory or - (standard input); may be repeated."),
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
        status = answer_question(d, question, json, quiet || (!verbose && !isatty(STDERR_FILENO)));
    droste_free(d);
    return status;
}

const struct command command_run = {
    .name = "run",
    .synopsis = "--question TEXT [--context [NAME=]PATH ...] [--model MODEL] [--json] [--SETTING "
                "VALUE ...]",
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
        "  droste run --question 'What changed?' --context old=v1.txt --context new=v2.txt\n"
        "  droste run --question 'What are the first 12 Fibonacci numbers?'\n"
        "  journalctl | droste run --question 'What failed last night?' --context -\n"
        "  droste run --question Q --context big/ --model m --base-url http://127.0.0.1:8000/v1\n"
        "  droste run --question Q --record calls.jsonl; droste run --question Q --model "
        "replay:calls.jsonl\n",
    .settings = true,
    .run = run,
};
