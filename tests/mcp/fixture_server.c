/* tests/mcp/fixture_server.c: `droste serve` with the tools, resources and prompts that the
 * official conformance suite of MCP calls by name. Only the suite has a use for them.
 *
 *   fixture_server ADDRESS [WORKERS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/call.h"
#include "serve/serve.h"

#define PNG                                                                                        \
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg" \
    "gg=="
#define WAV   "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
#define IMAGE "{\"type\":\"image\",\"data\":\"" PNG "\",\"mimeType\":\"image/png\"}"
#define FORM(message, schema)                                                                      \
    "{\"method\":\"elicitation/create\",\"params\":{\"message\":\"" message                        \
    "\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{" schema "}}}}"
#define SAMPLE(text)                                                                               \
    "{\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[{\"role\":\"user\","         \
    "\"content\":{\"type\":\"text\",\"text\":\"" text "\"}}],\"maxTokens\":100}}"
#define NAME_FORM FORM("What is your name?", "\"name\":{\"type\":\"string\"}")
#define ROOTS     "{\"method\":\"roots/list\",\"params\":{}}"

/* What a tool answers, or asks in rounds first: a list of objects, by key. */
static const struct fixture {
    const char *name, *result, *questions;
} fixtures[] = {
    { "test_simple_text",
        "{\"content\":[{\"type\":\"text\",\"text\":\"This is a simple text response for "
        "testing.\"}]}" },
    { "test_image_content", "{\"content\":[" IMAGE "]}" },
    { "test_audio_content",
        "{\"content\":[{\"type\":\"audio\",\"data\":\"" WAV "\",\"mimeType\":\"audio/wav\"}]}" },
    { "test_embedded_resource",
        "{\"content\":[{\"type\":\"resource\",\"resource\":{\"uri\":\"test://embedded-resource\","
        "\"mimeType\":\"text/plain\",\"text\":\"This is an embedded resource content.\"}}]}" },
    { "test_multiple_content_types",
        "{\"content\":[{\"type\":\"text\",\"text\":\"Multiple content types test:\"}," IMAGE
        ",{\"type\":\"resource\",\"resource\":{\"uri\":\"test://mixed-content-resource\","
        "\"mimeType\":\"application/json\",\"text\":\"{\\\"test\\\":\\\"data\\\"}\"}}]}" },
    { "test_error_handling",
        "{\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":\"This tool intentionally "
        "returns an error for testing\"}]}" },
    { "test_sampling", NULL, "[{\"sample\":" SAMPLE("Test prompt for sampling") "}]" },
    { "test_elicitation", NULL,
        "[{\"form\":" FORM("Test message", "\"response\":{\"type\":\"string\"}") "}]" },
    { "test_elicitation_sep1034_defaults", NULL,
        "[{\"form\":" FORM("Defaults",
            "\"name\":{\"type\":\"string\",\"default\":\"John Doe\"},"
            "\"age\":{\"type\":\"integer\",\"default\":30},"
            "\"score\":{\"type\":\"number\",\"default\":95.5},"
            "\"status\":{\"type\":\"string\",\"enum\":[\"active\",\"inactive\",\"pending\"],"
            "\"default\":\"active\"},\"verified\":{\"type\":\"boolean\",\"default\":true}") "}]" },
    { "test_elicitation_sep1330_enums", NULL,
        "[{\"form\":" FORM("Enumerations",
            "\"untitledSingle\":{\"type\":\"string\",\"enum\":[\"option1\",\"option2\","
            "\"option3\"]},\"titledSingle\":{\"type\":\"string\",\"oneOf\":[{\"const\":\"value1\","
            "\"title\":\"First Option\"},{\"const\":\"value2\",\"title\":\"Second Option\"},"
            "{\"const\":\"value3\",\"title\":\"Third Option\"}]},\"legacyEnum\":{\"type\":"
            "\"string\",\"enum\":[\"opt1\",\"opt2\",\"opt3\"],\"enumNames\":[\"Option One\","
            "\"Option Two\",\"Option Three\"]},\"untitledMulti\":{\"type\":\"array\",\"items\":{"
            "\"type\":\"string\",\"enum\":[\"option1\",\"option2\",\"option3\"]}},\"titledMulti\":{"
            "\"type\":\"array\",\"items\":{\"anyOf\":[{\"const\":\"value1\",\"title\":\"First "
            "Choice\"},{\"const\":\"value2\",\"title\":\"Second Choice\"},{\"const\":\"value3\","
            "\"title\":\"Third Choice\"}]}}") "}]" },
    { "test_streaming_elicitation", NULL, "[{\"form\":" NAME_FORM "}]" },
    { "test_input_required_result_elicitation", NULL, "[{\"user_name\":" NAME_FORM "}]" },
    { "test_input_required_result_sampling", NULL,
        "[{\"capital_question\":" SAMPLE("What is the capital of France?") "}]" },
    { "test_input_required_result_list_roots", NULL, "[{\"client_roots\":" ROOTS "}]" },
    { "test_input_required_result_request_state", NULL,
        "[{\"confirm\":" FORM("Please confirm", "\"ok\":{\"type\":\"boolean\"}") "}]" },
    { "test_input_required_result_tampered_state", NULL,
        "[{\"confirm\":" FORM("Please confirm", "\"ok\":{\"type\":\"boolean\"}") "}]" },
    { "test_input_required_result_multiple_inputs", NULL,
        "[{\"user_name\":" NAME_FORM
        ",\"greeting\":" SAMPLE("Generate a greeting") ","
                                                       "\"client_roots\":" ROOTS "}]" },
    { "test_input_required_result_multi_round", NULL,
        "[{\"step1\":" FORM("Step 1: What is your name?",
            "\"name\":{\"type\":\"string\"}") "},"
                                              "{\"step2\":" FORM(
                                                  "Step 2: What is your favorite color?",
                                                  "\"color\":{\"type\":\"string\"}") "}]" },
    { "test_input_required_result_capabilities", NULL,
        "[{\"form\":" NAME_FORM ",\"sample\":" SAMPLE("Hello") "}]" },
};

