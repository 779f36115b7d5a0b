/* rlm/prompt.c: the words to the model; our own text. */
#include "rlm/prompt.h"

#include <string.h>

#include "base/text.h"

static const char names_text[] =
    "You answer a question about a context that can be far larger than what you can read. The "
    "context is not in this conversation: it is a variable in a Python session, and you work on it "
    "by writing code. You see only what your code prints.\n"
    "\n"
    "To run code, write a fenced block marked repl:\n"
    "\n"
    "```repl\n"
    "print(type(context), len(context))\n"
    "```\n"
    "\n"
    "The blocks of a reply run in order, in one session: variables, imports, functions and classes "
    "stay for later blocks. Then you are shown what they printed. Long output is cut in the "
    "middle, "
    "and the value of a bare expression is not shown, so print what you need, and little at a "
    "time.\n"
    "\n"
    "The session has:\n";

static const char context_text[] =
    "- `context`: what the question is about. Its type and size are given with the question.\n";

static const char contexts_text[] =
    "- `context_0`, `context_1` and so on: what the question is about. Their types and sizes, and "
    "other "
    "names of theirs, are given with the question. `context` is the first of them.\n";

static const char llm_text[] =
    "- `llm_query(prompt)`: asks a language model and returns its reply as a str. It sees only the "
    "prompt, so put the text and the task into it. It can take in about 100,000 tokens.\n"
    "- `llm_query_batched(prompts)`: asks for a list of prompts at once and returns the replies in "
    "their order. Much faster than one by one. A reply that failed begins with [ERROR].\n";

static const char children_text[] =
    "- `rlm_query(prompt, context=value)`: gives a task of several steps to another worker, who "
    "has "
    "a "
    "session of its own with that `context` (a str, bytes, or anything that is JSON) and writes "
    "code "
    "as you do. Returns the value that it submits. It sees nothing of yours but prompt and "
    "context. "
    "It makes several model calls, so use it for what takes looking and computing, not for one "
    "reading.\n"
    "- `rlm_query_batched(prompts, context=value)`: the same for many tasks at once; each is a "
    "prompt, or {\"prompt\": ..., \"context\": ...} with a context of its own. Returns the values "
    "in "
    "their order.\n";

static const char work_text[] =
    "- `add_buffer(name, value)`, `get_buffer(name)`, `clear_buffer(name)`: named lists in which "
    "to "
    "collect findings.\n"
    "- `SHOW_VARS()`: the names and types of your variables, as text; print it.\n";

static const char submit_text[] =
    "- `SUBMIT(answer=value)`: gives the answer and ends your work. The value is a str, a number, "
    "a bool, None, a list or a dict.";

static const char submit_typed_text[] =
    "- `SUBMIT(value)`: gives the answer and ends your work. The value must fit the JSON Schema "
    "below; one that does not is not taken, and you are told why.";

static const char how_text[] =
    " `FINAL(value)` does the same; `FINAL_VAR(\"name\")` gives the variable of that name; so does "
    "setting `answer[\"content\"]` and then `answer[\"ready\"]` to True.\n"
    "Python's standard library is there; the network is not.\n"
    "\n"
    "How to work well:\n"
    "1. Look first: the type, the size, a few samples. Do not print much of the context.\n"
    "2. Use code for what code does exactly: search, count, parse, sort, compute.\n"
    "3. Use `llm_query_batched` for what needs reading: cut the relevant text into pieces of up to "
    "some 100,000 characters, say in each prompt what to look for and how to reply, and combine "
    "the "
    "replies with code. Model calls are limited and cost money; do not use them for what code can "
    "do.\n"
    "4. Check what you found before you submit it.\n"
    "5. Submit only what you computed or read here. Call SUBMIT in a block of its own, when you "
    "have seen the output that the answer rests on.\n";

/* Where the program executes the code: only what every Python has. */
static const char custom_how_text[] =
    "\nWhen you know the answer, say FINAL(the answer) on a line of its own, outside of code, or "
    "FINAL_VAR(name) for the variable of that name. That ends your work.\n"
    "\n"
    "How to work well:\n"
    "1. Look first: the type, the size, a few samples. Do not print much of the context.\n"
    "2. Use code for what code does exactly: search, count, parse, sort, compute.\n"
    "3. Check what you found before you answer, and answer only with what you computed or read "
    "here, when you have seen the output that the answer rests on.\n";

