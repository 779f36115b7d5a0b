/* serve/openai/models.c: the models that clients may name.
 *
 * An entry is the name of a model as in the setting, NAME=MODEL, which gives it another name and
 * may also be a recording or a program, or PROVIDER/ and a star, for all models of a provider. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/openai/openai.h"

static const char run_prefix[] = "droste/";

struct openai_entry {
    char *name, *model;
    bool is_named; /* by the operator: its last part alone is not its name */
    bool is_all;   /* the model is PROVIDER/, and so is the name */
};

struct openai_models {
    struct openai_entry *rows;
    size_t count, room;
};

void openai_models_free(struct openai_models *models)
{
    for (size_t i = 0; models && i < models->count; i++) {
        free(models->rows[i].name);
        free(models->rows[i].model);
    }
    if (models)
        free(models->rows);
    free(models);
}

static int models_refuse(const char *text, size_t len, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT,
        "models '%.*s': expected MODEL, NAME=MODEL or PROVIDER/*, separated by commas",
        (int)(len < 100 ? len : 100), text);
}

/* One entry of the list. */
static int models_add(struct openai_models *models, const char *text, size_t len, struct error *err)
{
    const char *equals = memchr(text, '=', len), *model = equals ? equals + 1 : text;
    size_t model_len = (size_t)(text + len - model),
           name_len = equals ? (size_t)(equals - text) : len;
    bool is_all = model_len > 0 && model[model_len - 1] == '*';
    if (is_all && (equals || model_len < 3 || model[model_len - 2] != '/'))
        return models_refuse(text, len, err);
    if (name_len == 0 || model_len == 0 || model_len >= OPENAI_MODEL_SIZE ||
        name_len >= SERVE_NAME_SIZE - sizeof run_prefix)
        return models_refuse(text, len, err);
    if (!array_room(models->rows, models->count, &models->room))
        return error_memory(err);
    struct openai_entry *e = &models->rows[models->count++];
    *e = (struct openai_entry){ .name = text_copy(text, name_len - is_all),
        .model = text_copy(model, model_len - is_all),
        .is_named = equals != NULL,
        .is_all = is_all };
    return e->name && e->model ? 0 : error_memory(err);
}

int openai_models_parse(const char *text, struct openai_models **out, struct error *err)
{
    struct openai_models *models = calloc(1, sizeof *models);
    int rc = models ? 0 : error_memory(err);
    while (rc == 0 && *text) {
        size_t n = strcspn(text, ",");
        rc = models_add(models, text, n, err);
        text += n + (text[n] != '\0');
    }
    if (rc < 0) {
        openai_models_free(models);
        return rc;
    }
    *out = models;
    return 0;
}

static bool entry_fits(const struct openai_entry *e, const char *name)
{
    size_t n = strlen(e->name);
    if (e->is_all)
        return strncmp(name, e->name, n) == 0 && name[n] != '\0';
    const char *slash = e->is_named ? NULL : strchr(e->name, '/');
    return strcmp(e->name, name) == 0 || (slash && strcmp(slash + 1, name) == 0);
}

/* False: there is none that the client may use. */
static bool openai_models_find(
    const struct openai_models *models, const char *name, struct openai_model *out)
{
    size_t n = sizeof run_prefix - 1;
    out->is_run = strncmp(name, run_prefix, n) == 0;
    if (out->is_run)
        name += n;
    for (size_t i = 0; i < models->count; i++) {
        const struct openai_entry *e = &models->rows[i];
        if (!entry_fits(e, name) || strlen(name) >= OPENAI_MODEL_SIZE)
            continue;
        snprintf(out->name, sizeof out->name, "%s", e->is_all ? name : e->model);
        return true;
    }
    return false;
}

static void models_refuse_name(struct request *r, const char *name)
{
    openai_refuse(r,
        &(struct openai_error){ .status = 404, .code = "model_not_found", .param = "model" },
        "The model `%.200s` does not exist or you do not have access to it; GET /v1/models lists "
        "those of this server.",
        name);
}

bool openai_model_of(struct request *r, struct openai_model *out)
{
    const char *name = json_get_string(r->json, "model", "");
    if (openai_models_find(r->server->openai->models, name, out))
        return true;
    models_refuse_name(r, name);
    return false;
}

/* ---- the list ---- */

static void models_put(struct buf *out, const struct request *r, const char *name, bool is_run)
{
    cleanup_free char *id = text_printf("%s%s", is_run ? run_prefix : "", name);
    field_open(out, NULL, '{');
    field_string(out, "id", id);
    field_string(out, "object", "model");
    field_int(out, "created", r->server->openai->created_s);
    field_string(out, "owned_by", is_run ? "droste" : "provider");
    field_close(out, '}');
}

void openai_handle_models(struct request *r)
{
    const struct openai_models *models = r->server->openai->models;
    cleanup_buf struct buf out = { 0 };
    buf_puts(&out, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < models->count; i++) {
        if (models->rows[i].is_all)
            continue;
        models_put(&out, r, models->rows[i].name, true);
        models_put(&out, r, models->rows[i].name, false);
    }
    buf_puts(&out, "]}");
    request_reply_written(r, 200, &out);
}

void openai_handle_model(struct request *r)
{
    struct openai_model model;
    cleanup_buf struct buf out = { 0 };
    if (!openai_models_find(r->server->openai->models, r->name, &model)) {
        models_refuse_name(r, r->name);
        return;
    }
    size_t prefix = model.is_run ? sizeof run_prefix - 1 : 0;
    models_put(&out, r, r->name + prefix, model.is_run);
    request_reply_written(r, 200, &out);
}
