/* cli/doctor.c: droste doctor: checks this machine and the settings, and prints the results. */
#include "cli/cli.h"
#include "cli/findings.h"

static int doctor_print_table(droste *d, bool json)
{
    struct findings found;
    findings_begin(&found, json);
    bool works = droste_diagnose(d, findings_put, &found);
    findings_print(&found, works,
        works ? "Sandboxes work here."
              : "Sandboxes do not work here yet; follow the advice above.");
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
