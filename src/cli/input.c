/* cli/input.c: standard input that nothing reads, numbers on the command line, and the limit of
 * descriptors.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* A producer in the same pipeline may need a moment before its first line. */
enum { FIRST_INPUT_MS = 300 };

static const char unread_input[] = "note: standard input is not read; use --context - to read it";

static bool input_waits(int milliseconds)
{
    struct stat st;
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    int ready = 0;
    if (fstat(STDIN_FILENO, &st) < 0)
        return false;
    if (S_ISREG(st.st_mode))
        return lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size;
    return S_ISFIFO(st.st_mode) && poll(&p, 1, milliseconds) == 1 &&
           ioctl(STDIN_FILENO, FIONREAD, &ready) == 0 && ready > 0;
}

int cli_check_input(const struct command *self, droste *d, bool asked)
{
    if (droste_context_reads_input(d) || !input_waits(FIRST_INPUT_MS))
        return -1;
    if (droste_context_count(d) == 0)
        return cli_usage(self, "standard input has data that is not used: %s",
            asked ? "use --context - to ask about it, or </dev/null"
                  : "use `-` as the question if it is the question, or `--context - 'QUESTION'` "
                    "to ask about it");
    cli_note("%s", unread_input);
    return -1;
}

void cli_note_input(droste *d)
{
    if (!droste_context_reads_input(d) && input_waits(0))
        cli_note("%s", unread_input);
}

bool cli_count(const char *text, int64_t least, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *out >= least;
}

void cli_raise_descriptors(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}