const char *prompt_no_code(bool custom)
{
    if (custom)
        return "Your reply had no ```repl block and no answer, so nothing was run. Write code to "
               "go on, or say FINAL(the answer) on a line of its own.";
    return "Your reply had no ```repl block, so nothing was run. Write code to go on, or SUBMIT "
           "the answer in a ```repl block.";
}

void prompt_last_turn(struct buf *out, bool typed)
{
    buf_puts(out, "You have used all your turns; no more code will be run. Give your best final "
                  "answer to the question now, ");
    buf_puts(out, typed ? "as JSON that fits the schema, with nothing else."
                        : "in words, with nothing else. If you could not find it, say so.");
}

void prompt_not_taken(struct buf *out, const char *why, bool last, bool custom)
{
    buf_printf(out, "Your answer was not taken, it does not fit its schema: %s. ", why);
    buf_puts(out, last     ? "Give the answer as JSON that fits the schema, with nothing else."
                  : custom ? "Say FINAL(one that does) on a line of its own."
                           : "SUBMIT one that does in a ```repl block.");
}

static const char rules_text[] =
    "\nThis session has rules. %s `eval`, `exec`, `compile` and `input` are switched off. Files can "
    "be written below the current directory only.\n";
static const char standard_text[] =
    "Of the standard library you can import what computes, not what starts processes or reaches "
    "the network or the system (os, subprocess, socket, ctypes and the like).";
static const char no_standard_text[] =
    "You can import very few modules; an ImportError says which not.";

/* The fields by their names, where they are few and Python can say them. */
static void put_fields(struct buf *out, const struct schema *type)
{
    size_t count = 0;
    const char *const *names = schema_names(type, &count);
    bool sayable = count > 0 && count <= 12;
    for (size_t i = 0; sayable && i < count; i++)
        sayable = text_is_identifier(names[i]);
    for (size_t i = 0; sayable && i < count; i++)
        buf_printf(
            out, "%s%s=value", i ? ", " : " Its fields may be given by name: `SUBMIT(", names[i]);
    buf_puts(out, sayable ? ")`." : "");
}

/* Only where there is one. */
static void prompt_put_volume(
    struct buf *out, const char *volume, const struct workspace *workspace)
{
    buf_printf(out,
        "- `%s`: a directory whose files stay for later sessions, and which other sessions may use "
        "at the "
        "same time. `save_to_volume(path, text)` writes a file there, whole, and "
        "`load_from_volume(path)` gives its text; `workspace_write(path, text)`, "
        "`workspace_append(path, text)`, `workspace_read(path)` and `workspace_list(pattern)` do "
        "so "
        "below %s. Paths are relative to it. Other files are gone with this "
        "session.\n",
        volume, workspace ? "`REPO_PATH`" : "its `workspace`");
}

/* The URL may be a stranger's, but has no bytes in it that could say something else. */
static void prompt_put_workspace(struct buf *out, const struct workspace *w)
{
    const struct staged *s = workspace_staged(w);
    if (s->repo)
        buf_printf(out,
            "- `REPO_PATH`: the current directory, with the files of the repository %s (commit "
            "%.12s, without its history). Yours to change; gone with this session.\n",
            s->url, s->commit);
    if (s->paths.count > 0)
        buf_printf(out,
            "- `CONTEXT_PATHS`: a list of %zu paths, copies of the user's files and directories, "
            "to be read with `read_file(path)` or `open`.\n",
            s->paths.count);
}

/* What the code has of guest/python. */
static void put_guest(struct buf *out, const struct prompt_session *s)
{
    buf_puts(out, llm_text);
    buf_puts(out, s->children ? children_text : "");
    buf_puts(out, work_text);
    prompt_helpers(out, s);
    if (s->volume)
        prompt_put_volume(out, s->volume, s->workspace);
    if (s->workspace)
        prompt_put_workspace(out, s->workspace);
    buf_puts(out, s->answer ? submit_typed_text : submit_text);
    if (s->answer)
        put_fields(out, s->answer);
    buf_puts(out, how_text);
    if (s->rules)
        buf_printf(out, rules_text, s->no_standard_imports ? no_standard_text : standard_text);
}

