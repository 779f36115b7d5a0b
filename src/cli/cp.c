/* cli/cp.c: droste cp: copies files between this machine, volumes and recorded runs. */
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/artifacts.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/volume_copy.h"
#include "cli/volume_print.h"

enum cp_kind { CP_LOCAL, CP_VOLUME, CP_RUN };

/* One side: PATH, VOLUME:PATH or run/RUN:PATH. */
struct cp_side {
    enum cp_kind kind;
    char *name; /* of the volume or run; NULL: local */
    const char *path;
};

/* As with scp, a colon after a slash belongs to a local path; "run/" is the exception. */
static int cp_take_side(const char *word, struct cp_side *side, struct error *err)
{
    static const char run[] = "run/";
    bool is_run = strncmp(word, run, sizeof run - 1) == 0;
    const char *name = is_run ? word + sizeof run - 1 : word;
    const char *colon = strchr(name, ':'), *slash = strchr(name, '/');
    *side = (struct cp_side){ .path = word };
    if (!colon || colon == name || (slash && slash < colon))
        return 0;
    side->kind = is_run ? CP_RUN : CP_VOLUME;
    side->path = colon + 1;
    side->name = text_copy(name, (size_t)(colon - name));
    return side->name ? 0 : error_memory(err);
}

static int cp_volume(droste *d, const struct cp_side *from, const struct cp_side *to,
    droste_volume_count *count, struct error *err)
{
    droste_volume *v = NULL;
    bool in = to->kind == CP_VOLUME;
    int rc = droste_volume_open(d, in ? to->name : from->name, 0, &v, err);
    if (rc == 0)
        rc = in ? volume_copy_in(v, from->path, to->path, count, err)
                : volume_copy_out(v, from->path[0] ? from->path : ".", to->path, count, err);
    droste_volume_close(v);
    return rc;
}

static int cp_run(droste *d, const struct cp_side *from, const char *target,
    droste_volume_count *count, struct error *err)
{
    char id[DROSTE_RUN_ID_SIZE];
    droste_record *record = NULL;
    int rc = droste_record_open(d, &record, err);
    if (rc == 0 && !record)
        return error_set(err, ERROR_NOT_FOUND, "there is no record of runs yet");
    if (rc == 0)
        rc = droste_record_find(record, from->name, id, err);
    if (rc == 0)
        rc = cli_copy_artifacts(record, id, from->path, target, count, err);
    droste_record_close(record);
    return rc;
}

static int cp_copy(droste *d, const struct cp_side *from, const struct cp_side *to, bool quiet)
{
    struct error err = { 0 };
    droste_volume_count count = { 0 };
    cli_catch_interrupts(d);
    int rc = from->kind == CP_RUN ? cp_run(d, from, to->path, &count, &err)
                                  : cp_volume(d, from, to, &count, &err);
    if (rc == 0 && strcmp(to->path, "-") != 0 && !quiet)
        volume_print_count("copied", &count, false);
    return cli_end(rc, &err, "the copy");
}

/* -1 to continue. */
static int cp_check(
    const struct command *self, const struct cp_side *from, const struct cp_side *to)
{
    if (to->kind == CP_RUN)
        return cli_usage(self, "the files of a recorded run do not change; copy to a volume");
    if ((from->kind == CP_LOCAL) == (to->kind == CP_LOCAL))
        return cli_usage(self,
            "one of the two is a path here, the other VOLUME:PATH, or run/RUN:PATH as the source");
    if (from->kind == CP_RUN && strcmp(to->path, "-") == 0 && isatty(STDOUT_FILENO))
        return cli_usage(self, "a file of a sandbox is not for a terminal; name a file");
    return -1;
}

/* A file of a server's volume, or into one. */
static int cp_remote(const char *server, const struct cp_side *from, const struct cp_side *to)
{
    const struct remote_volume o = { .server = server };
    const char *get[] = { from->name, from->path, to->path };
    const char *put[] = { to->name, from->path, to->path };
    if (from->kind == CP_RUN)
        return cli_fail(EXIT_ENVIRONMENT,
            "a server does not give the files that a run has saved; copy them where it is");
    return from->kind == CP_VOLUME ? remote_volume(&o, "get", get, array_length(get))
                                   : remote_volume(&o, "put", put, array_length(put));
}

static int cp_words(
    const struct command *self, droste *d, const char **words, const char *server, bool quiet)
{
    struct error err = { 0 };
    struct cp_side from = { 0 }, to = { 0 };
    int status = -1;
    if (cp_take_side(words[0], &from, &err) < 0 || cp_take_side(words[1], &to, &err) < 0)
        status = cli_error(&err);
    if (status < 0)
        status = cp_check(self, &from, &to);
    if (status < 0)
        status = server ? cp_remote(server, &from, &to) : cp_copy(d, &from, &to, quiet);
    free(from.name);
    free(to.name);
    return status;
}

static int cp(const struct command *self, droste *d, int argc, char **argv)
{
    const char *words[2], *env = NULL, *root = NULL, *database = NULL, *server = NULL;
    bool quiet = false;
    size_t count = 0;
    const struct flag flags[] = {
        { "quiet", NULL, "Do not print how much was copied.", NULL, &quiet },
        { "env", "NAME",
            "Where the volumes are: on this machine, daytona or modal ($DROSTE_ENVIRONMENT).", &env,
            NULL },
        { "volume-root", "PATH", "The directory of the volumes ($DROSTE_VOLUME_ROOT).", &root,
            NULL },
        { "database", "FILE", "The database of runs ($DROSTE_DATABASE).", &database, NULL },
        FLAG_SERVER(&server),
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, words, array_length(words), &count);
    if (status < 0 && count != array_length(words))
        status = cli_usage(self, "expected SOURCE and TARGET");
    if (status < 0)
        status = cli_set(d, "env", env);
    if (status < 0)
        status = cli_set(d, "volume-root", root);
    if (status < 0)
        status = cli_set(d, "database", database);
    bool is_local = (env || root || database) && !server;
    return status < 0 ? cp_words(self, d, words, is_local ? NULL : remote_address(server), quiet)
                      : status;
}

const struct command command_cp = {
    .name = "cp",
    .synopsis = "SOURCE TARGET  [FLAGS]",
    .summary = "copy files from and to volumes, and out of recorded runs",
    .details =
        "  PATH           on this machine; - is standard input or output. Write ./a:b for a\n"
        "                 name with a colon\n"
        "  VOLUME:PATH    in a volume; without a PATH, or with a slash at its end, the\n"
        "                 source keeps its name\n"
        "  run/RUN:PATH   a file that a run has saved (--artifacts), or a directory of them;\n"
        "                 without a PATH, all. RUN is the id of a run, its beginning, or `last`\n"
        "\n"
        "Directories are copied with their contents. In an existing directory of this\n"
        "machine, the copy gets the source's own name. Links are not followed.\n"
        "\n"
        "The sandboxes of a command end with it: `droste exec --put` and `--get` copy files\n"
        "into and out of one, also one that a provider keeps (--sandbox ID). Sandboxes of\n"
        "`droste serve` have addresses for their files (docs/serve.md).\n"
        "Exit status: 0, 2 usage error, or no such volume, run or path, 1 reading or\n"
        "writing failed.\n",
    .examples = "  droste cp sales.csv my-data:uploads/\n"
                "  droste cp run/20261120-1915:out/plot.png plot.png\n"
                "  droste cp my-data:reports ./reports\n",
    .arguments = "FILE",
    .run = cp,
};