static void fixture_answer(struct mcp_call *c, const char *json)
{
    struct json_object *result = NULL;
    json_parse(json, strlen(json), &json_limits_small, &result, NULL);
    mcp_call_answer(c, result);
}

/* ---- questions ---- */

/* Of a call: what was answered so far. */
struct asked {
    const struct fixture *fixture;
    struct json_object *rounds, *answers;
    size_t round, open;
    bool begins;
};

static void asked_free(void *state)
{
    struct asked *a = state;
    json_object_put(a->rounds);
    json_object_put(a->answers);
    free(a);
}

static void asked_next(struct mcp_call *c);

static void asked_on_answer(
    void *arg, struct mcp_call *c, struct json_object *result, const char *why)
{
    if (!c)
        return;
    struct asked *a = c->state;
    json_object_array_add(
        a->answers, result ? json_object_get(result) : json_object_new_string(why));
    a->open--;
    if (a->open == 0 && !a->begins)
        asked_next(c);
}

static const char *asked_capability(const char *method)
{
    return strcmp(method, "roots/list") == 0           ? "roots"
           : strcmp(method, "elicitation/create") == 0 ? "elicitation"
                                                       : "sampling";
}

static void asked_end(struct mcp_call *c)
{
    struct asked *a = c->state;
    struct json_object *result = mcp_result();
    cleanup_free char *text =
        text_printf("Completed: answers=%s", json_object_to_json_string(a->answers));
    mcp_result_add_text(result, text, strlen(text));
    mcp_call_answer(c, result);
}

static void asked_next(struct mcp_call *c)
{
    struct asked *a = c->state;
    while (a->open == 0 && a->round < json_length(a->rounds)) {
        struct json_object *round = json_object_array_get_idx(a->rounds, a->round++);
        a->begins = true; /* answers may be there already */
        json_object_object_foreach(round, key, one)
        {
            const char *method = json_get_string(one, "method", "");
            if (!mcp_call_can(c, asked_capability(method)))
                continue;
            a->open++;
            mcp_call_ask(c, key, method,
                json_object_get(json_get_typed(one, "params", json_type_object)), asked_on_answer,
                NULL);
        }
        a->begins = false;
    }
    if (a->open == 0)
        asked_end(c);
}

static void fixture_run(struct mcp_call *c)
{
    const char *name = json_get_string(c->params, "name", "");
    const struct fixture *f = fixtures;
    while (strcmp(f->name, name) != 0)
        f++;
    if (f->result) {
        fixture_answer(c, f->result);
        return;
    }
    struct asked *a = calloc(1, sizeof *a);
    a->fixture = f;
    a->answers = json_object_new_array();
    json_parse(f->questions, strlen(f->questions), &json_limits_small, &a->rounds, NULL);
    c->state = a;
    c->free_state = asked_free;
    asked_next(c);
}

