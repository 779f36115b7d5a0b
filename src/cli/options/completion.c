/* cli/options/completion.c: the candidates that the shells' scripts ask for.
 *
 * A script passes the words of the command line to `droste completion words`, which runs the
 * named command up to cli_parse. There the command's flags are at hand, and instead of reading the
 * words completion_answer prints the candidates for the last one. So the candidates come
 * from the same tables as the help. Each is a line: the word, a tab, a description. The line
 * `:files` asks the shell for names of files.
 */
#include "cli/options/completion.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/json/json.h"
#include "cli/launch/launch.h"
#include "cli/options/flags.h"
#include "cli/options/verbs.h"
#include "export/describe.h"
#include "serve/access/keys.h"

enum { RUNS_OFFERED = 50, QUESTION_ROOM = 60, PATHS_OFFERED = 1000 };

static bool completing;

bool completion_is_wanted(void)
{
    return completing;
}

/* ---- candidates ---- */

struct offer {
    droste *d;
    const char *before; /* what precedes each candidate in its word: "--env=", or "" */
    const char *typed;  /* the rest of the word, as typed so far */
    const char *name;   /* the argument after the verb, whose snapshots or paths are asked for */
    const char *keys;   /* the file that --keys names */
};

/* Names in a volume are the guest's: bash would run what stands in one, because it takes candidates
 * as they are. Names that need quotes are left out. */
static bool word_needs_no_quotes(const char *word, size_t len)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_./:=,+@%[]";
    for (size_t i = 0; i < len; i++)
        if (!word[i] || !strchr(plain, word[i]))
            return false;
    return true;
}

static void offer_word(const struct offer *o, const char *word, size_t len, const char *about)
{
    size_t typed = strlen(o->typed);
    if (word_needs_no_quotes(word, len) && len >= typed && strncmp(word, o->typed, typed) == 0)
        printf("%s%.*s\t%s\n", o->before, (int)len, word, about);
}

static int offer_run(void *arg, const droste_record_run *run, droste_error *err)
{
    cleanup_buf struct buf question = { 0 };
    (void)err;
    describe_line(&question, run->question, QUESTION_ROOM);
    offer_word(arg, run->id, strlen(run->id), buf_text(&question));
    return 0;
}

static void offer_runs(struct offer *o)
{
    droste_record *record = NULL;
    droste_error err;
    const droste_record_filter filter = { .limit = RUNS_OFFERED };
    if (droste_record_open(o->d, &record, &err) == 0 && record)
        droste_record_list(record, &filter, offer_run, o, &err);
    droste_record_close(record);
}

static int offer_volume(void *arg, const char *name)
{
    offer_word(arg, name, strlen(name), "volume");
    return 0;
}

/* Asking a provider over the network would take too long for a key press. */
static void offer_volumes(struct offer *o)
{
    droste_error err;
    if (!droste_volumes_are_remote(o->d))
        droste_volume_names(o->d, offer_volume, o, &err);
}

/* The volume that the line names; NULL if it cannot be opened. */
static droste_volume *open_named_volume(struct offer *o)
{
    droste_volume *v = NULL;
    droste_error err;
    if (o->name && !droste_volumes_are_remote(o->d))
        (void)droste_volume_open(o->d, o->name, 0, &v, &err);
    return v;
}

static int offer_snapshot(void *arg, const char *name)
{
    offer_word(arg, name, strlen(name), "snapshot");
    return 0;
}

static void offer_snapshots(struct offer *o)
{
    droste_error err;
    droste_volume *v = open_named_volume(o);
    if (v)
        droste_volume_snapshots(v, offer_snapshot, o, &err);
    droste_volume_close(v);
}

static int offer_volume_path(void *arg, const droste_volume_entry *entry)
{
    const struct offer *o = arg;
    const char *slash = strrchr(o->typed, '/');
    bool directory = S_ISDIR(entry->mode);
    cleanup_buf struct buf path = { 0 };
    buf_printf(&path, "%.*s%s%s", slash ? (int)(slash + 1 - o->typed) : 0, o->typed, entry->path,
        directory ? "/" : "");
    offer_word(o, buf_text(&path), path.len, directory ? "directory" : "file");
    return 0;
}

