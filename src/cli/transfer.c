/* cli/transfer.c: files of the user's to and from a sandbox.
 *
 * A file that is fetched is written beside its target and renamed, so the target is complete or
 * unchanged. The library has checked that no name of an artifact leads upwards; that of an absolute
 * one goes below the directory, too.
 */
#include "cli/transfer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/cli.h"

enum { ARTIFACTS_MAX = 1000 };
static const uint64_t artifacts_size_max = (uint64_t)1 << 30;

static int transfer_send(droste_session *s, const char *local, const char *path, droste_error *err)
{
    cleanup_fd int fd = file_open(local, O_RDONLY, 0, "the file", err);
    if (fd < 0)
        return error_wrap(err, "--put");
    return droste_file_put(s, fd, path, NULL, err);
}

int transfer_put(const struct transfer *t, droste_session *s, droste_error *err)
{
    for (size_t i = 0; i < t->puts.count; i++) {
        cleanup_free char *local = strdup(t->puts.items[i]);
        char *colon = local ? strrchr(local, ':') : NULL;
        if (!local)
            return error_memory(err);
        if (!colon || colon == local || colon[1] == '\0')
            return error_set(err, ERROR_ARGUMENT,
                "--put %.160s: give it as LOCAL:PATH, such as data.csv:/tmp/data.csv", local);
        *colon = '\0';
        int rc = transfer_send(s, local, colon + 1, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int transfer_fetch(
    droste_session *s, const char *path, const char *local, uint64_t most, droste_error *err)
{
    struct buf name = { 0 };
    uint64_t copied = 0;
    buf_printf(&name, "%s.XXXXXX", local);
    cleanup_free char *draft = buf_steal(&name);
    cleanup_fd int fd = draft ? mkostemp(draft, O_CLOEXEC) : -1;
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "making %.160s", local);
    int rc = droste_file_get(s, path, 0, most + 1, fd, &copied, err);
    if (rc == 0 && copied > most)
        rc = error_set(
            err, ERROR_ARGUMENT, "%.160s has more than %llu bytes", path, (unsigned long long)most);
    mode_t mask = umask(0);
    umask(mask);
    if (rc == 0 && (fchmod(fd, 0666 & ~mask) < 0 || rename(draft, local) < 0))
        rc = error_set_errno(err, ERROR_IO, "renaming %.160s", draft);
    if (rc < 0)
        unlink(draft);
    return rc;
}

static int transfer_get_one(const char *word, droste_session *s, droste_error *err)
{
    cleanup_free char *path = strdup(word);
    char *colon = path ? strchr(path, ':') : NULL;
    if (!path)
        return error_memory(err);
    if (!colon || colon == path || colon[1] == '\0')
        return error_set(err, ERROR_ARGUMENT,
            "--get %.160s: give it as PATH:LOCAL, such as /tmp/out.csv:out.csv", path);
    *colon = '\0';
    return transfer_fetch(s, path, colon + 1, UINT64_MAX - 1, err);
}

/* ---- artifacts ---- */

struct artifacts {
    struct list names;
    uint64_t sizes[ARTIFACTS_MAX];
    uint64_t total;
    bool failed;
};

static int transfer_note(void *arg, const droste_file_entry *entry)
{
    struct artifacts *a = arg;
    for (size_t i = 0; i < a->names.count; i++)
        if (strcmp(a->names.items[i], entry->name) == 0)
            return 0; /* an earlier pattern matches it, too */
    if (a->names.count == ARTIFACTS_MAX)
        return 1;
    a->sizes[a->names.count] = entry->size;
    a->total += entry->size;
    a->failed = list_add(&a->names, entry->name, NULL) < 0;
    return a->failed;
}

static int transfer_find(
    const struct transfer *t, droste_session *s, struct artifacts *a, droste_error *err)
{
    for (size_t i = 0; i < t->patterns.count; i++) {
        int rc = droste_file_glob(s, t->patterns.items[i], ARTIFACTS_MAX, transfer_note, a, err);
        if (a->failed)
            return error_memory(err);
        if (rc > 0)
            return error_set(err, ERROR_ARGUMENT,
                "--artifacts: more than %d files match; narrow the pattern", ARTIFACTS_MAX);
        if (rc < 0)
            return rc;
    }
    if (a->total > artifacts_size_max)
        return error_set(err, ERROR_ARGUMENT,
            "--artifacts: the files have %llu bytes, more than %llu; narrow the pattern, or use "
            "--get",
            (unsigned long long)a->total, (unsigned long long)artifacts_size_max);
    return 0;
}

static int transfer_save_artifact(
    const struct transfer *t, droste_session *s, const char *name, uint64_t size, droste_error *err)
{
    cleanup_buf struct buf path = { 0 };
    buf_printf(&path, "%s/%s", t->dir ? t->dir : "artifacts", name[0] == '/' ? name + 1 : name);
    char *last = buf_failed(&path) ? NULL : strrchr(path.data, '/');
    if (!last)
        return error_memory(err);
    *last = '\0';
    int rc = file_make_directories(path.data, err);
    *last = '/';
    if (rc < 0)
        return error_wrap(err, "--artifacts");
    rc = transfer_fetch(s, name, path.data, artifacts_size_max, err);
    if (rc == 0)
        cli_note(
            "saved %s (%llu byte%s)", path.data, (unsigned long long)size, size == 1 ? "" : "s");
    return rc;
}

static int transfer_save_artifacts(const struct transfer *t, droste_session *s, droste_error *err)
{
    cleanup_free struct artifacts *a = calloc(1, sizeof *a);
    int rc = a ? transfer_find(t, s, a, err) : error_memory(err);
    if (rc == 0 && a->names.count == 0)
        cli_note("no file matches --artifacts");
    for (size_t i = 0; rc == 0 && i < a->names.count; i++)
        rc = transfer_save_artifact(t, s, a->names.items[i], a->sizes[i], err);
    if (a)
        list_clear(&a->names);
    return rc;
}

int transfer_get(const struct transfer *t, droste_session *s)
{
    droste_error err;
    int status = EXIT_FINE;
    for (size_t i = 0; i < t->gets.count; i++)
        if (transfer_get_one(t->gets.items[i], s, &err) < 0)
            status = cli_error(&err);
    if (t->patterns.count > 0 && transfer_save_artifacts(t, s, &err) < 0)
        status = cli_error(&err);
    return status;
}

void transfer_free(struct transfer *t)
{
    list_clear(&t->puts);
    list_clear(&t->gets);
    list_clear(&t->patterns);
}
