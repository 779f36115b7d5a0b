/* cli/env.c: droste env: lists environments and their features, removes orphaned sandboxes. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/json/fields.h"
#include "cli/cli.h"
#include "cli/options/verbs.h"
#include "cli/terminal/screen.h"

struct request {
    droste *d;
    const char *name; /* the word after the verb; NULL: none */
    bool json;
};

struct env_verb {
    struct verb verb;
    int (*run)(const struct request *r, struct error *err);
};

static int env_list(const struct request *r, struct error *err)
{
    cleanup_buf struct buf out = { 0 }, text = { 0 };
    const char *name, *about;
    field_open(&out, NULL, '[');
    for (size_t i = 0; (name = droste_environment_at(i, &about)); i++) {
        buf_printf(&text, "%-8s  %s\n", name, about);
        field_open(&out, NULL, '{');
        field_string(&out, "name", name);
        field_string(&out, "about", about);
        field_close(&out, '}');
    }
    field_close(&out, ']');
    if (buf_failed(&out) || buf_failed(&text))
        return error_memory(err);
    if (r->json)
        cli_print_json(buf_text(&out));
    else
        screen_print_text(stdout, buf_text(&text));
    return 0;
}

/* ---- show ---- */

static void show_row(void *arg, const droste_feature *feature)
{
    struct buf *out = arg;
    buf_printf(out, "%-21s %-4s %s\n", feature->name, feature->supported ? "yes" : "no",
        feature->text ? feature->text : "");
    while (out->len > 1 && out->data[out->len - 2] == ' ') {
        out->data[out->len - 2] = '\n';
        out->len--;
    }
}

static void show_member(void *arg, const droste_feature *feature)
{
    struct buf *out = arg;
    field_open(out, NULL, '{');
    field_string(out, "feature", feature->name);
    field_string(out, "settings", feature->settings);
    field_bool(out, "supported", feature->supported);
    field_string(out, "text", feature->text);
    field_close(out, '}');
}

static int env_show(const struct request *r, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    if (r->json)
        field_open(&out, NULL, '[');
    int rc =
        droste_environment_features(r->d, r->name, r->json ? show_member : show_row, &out, err);
    if (rc < 0)
        return rc;
    if (r->json) {
        field_close(&out, ']');
        buf_puts(&out, "\n");
    }
    if (buf_failed(&out))
        return error_memory(err);
    if (r->json)
        cli_print(stdout, buf_text(&out), out.len);
    else
        screen_print_text(stdout, buf_text(&out));
    return 0;
}

/* ---- gc ---- */

static int env_collect(const struct request *r, struct error *err)
{
    int removed;
    int rc = droste_environment_collect(r->d, &removed, err);
    if (removed >= 0)
        printf("removed %d orphaned sandbox%s\n", removed, removed == 1 ? "" : "es");
    return rc;
}

enum { LS = 1, SHOW = 2, GC = 4 };

static const struct env_verb verbs[] = {
    { { "ls", LS, 0, 0 }, env_list },
    { { "show", SHOW, 0, 1, NULL, "one NAME at most" }, env_show },
    { { "gc", GC, 0, 0 }, env_collect },
};

static int env_run(const struct command *self, droste *d, int argc, char **argv)
{
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
    const struct verb_flag only[] = { { "json", r.json, LS | SHOW } };
    const struct env_verb *row = verb_pick(self, words, count, only, array_length(only), &status);
    r.name = count > 1 ? words[1] : NULL;
    return row ? cli_end(row->run(&r, &err), &err, "the list") : status;
}

const struct command command_env = {
    .name = "env",
    .synopsis = "ls [--json] | show [NAME] [--json] | gc [--env NAME]",
    .summary = "list environments and their features; remove orphaned sandboxes",
    .details = "  ls           list the environments\n"
               "  show [NAME]  show which features an environment supports, and how, or why not;\n"
               "               NAME may be bridge:PATH. A session that needs a missing feature\n"
               "               is refused\n"
               "  gc           remove sandboxes that ended processes of this machine have left\n"
               "               (default: docker). The first sandbox of each program does so, too\n"
               "\n"
               "Exit status: 0, 2 usage error, 4 the environment does not answer.\n",
    .examples = "  droste env ls\n"
                "  droste env show docker\n"
                "  droste env gc --env daytona\n",
    .settings = SETTINGS_SANDBOX,
    .verbs = { verbs, array_length(verbs), sizeof *verbs },
    .arguments = "ENVIRONMENT",
    .run = env_run,
};
