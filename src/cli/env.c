/* cli/env.c: droste env: which environments there are, what each can do, and what killed hosts have left in them. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/fields.h"
#include "cli/verbs.h"

struct request {
    droste *d;
    const char *name; /* the word behind the verb; NULL: none */
    bool json;
};

struct env_verb {
    struct verb verb;
    int (*run)(const struct request *r, struct error *err);
};

static int env_list(const struct request *r, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '[');
    for (size_t i = 0; environment_name(i); i++) {
        if (!r->json)
            printf("%-8s  %s\n", environment_name(i), environment_about(i));
        field_open(&out, NULL, '{');
        field_string(&out, "name", environment_name(i));
        field_string(&out, "about", environment_about(i));
        field_close(&out, '}');
    }
    field_close(&out, ']');
    if (buf_failed(&out))
        return error_memory(err);
    if (r->json)
        cli_print_json(buf_text(&out));
    return 0;
}

/* ---- show ---- */

static void show_row(struct buf *out, enum feature p, const struct feature_state *state)
{
    buf_printf(out, "%-21s %-4s %s\n", feature_name(p), state->given ? "yes" : "no",
        state->text ? state->text : "");
    while (out->len > 1 && out->data[out->len - 2] == ' ') {
        out->data[out->len - 2] = '\n';
        out->len--;
    }
}

static void show_member(struct buf *out, enum feature p, const struct feature_state *state)
{
    field_open(out, NULL, '{');
    field_string(out, "power", feature_name(p));
    field_string(out, "settings", feature_settings(p));
    field_bool(out, "given", state->given);
    field_string(out, "text", state->text);
    field_close(out, '}');
}

/* The table of one that is known by its name, or of one of the user's, which is opened for that. */
static int find_features(const struct request *r, const struct features **out, struct error *err)
{
    struct environment *env;
    const char *name = r->name ? r->name : r->d->settings.env ? r->d->settings.env : "local";
    *out = environment_features(name);
    if (*out)
        return 0;
    int rc = settings_set(&r->d->settings, "env", name, "droste env show", err);
    if (rc == 0)
        rc = api_environment(r->d, &r->d->settings, &env, err);
    if (rc == 0)
        *out = environment_ops_of(env)->features;
    return rc;
}

static int env_show(const struct request *r, struct error *err)
{
    const struct features *features;
    cleanup_buf struct buf out = { 0 };
    int rc = find_features(r, &features, err);
    if (rc < 0)
        return rc;
    if (r->json)
        field_open(&out, NULL, '[');
    for (enum feature p = 0; p < FEATURE_COUNT; p++)
        (r->json ? show_member : show_row)(&out, p, &features->of[p]);
    if (r->json) {
        field_close(&out, ']');
        buf_puts(&out, "\n");
    }
    if (buf_failed(&out))
        return error_memory(err);
    cli_print(stdout, buf_text(&out), out.len);
    return 0;
}

/* ---- gc ---- */

struct collected {
    bool done;
    unsigned removed;
    struct error why;
};

static void env_told(void *arg, unsigned removed, const struct error *why)
{
    *(struct collected *)arg = (struct collected){ .done = true, .removed = removed, .why = *why };
}

static int env_collect(const struct request *r, struct error *err)
{
    struct collected result = { 0 };
    struct settings *s = &r->d->settings;
    struct environment *env;
    int rc = settings_given(s, "env") ? 0 : settings_set(s, "env", "docker", "droste env gc", err);
    if (rc == 0)
        rc = api_environment(r->d, s, &env, err);
    const struct environment_ops *ops = rc == 0 ? environment_ops_of(env) : NULL;
    if (ops && !ops->collect)
        rc = error_set(err, ERROR_UNSUPPORTED,
            "nothing is ever left in the environment '%.40s': its sandboxes end with their hosts",
            ops->name);
    if (rc == 0)
        rc = ops->collect(env, env_told, &result, err);
    if (rc == 0)
        rc = loop_run_until(r->d->loop, &result.done, err);
    if (rc < 0)
        return rc;
    printf("%u sandbox%s of hosts that are gone removed\n", result.removed,
        result.removed == 1 ? "" : "es");
    *err = result.why;
    return -(int)result.why.code;
}

static int env_run(const struct command *self, droste *d, int argc, char **argv)
{
    enum { LS = 1, SHOW = 2, GC = 4 };
    static const struct env_verb verbs[] = {
        { { "ls", LS, 0, 0 }, env_list },
        { { "show", SHOW, 0, 1 }, env_show },
        { { "gc", GC, 0, 0 }, env_collect },
    };
    const char *words[3];
    size_t count;
    struct request r = { .d = d };
    const struct flag flags[] = {
        { "json", NULL, "Print one JSON array.", NULL, &r.json },
        { 0 },
    };
    struct error err = { 0 };
    int status = cli_parse(self, argc, argv, flags, d, words, array_length(words), &count);
    if (status >= 0)
        return status;
    const struct env_verb *verb =
        verb_find(verbs, array_length(verbs), sizeof *verbs, count > 0 ? words[0] : NULL);
    if (!verb || count - 1 > verb->verb.most)
        return cli_usage(self, "expected one of: ls, show [NAME], gc");
    const struct verb_flag only[] = { { "json", r.json, LS | SHOW } };
    status = verb_check_flags(self, &verb->verb, only, array_length(only));
    if (status >= 0)
        return status;
    r.name = count > 1 ? words[1] : NULL;
    return cli_end(verb->run(&r, &err), &err, "the list");
}

const struct command command_env = {
    .name = "env",
    .synopsis = "ls [--json] | show [NAME] [--json] | gc [--env NAME]",
    .summary = "list the environments and what each can do; remove what killed hosts left",
    .details =
        "  ls           the environments by name\n"
        "  show [NAME]  what an environment can do and what not, and how or why; bridge:PATH\n"
        "               too. What it cannot is refused by name when a session asks for it\n"
        "  gc           remove sandboxes that a host of this machine made which is gone: the "
        "first\n"
        "               sandbox of each program does it too; without --env those of docker\n\n"
        "Exit status: 0, 2 usage, 4 nobody answers there.\n",
    .examples = "  droste env ls\n"
                "  droste env show docker\n"
                "  droste env gc --env daytona\n",
    .settings = true,
    .run = env_run,
};
