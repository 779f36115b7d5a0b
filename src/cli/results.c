/* cli/results.c: writes rich results to files. A name consists of the number of the result (of a
 * run's: with those of its turn and cell) and an extension from the table below, so nothing in it
 * comes from the sandbox.
 */
#include "cli/results.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/artifacts.h"
#include "cli/cli.h"

static const struct {
    const char *type, *extension;
} extensions[] = {
    { "text/plain", "txt" },
    { "text/html", "html" },
    { "text/markdown", "md" },
    { "text/latex", "tex" },
    { "text/csv", "csv" },
    { "image/png", "png" },
    { "image/jpeg", "jpg" },
    { "image/gif", "gif" },
    { "image/webp", "webp" },
    { "image/svg+xml", "svg" },
    { "application/pdf", "pdf" },
    { "application/json", "json" },
    { "application/javascript", "js" },
    { "application/geo+json", "geojson" },
    { "application/vnd.plotly.v1+json", "plotly.json" },
    { "application/vnd.vegalite.v5+json", "vl.json" },
    { "e2b/chart", "chart.json" },
    { "e2b/data", "data.json" },
};

static const char *extension_of(const char *type)
{
    for (size_t i = 0; i < array_length(extensions); i++)
        if (strcmp(extensions[i].type, type) == 0)
            return extensions[i].extension;
    return NULL;
}

/* A chart may come in several versions of Vega-Lite, whose names must differ. */
static const char *form_extension(const char *type, const char *form)
{
    if (strncmp(type, "application/vnd.vegalite.", 25) == 0)
        return "vl.json";
    return strcmp(form, "json") == 0 ? "json" : strcmp(form, "text") == 0 ? "txt" : "bin";
}

/* Two types without an extension of their own would share a name: those get their index, too. */
static void put_name(struct buf *path, const char *type, const char *form, size_t index)
{
    const char *extension = extension_of(type);
    if (extension)
        buf_printf(path, ".%s", extension);
    else
        buf_printf(path, "-%zu.%s", index + 1, form_extension(type, form));
}

static int write_media(const droste_media *media, const char *path, struct error *err)
{
    cleanup_fd int fd = file_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0, "the result", err);
    if (fd < 0)
        return fd;
    if (file_write_all(fd, media->data, media->len) < 0)
        return error_set_errno(err, ERROR_IO, "writing '%s'", path);
    return 0;
}

static int result_files_add(struct result_files *files, size_t bundle, char *path)
{
    struct result_file *more = realloc(files->items, (files->count + 1) * sizeof *more);
    if (!more) {
        free(path);
        return -1;
    }
    files->items = more;
    files->items[files->count++] = (struct result_file){ bundle, path };
    return 0;
}

/* Removes the files of a result that is replaced; SIZE_MAX: of all. */
static void result_files_remove(struct result_files *files, size_t bundle)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->count; i++) {
        struct result_file *file = &files->items[i];
        if (bundle != SIZE_MAX && file->bundle != bundle) {
            files->items[kept++] = *file;
            continue;
        }
        unlink(file->path);
        free(file->path);
    }
    files->count = kept;
}

static int save_bundle(
    struct result_files *files, const droste_bundles *bundles, size_t bundle, struct error *err)
{
    droste_media media;
    result_files_remove(files, bundle);
    for (size_t j = 0; droste_bundles_media(bundles, bundle, j, &media); j++) {
        cleanup_buf struct buf path = { 0 };
        buf_printf(&path, "%s/%zu", files->dir, bundle + 1);
        put_name(&path, media.type, media.form, j);
        if (buf_failed(&path))
            return error_memory(err);
        int rc = write_media(&media, path.data, err);
        if (rc == 0 && result_files_add(files, bundle, buf_steal(&path)) < 0)
            return error_memory(err);
        if (rc < 0)
            return rc;
    }
    files->next = bundle < files->next ? files->next : bundle + 1;
    return 0;
}

void cli_save_shown(void *arg, const droste_bundles *results, size_t result)
{
    struct result_files *files = arg;
    struct error err = { 0 };
    if (files->failed)
        return;
    if (droste_bundles_count(results) == 0) {
        result_files_remove(files, SIZE_MAX);
        files->next = 0;
        return;
    }
    int rc = file_make_directories(files->dir, &err);
    if (rc == 0)
        rc = save_bundle(files, results, result, &err);
    files->failed = rc < 0 && cli_fail(EXIT_ENVIRONMENT, "--save-results: %s", err.text);
}

