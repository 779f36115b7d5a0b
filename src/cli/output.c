/* cli/output.c: standard output and its errors, and what stops a command: a closed output or an
 * interrupt.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"
#include "cli/cli.h"

static droste *interruptible; /* stopped by an interrupt, or if the output is closed */

/* ---- interrupts ---- */

static volatile sig_atomic_t interrupts;

/* The loop handles an interrupt asynchronously. The third one exits at once: the sandboxes die with
 * this process, and the record has every step that ended. */
static void interrupt_on_signal(int signal)
{
    if (interrupts == 2)
        _exit(EXIT_INTERRUPTED);
    interrupts++;
    droste_interrupt(interruptible);
}

void cli_catch_interrupts(droste *d)
{
    /* Without SA_RESTART, so that a read of the terminal ends too. */
    struct sigaction action = { .sa_handler = interrupt_on_signal };
    interruptible = d;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_was_interrupted(void)
{
    bool was = interrupts > 0;
    interrupts = 0;
    return was;
}

/* ---- output ---- */

/* The errno of the first failed write to standard output. The stream does not keep it, and a later
 * flush succeeds because nothing is left to write. */
static int output_errno;

static void keep_output_error(FILE *out, bool failed)
{
    if (!failed || out != stdout || output_errno != 0)
        return;
    output_errno = errno;
    if (output_errno == EPIPE && interruptible)
        droste_interrupt(interruptible); /* its output has no reader any more */
}

/* When stdio flushes a full buffer, errno is lost; poll(2) still shows a pipe without a reader. */
bool cli_output_gone(void)
{
    struct pollfd p = { .fd = STDOUT_FILENO };
    if (output_errno == 0 && ferror(stdout) && poll(&p, 1, 0) == 1 && (p.revents & POLLERR))
        output_errno = EPIPE;
    return output_errno == EPIPE;
}

static bool is_dumb(void)
{
    const char *term = getenv("TERM");
    return term && strcmp(term, "dumb") == 0;
}

bool cli_terminal_moves(FILE *out)
{
    return isatty(fileno(out)) && !is_dumb();
}

bool cli_terminal_paints(FILE *out)
{
    const char *no_color = getenv("NO_COLOR");
    return cli_terminal_moves(out) && !(no_color && no_color[0]);
}

static void print_visible(FILE *out, const char *text, size_t len,
    void (*append)(struct buf *out, const char *data, size_t len))
{
    cleanup_buf struct buf visible = { 0 };
    if (isatty(fileno(out))) {
        append(&visible, text, len);
        text = buf_text(&visible);
        len = visible.len;
    }
    keep_output_error(out, fwrite(text, 1, len, out) != len);
}

void cli_print(FILE *out, const char *text, size_t len)
{
    print_visible(out, text, len, text_append_visible);
}

void cli_print_json(const char *json)
{
    print_visible(stdout, json, strlen(json), text_append_visible_json);
    putchar('\n');
}

void cli_flush(FILE *out)
{
    keep_output_error(out, fflush(out) != 0);
}

int cli_output_failed(void)
{
    cli_flush(stdout);
    if (cli_output_gone())
        return EPIPE;
    return output_errno ? output_errno : ferror(stdout) ? -1 : 0;
}
