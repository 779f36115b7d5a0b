/* cli/volume.c: droste volume: manages directories that outlive sandboxes. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/options/verbs.h"
#include "cli/volume_copy.h"
#include "cli/volume_print.h"

enum { DEPTH = 4, DEPTH_MAX = 10, ENTRIES = 10000 };

struct request {
    droste *d;
    const char **words; /* the verb, the volume, and what follows */
    size_t count;
    const char *root, *env, *size, *files, *depth, *limit, *snapshot, *server;
    bool json, snapshots;
    int64_t levels, most;
};

static const char *volume_word(const struct request *r, size_t i)
{
    return i < r->count ? r->words[i] : NULL;
}

/* ---- the verbs; `v` is open as the verb's row requires, or NULL ---- */

static int cli_volume_create(droste_volume *v, const struct request *r, struct error *err)
{
    const char *root = droste_volume_root(r->d, err);
    int rc = root ? droste_volume_create(r->d, r->words[1], err) : -err->code;
    if (rc == 0)
        printf("created the volume %s at %s/%s\n", r->words[1], root, r->words[1]);
    return rc;
}

static int volume_ls(droste_volume *v, const struct request *r, struct error *err)
{
    if (!volume_word(r, 1))
        return volume_print_all(r->d, r->json, err);
    int rc = droste_volume_open(r->d, r->words[1], 0, &v, err);
    if (rc == 0)
        rc = r->snapshots ? volume_print_snapshots(v, r->json, err)
                          : volume_print_list(v, volume_word(r, 2) ? volume_word(r, 2) : ".", 1,
                                (size_t)r->most, r->json ? STYLE_JSON : STYLE_LONG, err);
    droste_volume_close(v);
    return rc;
}

static int volume_tree(droste_volume *v, const struct request *r, struct error *err)
{
    return volume_print_list(v, volume_word(r, 2) ? volume_word(r, 2) : ".", (unsigned)r->levels,
        (size_t)r->most, r->json ? STYLE_JSON : STYLE_TREE, err);
}

static int volume_du(droste_volume *v, const struct request *r, struct error *err)
{
    return volume_print_usage(v, r->json, err);
}

/* Prints how much an operation has copied. */
static int volume_copied(
    int rc, const char *did, const droste_volume_count *count, const struct request *r)
{
    if (rc == 0)
        volume_print_count(did, count, r->json);
    return rc;
}

static int cli_volume_get(droste_volume *v, const struct request *r, struct error *err)
{
    droste_volume_count count;
    const char *target = volume_word(r, 3) ? volume_word(r, 3) : ".";
    int rc = volume_copy_out(v, r->words[2], target, &count, err);
    if (rc == 0 && strcmp(target, "-") != 0)
        volume_print_count("got", &count, r->json);
    return rc;
}

static int cli_volume_put(droste_volume *v, const struct request *r, struct error *err)
{
    droste_volume_count count;
    int rc =
        volume_copy_in(v, r->words[2], volume_word(r, 3) ? volume_word(r, 3) : "", &count, err);
    if (rc == 0)
        volume_print_count("put", &count, r->json);
    return rc;
}

/* Removes the volume, a snapshot, or paths. */
static int volume_rm(droste_volume *v, const struct request *r, struct error *err)
{
    bool one = r->snapshot != NULL;
    if (r->count == 2 && !one)
        return droste_volume_remove(r->d, r->words[1], err);
    int rc = droste_volume_open(r->d, r->words[1], one ? DROSTE_VOLUME_ALONE : 0, &v, err);
    if (rc == 0 && one)
        rc = droste_volume_snapshot_remove(v, r->snapshot, err);
    for (size_t i = 2; rc == 0 && i < r->count; i++)
        rc = droste_volume_delete(v, r->words[i], err);
    droste_volume_close(v);
    return rc;
}

static int cli_volume_snapshot(droste_volume *v, const struct request *r, struct error *err)
{
    droste_volume_count count;
    int rc = droste_volume_snapshot(v, r->words[2], &count, err);
    return volume_copied(rc, "kept", &count, r);
}

static int cli_volume_restore(droste_volume *v, const struct request *r, struct error *err)
{
    droste_volume_count count;
    int rc = droste_volume_restore(v, r->words[2], &count, err);
    return volume_copied(rc, "restored", &count, r);
}

static int cli_volume_limit(droste_volume *v, const struct request *r, struct error *err)
{
    bool changes = r->size || r->files;
    int rc = changes ? droste_volume_limit(v, r->size, r->files, err) : 0;
    return rc < 0 ? rc : volume_print_usage(v, r->json, err);
}

/* ---- arguments and flags ---- */

enum {
    CREATE = 1,
    LS = 2,
    TREE = 4,
    GET = 8,
    PUT = 16,
    RM = 32,
    SNAPSHOT = 64,
    RESTORE = 128,
    DU = 256,
    LIMIT = 512
};
enum opening { NOT_OPEN, OPEN_SHARED, OPEN_ALONE };

