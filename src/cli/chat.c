/* cli/chat.c: droste chat: answers questions, one a line, in one session. */
#include <json-c/json.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/terminal/lines.h"
#include "cli/terminal/screen.h"

struct talk {
    droste *d;
    struct lines *lines;
    droste_chat *chat;
    struct buf context;  /* of the next question; empty: none */
    struct buf contexts; /* of the questions before, a line each */
    unsigned context_count;
    int64_t questions, calls, input_tokens, output_tokens;
    double cost;
    bool unpriced; /* the price of a call is not known */
    const char *before;
    bool json, quiet, over;
    int status; /* of the last question that went wrong */
};

static const char context_word[] = ":context ";

/* Words that end the chat, as at other prompts; they are not sent to a model. */
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

static void chat_count(struct talk *t, const droste_result *r)
{
    size_t len = 0;
    cleanup_json struct json_object *whole = NULL;
    const char *json = droste_result_json(r, &len);
    struct json_object *usage = NULL, *cost = NULL;
    if (!json || !(whole = json_tokener_parse(json)) ||
        !json_object_object_get_ex(whole, "usage", &usage))
        return;
    json_object_object_get_ex(usage, "cost", &cost);
    t->calls += json_get_int(usage, "calls", 0);
    t->input_tokens += json_get_int(usage, "input_tokens", 0);
    t->output_tokens += json_get_int(usage, "output_tokens", 0);
    t->cost += json_object_get_double(cost);
    t->unpriced = t->unpriced || !cost;
}

/* The question has taken its context, also if the run has failed since. */
static void chat_keep_context(struct talk *t)
{
    if (t->context.len == 0)
        return;
    if (t->context_count == 0)
        buf_printf(&t->contexts, "context: %s\n", buf_text(&t->context));
    else
        buf_printf(&t->contexts, "context_%u: %s\n", t->context_count, buf_text(&t->context));
    t->context_count++;
}

static void chat_ask(struct talk *t, const char *question)
{
    droste_result *r = NULL;
    droste_error err;
    droste_request request = { .question = question, .chat = t->chat };
    request.context = t->context.len > 0 ? buf_text(&t->context) : NULL;
    lines_busy(t->lines, t->d);
    int rc = cli_ask(t->d, &request, !t->quiet, &r, &err);
    enum lines_event event = lines_busy_end(t->lines);
    t->questions++;
    if (rc == 0) {
        chat_count(t, r);
        chat_keep_context(t);
    }
    buf_clear(&t->context);
    int status = rc < 0 ? cli_error(&err) : answer_print(t->d, r, t->json);
    if (status != EXIT_FINE)
        t->status = status;
    t->over = event == LINES_LEAVE || (event == LINES_INTERRUPT && !lines_is_terminal(t->lines));
}

/* ---- commands ---- */

/* What commands print is not an answer: it goes to standard error. */
static void chat_put(const struct buf *text)
{
    screen_print_text(stderr, buf_text(text));
}

static void chat_help(struct talk *t, const char *rest);

static void chat_quit(struct talk *t, const char *rest)
{
    t->over = true;
}

static void chat_cost(struct talk *t, const char *rest)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "%lld question%s, %lld call%s, %lld + %lld tokens, ", (long long)t->questions,
        text_plural(t->questions), (long long)t->calls, text_plural(t->calls),
        (long long)t->input_tokens, (long long)t->output_tokens);
    if (t->unpriced)
        buf_puts(&text, "the cost is not known (see --prices)\n");
    else
        buf_printf(&text, "$%.4f\n", t->cost);
    chat_put(&text);
}

static void chat_context(struct talk *t, const char *rest)
{
    cleanup_buf struct buf text = { 0 };
    if (rest[0]) {
        buf_clear(&t->context);
        buf_puts(&t->context, rest);
        return;
    }
    buf_append(&text, t->contexts.data, t->contexts.len);
    if (t->context.len > 0)
        buf_printf(&text, "of the next question: %s\n", buf_text(&t->context));
    if (text.len == 0)
        buf_puts(&text, "no context; /context PATH gives the next question one\n");
    chat_put(&text);
}

static const struct {
    const char *name, *value, *help;
    void (*run)(struct talk *t, const char *rest);
} chat_commands[] = {
    { "help", "", "list the commands", chat_help },
    { "context", " [PATH]", "give the next question a context, or list the contexts",
        chat_context },
    { "cost", "", "show the calls, tokens and cost so far", chat_cost },
    { "quit", "", "leave, as exit, quit and Ctrl-D do", chat_quit },
};

