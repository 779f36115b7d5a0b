/* cli/volume_print.c: see volume_print.h. */
#include "cli/volume_print.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/fields.h"

/* On one line, whatever is in it. */
static void put_name(struct buf *out, const char *name)
{
    for (size_t n; *name; name += n) {
        n = strcspn(name, "\n\t\\");
        text_append_visible(out, name, n);
        name += n;
        n = *name != '\0';
        if (n)
            buf_puts(out, *name == '\n' ? "\\n" : *name == '\t' ? "\\t" : "\\\\");
    }
}

static void print_buf(const struct buf *out)
{
    cli_print(stdout, buf_text(out), out->len);
}

/* ---- entries ---- */

static const struct kind {
    mode_t type;
    char letter;
    const char *name;
} kinds[] = {
    { S_IFDIR, 'd', "directory" },
    { S_IFREG, '-', "file" },
    { S_IFLNK, 'l', "link" },
    { S_IFIFO, 'p', "fifo" },
    { S_IFSOCK, 's', "socket" },
    { 0, '?', "device" },
};

static const struct kind *kind_of(mode_t mode)
{
    const struct kind *k = kinds;
    while (k->type != 0 && k->type != (mode & S_IFMT))
        k++;
    return k;
}

struct printing {
    enum volume_style style;
    struct buf out;
};