static const struct volume_verb {
    struct verb verb;
    enum opening opening;
    int (*run)(droste_volume *v, const struct request *r, struct error *err);
    bool remote; /* also works on a provider's volume */
} verbs[] = {
    { { "create", CREATE, 1, 1, "NAME", "NAME" }, NOT_OPEN, cli_volume_create },
    { { "ls", LS, 0, 2, "VOLUME VOLUME_PATH", "[NAME [PATH]]" }, NOT_OPEN, volume_ls, true },
    { { "tree", TREE, 1, 2, "VOLUME VOLUME_PATH", "NAME [PATH]" }, OPEN_SHARED, volume_tree, true },
    { { "get", GET, 2, 3, "VOLUME VOLUME_PATH FILE", "NAME PATH [TO]" }, OPEN_SHARED,
        cli_volume_get, true },
    { { "put", PUT, 2, 3, "VOLUME FILE VOLUME_PATH", "NAME FILE [PATH]" }, OPEN_SHARED,
        cli_volume_put, true },
    { { "rm", RM, 1, SIZE_MAX, "VOLUME VOLUME_PATH", "NAME [PATH...]" }, NOT_OPEN, volume_rm },
    { { "snapshot", SNAPSHOT, 2, 2, "VOLUME NAME", "NAME SNAPSHOT" }, OPEN_ALONE,
        cli_volume_snapshot },
    { { "restore", RESTORE, 2, 2, "VOLUME SNAPSHOT", "NAME SNAPSHOT" }, OPEN_ALONE,
        cli_volume_restore },
    { { "du", DU, 1, 1, NULL, "NAME" }, OPEN_SHARED, volume_du },
    { { "limit", LIMIT, 1, 1, NULL, "NAME" }, OPEN_SHARED, cli_volume_limit },
};

/* NULL: *status is that of a usage error. */
static const struct volume_verb *volume_check(
    const struct command *self, struct request *r, int *status)
{
    const struct verb_flag flags[] = {
        { "volume-size", r->size, CREATE | LIMIT },
        { "volume-files", r->files, CREATE | LIMIT },
        { "depth", r->depth, TREE },
        { "limit", r->limit, LS | TREE },
        { "snapshots", r->snapshots, LS },
        { "snapshot", r->snapshot, RM },
        { "json", r->json, LS | TREE | GET | PUT | SNAPSHOT | RESTORE | DU | LIMIT },
    };
    const struct volume_verb *row =
        verb_pick(self, r->words, r->count, flags, array_length(flags), status);
    r->levels = DEPTH;
    r->most = ENTRIES;
    if (!row)
        return NULL;
    if (r->depth && (!cli_count(r->depth, 1, &r->levels) || r->levels > DEPTH_MAX))
        *status = cli_usage(self, "--depth takes a number of levels, 1 to %d", DEPTH_MAX);
    else if (r->limit && !cli_count(r->limit, 1, &r->most))
        *status = cli_usage(self, "--limit takes a number of entries, 1 or more");
    else if ((r->snapshots || r->snapshot) && r->count != 2)
        *status = cli_usage(self, "--%s takes a volume, and no path; leave the path out",
            r->snapshots ? "snapshots" : "snapshot");
    return *status < 0 ? row : NULL;
}

/* ---- the command ---- */

static int volume_check_remote(
    const struct request *r, const struct volume_verb *row, struct error *err)
{
    const char *env = droste_get(r->d, "env");
    if (!row->remote || r->snapshots)
        return error_set(err, ERROR_UNSUPPORTED,
            "volumes of %s do not support %s; use it with volumes of this machine (--env local)",
            env, r->snapshots ? "--snapshots" : row->verb.name);
    if (!volume_word(r, 1))
        return error_set(err, ERROR_UNSUPPORTED,
            "volumes of %s cannot be listed here: name one, or use the provider's own tools", env);
    return 0;
}

static int do_it(const struct request *r, const struct volume_verb *row)
{
    droste_volume *v = NULL;
    struct error err = { 0 };
    int rc = 0;
    if (droste_volumes_are_remote(r->d)) {
        cli_catch_interrupts(r->d);
        rc = volume_check_remote(r, row, &err);
    }
    if (rc == 0 && row->opening != NOT_OPEN)
        rc = droste_volume_open(
            r->d, r->words[1], row->opening == OPEN_ALONE ? DROSTE_VOLUME_ALONE : 0, &v, &err);
    if (rc == 0)
        rc = row->run(v, r, &err);
    droste_volume_close(v);
    return cli_end(rc, &err, "the output");
}

