/* cli/smoke.c: droste smoke: tests a session, and its repository, without a model. */
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/json/json.h"
#include "cli/cli.h"

enum phase {
    PHASE_CONFIG,
    PHASE_SANDBOX,
    PHASE_CLONE,
    PHASE_DRIVER,
    PHASE_STEP_1,
    PHASE_STEP_2,
    PHASE_CLEANUP,
    PHASE_COUNT,
};

/* The phases, in the order of the report. */
static const struct {
    const char *name, *category;
} phases[PHASE_COUNT] = {
    [PHASE_CONFIG] = { "config", "config_error" },
    [PHASE_SANDBOX] = { "sandbox_create", "sandbox_create_clone_error" },
    [PHASE_CLONE] = { "repo_clone", "sandbox_create_clone_error" },
    [PHASE_DRIVER] = { "driver_start", "driver_handshake_error" },
    [PHASE_STEP_1] = { "exec_step_1", "driver_execution_error" },
    [PHASE_STEP_2] = { "exec_step_2", "driver_execution_error" },
    [PHASE_CLEANUP] = { "cleanup", "cleanup_error" },
};

struct smoke {
    droste *d;
    const struct command *self;
    droste_session *session;
    droste_workspace *workspace;
    struct buf repo_path, sandbox, commit;
    int64_t value; /* found by the second step; -1: not found */
    bool started, submitted;
    double ms[PHASE_COUNT];
    enum phase failed; /* PHASE_COUNT: none */
    struct error error;
};

/* ---- the phases ---- */

static int smoke_config(struct smoke *s, struct error *err)
{
    const char *name = droste_get(s->d, "env");
    if (s->self == &command_daytona_smoke && (!name || strcmp(name, "daytona") != 0))
        return error_set(err, ERROR_ARGUMENT,
            "daytona-smoke is a test of daytona, and the environment is %.60s; use `droste smoke` "
            "for that",
            name ? name : "local");
    return droste_check(s->d, err);
}

static int clone_repo(struct smoke *s, struct error *err)
{
    int rc = droste_workspace_stage(s->d, &s->workspace, err);
    const char *commit = s->workspace ? droste_workspace_commit(s->workspace) : NULL;
    buf_puts(&s->commit, commit ? commit : "");
    return rc;
}

static int smoke_create(struct smoke *s, struct error *err)
{
    int rc = droste_session_open_in(s->d, s->workspace, &s->session, err);
    if (rc < 0)
        return rc;
    const char *id = droste_session_sandbox(s->session);
    buf_puts(&s->sandbox, id ? id : "");
    if (s->workspace)
        buf_printf(&s->repo_path, "%s/%s", droste_session_workspace(s->session),
            droste_workspace_repo(s->workspace));
    return 0;
}

/* Runs a cell that must end with this status. */
static int smoke_run_cell(
    struct smoke *s, const char *code, const char *status, droste_result **out, struct error *err)
{
    int rc = droste_session_exec(s->session, code, strlen(code), 0, out, err);
    if (rc < 0)
        return rc;
    const char *got = droste_result_status(*out), *traceback = droste_result_traceback(*out);
    if (strcmp(got, status) == 0)
        return 0;
    droste_error why;
    size_t len = traceback ? strlen(traceback) : 0;
    while (len > 0 && traceback[len - 1] == '\n')
        len--;
    const char *last = len > 0 ? memrchr(traceback, '\n', len) : NULL;
    droste_result_error(*out, &why);
    return error_set(err, ERROR_IO, "the cell ended as '%s', not '%s'%s%.*s%s", got, status,
        len > 0 || why.text[0] ? ": " : "", last ? (int)(traceback + len - last - 1) : 0,
        last ? last + 1 : "", len > 0 ? "" : why.text);
}

static int start_driver(struct smoke *s, struct error *err)
{
    droste_result *r = NULL;
    int rc = smoke_run_cell(s, "", "ok", &r, err);
    s->started = rc == 0;
    droste_result_free(r);
    return rc;
}