/* What is in the directory as typed so far. */
static void offer_volume_paths(struct offer *o)
{
    droste_error err;
    droste_volume *v = open_named_volume(o);
    const char *slash = strrchr(o->typed, '/');
    cleanup_free char *directory =
        slash ? strndup(o->typed, (size_t)(slash - o->typed)) : strdup(".");
    if (v && directory)
        droste_volume_list(v, directory, 1, PATHS_OFFERED, offer_volume_path, o, &err);
    droste_volume_close(v);
}

/* By name, or by id if a key has none. */
static void offer_keys(struct offer *o)
{
    struct keys keys = { 0 };
    struct error err = { 0 };
    cleanup_free char *path = NULL;
    if (!o->keys && keys_default_path(&path, &err) < 0)
        return;
    if (keys_read(o->keys ? o->keys : path, &keys, &err) == 0)
        for (size_t i = 0; i < keys.count; i++) {
            const struct key *key = &keys.rows[i];
            const char *word = key->name[0] ? key->name : key->id;
            offer_word(o, word, strlen(word), key->name[0] ? key->id : "key");
        }
    keys_free(&keys);
}

static int offer_image_name(void *arg, const droste_image *image)
{
    cleanup_json struct json_object *names = NULL;
    struct error err = { 0 };
    if (json_parse(image->names, strlen(image->names), &json_limits_large, &names, &err) < 0)
        return 0;
    for (size_t i = 0; i < json_length(names); i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(names, i));
        offer_word(arg, name, strlen(name), "image");
    }
    return 0;
}

static void offer_image_names(struct offer *o)
{
    droste_error err;
    droste_image_visit(o->d, NULL, offer_image_name, o, &err);
}

static int offer_image(void *arg, const droste_image *image)
{
    offer_word(arg, image->id, strlen(image->id), "image");
    return offer_image_name(arg, image);
}

static void offer_images(struct offer *o)
{
    droste_error err;
    droste_image_visit(o->d, NULL, offer_image, o, &err);
}

static int offer_package_set(void *arg, const droste_package_set *set)
{
    offer_word(arg, set->id, strlen(set->id), "packages");
    return 0;
}

static void offer_package_sets(struct offer *o)
{
    droste_error err;
    droste_packages_list(o->d, offer_package_set, o, &err);
}

static int offer_template(void *arg, const char *name)
{
    offer_word(arg, name, strlen(name), "template");
    return 0;
}

static void offer_templates(struct offer *o)
{
    droste_error err;
    droste_template_names(o->d, offer_template, o, &err);
}

static void offer_environments(struct offer *o)
{
    const char *name, *about;
    for (size_t i = 0; (name = droste_environment_at(i, &about)); i++)
        offer_word(o, name, strlen(name), about);
}

static void offer_prompts(struct offer *o)
{
    const char *name, *about;
    for (size_t i = 0; droste_prompt_at(i, &name, &about); i++)
        offer_word(o, name, strlen(name), about);
}

static void offer_launchers(struct offer *o)
{
    const char *name;
    for (size_t i = 0; (name = launch_name_at(i)); i++)
        offer_word(o, name, strlen(name), "launcher");
}

static void offer_files(struct offer *o)
{
    (void)o;
    puts(":files");
}

static void offer_commands(struct offer *o)
{
    const struct command *command;
    for (size_t i = 0; (command = cli_command_at(i)); i++)
        offer_word(o, command->name, strlen(command->name), command->summary);
}

/* The kinds of values and arguments, as help shows them. */
static const struct {
    const char *name;
    void (*offer)(struct offer *o);
} kinds[] = {
    { "RUN", offer_runs },
    { "VOLUME", offer_volumes },
    { "SNAPSHOT", offer_snapshots },
    { "VOLUME_PATH", offer_volume_paths },
    { "KEY", offer_keys },
    { "TEMPLATE", offer_templates },
    { "IMAGE", offer_images },
    { "IMAGE_NAME", offer_image_names },
    { "PACKAGES", offer_package_sets },
    { "ENVIRONMENT", offer_environments },
    { "PROMPT", offer_prompts },
    { "LAUNCHER", offer_launchers },
    { "FILE", offer_files },
    { "PATH", offer_files },
    { "[NAME=]PATH", offer_files },
    { "COMMAND", offer_commands },
};

