/* cli/packages.c: droste packages: builds, lists and removes sets of Python packages. */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/json/fields.h"
#include "cli/cli.h"
#include "cli/options/verbs.h"

enum { BUILD = 1, LS = 2, RM = 4, GC = 8, ID_SHOWN = 12 };

struct packages_request {
    droste *d;
    const char *words[2]; /* the verb and the id */
    size_t count;
    const char *older;
    bool again, json;
};

static int packages_build(struct packages_request *r, struct error *err)
{
    const char *path = NULL;
    cli_catch_interrupts(r->d);
    int rc = droste_packages_build(r->d, r->again, &path, err);
    if (rc == 0)
        puts(path);
    return rc;
}

static int packages_print(void *arg, const droste_package_set *set)
{
    ++*(size_t *)arg;
    printf("%.*s  %6llu MiB  %s%s%s\n    %s\n", ID_SHOWN, set->id, set->bytes >> 20, set->python,
        set->in_use ? "  in use" : "", set->damaged ? "  damaged" : "", set->packages);
    return 0;
}

static int packages_add_json(void *arg, const droste_package_set *set)
{
    struct buf *out = arg;
    field_open(out, NULL, '{');
    field_string(out, "id", set->id);
    field_string(out, "path", set->path);
    field_string(out, "python", set->python);
    field_json(out, "packages", set->packages);
    field_int(out, "bytes", (int64_t)set->bytes);
    field_int(out, "files", (int64_t)set->files);
    field_time(out, "made", set->made * 1000);
    field_time(out, "used", set->used * 1000);
    field_bool(out, "in_use", set->in_use);
    field_bool(out, "damaged", set->damaged);
    field_close(out, '}');
    return 0;
}

static int packages_ls(struct packages_request *r, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    size_t count = 0;
    if (!r->json) {
        int listed = droste_packages_list(r->d, packages_print, &count, err);
        if (listed == 0 && count == 0)
            cli_note("there are no sets of packages yet; `droste packages build` makes one");
        return listed;
    }
    field_open(&out, NULL, '[');
    int rc = droste_packages_list(r->d, packages_add_json, &out, err);
    field_close(&out, ']');
    if (rc == 0)
        puts(buf_text(&out));
    return rc;
}

static int packages_rm(struct packages_request *r, struct error *err)
{
    return droste_packages_remove(r->d, r->words[1], err);
}

static int packages_gc(struct packages_request *r, struct error *err)
{
    double seconds = 0;
    unsigned count = 0;
    unsigned long long bytes = 0;
    if (droste_parse_seconds(r->older ? r->older : "30d", &seconds) < 0)
        return error_set(err, ERROR_ARGUMENT,
            "--older-than '%.40s' is not a time, such as 12h or 30d", r->older);
    int rc = droste_packages_gc(r->d, seconds, &count, &bytes, err);
    if (rc == 0)
        printf("removed %u, %llu MiB\n", count, bytes >> 20);
    return rc;
}

static const struct packages_verb {
    struct verb verb;
    int (*run)(struct packages_request *r, struct error *err);
} verbs[] = {
    { { "build", BUILD, 0, 0 }, packages_build },
    { { "ls", LS, 0, 0 }, packages_ls },
    { { "rm", RM, 1, 1, "PACKAGES", "the ID of a set" }, packages_rm },
    { { "gc", GC, 0, 0 }, packages_gc },
};

static int packages_run(const struct command *self, droste *d, int argc, char **argv)
{
    struct packages_request r = { .d = d };
    const struct flag flags[] = {
        { "again", NULL, "build: resolve once more, for newer versions.", NULL, &r.again },
        { "older-than", "TIME", "gc: how long a set was not used (default: 30d).", &r.older, NULL },
        { "json", NULL, "ls: print a JSON array.", NULL, &r.json },
        { 0 },
    };
    struct error err = { 0 };
    int status = cli_parse(self, argc, argv, flags, d, r.words, array_length(r.words), &r.count);
    if (status >= 0)
        return status;
    if (r.count > 1 && strcmp(r.words[0], "build") == 0)
        return cli_usage(
            self, "build takes the packages as a setting: --packages '%.100s'", r.words[1]);
    const struct verb_flag only[] = {
        { "again", r.again, BUILD },
        { "older-than", r.older != NULL, GC },
        { "json", r.json, LS },
    };
    const struct packages_verb *row =
        verb_pick(self, r.words, r.count, only, array_length(only), &status);
    return row ? cli_end(row->run(&r, &err), &err, "the output") : status;
}

const struct command command_packages = {
    .name = "packages",
    .synopsis = "build [--packages REQUIREMENT,...] [--requirements FILE] | ls | rm ID | "
                "gc [--older-than TIME]  [FLAGS]",
    .summary = "build, list and remove sets of Python packages",
    .details = "  build  build the set of --packages and --requirements; print its directory\n"
               "  ls     list the sets, the latest used first\n"
               "  rm ID  remove one that is not in use; the beginning of its id is enough\n"
               "  gc     remove those that were not used for some time, and damaged ones\n"
               "\n"
               "Sessions with the same settings find the set and share it (docs/packages.md).\n"
               "\n"
               "Exit status: 0, 2 usage error or no such set, 1 building, reading or writing\n"
               "failed, 4 the environment failed.\n",
    .examples = "  droste packages build --packages 'numpy,pandas>=2'\n"
                "  droste packages gc --older-than 7d\n",
    .settings = SETTINGS_SANDBOX,
    .verbs = { verbs, array_length(verbs), sizeof *verbs },
    .run = packages_run,
};
