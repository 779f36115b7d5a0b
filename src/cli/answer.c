/* cli/answer.c: see answer.h. */
#include "cli/answer.h"

#include <json-c/json.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "cli/cli.h"

int answer_status(const char *status, int otherwise)
{
    static const struct {
        const char *status;
        int exit;
    } statuses[] = {
        { "answered", EXIT_FINE },
        { "exhausted", EXIT_LIMIT },
        { "budget", EXIT_LIMIT },
        { "timeout", EXIT_LIMIT },
        { "cancelled", EXIT_INTERRUPTED },
    };
    for (size_t i = 0; i < array_length(statuses); i++)
        if (strcmp(statuses[i].status, status) == 0)
            return statuses[i].exit;
    return otherwise;
}

static int answer_exit_status(const droste_result *r)
{
    droste_error why;
    droste_result_error(r, &why);
    return answer_status(droste_result_status(r), cli_status(why.code));
}

void answer_print_value(const char *json, size_t len)
{
    struct json_object *o = json_tokener_parse(json);
    if (o && json_object_is_type(o, json_type_string))
        cli_print(stdout, json_object_get_string(o), (size_t)json_object_get_string_len(o));
    else
        cli_print(stdout, json, len);
    putchar('\n');
    json_object_put(o);
}

/* The error has room for a part of a provider's long message; the result's JSON has all of it. */
static void answer_print_error(const droste_result *r, const droste_error *why)
{
    cleanup_json struct json_object *whole = NULL;
    size_t len = strlen(why->text);
    bool is_cut = len >= strlen("…") && strcmp(why->text + len - strlen("…"), "…") == 0;
    if (is_cut)
        whole = json_tokener_parse(droste_result_json(r, NULL));
    struct json_object *error = json_get_typed(whole, "error", json_type_object);
    cli_note("%s", json_get_string(error, "message", why->text));
}

static void answer_print_result(const droste_result *r, bool json)
{
    size_t len;
    const char *answer = droste_result_answer(r, &len);
    droste_error why;
    if (json) {
        cli_print_json(droste_result_json(r, NULL));
        return;
    }
    droste_result_error(r, &why);
    if (why.code != DROSTE_ERROR_NONE)
        answer_print_error(r, &why);
    if (answer)
        answer_print_value(answer, len);
}

/* Names what was saved; a file that was not is an error, unless the run failed already. */
static int answer_print_artifacts(droste *d, const droste_result *r, int status)
{
    droste_artifact artifact;
    droste_error why;
    const char *patterns = droste_get(d, "artifacts");
    size_t i = 0;
    for (; droste_result_artifact(r, i, &artifact); i++)
        cli_note("saved %s (%llu byte%s)", artifact.path, (unsigned long long)artifact.size,
            artifact.size == 1 ? "" : "s");
    droste_result_artifacts_error(r, &why);
    if (why.code == DROSTE_ERROR_NONE && i == 0 && patterns && patterns[0] &&
        status != EXIT_INTERRUPTED)
        cli_note("no file matches the artifacts: %s", patterns);
    if (why.code == DROSTE_ERROR_NONE)
        return status;
    int failed = cli_error(&why);
    return status == EXIT_FINE ? failed : status;
}

int answer_print(droste *d, droste_result *r, bool json)
{
    int status = answer_print_artifacts(d, r, answer_exit_status(r));
    answer_print_result(r, json);
    droste_result_free(r);
    return cli_finish(status, "the answer");
}