int cli_save_results(struct result_files *files, const droste_result *r)
{
    struct error err = { 0 };
    const droste_bundles *bundles = droste_result_shown(r);
    if (files->failed)
        return EXIT_ENVIRONMENT;
    int rc = file_make_directories(files->dir, &err);
    for (size_t i = files->next; rc == 0 && i < droste_bundles_count(bundles); i++)
        rc = save_bundle(files, bundles, i, &err);
    return rc < 0 ? cli_fail(EXIT_ENVIRONMENT, "--save-results: %s", err.text) : EXIT_FINE;
}

void cli_save_end(struct result_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->items[i].path);
    free(files->items);
    files->items = NULL;
    files->count = 0;
}

/* ---- of a recorded run ---- */

struct recorded_save {
    droste_record *record;
    const char *dir;
    int64_t turn, cell; /* the cell in its turn, from 1 */
};

static int save_recorded_media(const struct recorded_save *s, const droste_record_media *media,
    size_t index, droste_error *err)
{
    cleanup_buf struct buf path = { 0 };
    buf_printf(&path, "%s/%lld.%lld.%lld", s->dir, (long long)s->turn, (long long)s->cell,
        (long long)media->result + 1);
    put_name(&path, media->type, media->form, index);
    if (buf_failed(&path))
        return error_memory(err);
    cleanup_fd int fd = file_open(path.data, O_WRONLY | O_CREAT | O_TRUNC, 0, "the result", err);
    if (fd < 0)
        return fd;
    return cli_write_recorded(s->record, &media->value, fd, path.data, err);
}

static int save_recorded_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct recorded_save *s = arg;
    int rc = 0;
    s->cell = cell->turn == s->turn ? s->cell + 1 : 1;
    s->turn = cell->turn;
    for (size_t i = 0, first = 0; rc == 0 && i < cell->media_count; i++) {
        first = cell->media[i].result == cell->media[first].result ? first : i;
        rc = save_recorded_media(s, &cell->media[i], i - first, err);
    }
    return rc;
}

int cli_save_recorded(droste_record *record, const char *run, const char *dir, droste_error *err)
{
    static const droste_record_visitor visitor = { .cell = save_recorded_cell, .lazy = true };
    struct recorded_save s = { .record = record, .dir = dir };
    int rc = file_make_directories(dir, err);
    if (rc < 0)
        return rc;
    return droste_record_visit(record, run, &visitor, &s, err);
}

/* ---- of a prompt ---- */

static int image_directory(struct image_files *files, struct error *err)
{
    const char *temporary = getenv("TMPDIR");
    struct buf path = { 0 };
    if (files->directory)
        return 0;
    buf_printf(&path, "%s/droste-results-XXXXXX", temporary && temporary[0] ? temporary : "/tmp");
    if (!(files->directory = buf_steal(&path)))
        return error_memory(err);
    if (mkdtemp(files->directory))
        return 0;
    error_set_errno(err, ERROR_IO, "making the directory %.200s", files->directory);
    free(steal(&files->directory));
    return -(int)err->code;
}

static int save_image(struct image_files *files, const droste_media *media, struct error *err)
{
    cleanup_buf struct buf path = { 0 };
    int rc = image_directory(files, err);
    if (rc < 0)
        return rc;
    buf_printf(&path, "%s/%zu", files->directory, files->count + 1);
    put_name(&path, media->type, media->form, 0);
    rc = buf_failed(&path) ? error_memory(err) : write_media(media, path.data, err);
    if (rc < 0)
        return rc;
    files->count++;
    printf("[%s, %zu bytes: %s]\n", media->type, media->len, path.data);
    return 0;
}

/* An image that viewers know; one form of each result is enough. */
static bool find_image(const droste_bundles *bundles, size_t bundle, droste_media *media)
{
    static const char *const types[] = { "image/png", "image/jpeg", "image/svg+xml", "image/gif",
        "image/webp" };
    for (size_t i = 0; i < array_length(types); i++)
        for (size_t j = 0; droste_bundles_media(bundles, bundle, j, media); j++)
            if (strcmp(media->type, types[i]) == 0)
                return true;
    return false;
}

bool cli_has_image(const droste_bundles *bundles, size_t bundle)
{
    droste_media media;
    return find_image(bundles, bundle, &media);
}

void cli_save_image(struct image_files *files, const droste_bundles *bundles, size_t bundle)
{
    struct error err = { 0 };
    droste_media media;
    if (find_image(bundles, bundle, &media) && save_image(files, &media, &err) < 0)
        cli_note("an image was not saved: %s", err.text);
}