static int volume_remotely(const struct request *r, const char *server)
{
    const struct remote_volume o = { .server = server,
        .size = r->size,
        .files = r->files,
        .levels = r->levels,
        .most = r->most,
        .snapshot = r->snapshot,
        .snapshots = r->snapshots,
        .json = r->json };
    if (r->root || r->env)
        return cli_fail(EXIT_ENVIRONMENT,
            "with a server, --volume-root and --env do not work: leave them out, or run this where "
            "the server is");
    cli_catch_interrupts(r->d);
    return remote_volume(&o, r->words[0], r->words + 1, r->count - 1);
}

static int volume_run(const struct command *self, droste *d, int argc, char **argv)
{
    cleanup_free const char **words = calloc((size_t)argc, sizeof *words);
    struct request r = { .d = d, .words = words };
    const struct flag flags[] = {
        { "volume-size", "SIZE", "create, limit: the size limit [10G].", &r.size, NULL },
        { "volume-files", "N", "create, limit: maximum files and directories [100000].", &r.files,
            NULL },
        { "depth", "N", "tree: number of levels, 1 to 10 [4].", &r.depth, NULL },
        { "limit", "N", "ls, tree: maximum entries [10000].", &r.limit, NULL },
        { "snapshots", NULL, "ls: list the snapshots of a volume.", NULL, &r.snapshots },
        { "snapshot", "SNAPSHOT", "rm: remove this snapshot of the volume.", &r.snapshot, NULL },
        { "json", NULL, "Print JSON.", NULL, &r.json },
        { "env", "NAME",
            "Where the volumes are: on this machine, daytona or modal ($DROSTE_ENVIRONMENT).",
            &r.env, NULL },
        { "volume-root", "PATH", "The directory of the volumes ($DROSTE_VOLUME_ROOT).", &r.root,
            NULL },
        FLAG_SERVER(&r.server),
        { 0 },
    };
    if (!words)
        return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    int status = cli_parse(self, argc, argv, flags, d, words, (size_t)argc, &r.count);
    const struct volume_verb *row = status < 0 ? volume_check(self, &r, &status) : NULL;
    const char *server = (r.env || r.root) && !r.server ? NULL : remote_address(r.server);
    if (status < 0 && server)
        return volume_remotely(&r, server);
    if (status < 0)
        status = cli_set(d, "volume-root", r.root);
    if (status < 0)
        status = cli_set(d, "env", r.env);
    if (status < 0)
        status = cli_set(d, "volume-size", r.size);
    if (status < 0)
        status = cli_set(d, "volume-files", r.files);
    return status < 0 ? do_it(&r, row) : status;
}

const struct command command_volume = {
    .name = "volume",
    .synopsis = "create | ls | tree | get | put | rm | snapshot | restore | du | limit  [FLAGS]",
    .summary = "manage directories that outlive sandboxes",
    .details = "  create NAME               create a volume; --volume-name does this, too\n"
               "  ls [NAME [PATH]]          list volumes, or what is in one, or its --snapshots\n"
               "  tree NAME [PATH]          the same, several levels deep\n"
               "  get NAME PATH [TO]        copy out a file or directory, to - (standard output)\n"
               "  put NAME FILE [PATH]      copy in a file or directory, or - (standard input)\n"
               "  rm NAME [PATH...]         remove paths, or the volume, or a --snapshot of it\n"
               "  snapshot NAME SNAPSHOT    save a full copy of the volume\n"
               "  restore NAME SNAPSHOT     replace the volume's content with a snapshot's\n"
               "  du NAME                   show the sizes of the volume and its snapshots\n"
               "  limit NAME                show or change the limits of the volume\n"
               "\n"
               "With --env daytona or modal, ls, tree, get and put work on a volume that the\n"
               "provider keeps, through a sandbox that mounts it.\n"
               "\n"
               "With --server the volumes are those of that server, for create, ls, tree, get and\n"
               "put of files, rm and du.\n"
               "\n"
               "Commands are atomic: a killed command has done everything or nothing. Links are\n"
               "never followed, in either direction; links, FIFOs, sockets and devices are not\n"
               "copied out. `snapshot`, `restore` and removing a volume fail while a session\n"
               "uses it (docs/volumes.md).\n"
               "Exit status: 0, 2 usage error, no such volume or path, or volume in use, 1\n"
               "reading or writing failed.\n",
    .examples =
        "  droste volume create my-data --volume-size 2G\n"
        "  droste volume put my-data sales.csv uploads/sales.csv\n"
        "  droste exec --volume-name my-data -c 'print(open(\"/data/uploads/sales.csv\").read())'\n"
        "  droste volume tree my-data --depth 2\n"
        "  droste volume get my-data artifacts/report.json -\n"
        "  droste volume snapshot my-data before-cleanup\n"
        "  droste volume put my-data sales.csv --server http://127.0.0.1:8710\n",
    .verbs = { verbs, array_length(verbs), sizeof *verbs },
    .arguments = "VOLUME",
    .run = volume_run,
};
