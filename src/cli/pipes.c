/* cli/pipes.c: lets an argument that names a file be a pipe of the shell.
 *
 * The library reads regular files only, so that no path can block its loop. On the command line
 * users expect `<(program)` and `/dev/stdin` to work wherever a file does. So before a command
 * begins, each pipe that an argument names is read to its end into a memory file, which replaces
 * the pipe's descriptor. Opening the argument then opens a regular file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/cli.h"

static const uint64_t pipe_max = (uint64_t)4 << 30; /* the default of context-size */

/* The descriptor in "/dev/fd/N", "@/dev/fd/N" or "FLAG=/dev/fd/N"; -1 without one. */
static int pipes_argument_fd(const char *argument)
{
    static const char *const directories[] = { "/dev/fd/", "/proc/self/fd/" };
    const char *path = strchr(argument, '/');
    if (!path || (path > argument && path[-1] != '@' && path[-1] != '='))
        return -1;
    if (strcmp(path, "/dev/stdin") == 0)
        return STDIN_FILENO;
    for (size_t i = 0; i < array_length(directories); i++) {
        const char *number = path + strlen(directories[i]);
        if (strncmp(path, directories[i], strlen(directories[i])) == 0 && number[0] != '\0' &&
            strlen(number) < 8 && number[strspn(number, "0123456789")] == '\0')
            return atoi(number);
    }
    return -1;
}

static bool pipes_can_be_read(int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) &&
           (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
}

static int pipes_replace(int fd, struct error *err)
{
    uint64_t total = 0;
    cleanup_fd int copy = file_memfd("pipe", err);
    if (copy < 0)
        return copy;
    for (;;) {
        ssize_t n = splice(fd, NULL, copy, NULL, 1 << 20, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(err, ERROR_IO, "reading the pipe /dev/fd/%d", fd);
        if (n == 0)
            break;
        if ((total += (uint64_t)n) > pipe_max)
            return error_set(err, ERROR_ARGUMENT,
                "the pipe /dev/fd/%d holds more than %u MiB; write its data to a file", fd,
                (unsigned)(pipe_max >> 20));
    }
    return dup2(copy, fd) < 0 ? error_set_errno(err, ERROR_IO, "replacing /dev/fd/%d", fd) : 0;
}

int cli_replace_pipes(int argc, char **argv)
{
    struct error err = { 0 };
    for (int i = 0; i < argc; i++) {
        int fd = pipes_argument_fd(argv[i]);
        if (pipes_can_be_read(fd) && pipes_replace(fd, &err) < 0)
            return cli_error(&err);
    }
    return -1;
}
