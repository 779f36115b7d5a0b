/* cli/options/help.c: prints help, in two sizes, from the tables of commands, flags and settings.
 *
 * `--help` fits one screen of 80 columns: a command's own flags, the most used settings, and two
 * examples. `--help all` has every setting, the details and all examples.
 */
#include "cli/options/help.h"

#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "cli/options/flags.h"
#include "cli/options/manual.h"
#include "cli/options/verbs.h"
#include "cli/terminal/screen.h"

enum { COLUMNS = 79, ROWS = 45, LEFT = 27, CLAUSE_LEAST = 12, SHORT_EXAMPLES = 2 };
enum { ROWS_BEHIND = SHORT_EXAMPLES + 4 }; /* of the settings: examples, the last line, blanks */

/* ---- words within the width of a screen ---- */

/* Wraps words at the last column and indents further lines. The line has `column` characters
 * already. */
static void help_put_wrapped(struct buf *out, const char *text, size_t column, size_t indent)
{
    bool begins = true;
    for (const char *word = text; *word; begins = false) {
        size_t len = strcspn(word, " ");
        if (!begins && column + 1 + len > COLUMNS) {
            buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
            begins = true;
        }
        buf_printf(out, "%s%.*s", begins ? "" : " ", (int)len, word);
        column += len + !begins;
        word += len + strspn(word + len, " ");
    }
    buf_putc(out, '\n');
}

/* Shortens a sentence that does not fit to its first clause, or to some words and "...". */
static void help_put_clause(struct buf *out, const char *text, size_t room)
{
    size_t len = strlen(text), clause = 0, word = 0;
    for (size_t i = CLAUSE_LEAST; i + 3 < room && len > room; i++) {
        if (text[i] == ' ')
            word = text[i - 1] == ',' ? i - 1 : i;
        if (clause == 0 && strchr(":;.", text[i]) && text[i + 1] == ' ')
            clause = i;
    }
    if (len <= room)
        buf_puts(out, text);
    else
        buf_printf(out, "%.*s%s", (int)(clause ? clause : word), text, clause ? "." : "...");
}

/* Returns the column after it. */
static size_t put_flag_name(struct buf *out, const char *name, const char *value)
{
    size_t before = out->len;
    buf_printf(out, "  %s%s%s%s", name[1] ? "--" : "-", name, value ? " " : "", value ? value : "");
    size_t width = out->len - before;
    buf_printf(out, "%*s ", width < LEFT ? (int)(LEFT - width) : 0, "");
    return out->len - before;
}

static void put_short_option(struct buf *out, const droste_option *o)
{
    size_t column = put_flag_name(out, o->name, o->value);
    size_t more = o->fallback[0] ? strlen(o->fallback) + 3 : 0;
    help_put_clause(out, o->help, COLUMNS > column + more ? COLUMNS - column - more : 0);
    if (more)
        buf_printf(out, " [%s]", o->fallback);
    buf_putc(out, '\n');
}

static void put_whole_flag(struct buf *out, const char *name, const char *value, const char *help,
    const char *fallback, const char *environment)
{
    put_flag_name(out, name, value);
    buf_puts(out, help);
    if (fallback && fallback[0])
        buf_printf(out, " [%s]", fallback);
    if (environment)
        buf_printf(out, " ($%s)", environment);
    buf_putc(out, '\n');
}

/* Prints lines within the width of a terminal. Examples stay whole, so that they can be copied. */
static void help_print_text(FILE *out, const char *text)
{
    const char *examples = strstr(text, "\nExamples:\n");
    const char *end = examples ? strstr(examples + 1, "\n\n") : NULL;
    cleanup_buf struct buf before = { 0 };
    buf_append(&before, text, examples ? (size_t)(examples - text) : strlen(text));
    screen_print_text(out, buf_text(&before));
    if (examples)
        fprintf(out, "%.*s", (int)(end ? end + 1 - examples : INT_MAX), examples);
    if (end)
        screen_print_text(out, end + 1);
}

/* ---- a command ---- */

static void help_put_head(struct buf *out, const struct command *self)
{
    cleanup_buf struct buf usage = { 0 };
    buf_printf(&usage, "usage: droste %s %s", self->name, self->synopsis);
    help_put_wrapped(out, buf_text(&usage), 0, strlen("usage: "));
    buf_printf(out, "\n%s\n", self->summary);
}

/* The verbs, which are the first paragraph of the details. */
static void help_put_verbs(struct buf *out, const struct command *self)
{
    const char *end = self->details ? strstr(self->details, "\n\n") : NULL;
    if (self->verbs.count > 0 && end)
        buf_printf(out, "\n%.*s\n", (int)(end - self->details), self->details);
}

static void put_first_examples(struct buf *out, const struct command *self)
{
    const char *at = self->examples;
    buf_puts(out, "\nExamples:\n");
    for (int i = 0; i < SHORT_EXAMPLES && *at; i++) {
        size_t len = strcspn(at, "\n");
        buf_printf(out, "%.*s\n", (int)len, at);
        at += len + (at[len] == '\n');
    }
}