/* What the program says of its own, each in its own point of the list, and how to answer. */
static void put_custom(struct buf *out, const char *about)
{
    size_t len = strlen(about);
    buf_append(out, about, len);
    buf_puts(out, len > 0 && about[len - 1] != '\n' ? "\n" : "");
    buf_puts(out, custom_how_text);
}

void prompt_system(struct buf *out, const struct prompt_session *s)
{
    buf_puts(out, names_text);
    buf_puts(out, s->several ? contexts_text : context_text);
    if (s->about)
        put_custom(out, s->about);
    else
        put_guest(out, s);
    if (s->answer)
        buf_printf(out, "\nThe answer must fit this JSON Schema:\n%s\n", schema_text(s->answer));
    if (s->instructions && s->instructions[0])
        buf_printf(out, "\nInstructions for this task:\n%s\n", s->instructions);
}

/* 12345678 as 12,345,678. */
static void prompt_put_number(struct buf *out, int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++) {
        buf_putc(out, digits[i]);
        if (digits[i] != '-' && i + 1 < len && (len - i - 1) % 3 == 0)
            buf_putc(out, ',');
    }
}

static const struct {
    const char *type, *unit;
} units[] = {
    { "str", "characters" },
    { "bytes", "bytes" },
    { "list", "items" },
    { "dict", "keys" },
};

void prompt_describe_context(struct buf *out, struct json_object *variable)
{
    const char *type = json_get_string(variable, "type", "value");
    int64_t length = json_get_int(variable, "length", -1);
    int64_t characters = json_get_int(variable, "characters", -1);
    const char *unit = "items";
    buf_printf(out, "a %.40s", type);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].type, type) == 0)
            unit = units[i].unit;
    if (length >= 0) {
        buf_puts(out, " of ");
        prompt_put_number(out, length);
        buf_printf(out, " %s", unit);
    }
    if (characters >= 0) {
        buf_puts(out, " whose values have ");
        prompt_put_number(out, characters);
        buf_puts(out, " characters in all");
    }
}

static void put_samples(struct buf *out, struct json_object *variable)
{
    struct json_object *keys = json_get_typed(variable, "keys", json_type_array);
    const char *preview = json_get_string(variable, "preview", NULL);
    size_t count = json_length(keys);
    if (preview)
        buf_printf(out, "It begins with %.400s\n", preview);
    for (size_t i = 0; i < count && i < 5; i++)
        buf_printf(out, "%s%.200s", i ? ", " : "Its first keys: ",
            json_object_to_json_string(json_object_array_get_idx(keys, i)));
    buf_puts(out, count ? "\n" : "");
    const char *item = json_get_string(variable, "item", NULL);
    if (item)
        buf_printf(out, "Its first item is a %.80s\n", item);
}

/* `context`, also `mail`, is a str of 5 characters, from mail.txt. */
static void prompt_put_context(struct buf *out, const struct context *c, size_t index, bool several,
    struct json_object *variable)
{
    struct context_names names;
    context_names(c, index, &names);
    size_t first =
        several && index == 0; /* the numbered name before `context`, as for the others */
    buf_printf(out, "%s`%s`", several ? "- " : "", names.names[first]);
    if (first)
        buf_puts(out, ", also `context`");
    if (c->name)
        buf_printf(out, ", also `%s`,", c->name);
    else if (first)
        buf_putc(out, ',');
    buf_puts(out, " is ");
    prompt_describe_context(out, variable);
    buf_printf(out, ", from %.200s.\n", c->source);
    put_samples(out, variable);
}

