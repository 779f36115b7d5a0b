/* cli/run.c: droste run: answers a question about a context with a model that writes code. */
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/os/file.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"

struct request {
    const char *question, *before, *server;
    bool json, quiet;
};

/* Asks a new question, or continues a conversation. */
static int run_ask(
    droste *d, const struct request *q, droste_chat **chat, droste_result **r, droste_error *err)
{
    droste_request request = { .question = q->question };
    int rc = q->before ? droste_chat_continue(d, q->before, chat, err) : 0;
    request.chat = *chat;
    return rc < 0 ? rc : cli_ask(d, &request, !q->quiet, r, err);
}

/* ---- the question ---- */

enum { QUESTION_MAX = 1 << 20 };

/* Reads "@FILE", or standard input for "-"; any other text is the question itself. */
static int read_question(struct request *q, struct buf *text)
{
    struct error err = { 0 };
    int rc = 0;
    if (strcmp(q->question, "-") == 0)
        rc = file_read_fd(STDIN_FILENO, "standard input", QUESTION_MAX, text, &err);
    else if (q->question[0] == '@')
        rc = file_read(q->question + 1, QUESTION_MAX, text, &err);
    else
        return -1;
    if (rc < 0)
        return cli_fail(EXIT_USAGE, "reading the question: %s%s", err.text,
            q->question[0] == '@' ? " (a question that begins with @ names a file)" : "");
    while (text->len > 0 && strchr(" \t\r\n", text->data[text->len - 1]))
        text->data[--text->len] = '\0';
    q->question = buf_text(text);
    return -1;
}

/* -1 to go on. */
static int take_question(const struct command *self, droste *d, struct request *q,
    const char *positional, struct buf *text)
{
    bool from_input = false;
    if (q->question && positional)
        return cli_usage(self,
            "there are two questions: '%.60s', and that of --question; quote a question of "
            "several words",
            positional);
    q->question = positional ? positional : q->question;
    from_input = q->question && strcmp(q->question, "-") == 0;
    if (from_input && droste_context_reads_input(d))
        return cli_usage(
            self, "standard input can be either the question or a context: use `-` only once");
    if (from_input && isatty(STDIN_FILENO))
        cli_note("type the question, and end it with Ctrl-D");
    int status = from_input ? -1 : cli_check_input(self, d, q->question != NULL);
    if (status < 0 && q->question)
        status = read_question(q, text);
    if (status < 0 && (!q->question || !q->question[0]))
        status = cli_usage(self,
            q->question ? "the question is empty; write its text, @FILE, or - for standard input"
                        : "a run needs a question: droste run 'QUESTION', -q TEXT, "
                          "@FILE, or - for standard input");
    return status;
}

static int run_remotely(droste *d, const struct request *q, const char *server)
{
    const struct remote_run asked = { server, q->question, q->json, q->quiet };
    if (q->before)
        return cli_fail(EXIT_ENVIRONMENT,
            "a run of a server cannot be continued with --continue: run it where the server is");
    cli_catch_interrupts(d);
    return remote_run(&asked, cli_settings());
}