/* ---- others ---- */

static void fixture_log(struct mcp_call *c)
{
    static const char *const texts[] = { "Tool execution started", "Tool processing data",
        "Tool execution completed" };
    for (size_t i = 0; i < 3; i++)
        mcp_call_log(c, "info", "fixture", json_object_new_string(texts[i]));
    fixture_answer(c, "{\"content\":[{\"type\":\"text\",\"text\":\"Logged.\"}]}");
}

static void fixture_progress(struct mcp_call *c)
{
    for (int i = 0; i <= 2; i++)
        mcp_call_progress_of(c, i * 50, 100, "working");
    fixture_answer(c, "{\"content\":[{\"type\":\"text\",\"text\":\"Done.\"}]}");
}

static void fixture_needs_sampling(struct mcp_call *c)
{
    if (mcp_call_can(c, "sampling"))
        fixture_answer(c, "{\"content\":[{\"type\":\"text\",\"text\":\"It is there.\"}]}");
    else
        mcp_call_fail_capability(c, "sampling");
}

static void fixture_change_tools(struct mcp_call *c)
{
    mcp_notify_list(c->peer->mcp, "tools");
    fixture_answer(c, "{\"content\":[]}");
}

static void fixture_change_prompts(struct mcp_call *c)
{
    mcp_notify_list(c->peer->mcp, "prompts");
    fixture_answer(c, "{\"content\":[]}");
}

/* ---- resources and prompts ---- */

static bool fixture_read(struct mcp_call *c, const char *uri)
{
    static const char before[] = "test://template/", after[] = "/data";
    size_t n = strlen(uri);
    if (strcmp(uri, "test://static-text") == 0) {
        fixture_answer(c,
            "{\"contents\":[{\"uri\":\"test://static-text\",\"mimeType\":\"text/plain\",\"text\":"
            "\"This is the content of the static text resource.\"}]}");
    } else if (strcmp(uri, "test://static-binary") == 0) {
        fixture_answer(c,
            "{\"contents\":[{\"uri\":\"test://static-binary\",\"mimeType\":\"image/png\","
            "\"blob\":\"" PNG "\"}]}");
    } else if (n > sizeof before + sizeof after - 2 &&
               strncmp(uri, before, sizeof before - 1) == 0 &&
               strcmp(uri + n - (sizeof after - 1), after) == 0) {
        int len = (int)(n - (sizeof before - 1) - (sizeof after - 1));
        const char *id = uri + sizeof before - 1;
        cleanup_free char *json = text_printf(
            "{\"contents\":[{\"uri\":\"%s\",\"mimeType\":\"application/json\",\"text\":"
            "\"{\\\"id\\\":\\\"%.*s\\\",\\\"templateTest\\\":true,\\\"data\\\":\\\"Data for ID: "
            "%.*s\\\"}\"}]}",
            uri, len, id, len, id);
        fixture_answer(c, json);
    } else {
        return false;
    }
    return true;
}

static void prompt_answer(struct mcp_call *c, const char *content)
{
    cleanup_free char *json =
        text_printf("{\"messages\":[{\"role\":\"user\",\"content\":%s}]}", content);
    fixture_answer(c, json);
}

static void prompt_on_answer(
    void *arg, struct mcp_call *c, struct json_object *result, const char *why)
{
    if (c)
        prompt_answer(c, "{\"type\":\"text\",\"text\":\"With the given context.\"}");
}

static bool fixture_prompt(struct mcp_call *c, const char *name)
{
    struct json_object *arguments = json_get_typed(c->params, "arguments", json_type_object);
    if (strcmp(name, "test_simple_prompt") == 0) {
        prompt_answer(c, "{\"type\":\"text\",\"text\":\"This is a simple prompt for testing.\"}");
    } else if (strcmp(name, "test_prompt_with_image") == 0) {
        prompt_answer(c, IMAGE);
    } else if (strcmp(name, "test_prompt_with_arguments") == 0) {
        cleanup_free char *content = text_printf(
            "{\"type\":\"text\",\"text\":\"Prompt with arguments: arg1='%s', arg2='%s'\"}",
            json_get_string(arguments, "arg1", ""), json_get_string(arguments, "arg2", ""));
        prompt_answer(c, content);
    } else if (strcmp(name, "test_prompt_with_embedded_resource") == 0) {
        cleanup_free char *content = text_printf(
            "{\"type\":\"resource\",\"resource\":{\"uri\":\"%s\",\"mimeType\":\"text/plain\","
            "\"text\":\"Embedded resource content for testing.\"}}",
            json_get_string(arguments, "resourceUri", ""));
        prompt_answer(c, content);
    } else if (strcmp(name, "test_input_required_result_prompt") == 0) {
        struct json_object *form = NULL;
        static const char text[] =
            FORM("What context should the prompt use?", "\"context\":{\"type\":\"string\"}");
        json_parse(text, sizeof text - 1, &json_limits_small, &form, NULL);
        mcp_call_ask(c, "user_context", "elicitation/create",
            json_object_get(json_get_typed(form, "params", json_type_object)), prompt_on_answer,
            NULL);
        json_object_put(form);
    } else {
        return false;
    }
    return true;
}