static int step_1(struct smoke *s, struct error *err)
{
    droste_result *r = NULL;
    int rc = smoke_run_cell(s,
        s->workspace ? "counter = 2\nprint(read_file('README.md')[:120])"
                     : "counter = 2\nprint('here')",
        "ok", &r, err);
    size_t len = 0;
    const char *text = rc == 0 ? droste_result_stdout(r, &len) : NULL;
    if (rc == 0 && strspn(text, " \t\r\n") == len)
        rc = error_set(err, ERROR_NOT_FOUND, "the repository's README.md is empty");
    droste_result_free(r);
    return rc;
}

static int step_2(struct smoke *s, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    droste_result *r = NULL;
    size_t len;
    int rc = smoke_run_cell(s, "counter += 3\nSUBMIT(output=counter)", "submitted", &r, err);
    const char *submit = rc == 0 ? droste_result_submit(r, &len) : NULL;
    if (rc == 0)
        rc = json_parse(submit, len, &json_limits_small, &o, err);
    if (rc == 0) {
        s->submitted = true;
        s->value = json_get_int(o, "output", -1);
    }
    if (rc == 0 && s->value != 5)
        rc = error_set(err, ERROR_PROTOCOL, "the second cell did not find the state of the first");
    droste_result_free(r);
    return rc;
}

static int smoke_clean_up(struct smoke *s, struct error *err)
{
    int rc = s->session ? droste_session_finish(s->session, err) : 0;
    droste_session_close(steal(&s->session));
    droste_workspace_free(steal(&s->workspace));
    return rc;
}

/* In the order of execution: a sandbox gets its files when it is created. */
static const struct {
    enum phase phase;
    int (*run)(struct smoke *s, struct error *err);
} steps[] = { { PHASE_CONFIG, smoke_config }, { PHASE_CLONE, clone_repo },
    { PHASE_SANDBOX, smoke_create }, { PHASE_DRIVER, start_driver }, { PHASE_STEP_1, step_1 },
    { PHASE_STEP_2, step_2 }, { PHASE_CLEANUP, smoke_clean_up } };

static void run_all(struct smoke *s)
{
    s->failed = PHASE_COUNT;
    s->value = -1;
    for (size_t i = 0; i < array_length(steps); i++) {
        enum phase phase = steps[i].phase;
        struct error err = { 0 };
        uint64_t begin = clock_ns();
        bool wanted = s->failed == PHASE_COUNT || phase == PHASE_CLEANUP;
        if (wanted && steps[i].run(s, &err) < 0 && s->failed == PHASE_COUNT) {
            s->failed = phase;
            s->error = err;
        }
        s->ms[phase] = wanted ? clock_seconds_since(begin) * 1000 : 0;
    }
}

/* ---- the report ---- */

static void smoke_put_string(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, "  \"%s\": ", key);
    if (value)
        json_append_string(out, value, strlen(value));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\n");
}

static void smoke_report(const struct smoke *s, struct buf *out)
{
    bool fine = s->failed == PHASE_COUNT;
    buf_puts(out, "{\n");
    smoke_put_string(out, "repo", droste_get(s->d, "repo-url"));
    smoke_put_string(out, "ref", droste_get(s->d, "repo-ref"));
    smoke_put_string(out, "commit", s->commit.len > 0 ? buf_text(&s->commit) : NULL);
    smoke_put_string(out, "environment", droste_get(s->d, "env"));
    smoke_put_string(out, "sandbox_id", s->sandbox.len > 0 ? buf_text(&s->sandbox) : NULL);
    smoke_put_string(out, "workspace_path", s->repo_path.len > 0 ? buf_text(&s->repo_path) : NULL);
    if (s->value >= 0)
        buf_printf(out, "  \"persisted_state_value\": %lld,\n", (long long)s->value);
    else
        smoke_put_string(out, "persisted_state_value", NULL);
    buf_printf(out, "  \"driver_started\": %s,\n", s->started ? "true" : "false");
    smoke_put_string(out, "finalization_mode", s->submitted ? "SUBMIT" : NULL);
    smoke_put_string(out, "termination_phase", fine ? "completed" : phases[s->failed].name);
    smoke_put_string(out, "error_category", fine ? NULL : phases[s->failed].category);
    buf_puts(out, "  \"phase_timings_ms\": {\n");
    for (size_t i = 0; i < PHASE_COUNT; i++)
        buf_printf(out, "    \"%s\": %lld%s\n", phases[i].name, (long long)(s->ms[i] + 0.5),
            i + 1 < PHASE_COUNT ? "," : "");
    buf_puts(out, "  },\n  \"error_message\": ");
    if (fine)
        buf_puts(out, "null");
    else
        json_append_string(out, s->error.text, strlen(s->error.text));
    buf_puts(out, "\n}\n");
}

