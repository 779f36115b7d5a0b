/* cli/chat.c: droste chat: questions from a terminal or a pipe, a line each, over one session. */
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/progress.h"

struct talk {
    droste *d;
    struct lines *lines;
    droste_chat *chat;
    struct buf context; /* of the next question; empty: none */
    const char *before;
    bool json, quiet, over;
    int status; /* of the last question that went wrong */
};

static const char context_word[] = ":context ";

/* Words that leave, as people type them at other prompts: no model is asked about them. */
static bool is_farewell(const char *line)
{
    static const char *const words[] = { "exit", "quit", "exit()", "quit()", ":q", ":quit", ":exit",
        "/exit", "/quit" };
    size_t len = strlen(line);
    while (len > 0 && strchr(" \t\r", line[len - 1]))
        len--;
    for (size_t i = 0; i < array_length(words); i++)
        if (strlen(words[i]) == len && strncmp(words[i], line, len) == 0)
            return true;
    return false;
}

static void chat_ask(struct talk *t, const char *question)
{
    droste_result *r = NULL;
    droste_error err;
    struct progress *progress = t->quiet ? NULL : progress_open(stderr);
    const char *context = t->context.len > 0 ? buf_text(&t->context) : NULL;
    lines_busy(t->lines, t->d);
    int rc = droste_chat_ask(
        t->chat, question, context, progress ? progress_event : NULL, progress, &r, &err);
    enum lines_event event = lines_busy_end(t->lines);
    progress_close(progress, r);
    buf_clear(&t->context);
    int status = rc < 0 ? cli_error(&err) : answer_print(r, t->json);
    if (status != EXIT_FINE)
        t->status = status;
    t->over = event == LINES_LEAVE || (event == LINES_INTERRUPT && !lines_is_terminal(t->lines));
}

static void chat_take_line(struct talk *t, const char *line)
{
    size_t word = sizeof context_word - 1;
    line += strspn(line, " \t");
    if (strncmp(line, context_word, word) == 0) {
        buf_clear(&t->context);
        buf_puts(&t->context, line + word + strspn(line + word, " \t"));
    } else if (is_farewell(line)) {
        t->over = true;
    } else if (line[0]) {
        chat_ask(t, line);
    }
}

static int read_and_ask(struct talk *t)
{
    bool terminal = lines_is_terminal(t->lines);
    while (!t->over) {
        cleanup_buf struct buf line = { 0 };
        enum lines_event event = lines_read(t->lines, "? ", &line);
        if (buf_failed(&line))
            return cli_fail(EXIT_ENVIRONMENT, "out of memory");
        if (event == LINES_LINE) {
            chat_take_line(t, buf_text(&line));
            continue;
        }
        if (terminal)
            putchar('\n');
        if (event == LINES_INTERRUPT && terminal)
            continue;
        t->over = true;
        if (event != LINES_END)
            t->status = EXIT_INTERRUPTED;
    }
    return terminal && t->status == EXIT_RAISED ? EXIT_FINE : t->status;
}

static int chat_converse(struct talk *t)
{
    droste_error err;
    struct error why = { 0 };
    int rc = t->before ? droste_chat_continue(t->d, t->before, &t->chat, &err)
                       : droste_chat_open(t->d, &t->chat, &err);
    if (rc < 0)
        return cli_error(&err);
    if (lines_open(&t->lines, &why) < 0)
        return cli_inner_error(&why);
    if (lines_is_terminal(t->lines))
        puts(
            "A question a line; `:context PATH` gives the next one a context. Ctrl-C stops, `exit` or "
            "Ctrl-D leaves.");
    int status = read_and_ask(t);
    if (droste_chat_finish(t->chat, &err) < 0) {
        int failed = cli_error(&err);
        status = status == EXIT_FINE ? failed : status;
    }
    return cli_finish(status, "the answers");
}

static int chat_run(const struct command *self, droste *d, int argc, char **argv)
{
    struct talk t = { .d = d };
    const char *context = NULL;
    bool verbose = false;
    const struct flag flags[] = {
        { "context", "PATH", "A file or a directory, for the first question.", &context, NULL },
        { "continue", "RUN", "Continue this finished run.", &t.before, NULL },
        { "json", NULL, "Print one JSON object for each question.", NULL, &t.json },
        { "quiet", NULL, "Show no progress, even on a terminal.", NULL, &t.quiet },
        { "verbose", NULL, "Show progress even if standard error is no terminal.", NULL, &verbose },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, NULL, 0, NULL);
    if (status < 0 && context && strcmp(context, "-") == 0)
        status =
            cli_usage(self, "standard input is where the questions come from; give --context PATH");
    t.quiet = t.quiet || (!verbose && !isatty(STDERR_FILENO));
    buf_puts(&t.context, context ? context : "");
    if (status < 0)
        status = chat_converse(&t);
    lines_close(t.lines);
    droste_chat_close(t.chat);
    buf_free(&t.context);
    return status;
}

const struct command command_chat = {
    .name = "chat",
    .synopsis = "[--context PATH] [--continue RUN] [--json] [--SETTING VALUE ...]",
    .summary = "ask several questions in one session",
    .details = "Each line is a question. Variables stay from one question to the next, and the\n"
               "model sees the conversation so far. Each question is recorded as a run with its\n"
               "own budget. A line `:context PATH` gives the next question a context:\n"
               "`context_1`, `context_2`...\n"
               "Type `exit` or `quit`, or end the input, to leave.\n"
               "Standard input may be a pipe; then there is no prompt.\n"
               "Exit status: 0, or that of the last question that failed, as for `droste run`.\n",
    .examples =
        "  droste chat --context mail/\n"
        "  droste chat --continue 20261120-1915\n"
        "  printf 'Who wrote most?\\nAnd to whom?\\n' | droste chat --context mail/ --json\n",
    .settings = true,
    .run = chat_run,
};