static void put_long(struct buf *out, const struct volume_entry *e)
{
    char when[32] = "";
    time_t seconds = (time_t)e->mtime;
    struct tm tm;
    if (gmtime_r(&seconds, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    buf_printf(out, "%c %12llu  %s  ", kind_of(e->mode)->letter, (unsigned long long)e->size, when);
    put_name(out, e->path);
    buf_putc(out, '\n');
}

static void put_in_tree(struct buf *out, const struct volume_entry *e)
{
    const char *name = strrchr(e->path, '/');
    for (const char *at = e->path; (at = strchr(at, '/')); at++)
        buf_puts(out, "  ");
    put_name(out, name ? name + 1 : e->path);
    buf_puts(out, S_ISDIR(e->mode) ? "/\n" : S_ISREG(e->mode) ? "\n" : "  (");
    if (!S_ISDIR(e->mode) && !S_ISREG(e->mode))
        buf_printf(out, "%s)\n", kind_of(e->mode)->name);
}

/* What is not UTF-8 is told again in hexadecimal digits, by which it can be found. */
static void volume_print_put_json(struct buf *out, const struct volume_entry *e)
{
    size_t len = strlen(e->path);
    field_open(out, NULL, '{');
    field_text(out, "path", (struct store_value){ e->path, len });
    if (!text_is_utf8(e->path, len, NULL)) {
        cleanup_free char *hex = malloc(2 * len + 1);
        if (hex)
            text_hex(e->path, len, hex);
        field_string(out, "path_hex", hex);
    }
    field_string(out, "kind", kind_of(e->mode)->name);
    field_int(out, "size", (int64_t)e->size);
    field_time(out, "modified", e->mtime * 1000);
    field_close(out, '}');
}

static int print_entry(void *arg, const struct volume_entry *e, struct error *err)
{
    static void (*const put[])(struct buf *, const struct volume_entry *) = {
        [STYLE_LONG] = put_long,
        [STYLE_TREE] = put_in_tree,
        [STYLE_JSON] = volume_print_put_json,
    };
    struct printing *p = arg;
    put[p->style](&p->out, e);
    return buf_failed(&p->out) ? error_memory(err) : 0;
}

int volume_print_listed(const char *name, volume_list_fn *list, void *source, const char *path,
    unsigned depth, size_t most, enum volume_style style, struct error *err)
{
    struct printing p = { .style = style };
    bool more = false;
    if (style == STYLE_JSON) {
        field_open(&p.out, NULL, '{');
        field_string(&p.out, "volume", name);
        field_open(&p.out, "entries", '[');
    }
    int rc = list(source, path, depth, most, print_entry, &p, &more, err);
    if (style == STYLE_JSON) {
        field_close(&p.out, ']');
        field_bool(&p.out, "truncated", more);
        field_close(&p.out, '}');
        buf_putc(&p.out, '\n');
    }
    if (rc == 0)
        print_buf(&p.out);
    if (rc == 0 && more && style != STYLE_JSON)
        cli_fail(0, "note: there are more than %zu; name a directory of it, or give --limit", most);
    buf_free(&p.out);
    return rc;
}

static int list_volume(void *source, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err)
{
    return volume_list(source, path, depth, most, fn, arg, more, err);
}

int volume_print_list(const struct volume *v, const char *path, unsigned depth, size_t most,
    enum volume_style style, struct error *err)
{
    return volume_print_listed(
        volume_name(v), list_volume, (struct volume *)v, path, depth, most, style, err);
}

/* ---- volumes ---- */

static void volume_print_put_usage(
    struct buf *out, const struct volume *v, const struct volume_usage *used, bool json)
{
    const struct volume_limits *limits = volume_limits_of(v);
    if (!json) {
        buf_printf(out, "%-24s %12llu of %llu bytes, %llu of %llu files\n", volume_name(v),
            (unsigned long long)used->size, (unsigned long long)limits->size,
            (unsigned long long)used->files, (unsigned long long)limits->files);
        return;
    }
    field_string(out, "name", volume_name(v));
    field_string(out, "path", volume_path(v));
    field_int(out, "size", (int64_t)used->size);
    field_int(out, "files", (int64_t)used->files);
    field_int(out, "size_limit", (int64_t)limits->size);
    field_int(out, "files_limit", (int64_t)limits->files);
}

/* One that cannot be opened does not hide the others. */
static void volume_print_put_volume(struct buf *out, const char *root, const char *name, bool json)
{
    struct volume *v = NULL;
    struct volume_usage used = { 0 };
    struct error err = { 0 };
    int rc = volume_open(root, name, VOLUME_SHARED, &v, &err);
    if (rc == 0)
        rc = volume_measure(v, &used, &err);
    if (json)
        field_open(out, NULL, '{');
    if (rc == 0) {
        volume_print_put_usage(out, v, &used, json);
    } else if (json) {
        field_string(out, "name", name);
        field_string(out, "error", err.text);
    } else {
        buf_printf(out, "%-24s %s\n", name, err.text);
    }
    if (json)
        field_close(out, '}');
    volume_release(v);
}

int volume_print_all(const char *root, bool json, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    struct list names = { 0 };
    int rc = volume_names(root, &names, err);
    if (json)
        field_open(&out, NULL, '[');
    for (size_t i = 0; rc == 0 && i < names.count; i++)
        volume_print_put_volume(&out, root, names.items[i], json);
    if (json)
        buf_puts(&out, "]\n");
    else if (rc == 0 && names.count == 0)
        buf_printf(&out, "There are no volumes at %s.\n", root);
    if (rc == 0)
        print_buf(&out);
    list_clear(&names);
    return rc;
}

int volume_print_snapshots(const struct volume *v, bool json, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    struct list names = { 0 };
    int rc = volume_snapshots(v, &names, err);
    if (json)
        field_open(&out, NULL, '[');
    for (size_t i = 0; rc == 0 && i < names.count; i++) {
        if (json)
            field_string(&out, NULL, names.items[i]);
        else
            buf_printf(&out, "%s\n", names.items[i]);
    }
    buf_puts(&out, json ? "]\n" : "");
    if (rc == 0)
        print_buf(&out);
    list_clear(&names);
    return rc;
}

/* Its snapshots, which are no part of its quota. */
static int put_snapshots(const struct volume *v, bool json, struct buf *out, struct error *err)
{
    struct list names = { 0 };
    int rc = volume_snapshots(v, &names, err);
    if (json)
        field_open(out, "snapshots", '[');
    for (size_t i = 0; rc == 0 && i < names.count; i++) {
        struct volume_usage used = { 0 };
        rc = volume_snapshot_measure(v, names.items[i], &used, err);
        if (json) {
            field_open(out, NULL, '{');
            field_string(out, "name", names.items[i]);
            field_int(out, "size", (int64_t)used.size);
            field_int(out, "files", (int64_t)used.files);
            field_close(out, '}');
        } else {
            buf_printf(out, "  snapshot %-13s %12llu bytes, %llu files\n", names.items[i],
                (unsigned long long)used.size, (unsigned long long)used.files);
        }
    }
    if (json)
        field_close(out, ']');
    list_clear(&names);
    return rc;
}

int volume_print_usage(const struct volume *v, bool json, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    struct volume_usage used;
    int rc = volume_measure(v, &used, err);
    if (rc < 0)
        return rc;
    if (json)
        field_open(&out, NULL, '{');
    volume_print_put_usage(&out, v, &used, json);
    rc = put_snapshots(v, json, &out, err);
    buf_puts(&out, json ? "}\n" : "");
    if (rc == 0)
        print_buf(&out);
    return rc;
}

void volume_print_count(const char *did, const struct volume_count *count, bool json)
{
    cleanup_buf struct buf out = { 0 };
    if (json) {
        field_open(&out, NULL, '{');
        field_int(&out, "files", (int64_t)count->files);
        field_int(&out, "bytes", (int64_t)count->bytes);
        field_int(&out, "left_out", (int64_t)count->left_out);
        buf_puts(&out, "}\n");
    } else {
        buf_printf(&out, "%s %llu file%s, %llu bytes", did, (unsigned long long)count->files,
            count->files == 1 ? "" : "s", (unsigned long long)count->bytes);
        if (count->left_out > 0)
            buf_printf(&out, "; left out: %llu links, FIFOs, sockets or devices",
                (unsigned long long)count->left_out);
        buf_putc(&out, '\n');
    }
    print_buf(&out);
}
