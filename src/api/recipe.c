/* api/recipe.c: see recipe.h. */
#include "api/recipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "volume/volume.h"

enum { RECIPE_VERSION = 1, RECIPE_MAX = 16 << 20, CELLS_MAX = 1000, CONTEXTS_MAX = 1000 };

static const struct json_limits limits = { RECIPE_MAX, 8, 20000 };

/* ---- its settings ---- */

/* Those that shape a sandbox and what is in it. One that is `spent` has its effect while the recipe
 * is executed, and none in the sessions. */
static const struct recipe_setting {
    const char *name;
    bool spent;
} recipe_settings[] = {
    { "env", false },
    { "isolation", false },
    { "root", false },
    { "loopback", false },
    { "epoll", false },
    { "device", false },
    { "allow-net", false },
    { "max-net-bytes", false },
    { "max-net-requests", false },
    { "net-timeout", false },
    { "warm-up", false },
    { "huge-pages", false },
    { "sandbox-users", false },
    { "python", false },
    { "preload", false },
    { "read", false },
    { "packages", false },
    { "requirements", false },
    { "find-links", false },
    { "package-index", false },
    { "package-hosts", false },
    { "sdists", false },
    { "allow-install", false },
    { "max-installs", false },
    { "packages-size", false },
    { "packages-timeout", false },
    { "layout", false },
    { "setup-code", true },
    { "tools", true },
    { "tool-data", true },
    { "helpers", false },
    { "literal-grep", false },
    { "restore-name", false },
    { "start-wait", false },
    { "memory", false },
    { "processes", false },
    { "cpus", false },
    { "cpu-time", false },
    { "open-files", false },
    { "file-size", false },
    { "tmp-size", false },
    { "volume-root", false },
    { "output-limit", false },
    { "context-type", true },
    { "context-size", false },
    { "include", true },
    { "instructions", false },
};

static const struct recipe_setting *recipe_find_setting(const char *name)
{
    for (size_t i = 0; i < array_length(recipe_settings); i++)
        if (strcmp(recipe_settings[i].name, name) == 0)
            return &recipe_settings[i];
    return NULL;
}

static int recipe_set(
    struct settings *s, const char *name, struct json_object *value, struct error *err)
{
    return settings_restore_value(s, name, value, "its settings", err);
}

int recipe_apply(const struct recipe *r, struct settings *s, struct error *err)
{
    int rc = 0;
    if (!r->settings)
        return 0;
    json_object_object_foreach(r->settings, name, value)
    {
        if (rc == 0 && !recipe_find_setting(name)->spent && !settings_is_set(s, name))
            rc = recipe_set(s, name, value, err);
    }
    return rc;
}

int recipe_prepare(const struct recipe *r, struct settings *s, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && droste_option_at(i); i++) {
        const struct recipe_setting *known =
            s->given[i] ? recipe_find_setting(droste_option_at(i)->name) : NULL;
        if (!known || known->spent)
            rc = settings_reset(s, i, err);
    }
    if (!r->settings)
        return rc;
    json_object_object_foreach(r->settings, name, value)
    {
        if (rc == 0 && recipe_find_setting(name)->spent)
            rc = recipe_set(s, name, value, err);
    }
    return rc;
}

/* ---- the text ---- */

static int recipe_wrong(const char *name, struct error *err, const char *what)
{
    return error_set(err, ERROR_ARGUMENT, "the template '%.64s': %s", name, what);
}

static int check_texts(
    const char *name, struct json_object *all, size_t most, const char *what, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    size_t count = json_length(all), i = 0;
    while (i < count && json_object_is_type(json_object_array_get_idx(all, i), json_type_string))
        i++;
    if (i == count && count <= most)
        return 0;
    buf_printf(&text, "%s is a list of at most %zu texts", what, most);
    return recipe_wrong(name, err, buf_text(&text));
}

/* Tries the settings on others. */
static int check_settings(const char *name, struct json_object *all, struct error *err)
{
    struct settings scratch = { 0 };
    int rc = settings_init(&scratch, err);
    json_object_object_foreach(all, key, value)
    {
        cleanup_buf struct buf text = { 0 };
        buf_printf(&text, "templates have no setting '%.60s'; give it to the sessions", key);
        if (rc == 0 && !recipe_find_setting(key))
            rc = recipe_wrong(name, err, buf_text(&text));
        if (rc == 0)
            rc = recipe_set(&scratch, key, value, err) < 0
                     ? error_wrap(err, "the template '%.64s'", name)
                     : 0;
    }
    settings_free(&scratch);
    return rc;
}

/* A context is PATH or NAME=PATH; relative paths would depend on the user's directory. */
static int check_contexts(const char *name, struct json_object *all, struct error *err)
{
    int rc = check_texts(name, all, CONTEXTS_MAX, "contexts", err);
    for (size_t i = 0; rc == 0 && i < json_length(all); i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(all, i));
        const char *equals = strchr(text, '=');
        if (text[0] != '/' && (!equals || equals[1] != '/'))
            rc = recipe_wrong(name, err, "a context is an absolute PATH or NAME=PATH");
    }
    return rc;
}

