/* cli/template.c: droste template: stores prepared starting states of sandboxes, by name. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/list.h"
#include "base/os/file.h"
#include "cli/cli.h"
#include "cli/options/verbs.h"
#include "cli/remote/remote.h"

enum { CREATE = 1, LS = 2, SHOW = 4, RM = 8, CELL_MAX = 8 << 20 };

struct request {
    droste *d;
    const char *words[2]; /* the verb and the name */
    size_t count;
    struct list cells;
    bool replace, json;
};

/* ---- create ---- */

/* A cell is its code, or @FILE. */
static int template_read_cells(struct list *cells, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < cells->count; i++) {
        struct buf code = { 0 };
        if (cells->items[i][0] != '@')
            continue;
        rc = file_read(cells->items[i] + 1, CELL_MAX, &code, err);
        if (rc == 0 && buf_failed(&code))
            rc = error_memory(err);
        if (rc == 0 && memchr(buf_text(&code), '\0', code.len))
            rc = error_set(
                err, ERROR_ARGUMENT, "%.200s: Python code has no NUL bytes", cells->items[i] + 1);
        char *text = rc == 0 ? strdup(buf_text(&code)) : NULL;
        if (rc == 0 && !text)
            rc = error_memory(err);
        buf_free(&code);
        if (text) {
            free(cells->items[i]);
            cells->items[i] = text;
        }
    }
    return rc < 0 ? rc : list_add_end(cells, err);
}

static int template_create(struct request *r, struct error *err)
{
    int rc = template_read_cells(&r->cells, err);
    if (rc < 0)
        return rc;
    cli_catch_interrupts(r->d);
    rc = droste_template_create(r->d, r->words[1], (const char *const *)r->cells.items,
        r->replace ? DROSTE_TEMPLATE_REPLACE : 0, err);
    if (rc == 0)
        printf("created the template %s\n", r->words[1]);
    return rc;
}

/* ---- the others ---- */

struct template_names {
    bool json;
    size_t count;
};

static int template_print_name(void *arg, const char *name)
{
    struct template_names *n = arg;
    if (n->json)
        printf("%s\"%s\"", n->count > 0 ? ", " : "", name);
    else
        printf("%s\n", name);
    n->count++;
    return 0;
}

static int template_ls(struct request *r, struct error *err)
{
    struct template_names names = { .json = r->json };
    if (r->json)
        putchar('[');
    int rc = droste_template_names(r->d, template_print_name, &names, err);
    if (r->json)
        puts("]");
    else if (rc == 0 && names.count == 0)
        cli_note("there are no templates yet; `droste template create NAME` stores one");
    return rc;
}

static int template_show(struct request *r, struct error *err)
{
    size_t len;
    const char *text = droste_template_read(r->d, r->words[1], &len, err);
    if (!text)
        return -err->code;
    cli_print(stdout, text, len);
    return 0;
}

static int template_rm(struct request *r, struct error *err)
{
    return droste_template_remove(r->d, r->words[1], err);
}

static const struct template_verb {
    struct verb verb;
    int (*run)(struct request *r, struct error *err);
} verbs[] = {
    { { "create", CREATE, 1, 1, "NAME", "the NAME of a template" }, template_create },
    { { "ls", LS, 0, 0 }, template_ls },
    { { "show", SHOW, 1, 1, NULL, "the NAME of a template" }, template_show },
    { { "rm", RM, 1, 1, NULL, "the NAME of a template" }, template_rm },
};

static int template_run(const struct command *self, droste *d, int argc, char **argv)
{
    struct request r = { .d = d };
    const char *server = NULL;
    const struct flag flags[] = {
        { "cell", "CODE|@FILE", "create: code to run after setup-code; may be repeated.",
            .words = &r.cells },
        FLAG_CONTEXT("create: a file or directory to load; may be repeated."),
        { "replace", NULL, "create: replace the template of this name.", NULL, &r.replace },
        { "json", NULL, "ls: print a JSON array.", NULL, &r.json },
        FLAG_NO_SERVER(&server),
        { 0 },
    };
    struct error err = { 0 };
    int status = cli_parse(self, argc, argv, flags, d, r.words, array_length(r.words), &r.count);
    const struct verb_flag only[] = {
        { "cell", r.cells.count > 0, CREATE },
        { "replace", r.replace, CREATE },
        { "context", droste_context_count(d) > 0, CREATE },
        { "json", r.json, LS },
    };
    if (status < 0)
        status = remote_refuse(self->name, server);
    const struct template_verb *row =
        status < 0 ? verb_pick(self, r.words, r.count, only, array_length(only), &status) : NULL;
    if (row)
        status = cli_end(row->run(&r, &err), &err, "the output");
    list_clear(&r.cells);
    return status;
}

const struct command command_template = {
    .name = "template",
    .synopsis = "create NAME [--preload MODULE,...] [--context [NAME=]PATH ...] "
                "[--cell CODE|@FILE ...] | ls | show NAME | rm NAME  [FLAGS]",
    .summary = "store starting states from which sandboxes start",
    .details =
        "  create NAME  store settings, contexts and cells under a name, if they work\n"
        "  ls           list the names\n"
        "  show NAME    print what is stored, as JSON\n"
        "  rm NAME      remove it; what has started from it goes on\n"
        "\n"
        "With --template NAME, sandboxes of run, chat, batch, exec, repl and serve start with\n"
        "all that the template has. A template is a recipe: each of these commands executes\n"
        "it once, in a sandbox, and its sessions share the memory of that (docs/templates.md).\n"
        "Flags of settings, such as --memory, become part of it; the same flags of a later\n"
        "command take precedence.\n"
        "\n"
        "Exit status: 0, 2 usage error or no such template, 1 reading, writing or a cell\n"
        "failed, 4 the environment failed.\n",
    .examples = "  droste template create logs --context log=app.log \\\n"
                "      --cell 'rows = [line.split() for line in log.splitlines()]'\n"
                "  droste exec --template logs -c 'print(len(rows))'\n"
                "  droste template create science --preload numpy,pandas --setup-code @setup.py\n"
                "  droste template show science\n",
    .settings = SETTINGS_SANDBOX,
    .verbs = { verbs, array_length(verbs), sizeof *verbs },
    .arguments = "TEMPLATE",
    .run = template_run,
};
