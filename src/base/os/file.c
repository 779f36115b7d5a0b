/* base/os/file.c: opens only regular files, reads under a limit, finds standard directories. */
#include "base/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* since Linux 6.3; Debian 12's headers are from 6.1 */
#endif

static const char *file_kind_name(mode_t mode)
{
    return S_ISDIR(mode)    ? "directory"
           : S_ISFIFO(mode) ? "pipe"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static bool file_accepts(const struct stat *st, unsigned accepted)
{
    return S_ISREG(st->st_mode) || (S_ISDIR(st->st_mode) && accepted & FILE_OR_DIRECTORY) ||
           (S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3) && accepted & FILE_OR_NULL);
}

static enum error_code file_error_code(void)
{
    if (errno == ENOENT || errno == ENOTDIR)
        return ERROR_NOT_FOUND;
    return errno == EACCES ? ERROR_PERMISSION : ERROR_IO;
}

int file_open(const char *path, int flags, unsigned accepted, const char *what, struct error *err)
{
    struct stat st;
    if (accepted & FILE_OR_INPUT && strcmp(path, "-") == 0) {
        int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
        return input < 0 ? error_set_errno(err, ERROR_IO, "opening standard input") : input;
    }
    /* O_NONBLOCK: opening a FIFO does not wait for a writer. Reads of regular files ignore it. */
    cleanup_fd int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    bool is_socket = fd < 0 && errno == ENXIO && stat(path, &st) == 0;
    if (fd < 0 && !is_socket)
        return error_set_errno(err, file_error_code(), "opening %s %.200s", what, path);
    if (!is_socket && fstat(fd, &st) < 0)
        return error_set_errno(err, ERROR_IO, "opening %s %.200s", what, path);
    if (!is_socket && file_accepts(&st, accepted))
        return steal_fd(&fd);
    return error_set(err, ERROR_ARGUMENT, "%s %.200s is a %s: give a regular file%s%s", what, path,
        file_kind_name(st.st_mode), accepted & FILE_OR_DIRECTORY ? " or a directory" : "",
        accepted & FILE_OR_INPUT ? ", or - for standard input" : "");
}

int file_read_fd(int fd, const char *name, size_t limit, struct buf *out, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_set_errno(err, ERROR_IO, "reading %s", name);
    if (S_ISDIR(st.st_mode))
        return error_set(err, ERROR_IO, "%s is a directory, not a file", name);
    size_t chunk = 65536;
    if (S_ISREG(st.st_mode) && st.st_size > 0 && (size_t)st.st_size <= limit)
        chunk = (size_t)st.st_size + 1;
    for (;;) {
        if (!buf_reserve(out, chunk))
            return error_memory(err);
        ssize_t n = read(fd, out->data + out->len, chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(err, ERROR_IO, "reading %s", name);
        if (n == 0)
            break;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        if (out->len > limit)
            return error_set(err, ERROR_IO, "%s is larger than %zu bytes", name, limit);
        chunk = 65536;
    }
    return 0;
}

int file_read(const char *path, size_t limit, struct buf *out, struct error *err)
{
    cleanup_fd int fd = file_open(path, O_RDONLY, FILE_OR_NULL, "the file", err);
    return fd < 0 ? fd : file_read_fd(fd, path, limit, out, err);
}

size_t file_peek(int dir, const char *path, char *out, size_t size)
{
    cleanup_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

mode_t file_umask(void)
{
    char status[4096];
    unsigned mask;
    file_peek(AT_FDCWD, "/proc/self/status", status, sizeof status);
    const char *line = strstr(status, "\nUmask:");
    if (!line || sscanf(line, "\nUmask: %o", &mask) != 1)
        return 022;
    return mask & 0777;
}

int file_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* mkdir also fails with EEXIST if the path is a file. */
static int file_make_directory(const char *path)
{
    struct stat st;
    if (mkdir(path, 0700) == 0)
        return 0;
    if (errno != EEXIST || stat(path, &st) < 0)
        return -1;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode) ? 0 : -1;
}

int file_replace(const char *path, const void *data, size_t len, struct error *err)
{
    cleanup_free char *draft = text_printf("%s.new", path);
    if (!draft)
        return error_memory(err);
    (void)unlink(draft); /* of a change that was killed */
    cleanup_fd int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || file_write_all(fd, data, len) < 0 || fsync(fd) < 0 || rename(draft, path) < 0) {
        error_set_errno(err, ERROR_IO, "writing %s", path);
        unlink(draft);
        return -ERROR_IO;
    }
    return 0;
}

int file_make_directories(const char *path, struct error *err)
{
    if (path[0] == '\0')
        return error_set(err, ERROR_IO, "an empty path is not a directory");
    cleanup_free char *copy = strdup(path);
    if (!copy)
        return error_memory(err);
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char was = *p;
        *p = '\0';
        if (file_make_directory(copy) < 0)
            return error_set_errno(err, ERROR_IO, "creating the directory %s", copy);
        *p = was;
        if (was == '\0')
            return 0;
    }
}

static int home_path(const char *variable, const char *below, char **out, struct error *err)
{
    const char *base = getenv(variable);
    cleanup_buf struct buf path = { 0 };
    if (base && base[0] == '/') {
        buf_printf(&path, "%s/droste", base);
    } else {
        const char *home = getenv("HOME");
        struct passwd *pw = home && home[0] == '/' ? NULL : getpwuid(getuid());
        if (pw)
            home = pw->pw_dir;
        if (!home || home[0] != '/')
            return error_set(err, ERROR_CONFIG, "no home directory: set HOME or %s", variable);
        buf_printf(&path, "%s/%s/droste", home, below);
    }
    *out = buf_steal(&path);
    return *out ? 0 : error_memory(err);
}

int file_data_home(char **out, struct error *err)
{
    const char *own = getenv("DROSTE_HOME");
    if (own && own[0] != '\0') {
        *out = strdup(own);
        return *out ? 0 : error_memory(err);
    }
    return home_path("XDG_DATA_HOME", ".local/share", out, err);
}

int file_config_home(char **out, struct error *err)
{
    return home_path("XDG_CONFIG_HOME", ".config", out, err);
}

int file_cache_home(char **out, struct error *err)
{
    return home_path("XDG_CACHE_HOME", ".cache", out, err);
}

int file_memfd(const char *name, struct error *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "creating a memory file");
    return fd;
}

int file_memfd_seal(int fd, struct error *err)
{
    /* On a busy machine the kernel itself may hold pages that were just written. It waits for them
     * for some 150 ms and then gives up (memfd_wait_for_pins() in mm/memfd.c). A writable mapping
     * is refused at once, each time. */
    enum { TRIES = 4 };
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int rc = -1;
    for (int i = 0; rc < 0 && i < TRIES && (i == 0 || errno == EBUSY); i++)
        rc = fcntl(fd, F_ADD_SEALS, seals);
    return rc < 0 ? error_set_errno(err, ERROR_IO, "sealing a memory file") : 0;
}

void file_last_line(int fd, char *out, size_t size)
{
    char text[1024];
    off_t end = lseek(fd, 0, SEEK_END), from = end > 1023 ? end - 1023 : 0;
    ssize_t n = pread(fd, text, sizeof text, from);
    size_t len = n > 0 ? (size_t)n : 0, line = text_last_line(text, &len);
    snprintf(out, size, "%.*s", (int)(len - line), text + line);
}