static int recipe_check(const char *name, struct json_object *o, struct error *err)
{
    static const char *const members[] = { "version", "settings", "contexts", "cells" };
    static const enum json_type types[] = { json_type_int, json_type_object, json_type_array,
        json_type_array };
    if (!json_object_is_type(o, json_type_object))
        return recipe_wrong(name, err, "expected a JSON object");
    json_object_object_foreach(o, key, value)
    {
        size_t i = 0;
        while (i < array_length(members) && strcmp(members[i], key) != 0)
            i++;
        if (i == array_length(members) || !json_object_is_type(value, types[i]))
            return recipe_wrong(
                name, err, "its members are version, settings {}, contexts [] and cells []");
    }
    if (json_get_int(o, "version", 0) != RECIPE_VERSION)
        return recipe_wrong(name, err, "it is not of version 1, the one that this Droste reads");
    return 0;
}

int recipe_parse(
    const char *name, const char *text, size_t len, struct recipe *out, struct error *err)
{
    struct recipe r = { 0 };
    struct error why = { 0 };
    if (json_parse(text, len, &limits, &r.json, &why) < 0)
        return recipe_wrong(name, err, why.text);
    int rc = recipe_check(name, r.json, err);
    r.settings = json_get_typed(r.json, "settings", json_type_object);
    r.contexts = json_get_typed(r.json, "contexts", json_type_array);
    r.cells = json_get_typed(r.json, "cells", json_type_array);
    if (rc == 0 && r.settings)
        rc = check_settings(name, r.settings, err);
    if (rc == 0)
        rc = check_contexts(name, r.contexts, err);
    if (rc == 0)
        rc = check_texts(name, r.cells, CELLS_MAX, "cells", err);
    if (rc == 0)
        rc = hash_sha256(text, len, r.digest, err);
    if (rc < 0)
        recipe_free(&r);
    else
        *out = r;
    return rc;
}

void recipe_free(struct recipe *r)
{
    json_object_put(r->json);
    *r = (struct recipe){ 0 };
}

static int add_context(struct json_object *all, const char *context, struct error *err)
{
    cleanup_buf struct buf whole = { 0 };
    const char *equals = context[0] == '/' ? NULL : strchr(context, '=');
    const char *path = equals ? equals + 1 : context;
    if (strcmp(path, "-") == 0)
        return error_set(err, ERROR_ARGUMENT,
            "a template cannot keep standard input; name a file as its context");
    cleanup_free char *directory = path[0] == '/' ? NULL : getcwd(NULL, 0);
    buf_append(&whole, context, (size_t)(path - context));
    buf_printf(&whole, "%s%s%s", directory ? directory : "", directory ? "/" : "", path);
    struct json_object *text = json_object_new_string(buf_text(&whole));
    if (!buf_failed(&whole) && text && json_object_array_add(all, text) == 0)
        return 0;
    json_object_put(text);
    return error_memory(err);
}

static int add_cells(struct json_object *all, const char *const *cells, struct error *err)
{
    for (; cells && *cells; cells++) {
        struct json_object *text = json_object_new_string(*cells);
        if (!text || json_object_array_add(all, text) < 0) {
            json_object_put(text);
            return error_memory(err);
        }
    }
    return 0;
}

int recipe_build(const char *settings, const struct list *contexts, const char *const *cells,
    struct buf *out, struct error *err)
{
    cleanup_json struct json_object *o = json_object_new_object(), *all_settings = NULL;
    cleanup_json struct json_object *all_contexts = json_object_new_array();
    cleanup_json struct json_object *all_cells = json_object_new_array();
    int rc = json_parse(settings, strlen(settings), &limits, &all_settings, err);
    for (size_t i = 0; rc == 0 && all_contexts && i < contexts->count; i++)
        rc = add_context(all_contexts, contexts->items[i], err);
    if (rc == 0 && all_cells)
        rc = add_cells(all_cells, cells, err);
    if (rc < 0)
        return rc;
    if (!o || !all_contexts || !all_cells ||
        !json_put(o, "version", json_object_new_int(RECIPE_VERSION)) ||
        !json_put(o, "settings", steal(&all_settings)) ||
        !json_put(o, "contexts", steal(&all_contexts)) || !json_put(o, "cells", steal(&all_cells)))
        return error_memory(err);
    buf_puts(out,
        json_object_to_json_string_ext(
            o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE));
    buf_putc(out, '\n');
    return buf_failed(out) ? error_memory(err) : 0;
}

/* ---- on disk ---- */

static const char suffix[] = ".json";

static int recipe_directory(struct buf *out, struct error *err)
{
    cleanup_free char *home = NULL;
    int rc = file_data_home(&home, err);
    if (rc == 0)
        buf_printf(out, "%s/templates", home);
    return rc == 0 && buf_failed(out) ? error_memory(err) : rc;
}