/* Flags and settings whose help shows a kind that has more meanings. */
static const struct {
    const char *flag, *kind;
} narrower[] = {
    { "env", "ENVIRONMENT" },
    { "volume-name", "VOLUME" },
    { "template", "TEMPLATE" },
    { "image", "IMAGE_NAME" },
    { "isolation", "auto|full|light|landlock|process" },
    { "pull", "missing|always|never" },
    { "format", "jsonl|html|otlp" },
    { "root", "read-only|private" },
    { "seccomp", "auto|droste|daemon" },
    { "reuse", "none|container" },
    { "on-close", "delete|stop" },
    { "layout", "droste|daytona" },
    { "select", "first|vote|model" },
    { "checkpoint", "auto|no" },
    { "context-type", "auto|text|bytes|json|jsonl" },
    { "log-level", "error|warning|info|debug" },
    { "grader", "exact|contains|numeric" },
    { "scopes", "read|sandboxes|metrics|admin" },
    { "status", "running|interrupted|answered|exhausted|budget|timeout|cancelled|error" },
};

static void offer_alternatives(struct offer *o, const char *words)
{
    for (; *words; words += strcspn(words, "|"), words += *words == '|')
        offer_word(o, words, strcspn(words, "|"), "");
}

static void offer_kind(struct offer *o, const char *kind, size_t len)
{
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strlen(kinds[i].name) == len && strncmp(kinds[i].name, kind, len) == 0)
            kinds[i].offer(o);
    if (memchr(kind, '|', len)) {
        cleanup_free char *words = strndup(kind, len);
        offer_alternatives(o, words ? words : "");
    }
}

static void offer_value(struct offer *o, const char *flag, const char *kind)
{
    for (size_t i = 0; i < array_length(narrower); i++)
        if (strcmp(narrower[i].flag, flag) == 0)
            kind = narrower[i].kind;
    offer_kind(o, kind, strlen(kind));
}

/* ---- the line ---- */

struct line {
    const struct command *self;
    const struct flag *flags;
    droste *d;
};

struct known_flag {
    const char *name, *value; /* value NULL: it takes none */
};

static bool find_known_flag(const struct line *l, const char *word, struct known_flag *out)
{
    const char *name = word + (word[1] == '-' ? 2 : 1);
    size_t len = strcspn(name, "=");
    const struct flag *flag = flag_find(l->flags, name, len);
    const droste_option *option = !flag && l->self->settings ? flag_find_option(name, len) : NULL;
    if (flag)
        *out = (struct known_flag){ flag->name, flag->value };
    if (option)
        *out = (struct known_flag){ option->name, option->value };
    return flag || option;
}

static void offer_flag(struct offer *o, const char *name, const char *about)
{
    cleanup_buf struct buf word = { 0 };
    buf_printf(&word, "%s%s", name[1] ? "--" : "-", name);
    offer_word(o, buf_text(&word), word.len, about);
}

static void offer_flags(const struct line *l, struct offer *o)
{
    const droste_option *option;
    size_t at = 0;
    for (const struct flag *f = l->flags; f->name; f++)
        offer_flag(o, f->name, f->help);
    while (l->self->settings && (option = flag_next_option(l->flags, &at)))
        offer_flag(o, option->name, option->help);
    offer_flag(o, "help", "Show help.");
}

/* Opens the record, the volumes and the keys that the line's own flags name. */
static void use_locations(
    const struct line *l, struct offer *o, const char *name, const char *value)
{
    static const char *const locations[] = { "database", "volume-root", "env" };
    droste_error err;
    if (strcmp(name, "keys") == 0)
        o->keys = value;
    for (size_t i = 0; i < array_length(locations); i++)
        if (strcmp(locations[i], name) == 0)
            (void)droste_set(l->d, name, value, &err);
}