static int smoke_smoke(const struct command *self, droste *d)
{
    struct smoke s = { .d = d, .self = self };
    cleanup_buf struct buf out = { 0 };
    cli_catch_interrupts(d);
    run_all(&s);
    smoke_report(&s, &out);
    bool fine = s.failed == PHASE_COUNT;
    cli_print(fine ? stdout : stderr, buf_text(&out), out.len);
    buf_free(&s.repo_path);
    buf_free(&s.sandbox);
    buf_free(&s.commit);
    return fine ? cli_finish(EXIT_FINE, "the report") : EXIT_RAISED;
}

static int smoke_run(const struct command *self, droste *d, int argc, char **argv)
{
    const char *repo = NULL, *ref = NULL;
    size_t count = 0;
    const struct flag flags[] = {
        { "repo", "URL", "The repository to copy into the sandbox, like the setting repo-url.",
            &repo, NULL },
        { "ref", "REF", "A branch, tag or commit id of it.", &ref, NULL },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, NULL, 0, &count);
    if (status < 0)
        status = cli_set(d, "repo-url", repo);
    if (status < 0)
        status = cli_set(d, "repo-ref", ref);
    if (status < 0)
        status = cli_set(d, "helpers", "yes");
    if (status < 0)
        status = smoke_smoke(self, d);
    return status;
}

static const struct command_default defaults[] = { { "timeout", "60" }, { "repo-timeout", "60" },
    { 0 } };
static const struct command_default daytona_defaults[] = { { "env", "daytona" },
    { "timeout", "60" }, { "repo-timeout", "60" }, { 0 } };

#define DETAILS                                                                                    \
    "Starts a sandbox, with the repository of --repo in it, and runs two cells\n"                  \
    "that share a variable, to check that the environment works from here. No model\n"             \
    "is called. Prints one JSON object, on standard error if something failed: repo,\n"            \
    "ref, commit, environment, sandbox_id, workspace_path, persisted_state_value (5),\n"           \
    "driver_started, finalization_mode, termination_phase (completed, or the phase\n"              \
    "that failed), error_category, phase_timings_ms {config, sandbox_create,\n"                    \
    "repo_clone, driver_start, exec_step_1, exec_step_2, cleanup}, error_message. The\n"           \
    "repository must have a README.md.\n"                                                          \
    "Exit status: 0 all works, 1 a phase failed, 2 usage error.\n"

const struct command command_smoke = {
    .name = "smoke",
    .synopsis = "[--repo URL [--ref REF]] [--env ENVIRONMENT] [--SETTING VALUE ...]",
    .summary = "test that sandboxes start, with a repository in them",
    .details = DETAILS,
    .examples = "  droste smoke --env docker\n"
                "  droste smoke --repo https://github.com/your-org/your-repo\n"
                "  droste smoke --repo file:///srv/git/project.git --ref v1.2 --isolation full\n",
    .settings = SETTINGS_SANDBOX,
    .defaults = defaults,
    .run = smoke_run,
};

const struct command command_daytona_smoke = {
    .name = "daytona-smoke",
    .synopsis = "[--repo URL [--ref REF]] [--SETTING VALUE ...]",
    .summary = "smoke with the defaults of fleet-rlm's daytona-smoke",
    .details = DETAILS,
    .examples = "  droste daytona-smoke --repo https://github.com/your-org/your-repo --ref main\n",
    .settings = SETTINGS_SANDBOX,
    .defaults = daytona_defaults,
    .run = smoke_run,
};
