/* packages/request.c: see request.h. */
#include "packages/request.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "base/text.h"

enum { FILE_MAX = 16 << 20, FILES_MAX = 32, DEPTH_MAX = 8 };

void package_request_free(struct package_request *r)
{
    buf_free(&r->requirements);
    buf_free(&r->constraints);
    buf_free(&r->documents);
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t\r");
}

/* One requirement. A path or URL would not come from the index. */
static int request_add_line(struct buf *to, const char *line, const char *from, struct error *err)
{
    if (strpbrk(line, "@/") || !isalnum((unsigned char)line[0]))
        return error_set(err, ERROR_ARGUMENT,
            "%.100s: '%.100s' is not the name of a package with a version; for a wheel of your own, "
            "give its directory as --find-links and name the package",
            from, line);
    if (!text_is_utf8(line, strlen(line), NULL))
        return error_set(err, ERROR_ARGUMENT, "%.100s: a requirement is not UTF-8", from);
    buf_printf(to, "%s\n", line);
    return buf_failed(to) ? error_memory(err) : 0;
}

/* The length of the first requirement. A comma ends it, unless a version or an extra follows. */
static size_t first_requirement(const char *text)
{
    size_t n = 0;
    bool in_extras = false, in_marker = false;
    for (; text[n]; n++) {
        in_extras = text[n] == '[' || (in_extras && text[n] != ']');
        in_marker = in_marker || text[n] == ';';
        if (text[n] == ',' && !in_extras && !in_marker &&
            isalnum((unsigned char)*skip_blanks(text + n + 1)))
            break;
    }
    return n;
}

int package_request_add(struct package_request *r, const char *value, struct error *err)
{
    int rc = 0;
    for (const char *at = skip_blanks(value); rc == 0 && *at;) {
        size_t n = first_requirement(at);
        cleanup_free char *one = text_copy(at, n);
        if (!one)
            return error_memory(err);
        if (strchr(one, '\n') || strstr(one, " -"))
            return error_set(
                err, ERROR_ARGUMENT, "packages: '%.100s' has more than a requirement", one);
        rc = request_add_line(&r->requirements, one, "packages", err);
        at = skip_blanks(at + n + (at[n] == ','));
    }
    return rc;
}

/* ---- files ---- */

static int request_read_file(struct package_request *r, const char *path, struct buf *constraints,
    unsigned depth, struct error *err);

/* "-r FILE", "-c FILE" and their long forms; *file is NULL if it is another option. */
static bool names_file(const char *line, const char **file, bool *constrains)
{
    static const struct {
        const char *word;
        bool constrains;
    } words[] = { { "--requirement", false }, { "--constraint", true }, { "-r", false },
        { "-c", true } };
    for (size_t i = 0; i < array_length(words); i++) {
        size_t n = strlen(words[i].word);
        if (strncmp(line, words[i].word, n) != 0)
            continue;
        *constrains = words[i].constrains;
        *file = skip_blanks(line + n + (line[n] == '='));
        return **file != '\0';
    }
    return false;
}

static int request_add_option(struct package_request *r, const char *line, const char *path,
    struct buf *to, unsigned depth, struct error *err)
{
    const char *file = NULL, *slash = strrchr(path, '/');
    bool constrains = false;
    if (strcmp(line, "--require-hashes") == 0) {
        buf_printf(to, "%s\n", line);
        return 0;
    }
    if (!names_file(line, &file, &constrains))
        return error_set(err, ERROR_ARGUMENT,
            "%.100s: the option '%.80s' has no effect here: use --find-links, --package-index, "
            "--sdists, or pip's own configuration",
            path, line);
    cleanup_buf struct buf full = { 0 };
    if (file[0] != '/' && slash)
        buf_append(&full, path, (size_t)(slash - path) + 1);
    buf_puts(&full, file);
    if (buf_failed(&full))
        return error_memory(err);
    return request_read_file(r, buf_text(&full), constrains ? &r->constraints : to, depth + 1, err);
}

/* A comment begins at the start of a line or after a blank. */
static void cut_comment(char *line)
{
    for (char *at = line; (at = strchr(at, '#')); at++)
        if (at == line || at[-1] == ' ' || at[-1] == '\t') {
            *at = '\0';
            break;
        }
    for (size_t n = strlen(line); n > 0 && isspace((unsigned char)line[n - 1]); n--)
        line[n - 1] = '\0';
}

/* Joins lines that end with a backslash. */
static void join_lines(char *text)
{
    for (char *at = text; (at = strchr(at, '\\')); at++) {
        size_t end = at[1] == '\r' ? 2 : 1;
        if (at[end] == '\n')
            memset(at, ' ', end + 1);
    }
}

static int request_read_file(
    struct package_request *r, const char *path, struct buf *to, unsigned depth, struct error *err)
{
    struct buf text = { 0 };
    char *rest = NULL;
    if (++r->files > FILES_MAX || depth > DEPTH_MAX)
        return error_set(err, ERROR_ARGUMENT, "%.100s: requirements files include too many", path);
    int rc = file_read(path, FILE_MAX, &text, err);
    if (rc == 0 && strlen(buf_text(&text)) != text.len)
        rc = error_set(err, ERROR_ARGUMENT, "%.200s contains a zero byte", path);
    cleanup_free char *all = buf_steal(&text);
    if (rc < 0 || !all)
        return rc;
    join_lines(all);
    for (char *line = strtok_r(all, "\n", &rest); rc == 0 && line;
         line = strtok_r(NULL, "\n", &rest)) {
        cut_comment(line);
        const char *words = skip_blanks(line);
        if (words[0] == '-')
            rc = request_add_option(r, words, path, to, depth, err);
        else if (words[0])
            rc = request_add_line(to, words, path, err);
    }
    return rc;
}

/* ---- TOML ---- */

static int request_add_document(
    struct package_request *r, const char *kind, const char *path, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    size_t len;
    const char *name = text_last_name(path, &len);
    int rc = file_read(path, FILE_MAX, &text, err);
    if (rc < 0)
        return rc;
    if (!text_is_utf8(buf_text(&text), text.len, NULL))
        return error_set(err, ERROR_ARGUMENT, "%.200s is not UTF-8", path);
    buf_printf(
        &r->documents, "%s{\"kind\":\"%s\",\"name\":", r->documents.len > 0 ? "," : "", kind);
    json_append_string(&r->documents, name, len);
    buf_puts(&r->documents, ",\"text\":");
    json_append_string(&r->documents, buf_text(&text), text.len);
    buf_putc(&r->documents, '}');
    return buf_failed(&r->documents) ? error_memory(err) : 0;
}

int package_request_add_file(struct package_request *r, const char *path, struct error *err)
{
    size_t len;
    const char *name = text_last_name(path, &len);
    if (strcmp(name, "uv.lock") == 0) {
        cleanup_buf struct buf project = { 0 };
        buf_append(&project, path, (size_t)(name - path));
        buf_puts(&project, "pyproject.toml");
        int rc = request_add_document(r, "uv-project", buf_text(&project), err);
        return rc < 0 ? rc : request_add_document(r, "uv-lock", path, err);
    }
    if (strcmp(name, "pyproject.toml") == 0)
        return request_add_document(r, "pyproject", path, err);
    if (fnmatch("pylock.toml", name, 0) == 0 || fnmatch("pylock.*.toml", name, 0) == 0)
        return request_add_document(r, "pylock", path, err);
    return request_read_file(r, path, &r->requirements, 0, err);
}
