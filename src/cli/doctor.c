/* cli/doctor.c: droste doctor: checks this machine and the settings, and prints the results. */
#include "base/buf.h"
#include "base/json/fields.h"
#include "cli/cli.h"

struct doctor_table {
    bool json;
    struct buf out;
};

/* One line of the table, followed by advice if there is any. */
static void doctor_put_finding(void *arg, const droste_finding *f)
{
    struct doctor_table *table = arg;
    struct buf *out = &table->out;
    if (!table->json) {
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

static int doctor_print_table(droste *d, bool json)
{
    struct doctor_table table = { .json = json };
    struct buf *out = &table.out;
    if (json) {
        field_open(out, NULL, '{');
        field_open(out, "checks", '[');
    }
    bool works = droste_diagnose(d, doctor_put_finding, &table);
    if (json) {
        field_close(out, ']');
        field_bool(out, "works", works);
        buf_puts(out, "}\n");
    } else {
        buf_printf(out, "\n%s\n",
            works ? "Sandboxes work here."
                  : "Sandboxes do not work here yet; follow the advice above.");
    }
    cli_print(stdout, buf_text(out), out->len);
    buf_free(out);
    return works ? EXIT_FINE : EXIT_ENVIRONMENT;
}

static int print_plan(droste *d)
{
    size_t len;
    droste_session *s = NULL;
    droste_error err;
    if (droste_session_open(d, &s, &err) < 0)
        return cli_error(&err);
    printf("isolation %s\n", droste_session_isolation(s));
    const char *plan = droste_session_plan(s, &len);
    if (plan)
        cli_print(stdout, plan, len);
    droste_session_close(s);
    return EXIT_FINE;
}

static int doctor_run(const struct command *self, droste *d, int argc, char **argv)
{
    bool plan = false, json = false;
    const struct flag flags[] = {
        { "plan", NULL, "Print the steps that create a sandbox.", NULL, &plan },
        { "json", NULL, "Print one JSON object.", NULL, &json },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, NULL, 0, NULL);
    if (status < 0 && plan && json)
        status = cli_usage(self, "--plan is printed as text; leave out --json");
    /* A recording model would create its file, and a sandbox its volume. */
    if (status < 0)
        status = cli_set(d, "record", "");
    if (status < 0)
        status = cli_set(d, "volume-name", "");
    if (status < 0)
        status = plan ? print_plan(d) : doctor_print_table(d, json);
    return cli_finish(status, "the checks");
}

const struct command command_doctor = {
    .name = "doctor",
    .synopsis = "[--json] [--plan] [--SETTING VALUE ...]",
    .summary = "check what works on this machine, and suggest fixes",
    .details = "Starts real sandboxes; calls no model and prints no key. If a step of a sandbox\n"
               "plan fails, the report has its number; --plan shows the steps.\n"
               "Exit status: 0 a sandbox with isolation `auto` works, 4 it does not, 2 usage\n"
               "error.\n",
    .examples = "  droste doctor\n"
                "  droste doctor --json | jq '.checks[] | select(.state == \"missing\")'\n"
                "  droste doctor --plan --isolation full\n"
                "  droste doctor --python .venv/bin/python\n",
    .settings = SETTINGS_SANDBOX,
    .run = doctor_run,
};
