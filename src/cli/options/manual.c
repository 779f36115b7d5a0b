/* cli/options/manual.c: prints a command's manual page, from the same tables as its help.
 *
 * The build prints one page for each command (`droste exec --help man`). The settings, which the
 * commands share, are in droste(1).
 */
#include <string.h>

#include "base/buf.h"
#include "cli/options/flags.h"
#include "cli/options/manual.h"

/* Escapes a line of text; minus signs stay minus signs when copied from the page. */
static void put_roff(struct buf *out, const char *text)
{
    bool starts = true;
    for (; *text; text++) {
        if (starts && (*text == '.' || *text == '\''))
            buf_puts(out, "\\&");
        starts = *text == '\n';
        if (*text == '-')
            buf_puts(out, "\\-");
        else if (*text == '\\')
            buf_puts(out, "\\e");
        else
            buf_putc(out, *text);
    }
}

static void put_manual_flag(struct buf *out, const char *name, const char *value, const char *help)
{
    buf_puts(out, ".TP\n\\fB");
    put_roff(out, name[1] ? "--" : "-");
    put_roff(out, name);
    buf_puts(out, "\\fR");
    if (value) {
        buf_puts(out, " \\fI");
        put_roff(out, value);
        buf_puts(out, "\\fR");
    }
    buf_putc(out, '\n');
    put_roff(out, help);
    buf_putc(out, '\n');
}

static void put_verbatim(struct buf *out, const char *title, const char *text)
{
    buf_printf(out, ".SH %s\n.EX\n", title);
    put_roff(out, text);
    buf_puts(out, ".EE\n");
}

static void put_manual_settings(
    struct buf *out, const struct command *self, const struct flag *flags)
{
    const droste_option *o;
    size_t at = 0;
    buf_puts(out, ".SH SETTINGS\nEvery setting of\n.BR droste (1)\nis an option too. "
                  "The most used ones are:\n");
    while ((o = flag_common_option(self, flags, &at)))
        put_manual_flag(out, o->name, o->value, o->help);
}

void manual_print(const struct command *self, const struct flag *flags)
{
    cleanup_buf struct buf out = { 0 };
    buf_puts(&out, ".TH \"DROSTE\\-");
    for (const char *c = self->name; *c; c++)
        buf_printf(&out, "%s", *c == '-' ? "\\-" : (char[]){ (char)(*c - 'a' + 'A'), 0 });
    buf_printf(&out, "\" 1 \"\" \"droste %s\" \"Commands of Droste\"\n", droste_version());
    buf_puts(&out, ".SH NAME\ndroste\\-");
    put_roff(&out, self->name);
    buf_puts(&out, " \\- ");
    put_roff(&out, self->summary);
    buf_puts(&out, "\n.SH SYNOPSIS\n.B droste ");
    put_roff(&out, self->name);
    buf_putc(&out, '\n');
    put_roff(&out, self->synopsis);
    buf_putc(&out, '\n');
    if (self->details)
        put_verbatim(&out, "DESCRIPTION", self->details);
    if (flags->name)
        buf_puts(&out, ".SH OPTIONS\n");
    for (const struct flag *f = flags; f->name; f++)
        put_manual_flag(&out, f->name, f->value, f->help);
    if (self->settings)
        put_manual_settings(&out, self, flags);
    put_verbatim(&out, "EXAMPLES", self->examples);
    buf_puts(&out, ".SH SEE ALSO\n.BR droste (1)\n");
    fputs(buf_text(&out), stdout);
}
