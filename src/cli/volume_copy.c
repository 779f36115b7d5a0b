/* cli/volume_copy.c: see volume_copy.h. */
#include "cli/volume_copy.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "cli/cli.h"

void cli_put_last_name(const char *path, struct buf *out)
{
    size_t len;
    const char *name = text_last_name(path, &len);
    buf_append(out, name, len);
}

static bool cli_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Escapes a guest's text for the terminal. */
static int volume_show_file(droste_volume *v, const char *path, struct error *err)
{
    enum { PIECE = 65536, CUT = 4 };
    char piece[PIECE];
    size_t n, kept = 0;
    FILE *copy = tmpfile();
    int rc = copy ? droste_volume_read(v, path, fileno(copy), err)
                  : error_set_errno(err, ERROR_IO, "making a temporary file");
    if (rc == 0)
        rewind(copy);
    while (rc == 0 && (n = fread(piece + kept, 1, PIECE - kept, copy)) > 0) {
        n += kept;
        size_t whole = n == PIECE ? text_utf8_floor(piece, n, n - CUT) : n;
        cli_print(stdout, piece, whole);
        kept = n - whole;
        memmove(piece, piece + whole, kept);
    }
    cli_print(stdout, piece, kept);
    if (copy)
        fclose(copy);
    return rc;
}

int cli_copy_target(const char *source, const char *target, struct buf *out, struct error *err)
{
    buf_puts(out, target);
    if (cli_is_directory(target)) {
        buf_putc(out, '/');
        cli_put_last_name(source, out);
    } else if (target[0] && target[strlen(target) - 1] == '/') {
        return error_set(err, ERROR_NOT_FOUND,
            "there is no directory %.150s; create it, or leave out the slash at the end", target);
    }
    return buf_failed(out) ? error_memory(err) : 0;
}

int volume_copy_out(droste_volume *v, const char *path, const char *target,
    droste_volume_count *count, struct error *err)
{
    cleanup_buf struct buf to = { 0 };
    if (strcmp(target, "-") == 0 && isatty(STDOUT_FILENO))
        return volume_show_file(v, path, err);
    if (strcmp(target, "-") == 0)
        return droste_volume_read(v, path, STDOUT_FILENO, err);
    int rc = cli_copy_target(path, target, &to, err);
    if (rc < 0)
        return rc;
    if (to.data[to.len - 1] == '/') /* the volume itself, which has no last name */
        buf_puts(&to, droste_volume_name(v));
    if (buf_failed(&to))
        return error_memory(err);
    return droste_volume_get(v, path, buf_text(&to), count, err);
}

int volume_copy_in(droste_volume *v, const char *source, const char *path,
    droste_volume_count *count, struct error *err)
{
    cleanup_buf struct buf to = { 0 };
    bool stream = strcmp(source, "-") == 0;
    cleanup_fd int fd =
        file_open(source, O_RDONLY, FILE_OR_DIRECTORY | FILE_OR_INPUT, "the file", err);
    if (fd < 0)
        return fd;
    buf_puts(&to, path);
    if (!stream && (to.len == 0 || to.data[to.len - 1] == '/'))
        cli_put_last_name(source, &to);
    if (buf_failed(&to))
        return error_memory(err);
    if (to.len == 0 || strcmp(buf_text(&to), ".") == 0)
        return error_set(err, ERROR_ARGUMENT, "the source has no name; add its path in the volume");
    return droste_volume_put(v, fd, buf_text(&to), count, err);
}