static size_t help_rows(const struct buf *out)
{
    size_t rows = 0;
    for (size_t i = 0; i < out->len; i++)
        rows += out->data[i] == '\n';
    return rows;
}

static bool help_has_verb(const struct command *self, const char *name, size_t len)
{
    const char *row = self->verbs.rows;
    for (size_t i = 0; i < self->verbs.count; i++, row += self->verbs.size) {
        const char *verb = ((const struct verb *)(const void *)row)->name;
        if (strlen(verb) == len && memcmp(verb, name, len) == 0)
            return true;
    }
    return false;
}

/* The help of a flag that only some verbs take begins with their names: "ls, export: …". Returns
 * what a reader needs who asked about one verb (NULL: about all); NULL: it does not take the flag.
 */
static const char *help_for_verb(const struct command *self, const char *help, const char *verb)
{
    const char *colon = strchr(help, ':');
    bool takes = false;
    if (!verb || !colon)
        return help;
    for (const char *word = help; word < colon; word += strspn(word, ", ")) {
        size_t len = strcspn(word, ",:");
        if (!help_has_verb(self, word, len))
            return help; /* a sentence with a colon */
        takes |= strlen(verb) == len && memcmp(word, verb, len) == 0;
        word += len;
    }
    return takes ? colon + 1 + strspn(colon + 1, " ") : NULL;
}

static void help_put_short(
    struct buf *out, const struct command *self, const struct flag *flags, const char *verb)
{
    const droste_option *o;
    size_t at = 0;
    help_put_head(out, self);
    help_put_verbs(out, self);
    if (verb)
        buf_printf(out, "\nFlags of %s:\n", verb);
    else
        buf_puts(out, flags->name ? "\nFlags:\n" : "");
    for (const struct flag *f = flags; f->name; f++) {
        const char *text = help_for_verb(self, f->help, verb);
        if (text)
            help_put_wrapped(out, text, put_flag_name(out, f->name, f->value), LEFT + 1);
    }
    bool is_first = true; /* the heading has two rows */
    while (help_rows(out) + ROWS_BEHIND + 2 * is_first < ROWS &&
           (o = flag_common_option(self, flags, &at))) {
        buf_puts(out, is_first ? "\nMost used settings:\n" : "");
        is_first = false;
        put_short_option(out, o);
    }
    put_first_examples(out, self);
    buf_printf(out, "\n'droste %s --help all' has %sthe details and more examples.\n", self->name,
        self->settings ? "all settings, " : "");
}

static void help_put_all(struct buf *out, const struct command *self, const struct flag *flags)
{
    const droste_option *o;
    size_t at = 0;
    help_put_head(out, self);
    buf_puts(out, flags->name ? "\nFlags:\n" : "");
    for (const struct flag *f = flags; f->name; f++)
        put_whole_flag(out, f->name, f->value, f->help, NULL, NULL);
    buf_puts(out, self->settings ? "\nSettings (also in config.ini, as name = value):\n" : "");
    while (self->settings && (o = flag_next_option(flags, &at)))
        put_whole_flag(out, o->name, o->value, o->help, o->fallback, o->environment);
    if (self->details)
        buf_printf(out, "\n%s", self->details);
    buf_printf(out, "\nExamples:\n%s", self->examples);
}

int help_print(
    const struct command *self, const struct flag *flags, const char *first, const char *style)
{
    cleanup_buf struct buf out = { 0 };
    bool is_verb = help_has_verb(self, first, strlen(first));
    if (style && strcmp(style, "man") == 0) {
        manual_print(self, flags);
        return cli_finish(EXIT_FINE, "the manual page");
    }
    if (style && strcmp(style, "all") == 0)
        help_put_all(&out, self, flags);
    else
        help_put_short(&out, self, flags, is_verb ? first : NULL);
    help_print_text(stdout, buf_text(&out));
    return cli_finish(EXIT_FINE, "the help");
}

int help_print_overview(FILE *out, bool all)
{
    static const struct flag none[] = { { 0 } };
    const struct command *command;
    const droste_option *o;
    size_t at = 0;
    cleanup_buf struct buf text = { 0 };
    buf_puts(&text, "usage: droste COMMAND [...]\n\n"
                    "Droste is a runtime for Recursive Language Models: it runs the Python that a\n"
                    "language model writes in a sandbox, and that code can call models.\n\n");
    for (size_t i = 0; (command = cli_command_at(i)); i++)
        buf_printf(&text, "  %-14s %s\n", command->name, command->summary);
    buf_puts(&text, all ? "\nSettings (also in config.ini, as name = value):\n" : "");
    while (all && (o = flag_next_option(none, &at)))
        put_whole_flag(&text, o->name, o->value, o->help, o->fallback, o->environment);
    buf_printf(&text, "\n'droste COMMAND --help' has flags and examples%s. Version %s.\n",
        all ? "" : ", 'droste help all' every setting", droste_version());
    help_print_text(out, buf_text(&text));
    return out == stdout ? cli_finish(EXIT_FINE, "the help") : EXIT_USAGE;
}
