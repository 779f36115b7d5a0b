/* cli/options/parse.c: reads a command line: a command's own flags, the library's settings as
 * flags, and arguments. It also answers --help and a shell that completes the last word.
 */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/suggest.h"
#include "cli/options/completion.h"
#include "cli/options/flags.h"
#include "cli/options/help.h"

struct parsing {
    const struct command *self;
    int argc;
    char **argv;
    int at;
    const struct flag *flags;
    uint64_t used; /* a bit for each of the flags that stood already */
    droste *d;
};

/* The value of the current flag: after '=', or the next word. */
static const char *flags_take_value(struct parsing *p, const char *behind)
{
    if (behind)
        return behind;
    return p->at + 1 < p->argc ? p->argv[++p->at] : NULL;
}

static int set_text_flag(
    struct parsing *p, const struct flag *flag, const char *word, const char *value)
{
    uint64_t bit = UINT64_C(1) << (flag - p->flags);
    if (flag->once && (p->used & bit))
        return cli_usage(p->self, "%s appears twice; use it once", word);
    p->used |= bit;
    *flag->text = value;
    return -1;
}

/* No suggestion for one letter, which resembles every other one. */
static int refuse_flag(const struct parsing *p, const char *word, size_t len)
{
    bool is_long = word[1] == '-';
    struct suggestion s = { .typed = word + (is_long ? 2 : 1), .len = len };
    const droste_option *o;
    size_t at = 0;
    for (const struct flag *f = p->flags; f->name; f++)
        if (f->name[1])
            suggestion_consider(&s, f->name);
    while (p->d && p->self->settings && (o = flag_next_option(p->flags, &at)))
        suggestion_consider(&s, o->name);
    const char *best = suggestion_best(&s);
    return cli_usage(p->self, "unknown flag '%.*s'%s%s%s%s", (int)(s.typed - word) + (int)len, word,
        p->self->runs_scripts ? " (flags of a script come after --)" : "",
        best ? "; did you mean --" : "", best ? best : "", best ? "?" : "");
}

static struct list parse_settings; /* see cli_settings */

const struct list *cli_settings(void)
{
    return &parse_settings;
}

/* Reads one flag; -1 to continue. */
static int take_flag(struct parsing *p)
{
    const char *word = p->argv[p->at], *name = word + (word[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const char *behind = equals ? equals + 1 : NULL;
    const struct flag *flag = flag_find(p->flags, name, len);
    if (flag && flag->on) {
        *flag->on = true;
        return behind ? cli_usage(p->self, "%s takes no value; leave out '='", word) : -1;
    }
    const droste_option *option = p->d && p->self->settings ? flag_find_option(name, len) : NULL;
    if (!flag && !option)
        return refuse_flag(p, word, len);
    if (option && option->secret)
        return cli_usage(p->self,
            "--%s would be visible to all users of this machine; set %s, or `%s = …` in config.ini",
            option->name, option->environment, option->name);
    const char *value = flags_take_value(p, behind);
    if (!value)
        return cli_usage(
            p->self, "%s needs a value (%s)", word, flag ? flag->value : option->value);
    droste_error err;
    if ((!flag || flag->add) &&
        (list_add(&parse_settings, flag ? flag->name : option->name, NULL) < 0 ||
            list_add(&parse_settings, value, NULL) < 0))
        return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    if (flag && flag->words)
        return list_add(flag->words, value, NULL) < 0 ? cli_fail(EXIT_ENVIRONMENT, "out of memory")
                                                      : -1;
    if (flag && flag->add)
        return flag->add(p->d, value, &err) < 0 ? cli_error(&err) : -1;
    if (flag)
        return set_text_flag(p, flag, word, value);
    return droste_set(p->d, option->name, value, &err) < 0 ? cli_error(&err) : -1;
}

int cli_parse(const struct command *self, int argc, char **argv, const struct flag *flags,
    droste *d, const char **words, size_t max, size_t *count)
{
    struct parsing p = { self, argc, argv, 1, flags, 0, d };
    droste_error err;
    bool only_words = false;
    size_t found = 0;
    if (completion_is_wanted())
        return completion_answer(self, flags, d, argc, argv);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help_print(self, flags, argv[1], argv[i + 1]);
    if (d && droste_configure(d, getenv("DROSTE_CONFIG"), &err) < 0)
        return cli_error(&err);
    for (; p.at < argc; p.at++) {
        const char *word = argv[p.at];
        if (!only_words && strcmp(word, "--") == 0) {
            only_words = true;
        } else if (!only_words && word[0] == '-' && word[1] != '\0') {
            int status = take_flag(&p);
            if (status >= 0)
                return status;
        } else if (found < max) {
            words[found++] = word;
        } else {
            return cli_usage(self,
                "unexpected argument '%s'; leave it out, or quote a text of several words", word);
        }
    }
    if (count)
        *count = found;
    return -1;
}

int cli_set(droste *d, const char *name, const char *value)
{
    droste_error err;
    return value && droste_set(d, name, value, &err) < 0 ? cli_error(&err) : -1;
}
