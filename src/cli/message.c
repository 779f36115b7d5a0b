/* cli/message.c: errors and notes on standard error, and exit statuses. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "cli/cli.h"
#include "cli/terminal/screen.h"

static void message_print(struct buf *text)
{
    buf_putc(text, '\n');
    screen_print_text(stderr, buf_failed(text) ? "droste: out of memory\n" : buf_text(text));
}

static void message_note(const char *format, va_list args)
{
    cleanup_buf struct buf text = { 0 };
    buf_puts(&text, "droste: ");
    buf_vprintf(&text, format, args);
    message_print(&text);
}

void cli_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message_note(format, args);
    va_end(args);
}

int cli_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message_note(format, args);
    va_end(args);
    return status;
}

int cli_usage(const struct command *self, const char *format, ...)
{
    cleanup_buf struct buf text = { 0 };
    va_list args;
    va_start(args, format);
    buf_printf(&text, "droste %s: ", self->name);
    buf_vprintf(&text, format, args);
    va_end(args);
    buf_printf(&text, "\nTry 'droste %s --help'.", self->name);
    message_print(&text);
    return EXIT_USAGE;
}

int cli_status(int code)
{
    static const struct {
        int code, status;
    } statuses[] = {
        { DROSTE_ERROR_ARGUMENT, EXIT_USAGE },
        { DROSTE_ERROR_CONFIG, EXIT_USAGE },
        { DROSTE_ERROR_NOT_FOUND, EXIT_USAGE },
        { DROSTE_ERROR_PERMISSION, EXIT_USAGE },
        { DROSTE_ERROR_TIMEOUT, EXIT_LIMIT },
        { DROSTE_ERROR_BUDGET, EXIT_LIMIT },
        { DROSTE_ERROR_CANCELLED, EXIT_INTERRUPTED },
        { DROSTE_ERROR_ENVIRONMENT, EXIT_ENVIRONMENT },
        { DROSTE_ERROR_UNSUPPORTED, EXIT_ENVIRONMENT },
        { DROSTE_ERROR_LOST, EXIT_ENVIRONMENT },
    };
    if (code >= DROSTE_ERROR_BUDGET_CALLS && code <= DROSTE_ERROR_BUDGET_RECORD)
        code = DROSTE_ERROR_BUDGET;
    for (size_t i = 0; i < array_length(statuses); i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return EXIT_RAISED;
}

int cli_error(const droste_error *err)
{
    cli_note("%s", err->text);
    return cli_status(err->code);
}

int cli_status_of_cell(const char *status)
{
    static const struct {
        const char *status;
        int exit;
    } statuses[] = {
        { "ok", EXIT_FINE },
        { "submitted", EXIT_FINE },
        { "error", EXIT_RAISED },
        { "timeout", EXIT_LIMIT },
        { "killed", EXIT_LIMIT },
        { "lost", EXIT_ENVIRONMENT },
    };
    for (size_t i = 0; i < array_length(statuses); i++)
        if (strcmp(statuses[i].status, status) == 0)
            return statuses[i].exit;
    return EXIT_ENVIRONMENT;
}

int cli_cell_status(const droste_result *r)
{
    return droste_result_exit_status(r) >= 0 ? droste_result_exit_status(r)
                                             : cli_status_of_cell(droste_result_status(r));
}

void cli_print_exit(const droste_result *r)
{
    const char *message = droste_result_message(r);
    size_t len = message ? strlen(message) : 0;
    if (droste_result_exit_status(r) != EXIT_RAISED || len == 0 ||
        strspn(message, "-0123456789") == len)
        return;
    cli_print(stderr, message, len);
    fputc('\n', stderr);
}

int cli_finish(int status, const char *what)
{
    int failed = cli_output_failed();
    if (failed == 0)
        return status;
    if (failed == EPIPE)
        return EXIT_PIPE;
    return cli_fail(EXIT_ENVIRONMENT, "writing %s: %s", what,
        failed > 0 ? strerror(failed) : "standard output did not accept all of it; check the disk");
}

int cli_end(int rc, const struct error *err, const char *what)
{
    if (rc >= 0)
        return cli_finish(EXIT_FINE, what);
    cli_flush(stdout);
    return cli_error(err);
}