/* Counts the words before the last one that are neither flags nor their values, and keeps the
 * first two: a verb and a name. */
static size_t read_words(
    const struct line *l, struct offer *o, int argc, char **argv, const char **first)
{
    size_t count = 0;
    struct known_flag flag;
    for (int i = 1; i < argc - 1; i++) {
        if (argv[i][0] != '-' || !argv[i][1]) {
            *first = count == 0 ? argv[i] : *first;
            o->name = count == 1 ? argv[i] : o->name;
            count++;
            continue;
        }
        const char *equals = strchr(argv[i], '=');
        if (!find_known_flag(l, argv[i], &flag) || !flag.value)
            continue;
        const char *value = equals ? equals + 1 : argv[i + 1];
        i += !equals && i + 1 < argc - 1;
        use_locations(l, o, flag.name, value);
    }
    return count;
}

/* The kind of the argument at `index`, of those that `arguments` names; the last one repeats. */
static void offer_argument(struct offer *o, const char *arguments, size_t index)
{
    const char *kind = arguments;
    for (const char *next; index > 0 && (next = strchr(kind, ' ')); index--)
        kind = next + 1;
    offer_kind(o, kind, strcspn(kind, " "));
}

static void offer_arguments(const struct line *l, struct offer *o, size_t count, const char *first)
{
    const struct command *self = l->self;
    const char *rows = self->verbs.rows;
    size_t before = self->verbs.count > 0;
    const struct verb *verb =
        before && count > 0 ? verb_find(rows, self->verbs.count, self->verbs.size, first) : NULL;
    for (size_t i = 0; before && count == 0 && i < self->verbs.count; i++) {
        verb = (const void *)(rows + i * self->verbs.size);
        offer_word(o, verb->name, strlen(verb->name), "");
    }
    if (count < before || (before && (!verb || count - before >= verb->most)))
        return;
    const char *arguments = before && verb->arguments ? verb->arguments : self->arguments;
    if (arguments)
        offer_argument(o, arguments, count - before);
}

int completion_answer(
    const struct command *self, const struct flag *flags, droste *d, int argc, char **argv)
{
    struct line l = { self, flags, d };
    struct known_flag flag;
    const char *last = argv[argc - 1], *previous = argv[argc - 2], *first = NULL;
    const char *equals = last[0] == '-' ? strchr(last, '=') : NULL;
    cleanup_free char *before = strndup(last, equals ? (size_t)(equals + 1 - last) : 0);
    struct offer o = { d, before ? before : "", equals ? equals + 1 : last, NULL, NULL };
    droste_error err;
    if (d)
        (void)droste_configure(d, getenv("DROSTE_CONFIG"), &err);
    size_t count = read_words(&l, &o, argc, argv, &first);
    if (equals && find_known_flag(&l, last, &flag) && flag.value)
        offer_value(&o, flag.name, flag.value);
    else if (argc > 2 && previous[0] == '-' && !strchr(previous, '=') &&
             find_known_flag(&l, previous, &flag) && flag.value)
        offer_value(&o, flag.name, flag.value);
    else if (last[0] == '-')
        offer_flags(&l, &o);
    else
        offer_arguments(&l, &o, count, first);
    return cli_finish(EXIT_FINE, "the candidates");
}

int completion_words(droste *d, char **words, size_t count)
{
    struct offer o = { d, "", words[count - 1], NULL, NULL };
    bool is_help = count == 2 && strcmp(words[0], "help") == 0;
    const struct command *command = count > 1 ? cli_command_find(words[0]) : NULL;
    if (count == 1)
        offer_word(&o, "help", strlen("help"), "show the help of a command");
    if (is_help)
        offer_word(&o, "all", strlen("all"), "every setting");
    if (count == 1 || is_help)
        offer_commands(&o);
    if (!command)
        return cli_finish(EXIT_FINE, "the candidates");
    completing = true;
    int status = command->run(command, d, (int)count, words);
    completing = false;
    return status;
}
