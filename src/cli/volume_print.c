/* cli/volume_print.c: see volume_print.h. */
#include "cli/volume_print.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "cli/cli.h"

/* Escapes a name so that it stays on one line. */
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

static void put_long(struct buf *out, const droste_volume_entry *e)
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

static void put_in_tree(struct buf *out, const droste_volume_entry *e)
{
    const char *name = strrchr(e->path, '/');
    for (const char *at = e->path; (at = strchr(at, '/')); at++)
        buf_puts(out, "  ");
    put_name(out, name ? name + 1 : e->path);
    buf_puts(out, S_ISDIR(e->mode) ? "/\n" : S_ISREG(e->mode) ? "\n" : "  (");
    if (!S_ISDIR(e->mode) && !S_ISREG(e->mode))
        buf_printf(out, "%s)\n", kind_of(e->mode)->name);
}

/* A name that is not UTF-8 also appears in hexadecimal digits, which identify it. */
static void volume_print_put_json(struct buf *out, const droste_volume_entry *e)
{
    size_t len = strlen(e->path);
    field_open(out, NULL, '{');
    field_string(out, "path", e->path);
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

void volume_print_put(struct buf *out, const droste_volume_entry *e, enum volume_style style)
{
    static void (*const put[])(struct buf *, const droste_volume_entry *) = {
        [STYLE_LONG] = put_long,
        [STYLE_TREE] = put_in_tree,
        [STYLE_JSON] = volume_print_put_json,
    };
    put[style](out, e);
}

void volume_print_begin(struct buf *out, const char *volume, enum volume_style style)
{
    if (style != STYLE_JSON)
        return;
    field_open(out, NULL, '{');
    field_string(out, "volume", volume);
    field_open(out, "entries", '[');
}

void volume_print_end(struct buf *out, bool more, size_t most, enum volume_style style)
{
    if (style == STYLE_JSON) {
        field_close(out, ']');
        field_bool(out, "truncated", more);
        field_close(out, '}');
        buf_putc(out, '\n');
    }
    print_buf(out);
    if (more && style != STYLE_JSON)
        cli_note("note: there are more than %zu; name a directory, or raise --limit", most);
}

struct printing {
    enum volume_style style;
    struct buf out;
};

static int print_entry(void *arg, const droste_volume_entry *e)
{
    struct printing *p = arg;
    volume_print_put(&p->out, e, p->style);
    return buf_failed(&p->out);
}

int volume_print_list(droste_volume *v, const char *path, unsigned depth, size_t most,
    enum volume_style style, struct error *err)
{
    struct printing p = { .style = style };
    volume_print_begin(&p.out, droste_volume_name(v), style);
    int more = droste_volume_list(v, path, depth, most, print_entry, &p, err);
    int rc = more < 0 ? more : buf_failed(&p.out) ? error_memory(err) : 0;
    if (rc == 0)
        volume_print_end(&p.out, more > 0, most, style);
    buf_free(&p.out);
    return rc;
}

/* ---- volumes ---- */

void volume_print_put_usage(
    struct buf *out, const char *name, const char *path, const droste_volume_usage *used, bool json)
{
    if (!json) {
        buf_printf(out, "%-24s %12llu of %llu bytes, %llu of %llu files\n", name,
            (unsigned long long)used->size, (unsigned long long)used->size_limit,
            (unsigned long long)used->files, (unsigned long long)used->files_limit);
        return;
    }
    field_string(out, "name", name);
    field_string(out, "path", path);
    field_int(out, "size", (int64_t)used->size);
    field_int(out, "files", (int64_t)used->files);
    field_int(out, "size_limit", (int64_t)used->size_limit);
    field_int(out, "files_limit", (int64_t)used->files_limit);
}

struct names_printing {
    droste *d;
    const droste_volume *v; /* the owner of the snapshots */
    bool json;
    struct buf out;
    int rc;
    struct error *err;
};

/* A volume that cannot be opened does not hide the others. */
static int volume_print_put_volume(void *arg, const char *name)
{
    struct names_printing *p = arg;
    droste_volume *v = NULL;
    droste_volume_usage used;
    droste_error err;
    int rc = droste_volume_open(p->d, name, 0, &v, &err);
    if (rc == 0)
        rc = droste_volume_measure(v, &used, &err);
    if (p->json)
        field_open(&p->out, NULL, '{');
    if (rc == 0) {
        volume_print_put_usage(&p->out, name, droste_volume_path(v), &used, p->json);
    } else if (p->json) {
        field_string(&p->out, "name", name);
        field_string(&p->out, "error", err.text);
    } else {
        buf_printf(&p->out, "%-24s %s\n", name, err.text);
    }
    if (p->json)
        field_close(&p->out, '}');
    droste_volume_close(v);
    return 0;
}

int volume_print_all(droste *d, bool json, struct error *err)
{
    struct names_printing p = { .d = d, .json = json };
    const char *root = droste_volume_root(d, err);
    if (json)
        field_open(&p.out, NULL, '[');
    size_t before = p.out.len;
    int rc = root ? droste_volume_names(d, volume_print_put_volume, &p, err) : -err->code;
    if (rc == 0 && !json && p.out.len == before)
        buf_printf(&p.out, "There are no volumes at %s.\n", root);
    buf_puts(&p.out, json ? "]\n" : "");
    if (rc == 0)
        print_buf(&p.out);
    buf_free(&p.out);
    return rc;
}

static int volume_print_put_name(void *arg, const char *name)
{
    struct names_printing *p = arg;
    if (p->json)
        field_string(&p->out, NULL, name);
    else
        buf_printf(&p->out, "%s\n", name);
    return 0;
}

int volume_print_snapshots(const droste_volume *v, bool json, struct error *err)
{
    struct names_printing p = { .json = json };
    if (json)
        field_open(&p.out, NULL, '[');
    int rc = droste_volume_snapshots(v, volume_print_put_name, &p, err);
    buf_puts(&p.out, json ? "]\n" : "");
    if (rc == 0)
        print_buf(&p.out);
    buf_free(&p.out);
    return rc;
}

static int volume_print_put_snapshot(void *arg, const char *name)
{
    struct names_printing *p = arg;
    droste_volume_usage used = { 0 };
    p->rc = droste_volume_snapshot_measure(p->v, name, &used, p->err);
    if (p->json) {
        field_open(&p->out, NULL, '{');
        field_string(&p->out, "name", name);
        field_int(&p->out, "size", (int64_t)used.size);
        field_int(&p->out, "files", (int64_t)used.files);
        field_close(&p->out, '}');
    } else {
        buf_printf(&p->out, "  snapshot %-13s %12llu bytes, %llu files\n", name,
            (unsigned long long)used.size, (unsigned long long)used.files);
    }
    return p->rc;
}

/* Prints its own usage, then its snapshots, which do not count toward its quota. */
int volume_print_usage(const droste_volume *v, bool json, struct error *err)
{
    struct error why = { 0 };
    struct names_printing p = { .v = v, .json = json, .err = &why };
    droste_volume_usage used;
    int rc = droste_volume_measure(v, &used, err);
    if (rc < 0)
        return rc;
    if (json)
        field_open(&p.out, NULL, '{');
    volume_print_put_usage(&p.out, droste_volume_name(v), droste_volume_path(v), &used, json);
    if (json)
        field_open(&p.out, "snapshots", '[');
    rc = droste_volume_snapshots(v, volume_print_put_snapshot, &p, err);
    if (rc == 0 && p.rc < 0) {
        *err = why;
        rc = p.rc;
    }
    buf_puts(&p.out, json ? "]}\n" : "");
    if (rc == 0)
        print_buf(&p.out);
    buf_free(&p.out);
    return rc;
}

void volume_print_count(const char *did, const droste_volume_count *count, bool json)
{
    cleanup_buf struct buf out = { 0 };
    if (json) {
        field_open(&out, NULL, '{');
        field_int(&out, "files", (int64_t)count->files);
        field_int(&out, "bytes", (int64_t)count->bytes);
        field_int(&out, "left_out", (int64_t)count->left_out);
        buf_puts(&out, "}\n");
    } else {
        /* Several are a directory and what is in it. */
        buf_printf(&out, "%s %llu file%s, %llu bytes", did, (unsigned long long)count->files,
            count->files == 1 ? "" : "s and directories", (unsigned long long)count->bytes);
        if (count->left_out > 0)
            buf_printf(&out, "; omitted: %llu links, FIFOs, sockets or devices",
                (unsigned long long)count->left_out);
        buf_putc(&out, '\n');
    }
    print_buf(&out);
}