static void chat_help(struct talk *t, const char *rest)
{
    cleanup_buf struct buf text = { 0 };
    buf_puts(&text, "Each line is a question. Ctrl-C stops the one that is being answered.\n");
    for (size_t i = 0; i < array_length(chat_commands); i++) {
        size_t at = text.len;
        buf_printf(&text, "  /%s%s", chat_commands[i].name, chat_commands[i].value);
        buf_printf(&text, "%*s%s\n", (int)(at + 20 - text.len), "", chat_commands[i].help);
    }
    chat_put(&text);
}

/* "/word", alone or before a space; "/etc/passwd" is none. The older ":context PATH", too. */
static bool chat_take_command(struct talk *t, const char *line)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    size_t len = strspn(line + 1, letters);
    const char *behind = line + 1 + len, *rest = behind + strspn(behind, " \t");
    struct suggestion s = { .typed = line + 1, .len = len };
    if (strncmp(line, context_word, sizeof context_word - 1) != 0 && line[0] != '/')
        return false;
    if (len == 0 || (*behind && !strchr(" \t\r", *behind)))
        return false;
    for (size_t i = 0; i < array_length(chat_commands); i++) {
        const char *name = chat_commands[i].name;
        if (strlen(name) == len && strncmp(name, line + 1, len) == 0) {
            chat_commands[i].run(t, rest);
            return true;
        }
        suggestion_consider(&s, name);
    }
    const char *best = suggestion_best(&s);
    int status = cli_fail(EXIT_USAGE, "there is no command '%.*s'; %s%s", (int)len + 1, line,
        best ? "did you mean /" : "/help lists them", best ? best : "");
    if (!lines_is_terminal(t->lines)) /* where the user sees it and goes on */
        t->status = status;
    return true;
}

static void chat_take_line(struct talk *t, const char *line)
{
    line += strspn(line, " \t");
    if (is_farewell(line))
        t->over = true;
    else if (line[0] && !chat_take_command(t, line))
        chat_ask(t, line);
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
        return cli_error(&why);
    if (lines_is_terminal(t->lines))
        screen_print_text(
            stdout, "Type a question. /help lists the commands; Ctrl-C stops, Ctrl-D leaves.\n");
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
    const char *context = NULL, *server = NULL;
    bool verbose = false;
    const struct flag flags[] = {
        { "context", "PATH", "A file or a directory, for the first question.", &context, NULL },
        { "continue", "RUN", "Continue this finished run.", &t.before, NULL },
        { "json", NULL, "Print one JSON object for each question.", NULL, &t.json },
        { "quiet", NULL, "Show no progress, even on a terminal.", NULL, &t.quiet },
        { "verbose", NULL, "Show progress even if standard error is not a terminal.", NULL,
            &verbose },
        FLAG_NO_SERVER(&server),
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, NULL, 0, NULL);
    if (status < 0)
        status = remote_refuse(self->name, server);
    if (status < 0 && context && strcmp(context, "-") == 0)
        status =
            cli_usage(self, "standard input has the questions; use --context PATH for the context");
    t.quiet = t.quiet || (!verbose && !isatty(STDERR_FILENO));
    buf_puts(&t.context, context ? context : "");
    if (status < 0)
        status = chat_converse(&t);
    lines_close(t.lines);
    droste_chat_close(t.chat);
    buf_free(&t.context);
    buf_free(&t.contexts);
    return status;
}

const struct command command_chat = {
    .name = "chat",
    .synopsis = "[--context PATH] [--continue RUN] [--json] [--SETTING VALUE ...]",
    .summary = "ask several questions in one session",
    .details = "Each line is a question. Variables stay from one question to the next, and the\n"
               "model sees the conversation so far. Each question is recorded as a run with its\n"
               "own budget. A question that fails leaves the conversation as it was.\n"
               "Lines that begin with a slash are commands: /context PATH gives the next\n"
               "question a context (`context_1`, `context_2`...), /context lists the contexts,\n"
               "/cost shows what was spent, /help lists the commands, and /quit leaves, as `exit`\n"
               "and the end of the input do.\n"
               "Standard input may be a pipe; then there is no prompt.\n"
               "Exit status: 0, or that of the last question that failed, as for `droste run`.\n",
    .examples =
        "  droste chat --context mail/\n"
        "  droste chat --continue 20261120-1915\n"
        "  printf 'Who wrote most?\\nAnd to whom?\\n' | droste chat --context mail/ --json\n",
    .settings = SETTINGS_RUN,
    .run = chat_run,
};