static int recipe_path(const char *name, struct buf *out, struct error *err)
{
    int rc = volume_check_name("template", name, err);
    if (rc == 0)
        rc = recipe_directory(out, err);
    buf_printf(out, "/%s%s", name, suffix);
    return rc == 0 && buf_failed(out) ? error_memory(err) : rc;
}

static int recipe_missing(const char *name, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND,
        "there is no template '%.64s'; `droste template ls` lists them, `droste template create` "
        "makes one",
        name);
}

int recipe_read(const char *name, struct recipe *out, struct buf *text, struct error *err)
{
    cleanup_buf struct buf path = { 0 }, content = { 0 };
    int rc = recipe_path(name, &path, err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd =
        file_open(buf_text(&path), O_RDONLY | O_NOFOLLOW, 0, "the template's file", err);
    if (fd == -(int)ERROR_NOT_FOUND)
        return recipe_missing(name, err);
    rc = fd < 0 ? fd : file_read_fd(fd, buf_text(&path), RECIPE_MAX, &content, err);
    if (rc == 0)
        rc = recipe_parse(name, content.data ? content.data : "", content.len, out, err);
    if (rc == 0 && text)
        buf_append(text, content.data, content.len);
    if (rc == 0 && text && buf_failed(text)) {
        recipe_free(out);
        return error_memory(err);
    }
    return rc;
}

static int recipe_exists(const char *name, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT,
        "there is a template '%.64s' already; --replace (replace=True) changes it", name);
}

int recipe_check_free(const char *name, bool replace, struct error *err)
{
    cleanup_buf struct buf path = { 0 };
    int rc = recipe_path(name, &path, err);
    return rc == 0 && !replace && access(buf_text(&path), F_OK) == 0 ? recipe_exists(name, err)
                                                                     : rc;
}

/* The file appears complete or not at all. link(2) refuses to replace one, rename(2) replaces. */
static int recipe_publish(
    const char *draft, const char *name, const char *path, bool replace, struct error *err)
{
    if (replace)
        return rename(draft, path) == 0
                   ? 0
                   : error_set_errno(err, ERROR_IO, "storing the template '%.64s'", name);
    if (link(draft, path) == 0) {
        unlink(draft);
        return 0;
    }
    if (errno == EEXIST)
        return recipe_exists(name, err);
    return error_set_errno(err, ERROR_IO, "storing the template '%.64s'", name);
}

static int recipe_sync(const char *directory, struct error *err)
{
    cleanup_fd int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fsync(fd) == 0 ? 0 : error_set_errno(err, ERROR_IO, "syncing %s", directory);
}

int recipe_write(const char *name, const struct buf *text, bool replace, struct error *err)
{
    cleanup_buf struct buf path = { 0 }, directory = { 0 }, draft = { 0 };
    int rc = recipe_path(name, &path, err);
    if (rc == 0)
        rc = recipe_directory(&directory, err);
    if (rc == 0)
        rc = file_make_directories(buf_text(&directory), err);
    buf_printf(&draft, "%s/.new-XXXXXX", buf_text(&directory));
    if (rc == 0 && buf_failed(&draft))
        rc = error_memory(err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = mkostemp(draft.data, O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "storing the template '%.64s'", name);
    if (file_write_all(fd, text->data, text->len) < 0 || fsync(fd) < 0)
        rc = error_set_errno(err, ERROR_IO, "storing the template '%.64s'", name);
    if (rc == 0)
        rc = recipe_publish(draft.data, name, buf_text(&path), replace, err);
    if (rc < 0)
        unlink(draft.data);
    return rc < 0 ? rc : recipe_sync(buf_text(&directory), err);
}

int recipe_remove(const char *name, struct error *err)
{
    cleanup_buf struct buf path = { 0 };
    int rc = recipe_path(name, &path, err);
    if (rc < 0 || unlink(buf_text(&path)) == 0)
        return rc;
    return errno == ENOENT ? recipe_missing(name, err)
                           : error_set_errno(err, ERROR_IO, "removing the template '%.64s'", name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int recipe_add_name(struct list *names, const char *file, struct error *err)
{
    size_t len = strlen(file), end = sizeof suffix - 1;
    if (len <= end || strcmp(file + len - end, suffix) != 0)
        return 0;
    cleanup_free char *name = strndup(file, len - end);
    if (!name)
        return error_memory(err);
    return text_is_name(name) ? list_add(names, name, err) : 0;
}

int recipe_names(struct list *names, struct error *err)
{
    cleanup_buf struct buf directory = { 0 };
    int rc = recipe_directory(&directory, err);
    if (rc < 0)
        return rc;
    DIR *dir = opendir(buf_text(&directory));
    if (!dir)
        return errno == ENOENT
                   ? 0
                   : error_set_errno(err, ERROR_IO, "listing %.200s", buf_text(&directory));
    for (struct dirent *e; rc == 0 && (e = readdir(dir));)
        rc = recipe_add_name(names, e->d_name, err);
    closedir(dir);
    if (names->count > 1)
        qsort(names->items, names->count, sizeof *names->items, compare_names);
    return rc;
}