static int answer_question(droste *d, const struct request *q)
{
    const char *server = remote_address(q->server);
    if (server)
        return run_remotely(d, q, server);
    droste_result *r = NULL;
    droste_chat *chat = NULL;
    droste_error err;
    cli_catch_interrupts(d);
    int rc = run_ask(d, q, &chat, &r, &err);
    int status = rc < 0 ? cli_error(&err) : answer_print(d, r, q->json);
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
    const char *positional = NULL;
    cleanup_buf struct buf text = { 0 };
    const struct flag flags[] = {
        { "question", "TEXT", "The question to answer: its text, @FILE, or - (standard input).",
            &q.question, .once = true },
        { "q", "TEXT", "The same as --question.", &q.question, .once = true },
        FLAG_CONTEXT("A file, a directory or - (standard input); may be repeated."),
        { "continue", "RUN", "Continue this finished run with another question.", &q.before, NULL },
        { "json", NULL, "Print one JSON object instead of the answer.", NULL, &q.json },
        { "quiet", NULL, "Show no progress, even on a terminal.", NULL, &q.quiet },
        { "verbose", NULL, "Show progress even if standard error is not a terminal.", NULL,
            &verbose },
        { "full-output", NULL, "The same as --json.", NULL, &q.json },
        { "no-verbose", NULL, "The same as --quiet.", NULL, &q.quiet },
        FLAG_SERVER(&q.server),
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, &positional, 1, NULL);
    if (status < 0)
        status = take_question(self, d, &q, positional, &text);
    q.quiet = q.quiet || (!verbose && !isatty(STDERR_FILENO));
    if (status < 0)
        status = answer_question(d, &q);
    return status;
}

const struct command command_run = {
    .name = "run",
    .synopsis = "QUESTION [--context [NAME=]PATH ...] [--continue RUN] [--model MODEL] [--json] "
                "[--server URL] [--SETTING VALUE ...]",
    .summary = "answer a question about a context of any size",
    .details = "QUESTION is the text itself, @FILE, or - for standard input; --question TEXT and\n"
               "-q TEXT are the same.\n"
               "--json prints one object: answer, status (answered, exhausted, budget, timeout,\n"
               "cancelled, error), run (the id for `droste runs show`), iterations, usage\n"
               "{calls, attempts, input_tokens, output_tokens, cost, estimated, seconds, models,\n"
               "depths}, error.\n"
               "--continue restores the variables of RUN: its cells run again, and their calls\n"
               "are answered from the record at no cost. Its settings apply unless flags replace\n"
               "them. The first --context is then `context_1`, the next one `context_2`.\n"
               "With --server the run is that server's, and ends with Ctrl-C; settings are those\n"
               "of flags alone, and there is one context: a file of any size, or -.\n"
               "Exit status: 0 answered, 1 no answer, 2 usage error, 3 limit or deadline, 4\n"
               "environment failed, 130 interrupted.\n",
    .examples =
        "  droste run 'Which module defines the most classes?' --context /usr/lib/python3.11\n"
        "  droste run 'Who wrote to whom?' --context mail.txt --model gpt-5-mini\n"
        "  droste run 'What changed?' --context old=v1.txt --context new=v2.txt\n"
        "  droste run @question.txt --context mail/ --max-cost 0.50\n"
        "  journalctl | droste run 'What failed last night?' --context -\n"
        "  droste run --question Q --context big/ --model m --base-url http://127.0.0.1:8000/v1\n"
        "  droste run 'And of those, which is the oldest?' --continue 20261120-1915\n"
        "  droste run --server http://127.0.0.1:8710 'How many lines?' --context mail.txt\n"
        "  droste run --question Q --record calls.jsonl; droste run --question Q --model "
        "replay:calls.jsonl\n",
    .settings = SETTINGS_RUN,
    .run = run_run,
};

static const struct command_default basic[] = { { "env", "modal" }, { "max-iterations", "15" },
    { "max-llm-calls", "30" }, { "timeout", "600" }, { 0 } };

const struct command command_run_basic = {
    .name = "run-basic",
    .synopsis = "QUESTION [--volume-name NAME] [--full-output] [--SETTING VALUE ...]",
    .summary = "run with the defaults of fleet-rlm's run-basic, on Modal",
    .details = "Differs from `droste run` in its environment, which is modal unless you name\n"
               "another, and in its limits: 15 turns, 30 calls, 600 seconds. The exit status is\n"
               "the same.\n",
    .examples = "  droste run-basic --question 'What are the first 12 Fibonacci numbers?'\n"
                "  droste run-basic --question 'Calculate factorial of 20' --volume-name my-data\n",
    .settings = SETTINGS_RUN,
    .defaults = basic,
    .run = run_run,
};
