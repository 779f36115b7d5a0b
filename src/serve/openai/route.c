/* serve/openai/route.c: the routes of OpenAI's API, below the prefix that the native ones share. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/openai/containers.h"
#include "serve/openai/openai.h"
#include "serve/openai/response_id.h"
#include "serve/openai_schemas.h"

#define JSON   "application/json"
#define STREAM "\"stream\": {\"enum\": [\"true\", \"false\"]}"
#define ORDER  "\"order\": {\"enum\": [\"asc\", \"desc\"]}"

#define PAGE                                                                                       \
    "\"limit\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 10000}, \"order\": "          \
    "{\"enum\": [\"asc\", \"desc\"]}, \"after\": {\"type\": \"string\"}, \"purpose\": "            \
    "{\"type\": \"string\"}"

static const struct route openai_rows[] = {
    { "GET", "/v1/models", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: list the models, and those that answer with runs (droste/…)",
        openai_handle_models, SCOPE_MODELS | SCOPE_READ },
    { "GET", "/v1/models/{path}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: describe a model", openai_handle_model, SCOPE_MODELS | SCOPE_READ },
    { "POST", "/v1/chat/completions", BODY_JSON, CHAT, NULL, 200, JSON, OBJECT,
        "OpenAI's API: answer a conversation with a run, or pass it on to the model's provider; "
        "with stream, the answer is a stream of server-sent events",
        openai_handle_chat, SCOPE_MODELS, .body_max = OPENAI_BODY_MAX, .form = &openai_chat_form },
    { "POST", "/v1/responses", BODY_JSON, RESPONSE, NULL, 200, JSON, OBJECT,
        "OpenAI's API: answer an input with a run, whose steps are items; with stream, the answer "
        "is a stream of server-sent events",
        openai_handle_response_create, SCOPE_MODELS, .body_max = OPENAI_BODY_MAX,
        .form = &openai_responses_form },
    { "GET", "/v1/responses/{name}", BODY_NONE, NULL, STREAM, 200, JSON, OBJECT,
        "OpenAI's API: a stored response", openai_handle_response_get, SCOPE_MODELS,
        .of_run = true },
    { "DELETE", "/v1/responses/{name}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: delete a stored response; its run stays in the record",
        openai_handle_response_delete, SCOPE_MODELS, .of_run = true },
    { "POST", "/v1/responses/{name}/cancel", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: cancel a response", openai_handle_response_cancel, SCOPE_MODELS,
        .of_run = true },
    { "GET", "/v1/responses/{name}/input_items", BODY_NONE, NULL, ORDER, 200, JSON, OBJECT,
        "OpenAI's API: what a stored response was asked", openai_handle_response_items,
        SCOPE_MODELS, .of_run = true },
    { "POST", "/v1/files", BODY_STREAM, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: store a file, which can be a context of runs", openai_handle_file_create,
        SCOPE_MODELS, .is_form = true },
    { "GET", "/v1/files", BODY_NONE, NULL, PAGE, 200, JSON, OBJECT, "OpenAI's API: list files",
        openai_handle_file_list, SCOPE_MODELS },
    { "GET", "/v1/files/{id}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: describe a file", openai_handle_file_get, SCOPE_MODELS },
    { "DELETE", "/v1/files/{id}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: delete a file", openai_handle_file_delete, SCOPE_MODELS },
    { "GET", "/v1/files/{id}/content", BODY_NONE, NULL, NULL, 200, "application/octet-stream", NULL,
        "OpenAI's API: a file's content", openai_handle_file_content, SCOPE_MODELS },
    { "POST", "/v1/containers", BODY_JSON, CONTAINER, NULL, 200, JSON, OBJECT,
        "OpenAI's API: make a container, whose files the code of responses shares",
        openai_handle_container_create, SCOPE_MODELS },
    { "GET", "/v1/containers", BODY_NONE, NULL, PAGE, 200, JSON, OBJECT,
        "OpenAI's API: list containers", openai_handle_container_list, SCOPE_MODELS },
    { "GET", "/v1/containers/{id}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: describe a container", openai_handle_container_get, SCOPE_MODELS },
    { "DELETE", "/v1/containers/{id}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: delete a container with its files", openai_handle_container_delete,
        SCOPE_MODELS },
    { "POST", "/v1/containers/{id}/files", BODY_STREAM, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: put a file into a container: a form with it, or JSON with a file_id",
        openai_handle_container_file_create, SCOPE_MODELS, .is_form = true },
    { "GET", "/v1/containers/{id}/files", BODY_NONE, NULL, PAGE, 200, JSON, OBJECT,
        "OpenAI's API: list the files of a container", openai_handle_container_file_list,
        SCOPE_MODELS },
    { "GET", "/v1/containers/{id}/files/{name}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: describe a file of a container", openai_handle_container_file_get,
        SCOPE_MODELS },
    { "DELETE", "/v1/containers/{id}/files/{name}", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: delete a file of a container", openai_handle_container_file_delete,
        SCOPE_MODELS },
    { "GET", "/v1/containers/{id}/files/{name}/content", BODY_NONE, NULL, NULL, 200,
        "application/octet-stream", NULL, "OpenAI's API: the content of a container's file",
        openai_handle_container_file_content, SCOPE_MODELS },
    { "POST", "/v1/uploads", BODY_JSON, UPLOAD, NULL, 200, JSON, OBJECT,
        "OpenAI's API: begin a file in parts", openai_handle_upload_create, SCOPE_MODELS },
    { "POST", "/v1/uploads/{id}/parts", BODY_STREAM, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: add a part", openai_handle_upload_part, SCOPE_MODELS, .is_form = true },
    { "POST", "/v1/uploads/{id}/complete", BODY_JSON, COMPLETE, NULL, 200, JSON, OBJECT,
        "OpenAI's API: join the parts to a file", openai_handle_upload_complete, SCOPE_MODELS },
    { "POST", "/v1/uploads/{id}/cancel", BODY_NONE, NULL, NULL, 200, JSON, OBJECT,
        "OpenAI's API: drop an upload", openai_handle_upload_cancel, SCOPE_MODELS },
};

/* Also what OpenAI has and this server has not, so that its clients read an error of theirs;
 * /v1/batches is the native interface's. */
static bool openai_claims(struct request *r, const char *path)
{
    static const char *const words[] = { "assistants", "audio", "chat", "completions", "containers",
        "conversations", "embeddings", "evals", "files", "fine_tuning", "images", "models",
        "moderations", "organization", "realtime", "responses", "threads", "uploads",
        "vector_stores", "videos" };
    if (strncmp(path, "/v1/", 4) != 0)
        return false;
    response_locate(r, path);
    size_t len = strcspn(path + 4, "/");
    for (size_t i = 0; i < array_length(words); i++)
        if (strlen(words[i]) == len && strncmp(words[i], path + 4, len) == 0)
            return true;
    return false;
}

const struct routes openai_routes = { .rows = openai_rows,
    .count = array_length(openai_rows),
    .claims = openai_claims,
    .refuse = openai_refuse_plainly,
    .is_documented = true };

/* ---- the configuration ---- */

int openai_open(struct server *s, struct error *err)
{
    const char *models = s->options->models;
    s->openai = calloc(1, sizeof *s->openai);
    if (!s->openai)
        return error_memory(err);
    s->openai->created_s = clock_wall_ms() / 1000;
    if (!models)
        models = droste_get(s->d, "model");
    return openai_models_parse(models ? models : "", &s->openai->models, err);
}

void openai_close(struct server *s)
{
    if (!s->openai)
        return;
    openai_models_free(s->openai->models);
    free(s->openai);
}
