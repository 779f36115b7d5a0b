/* Requests of OpenAI's clients for a run: byte 0 chooses chat completions or responses, byte 1 the
 * threshold; the rest is the body. A body that fits the route's schema is refused with an error in
 * OpenAI's form, or becomes a question and a context that the library takes as they are.
 */
#include "fuzz.h"

#include "base/cleanup.h"
#include "serve/openai/file_store.h"
#include "serve/openai/openai.h"

/* NULL: the body is none that reaches the handler. */
static struct json_object *body_parse(const struct route *route, struct input *in)
{
    static struct schema *schemas[2];
    struct schema **schema = &schemas[strcmp(route->path, "/v1/responses") == 0];
    struct json_object *body = NULL;
    size_t len;
    char *text = input_piece(in, 1 << 20, &len);
    if (!*schema)
        expect(schema_parse(route->schema, strlen(route->schema), schema, NULL) == 0);
    if (json_parse(text, len, &json_limits_large, &body, NULL) < 0 || !body ||
        schema_check(*schema, body, NULL) < 0) {
        json_object_put(body);
        body = NULL;
    }
    free(text);
    return body;
}

static const struct route *route_named(const char *path)
{
    for (size_t i = 0; route_at(i); i++)
        if (strcmp(route_at(i)->path, path) == 0)
            return route_at(i);
    return NULL;
}

static void expect_context(const struct openai_ask *ask)
{
    expect(
        !ask->data || strcmp(ask->kind, "bytes") == 0 || text_is_utf8(ask->data, ask->len, NULL));
    if (ask->data && strcmp(ask->kind, "json") == 0)
        expect(json_check(ask->data, ask->len, &json_limits_large, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct table_worker figures;
    static struct serve_options options;
    struct input in = { data, size };
    bool is_chat = input_byte(&in) & 1;
    options.context_threshold = input_byte(&in);
    setenv("DROSTE_HOME", "/proc/none", 1); /* there are no stored files */
    struct server server = { .options = &options, .figures = &figures };
    struct account account = { .key.id = "fuzz" };
    const struct route *route = route_named(is_chat ? "/v1/chat/completions" : "/v1/responses");
    struct request r = { .server = &server,
        .account = &account,
        .routes = &openai_routes,
        .route = route,
        .json = body_parse(route, &in) };
    if (!r.json)
        return 0;
    struct openai_ask ask = { .r = &r };
    const struct openai_form *form = is_chat ? &openai_chat_form : &openai_responses_form;
    bool fine = form->ask(&ask) && openai_ask_finish(&ask);
    expect(fine == !r.reply);
    if (fine) {
        expect(ask.question.len > 0 && strlen(ask.question.data) == ask.question.len);
        expect(text_is_utf8(ask.question.data, ask.question.len, NULL));
        expect_context(&ask);
    } else {
        expect(r.status >= 400 && r.status < 600);
        MHD_destroy_response(r.reply);
    }
    openai_ask_free(&ask);
    json_object_put(r.json);
    return 0;
}
