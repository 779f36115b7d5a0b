#include "cli/findings.h"

#include "base/json/fields.h"
#include "cli/cli.h"
#include "cli/terminal/screen.h"

void findings_begin(struct findings *f, bool json)
{
    *f = (struct findings){ .json = json };
    if (!json)
        return;
    field_open(&f->out, NULL, '{');
    field_open(&f->out, "checks", '[');
}

/* One line of the table, followed by advice if there is any. */
void findings_put(void *arg, const droste_finding *f)
{
    struct findings *all = arg;
    struct buf *out = &all->out;
    if (!all->json) {
        buf_printf(out, "%-13s %-7s  %s\n", f->name, f->state, f->text);
        if (f->cure)
            buf_printf(out, "%-13s %-7s  -> %s\n", "", "", f->cure);
        return;
    }
    field_open(out, NULL, '{');
    field_string(out, "name", f->name);
    field_string(out, "state", f->state);
    field_text(out, "text", f->text, f->len);
    field_string(out, "cure", f->cure);
    field_close(out, '}');
}

void findings_print(struct findings *f, bool works, const char *in_words)
{
    struct buf *out = &f->out;
    if (f->json) {
        field_close(out, ']');
        field_bool(out, "works", works);
        buf_puts(out, "}\n");
    } else {
        buf_printf(out, "\n%s\n", in_words);
    }
    if (f->json)
        cli_print(stdout, buf_text(out), out->len);
    else
        screen_print_text(stdout, buf_text(out));
    buf_free(out);
}
