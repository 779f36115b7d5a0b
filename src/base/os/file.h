/* base/os/file.h: reading and writing files, standard directories, memory files. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

/* What file_open accepts besides regular files. */
enum {
    FILE_OR_DIRECTORY = 1,
    FILE_OR_NULL = 2,  /* /dev/null, as an empty file */
    FILE_OR_INPUT = 4, /* the path "-": standard input, whatever it is */
};

/* Opens a path that a user names, with the flags of open(2), and returns the descriptor. It never
 * waits: a FIFO, socket or device is refused by name, so that no path can block the loop.
 * `what` begins the error messages ("the recording"). ERROR_NOT_FOUND, ERROR_PERMISSION,
 * ERROR_ARGUMENT (not a file), ERROR_IO. */
int file_open(const char *path, int flags, unsigned accepted, const char *what, struct error *err);

/* Reads a whole regular file (or /dev/null) of at most `limit` bytes into an empty buf. */
int file_read(const char *path, size_t limit, struct buf *out, struct error *err);
/* The same for an open descriptor, which may be a pipe; `name` is for errors. */
int file_read_fd(int fd, const char *name, size_t limit, struct buf *out, struct error *err);

/* Reads the beginning of a small file, as in /proc, relative to a directory or AT_FDCWD. Returns
 * its length; 0 with "" if it is empty or cannot be read. */
size_t file_peek(int dir, const char *path, char *out, size_t size);

/* Returns this process's umask. umask(2) could read it only by changing it for all threads, so this
 * reads /proc/self/status; 022 if that fails. */
mode_t file_umask(void);

/* Writes everything, through short writes and EINTR. -1 with errno. */
int file_write_all(int fd, const void *data, size_t len);

/* Writes the file `path`, which appears complete (0600) or stays as it was, also if the machine
 * stops. Only one process at a time may do so. ERROR_IO. */
int file_replace(const char *path, const void *data, size_t len, struct error *err);

/* Makes the directory and its parents (0700), as `mkdir -p`. */
int file_make_directories(const char *path, struct error *err);

/* The directory for persistent data: $DROSTE_HOME, else $XDG_DATA_HOME/droste, else
 * ~/.local/share/droste. The caller owns the path (free). */
int file_data_home(char **out, struct error *err);
/* $XDG_CONFIG_HOME/droste or ~/.config/droste. */
int file_config_home(char **out, struct error *err);

/* The directory for caches: $XDG_CACHE_HOME/droste or ~/.cache/droste. */
int file_cache_home(char **out, struct error *err);

/* A memfd that can be sealed, and is not executable if the kernel supports that. */
int file_memfd(const char *name, struct error *err);
/* Makes the contents immutable: writing, shrinking, growing and sealing are refused. */
int file_memfd_seal(int fd, struct error *err);
/* The last line of text in a file, for messages; "" if there is none. */
void file_last_line(int fd, char *out, size_t size);