void prompt_question(struct buf *out, const char *question, const struct contexts *contexts,
    struct json_object *variables, unsigned turns)
{
    size_t count = contexts ? contexts->count : 0;
    buf_printf(out, "Question: %s\n\n", question);
    if (count == 0)
        buf_puts(out, "There is no context for this question; `context` is an empty str.\n");
    if (count > 1)
        buf_printf(out, "There are %zu contexts:\n", count);
    for (size_t i = 0; i < count; i++)
        prompt_put_context(
            out, contexts->items[i], i, count > 1, json_object_array_get_idx(variables, i));
    buf_printf(out, "\nYou have %u turn%s. Turn 1 of %u.", turns, text_plural(turns), turns);
}

/* Text of at most about `max` bytes: the beginning and the end where it is longer. */
static void put_shortened(struct buf *out, const char *text, size_t len, size_t max)
{
    if (len <= max) {
        buf_append(out, text, len);
        return;
    }
    size_t head = text_utf8_floor(text, len, max / 2);
    size_t tail = len - max / 2;
    while (tail < len && ((unsigned char)text[tail] & 0xC0) == 0x80)
        tail++;
    buf_append(out, text, head);
    buf_printf(out, "\n... [%zu bytes left out; print less] ...\n", tail - head);
    buf_append(out, text + tail, len - tail);
}

void prompt_ask_summary(struct buf *out)
{
    buf_puts(out,
        "This conversation becomes too long for you to read, so its earlier turns will be taken "
        "out of "
        "it now. Write a summary with which you can go on without them: what you have found, with "
        "the "
        "exact values, names and places; which variables of the session hold what; what failed and "
        "need not be tried again; what is still to do. Reply with the summary only, without code.");
}

static const char history_text[] =
    "`history` has all that was said: a list of dicts with \"role\" and \"content\".";

void prompt_summary(struct buf *out, const char *said, size_t len, bool history)
{
    buf_printf(out,
        "Your earlier turns were taken out of this conversation to keep it short. The "
        "variables of the session are as you left them%s%s Your own summary of it:\n\n",
        history ? ", and there " : ".", history ? history_text : "");
    buf_append(out, said, len);
}

void prompt_shortened(struct buf *out, const char *text, size_t len, size_t max, bool history)
{
    buf_printf(out, "(This was cut to keep the conversation short%s%s)\n", history ? "; " : ".",
        history ? history_text : "");
    put_shortened(out, text, len, max);
}

static void put_section(
    struct buf *out, const char *title, const char *text, size_t len, size_t max)
{
    if (len == 0)
        return;
    buf_puts(out, title);
    put_shortened(out, text, len, max);
    if (out->data[out->len - 1] != '\n')
        buf_putc(out, '\n');
}

static void prompt_put_variables(struct buf *out, struct json_object *variables)
{
    size_t count = json_length(variables);
    for (size_t i = 0; i < count && i < 100; i++) {
        struct json_object *v = json_object_array_get_idx(variables, i);
        int64_t length = json_get_int(v, "length", -1);
        buf_printf(out, "%s%.80s (%.40s", i ? ", " : "Variables: ", json_get_string(v, "name", "?"),
            json_get_string(v, "type", "?"));
        if (length >= 0)
            buf_printf(out, ", %lld", (long long)length);
        buf_putc(out, ')');
    }
    buf_puts(out, count ? "\n" : "");
}

void prompt_result(struct buf *out, const struct cell_result *r, unsigned index, size_t max_chars)
{
    const char *failure = r->error.traceback ? r->error.traceback : r->error.message;
    buf_printf(out, "Output of block %u:\n", index);
    put_section(out, "", buf_text(&r->out), r->out.len, max_chars);
    put_section(out, "Standard error:\n", buf_text(&r->err), r->err.len, max_chars / 2);
    if (r->status == CELL_TIMEOUT && r->alive && r->error.message)
        buf_printf(out, "TimeoutError: %s\n", r->error.message);
    if (failure)
        put_section(out, "Error:\n", failure, strlen(failure), max_chars / 2);
    if (!r->alive)
        buf_printf(out,
            "The session ended: %s. A new one was started: what was given with the question is "
            "there again, your variables are not.\n",
            r->reason.text);
    if (r->out.len == 0 && r->err.len == 0 && !failure && r->alive)
        buf_puts(out, "(nothing was printed)\n");
    if (r->alive)
        prompt_put_variables(out, r->variables);
}
