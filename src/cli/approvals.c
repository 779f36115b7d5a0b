/* cli/approvals.c: see approvals.h. */
#include "cli/approvals.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "base/error.h"

enum { ARGUMENTS_SHOWN = 2000, ANSWER_MAX = 64 };

/* `write({"path": "x"})`, without control characters. */
static void approval_put_call(struct buf *out, const droste_approval *a)
{
    size_t shown = a->len;
    if (shown > ARGUMENTS_SHOWN)
        shown = text_utf8_floor(a->arguments, a->len, ARGUMENTS_SHOWN);
    text_append_visible(out, a->tool, strlen(a->tool));
    buf_putc(out, '(');
    text_append_visible(out, a->arguments, shown);
    buf_puts(out, shown < a->len ? "…)" : ")");
}

/* ---- the list ---- */

struct approvals_out {
    bool json;
    size_t count;
};

static int approval_print_json(void *arg, const char *data, size_t len)
{
    (void)arg;
    printf("%.*s", (int)len, data);
    return 0;
}

static int approval_print(void *arg, const droste_approval *a, droste_error *err)
{
    struct approvals_out *out = arg;
    cleanup_buf struct buf text = { 0 };
    if (a->wants_result)
        return 0; /* the client of the run answers */
    bool first = out->count++ == 0;
    if (out->json) {
        fputs(first ? "" : ", ", stdout);
        return droste_approval_json(a, approval_print_json, NULL, err);
    }
    buf_printf(&text, "%lld  %s  ", (long long)a->id, a->run);
    approval_put_call(&text, a);
    if (a->until_ms) {
        double left = (double)(a->until_ms - clock_wall_ms()) / 1000;
        buf_printf(&text, left > 0 ? "  %.0f s left" : "  its time is up", left);
    }
    if (a->repeated)
        buf_puts(&text, "  it had begun before, and may be done");
    if (a->interrupted)
        buf_puts(&text, "  interrupted");
    puts(buf_text(&text));
    return 0;
}

int cli_approvals(droste_record *record, const char *run, bool json, droste_error *err)
{
    struct approvals_out out = { .json = json };
    if (json)
        putchar('[');
    int rc = record ? droste_record_approvals(record, run, NULL, approval_print, &out, err) : 0;
    if (json)
        puts("]");
    else if (rc == 0 && out.count == 0)
        puts("no call waits for an approval");
    return rc;
}

/* ---- a decision ---- */

static int approval_say_decided(void *arg, const droste_approval *a, droste_error *err)
{
    const char *follows = a->interrupted ? "; `droste runs resume " : "";
    (void)arg;
    (void)err;
    printf("%s %lld%s%s%s\n", a->decision ? a->decision : "", (long long)a->id, follows,
        a->interrupted ? a->root : "", a->interrupted ? "` goes on" : "");
    return 0;
}

int cli_decide(
    droste_record *record, const char *id, bool approve, const char *reason, droste_error *err)
{
    int64_t number;
    if (!cli_count(id, 1, &number))
        return error_set(err, ERROR_ARGUMENT,
            "'%.64s' is not the id of an approval, a number; `droste runs approvals` lists them",
            id);
    int rc = droste_record_decide(record, number, approve, "the command line", reason, err);
    return rc < 0 ? rc : droste_record_approval(record, number, approval_say_decided, NULL, err);
}

/* ---- on the terminal ---- */

/* A line of the terminal; false: it has ended, or Ctrl-C was typed. */
static bool approval_read_line(char line[ANSWER_MAX])
{
    size_t len = 0;
    for (;;) {
        char c;
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n <= 0)
            return false; /* EINTR, too */
        if (c == '\n')
            break;
        if (len + 1 < ANSWER_MAX)
            line[len++] = c;
    }
    line[len] = '\0';
    return true;
}

static void approval_on_terminal(void *arg, droste_approval *a)
{
    cleanup_buf struct buf text = { 0 };
    char line[ANSWER_MAX] = "";
    droste_error err;
    (void)arg;
    approval_put_call(&text, a);
    fprintf(stderr, "\n%s%s\nApprove this call? [y/N] ", buf_text(&text),
        a->repeated ? "\nIt had begun before, in a process that died, and may be done." : "");
    fflush(stderr);
    bool yes =
        approval_read_line(line) && (strcasecmp(line, "y") == 0 || strcasecmp(line, "yes") == 0);
    if (droste_approval_answer(a, yes, "the terminal", NULL, &err) < 0)
        cli_note("note: %s", err.text);
}

static void approval_say(void *arg, droste_approval *a)
{
    cleanup_buf struct buf text = { 0 };
    (void)arg;
    approval_put_call(&text, a);
    cli_note("note: %s waits for an approval: `droste runs approve %lld`, or deny", buf_text(&text),
        (long long)a->id);
    droste_approval_leave(a);
}

void cli_approval_event(const droste_event *e)
{
    cleanup_buf struct buf tool = { 0 };
    if (strcmp(e->kind, "approval") != 0 || !e->status || strcmp(e->status, "unannounced") != 0)
        return;
    text_append_visible(&tool, e->approval->tool, strlen(e->approval->tool));
    cli_note("note: the webhook was not told that a call of %s() waits: %.*s", buf_text(&tool),
        (int)e->len, e->text);
}

static bool approval_has_terminal(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

void cli_approve(droste *d)
{
    const char *database = droste_record_path(d, NULL);
    bool recorded = database && strcmp(database, "none") != 0;
    if (approval_has_terminal())
        droste_on_approval(d, approval_on_terminal, NULL);
    else
        droste_on_approval(d, recorded ? approval_say : NULL, NULL);
}

void cli_approve_session(droste *d)
{
    droste_on_approval(d, approval_has_terminal() ? approval_on_terminal : NULL, NULL);
}
