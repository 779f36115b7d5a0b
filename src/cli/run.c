/* cli/run.c: droste run: a question about a context, answered by a model that writes code. */
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/progress.h"

struct request {
    const char *question, *before;
    bool json, quiet;
};

/* A question of its own, or one more of a conversation. */
static int run_ask(droste *d, const struct request *q, struct progress *progress,
    droste_chat **chat, droste_result **r, droste_error *err)
{
    droste_event_fn *fn = progress ? progress_event : NULL;
    if (!q->before)
        return droste_run(d, q->question, NULL, fn, progress, r, err);
    int rc = droste_chat_continue(d, q->before, chat, err);
    return rc < 0 ? rc : droste_chat_ask(*chat, q->question, NULL, fn, progress, r, err);
}

static int answer_question(droste *d, const struct request *q)
{
    droste_result *r = NULL;
    droste_chat *chat = NULL;
    droste_error err;
    struct progress *progress = q->quiet ? NULL : progress_open(stderr);
    cli_catch_interrupts(d);
    int rc = run_ask(d, q, progress, &chat, &r, &err);
    progress_close(progress, r);
    int status = rc < 0 ? cli_error(&err) : answer_print(r, q->json);
    if (chat && droste_chat_finish(chat, &err) < 0) {
        int failed = cli_error(&err);
        status = status == EXIT_FINE ? failed : status;
    }
    droste_chat_close(chat);
    return status;
}

static int run_run(const struct command *self, droste *d, int argc, char **argv)
{
    struct request q = { 0 };
    bool verbose = false;
    size_t count = 0;
    const struct flag flags[] = {
        { "question", "TEXT", "The question to answer.", &q.question, .once = true },
        FLAG_CONTEXT("A file, a directory or - (standard input); may be repeated."),
        { "continue", "RUN", "Continue this finished run with another question.",
            &q.before, NULL },
        { "json", NULL, "Print one JSON object instead of the answer.", NULL, &q.json },
        { "quiet", NULL, "Show no progress, even on a terminal.", NULL, &q.quiet },
        { "verbose", NULL, "Show progress even if standard error is no terminal.", NULL, &verbose },
        { "full-output", NULL, "The same as --json.", NULL, &q.json },
        { "no-verbose", NULL, "The same as --quiet.", NULL, &q.quiet },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, NULL, 0, &count);
    if (status < 0 && !q.question)
        status = cli_usage(self, "a run needs a --question");
    if (status < 0)
        status = cli_check_input(self, d);
    q.quiet = q.quiet || (!verbose && !isatty(STDERR_FILENO));
    if (status < 0)
        status = answer_question(d, &q);
    return status;
}

const struct command command_run = {
    .name = "run",
    .synopsis = "--question TEXT [--context [NAME=]PATH ...] [--continue RUN] [--model MODEL] "
                "[--json] [--SETTING VALUE ...]",
    .summary = "answer a question about a context of any size",
    .details =
        "--json prints one object: answer, status (answered, exhausted, budget, timeout,\n"
        "cancelled, error), run (the id for `droste runs show`), iterations, usage\n"
        "{calls, attempts, input_tokens, output_tokens, cost, estimated, seconds, models,\n"
        "depths}, error.\n"
        "--continue restores the variables of RUN: its cells run again, and their calls\n"
        "are answered from the record at no cost. Its settings apply unless others are\n"
        "given. The first --context is then `context_1`, the next one `context_2`.\n"
        "Exit status: 0 answered, 1 no answer, 2 usage error, 3 limit or deadline, 4\n"
        "environment failed, 130 interrupted.\n",
    .examples =
        "  droste run --question 'Which module defines the most classes?' --context "
        "/usr/lib/python3.11\n"
        "  droste run --question 'Who wrote to whom?' --context mail.txt --model gpt-5-mini\n"
        "  droste run --question 'What changed?' --context old=v1.txt --context new=v2.txt\n"
        "  droste run --question 'What are the first 12 Fibonacci numbers?'\n"
        "  journalctl | droste run --question 'What failed last night?' --context -\n"
        "  droste run --question Q --context big/ --model m --base-url http://127.0.0.1:8000/v1\n"
        "  droste run --question 'And of those, which is the oldest?' --continue 20261120-1915\n"
        "  droste run --question Q --record calls.jsonl; droste run --question Q --model "
        "replay:calls.jsonl\n",
    .settings = true,
    .run = run_run,
};

static const struct command_default basic[] = { { "env", "modal" }, { "max-iterations", "15" },
    { "max-llm-calls", "30" }, { "timeout", "600" }, { 0 } };

const struct command command_run_basic = {
    .name = "run-basic",
    .synopsis = "--question TEXT [--volume-name NAME] [--full-output] [--SETTING VALUE ...]",
    .summary = "run with the defaults of fleet-rlm's run-basic, on Modal",
    .details = "Differs from `droste run` in its environment, which is modal unless you name\n"
               "another, and in its limits: 15 turns, 30 calls, 600 seconds. The exit status is\n"
               "the same.\n",
    .examples = "  droste run-basic --question 'What are the first 12 Fibonacci numbers?'\n"
                "  droste run-basic --question 'Calculate factorial of 20' --volume-name my-data\n",
    .settings = true,
    .defaults = basic,
    .run = run_run,
};