static const char resources[] =
    "[{\"uri\":\"test://static-text\",\"name\":\"Static text\",\"description\":\"A text.\","
    "\"mimeType\":\"text/plain\"},{\"uri\":\"test://static-binary\",\"name\":\"Static binary\","
    "\"description\":\"An image.\",\"mimeType\":\"image/png\"},{\"uri\":"
    "\"test://watched-resource\",\"name\":\"Watched\",\"description\":\"It may change.\"}]";
static const char templates[] = "[{\"uriTemplate\":\"test://template/{id}/data\",\"name\":"
                                "\"Template\",\"description\":\"By id.\"}]";
static const char prompts[] =
    "[{\"name\":\"test_simple_prompt\",\"description\":\"Simple.\"},{\"name\":"
    "\"test_prompt_with_arguments\",\"description\":\"Arguments.\",\"arguments\":[{\"name\":"
    "\"arg1\",\"required\":true},{\"name\":\"arg2\",\"required\":true}]},{\"name\":"
    "\"test_prompt_with_embedded_resource\",\"description\":\"A resource.\",\"arguments\":[{"
    "\"name\":\"resourceUri\",\"required\":true}]},{\"name\":\"test_prompt_with_image\","
    "\"description\":\"An image.\"},{\"name\":\"test_input_required_result_prompt\","
    "\"description\":\"Asks first.\"}]";

enum { FIXTURES = sizeof fixtures / sizeof *fixtures, OTHERS = 6 };
static struct mcp_tool tools[FIXTURES + OTHERS] = {
    { .name = "test_tool_with_logging", .run = fixture_log },
    { .name = "test_logging_tool", .run = fixture_log },
    { .name = "test_tool_with_progress", .run = fixture_progress },
    { .name = "test_missing_capability", .run = fixture_needs_sampling },
    { .name = "test_trigger_tool_change", .run = fixture_change_tools },
    { .name = "test_trigger_prompt_change", .run = fixture_change_prompts },
};

static void print_address(void *arg, const char *address)
{
    printf("%s\n", address);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct error err = { 0 };
    droste *d;
    for (size_t i = 0; i < FIXTURES; i++)
        tools[OTHERS + i] = (struct mcp_tool){ .name = fixtures[i].name, .run = fixture_run };
    for (size_t i = 0; i < FIXTURES + OTHERS; i++) {
        tools[i].title = tools[i].description = tools[i].name;
        tools[i].input = "{\"type\":\"object\"}";
    }
    const struct mcp_extension extension = { .tools = tools,
        .tool_count = FIXTURES + OTHERS,
        .resources = resources,
        .templates = templates,
        .prompts = prompts,
        .read = fixture_read,
        .prompt = fixture_prompt,
        .lists_change = true };
    const struct serve_options options = { .listen = argc > 1 ? argv[1] : "127.0.0.1:0",
        .life_seconds = 600,
        .idle_seconds = 600,
        .request_seconds = 10,
        .drain_seconds = 5,
        .queue_seconds = 10,
        .workers = argc > 2 ? (size_t)atoi(argv[2]) : 1,
        .max_sandboxes = 16,
        .max_connections = 1024,
        .mcp_extension = &extension,
        .argv = argv,
        .ready = print_address };
    if (droste_new(&d, NULL) < 0 || droste_configure(d, "/dev/null", NULL) < 0)
        return 1;
    int rc = serve_run(d, &options, &err);
    if (rc < 0)
        fprintf(stderr, "fixture_server: %s\n", err.text);
    droste_free(d);
    return rc < 0;
}
