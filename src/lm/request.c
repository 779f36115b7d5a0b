/* lm/request.c: checks roles and parts, and weighs them; makes keys of requests. */
#include "lm/request.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/os/random.h"
#include "base/text.h"
#include "lm/client.h"

const char *lm_role(const char *role)
{
    static const char *const roles[] = { "system", "user", "assistant" };
    for (size_t i = 0; role && i < array_length(roles); i++)
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    return NULL;
}

static bool is_media_type(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789.+-";
    size_t n = text ? strspn(text, letters) : 0;
    size_t m = n > 0 && text[n] == '/' ? strspn(text + n + 1, letters) : 0;
    return m > 0 && text[n + 1 + m] == '\0' && n + m < 100;
}

static int check_part(
    const struct lm_part *part, size_t message, const char *role, struct error *err)
{
    size_t bad = 0;
    if (part->kind == LM_PART_TEXT)
        return text_is_utf8(part->data, part->len, &bad)
                   ? 0
                   : error_set(err, ERROR_ARGUMENT,
                         "a text of message %zu is not UTF-8 at byte %zu", message, bad);
    if (strcmp(role, "user") != 0)
        return error_set(err, ERROR_ARGUMENT,
            "message %zu has the role '%s', but only messages of the user may contain images and "
            "documents",
            message, role);
    if (part->kind == LM_PART_IMAGE_URL)
        return text_is_utf8(part->data, part->len, &bad)
                   ? 0
                   : error_set(
                         err, ERROR_ARGUMENT, "message %zu: an address is not UTF-8", message);
    if (!is_media_type(part->media_type))
        return error_set(err, ERROR_ARGUMENT,
            "message %zu: '%.40s' is not a media type: it looks like image/png", message,
            part->media_type ? part->media_type : "");
    if (part->kind == LM_PART_IMAGE && strncmp(part->media_type, "image/", 6) != 0)
        return error_set(
            err, ERROR_ARGUMENT, "message %zu: %.60s is not an image", message, part->media_type);
    return part->len > 0 ? 0
                         : error_set(err, ERROR_ARGUMENT, "message %zu contains an empty %s",
                               message, part->kind == LM_PART_IMAGE ? "image" : "document");
}

static int check_message(const struct lm_message *m, size_t index, struct error *err)
{
    size_t bad = 0;
    int rc = 0;
    if (!lm_role(m->role))
        return error_set(err, ERROR_ARGUMENT,
            "message %zu has the role '%.32s': use system, user or assistant", index,
            m->role ? m->role : "");
    if (m->part_count == 0 && !text_is_utf8(m->text, m->len, &bad))
        return error_set(err, ERROR_ARGUMENT, "message %zu is not UTF-8 at byte %zu", index, bad);
    for (size_t k = 0; k < m->part_count && rc == 0; k++)
        rc = check_part(&m->parts[k], index, m->role, err);
    return rc;
}

int request_check(const struct lm_request *request, struct error *err)
{
    if (request->message_count == 0)
        return error_set(err, ERROR_ARGUMENT, "the call of the model has no messages");
    if (request->model && !text_is_utf8(request->model, strlen(request->model), NULL))
        return error_set(err, ERROR_ARGUMENT, "the model's name is not UTF-8");
    int rc = 0;
    for (size_t i = 0; i < request->message_count && rc == 0; i++)
        rc = check_message(&request->messages[i], i, err);
    return rc;
}

static size_t message_weight(const struct lm_message *m)
{
    size_t bytes = m->part_count == 0 ? m->len : 0;
    for (size_t k = 0; k < m->part_count; k++)
        bytes += m->parts[k].kind == LM_PART_IMAGE || m->parts[k].kind == LM_PART_IMAGE_URL
                     ? LM_IMAGE_WEIGHT
                     : m->parts[k].len;
    return bytes;
}

size_t request_weight(const struct lm_request *request)
{
    size_t bytes = 0;
    for (size_t i = 0; i < request->message_count; i++)
        bytes += message_weight(&request->messages[i]);
    return bytes;
}

int lm_key(char out[LM_KEY_SIZE], struct error *err)
{
    return random_hex(out, LM_KEY_SIZE - 1, err);
}

struct lm_usage lm_usage_estimate(const struct lm_call *call, size_t output_bytes)
{
    return (struct lm_usage){
        .input_tokens = (int64_t)((call->input_bytes + 3) / 4),
        .output_tokens = (int64_t)((output_bytes + 3) / 4),
        .estimated = true,
    };
}
