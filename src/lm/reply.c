/* lm/reply.c: explains unsuccessful statuses, and checks replies. */
#include "lm/reply.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

enum {
    WORDS_MOST = 1600,    /* bytes of a server's message in an error */
    MESSAGE_MOST = 65536, /* and of the whole message beside it */
};

/* Maps statuses to errors; the first matching row counts. `word` is the server's name of the
 * error. The remedy precedes the server's message, which may be truncated; if it has two halves,
 * the key's variable comes between them. */
static const struct meaning {
    long status; /* 0: any */
    const char *word;
    enum error_code code;
    bool retry;
    const char *cure, *cure_end;
} meanings[] = {
    { 0, "insufficient_quota", ERROR_MODEL_RATE, false, "the account has used up its quota", NULL },
    { 0, "billing_error", ERROR_MODEL_RATE, false, "the account has a billing problem", NULL },
    { 0, "model_not_found", ERROR_MODEL_UNKNOWN, false, "check --model", NULL },
    { 0, "DeploymentNotFound", ERROR_MODEL_UNKNOWN, false, "check --model", NULL },
    { 0, "authentication_error", ERROR_MODEL_AUTH, false, "set ",
        " to a key that the provider "
        "accepts" },
    { 0, "API_KEY_INVALID", ERROR_MODEL_AUTH, false, "set ",
        " to a key that the provider accepts" },
    { 0, "permission_error", ERROR_MODEL_AUTH, false, "set ",
        " to a key that has permission for "
        "this" },
    { 401, NULL, ERROR_MODEL_AUTH, false, "set ", " to a key that the provider accepts" },
    { 402, NULL, ERROR_MODEL_RATE, false, "the account has used up its credit", NULL },
    { 403, NULL, ERROR_MODEL_AUTH, false, "set ", " to a key that has permission for this" },
    { 404, NULL, ERROR_MODEL_UNKNOWN, false, "check --model and the base URL", NULL },
    { 0, "not_found_error", ERROR_MODEL_UNKNOWN, false, "check --model and the base URL", NULL },
    { 408, NULL, ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 429, NULL, ERROR_MODEL_RATE, true, "lower the concurrency or try later", NULL },
    { 0, "rate_limit_error", ERROR_MODEL_RATE, true, "lower the concurrency or try later", NULL },
    { 0, "rate_limit_exceeded", ERROR_MODEL_RATE, true, "lower the concurrency or try later",
        NULL },
    { 0, "RESOURCE_EXHAUSTED", ERROR_MODEL_RATE, true, "lower the concurrency or try later", NULL },
    { 500, NULL, ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 502, NULL, ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 503, NULL, ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 504, NULL, ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 529, NULL, ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 0, "overloaded_error", ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 0, "server_error", ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 0, "api_error", ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 0, "timeout_error", ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 0, "UNAVAILABLE", ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 0, "INTERNAL", ERROR_MODEL_SERVER, true, "try again later", NULL },
    { 0, NULL, ERROR_MODEL, false, "the request was refused", NULL },
};

void model_answer_reset(struct model_answer *a)
{
    buf_clear(&a->text);
    buf_clear(&a->refusal);
    buf_clear(&a->message);
    a->finish[0] = '\0';
    a->input_tokens = a->output_tokens = -1;
    a->cached_tokens = 0;
    a->choice = a->finished = a->retry = false;
}

void model_answer_free(struct model_answer *a)
{
    buf_free(&a->text);
    buf_free(&a->refusal);
    buf_free(&a->message);
}

size_t reply_held_back(const char *text, size_t len, const char *key)
{
    size_t n = strlen(key);
    if (n < TEXT_SECRET_LEAST)
        return 0;
    for (size_t held = len < n ? len : n - 1; held > 0; held--)
        if (memcmp(text + len - held, key, held) == 0)
            return held;
    return 0;
}

/* Writes a server's message, made safe for an error. If it is cut, a->message has all of it. */
static void put_words(char out[WORDS_MOST + 1], struct model_answer *a,
    const struct reply_where *where, const char *text, size_t len)
{
    cleanup_buf struct buf copy = { 0 }, seen = { 0 };
    buf_append(&copy, text, text_utf8_floor(text, len, MESSAGE_MOST));
    if (copy.data)
        text_mask(copy.data, copy.len, where->key);
    text_append_visible(&seen, buf_text(&copy), copy.len);
    static const char ellipsis[] = "…"; /* marks a truncated message */
    bool cut = seen.len > WORDS_MOST;
    size_t n = cut ? text_utf8_floor(buf_text(&seen), seen.len, WORDS_MOST + 1 - sizeof ellipsis)
                   : seen.len;
    memcpy(out, buf_text(&seen), n);
    snprintf(out + n, WORDS_MOST + 1 - n, "%s", cut ? ellipsis : "");
    buf_clear(&a->message);
    if (cut)
        buf_append(&a->message, seen.data, seen.len);
    if (len > MESSAGE_MOST)
        buf_append(&a->message, ellipsis, strlen(ellipsis));
}

/* Puts what an error says before the server's words before the whole message, too. */
static void message_begin(struct model_answer *a, const struct error *err, const char *words)
{
    size_t len = err ? strlen(err->text) : 0, tail = strlen(words);
    cleanup_buf struct buf whole = a->message;
    a->message = (struct buf){ 0 };
    if (whole.len == 0 || len < tail)
        return;
    buf_append(&a->message, err->text, len - tail);
    buf_append(&a->message, whole.data, whole.len);
}

struct json_object *reply_get(struct json_object *o, const char *key)
{
    struct json_object *v = NULL;
    if (o && json_object_is_type(o, json_type_object))
        json_object_object_get_ex(o, key, &v);
    return v;
}

/* The object with the error's message; some servers wrap it in a list. */
static struct json_object *find_error(struct json_object *root)
{
    if (json_object_is_type(root, json_type_array) && json_object_array_length(root) > 0)
        root = json_object_array_get_idx(root, 0);
    return reply_get(root, "error");
}

/* The formats are {"error":{"message":…}}, {"error":"…"}, {"message":…} or {"detail":"…"}. */
static struct json_object *find_message(struct json_object *root)
{
    struct json_object *error = find_error(root);
    struct json_object *const members[] = { reply_get(error, "message"), error,
        reply_get(root, "message"), reply_get(root, "detail") };
    for (size_t i = 0; i < array_length(members); i++)
        if (json_object_is_type(members[i], json_type_string))
            return members[i];
    return NULL;
}

/* The error's name is its `code` or `type` (OpenAI, Anthropic), its `status`, or the `reason` of
 * one of its `details` (Google). */
static bool reply_has_word(struct json_object *error, const char *word)
{
    static const char *const members[] = { "code", "type", "status" };
    for (size_t i = 0; i < array_length(members); i++)
        if (strcmp(json_get_string(error, members[i], ""), word) == 0)
            return true;
    struct json_object *details = json_get_typed(error, "details", json_type_array);
    for (size_t i = 0; i < json_length(details); i++)
        if (strcmp(json_get_string(json_object_array_get_idx(details, i), "reason", ""), word) == 0)
            return true;
    return false;
}

/* Google's request for a pause: {"retryDelay":"34s"} among the details. */
static double retry_delay(struct json_object *error)
{
    struct json_object *details = json_get_typed(error, "details", json_type_array);
    for (size_t i = 0; i < json_length(details); i++) {
        const char *text = json_get_string(json_object_array_get_idx(details, i), "retryDelay", "");
        double seconds = text_to_double(text, NULL);
        if (isfinite(seconds) && seconds > 0)
            return seconds;
    }
    return 0;
}

static void message_words(char words[WORDS_MOST + 1], struct model_answer *a,
    const struct reply_where *where, struct json_object *root, const char *body, size_t len)
{
    struct json_object *message = find_message(root);
    if (message)
        put_words(words, a, where, json_object_get_string(message),
            (size_t)json_object_get_string_len(message));
    else
        put_words(words, a, where, body, len);
}

static const struct meaning *find_meaning(struct json_object *root, long status)
{
    const struct meaning *m = meanings;
    struct json_object *error = find_error(root);
    while ((m->status != 0 && m->status != status) || (m->word && !reply_has_word(error, m->word)))
        m++;
    return m;
}

bool reply_status_error(struct model_answer *a, const struct reply_where *where, long status,
    const char *body, size_t len, double *retry_after, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    char words[WORDS_MOST + 1];
    (void)json_parse(body, len, &json_limits_small, &root, NULL); /* anything but JSON is text */
    message_words(words, a, where, root, body, len);
    const struct meaning *m = find_meaning(root, status);
    error_set(err, m->code, "%.60s answered %ld for the model '%.60s': %s%s%s: %s", where->peer,
        status, where->model, m->cure, m->cure_end ? where->key_variable : "",
        m->cure_end ? m->cure_end : "", words);
    message_begin(a, err, words);
    if (*retry_after <= 0)
        *retry_after = retry_delay(find_error(root));
    return m->retry;
}

int reply_broke_off(struct model_answer *a, const struct reply_where *where,
    struct json_object *root, const char *json, size_t len, struct error *err)
{
    char words[WORDS_MOST + 1];
    const struct meaning *m = find_meaning(root, (long)json_get_int(find_error(root), "code", 0));
    message_words(words, a, where, root, json, len);
    /* Nothing was charged or shown before the first word. */
    a->retry = m->retry && a->text.len == 0;
    int rc = error_set(err, m->code == ERROR_MODEL ? ERROR_MODEL_SERVER : m->code,
        "%.60s stopped with an error: %s", where->peer, words);
    message_begin(a, err, words);
    return rc;
}

int reply_shape_error(const struct reply_where *where, const char *what, struct error *err)
{
    return error_set(
        err, ERROR_MODEL_REPLY, "%.80s: %s; check the base URL and --model", where->peer, what);
}

/* Checks UTF-8 only after JSON failed, because both checks read the whole text. */
static int no_json(const struct reply_where *where, const char *json, size_t len,
    const struct error *why, struct error *err)
{
    if (!text_is_utf8(json, len, NULL))
        return reply_shape_error(where, "the answer is not UTF-8", err);
    return error_set(err, ERROR_MODEL_REPLY, "%.80s: the answer is not JSON (%.90s); %s",
        where->peer, why->text, "is the base URL right?");
}

int reply_check(const struct reply_where *where, const char *json, size_t len, struct error *err)
{
    struct error why = { 0 };
    int rc = json_check(json, len, &json_limits_large, &why);
    return rc < 0 ? no_json(where, json, len, &why, err) : 0;
}

int reply_parse(const struct reply_where *where, const char *json, size_t len,
    struct json_object **out, struct error *err)
{
    struct error why = { 0 };
    int rc = json_parse(json, len, &json_limits_large, out, &why);
    return rc < 0 ? no_json(where, json, len, &why, err) : 0;
}

int reply_read(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct json_object **out, struct error *err)
{
    int rc = reply_parse(where, json, len, out, err);
    return rc == 0 && reply_get(*out, "error") ? reply_broke_off(a, where, *out, json, len, err)
                                               : rc;
}

void reply_append_text(struct buf *out, struct json_object *text)
{
    if (json_object_is_type(text, json_type_string))
        buf_append(out, json_object_get_string(text), (size_t)json_object_get_string_len(text));
}

void reply_set_finish(struct model_answer *a, const struct finish_word *words, const char *theirs)
{
    const char *word = theirs;
    for (; words->theirs; words++)
        if (strcmp(words->theirs, theirs) == 0)
            word = words->ours;
    size_t n = text_utf8_floor(word, strlen(word), sizeof a->finish - 1);
    memcpy(a->finish, word, n);
    a->finish[n] = '\0';
    a->finished = true;
}

bool model_answer_usage(const struct model_answer *a, struct lm_usage *out)
{
    if (a->input_tokens < 0 || a->output_tokens < 0)
        return false;
    *out = (struct lm_usage){
        .input_tokens = a->input_tokens,
        .output_tokens = a->output_tokens,
        .cached_tokens = a->cached_tokens,
    };
    return true;
}

int model_answer_check(struct model_answer *a, const struct reply_where *where, struct error *err)
{
    char words[WORDS_MOST + 1];
    if (a->text.len == 0 && a->refusal.len > 0) {
        put_words(words, a, where, a->refusal.data, a->refusal.len);
        error_set(
            err, ERROR_MODEL_REPLY, "the model '%.60s' refused to answer: %s", where->model, words);
        message_begin(a, err, words);
        return -(int)ERROR_MODEL_REPLY;
    }
    if (!a->choice && a->finish[0]) {
        put_words(words, a, where, a->finish, strlen(a->finish));
        return error_set(err, ERROR_MODEL_REPLY,
            "%.60s: the answer has no text (finish_reason '%s'); try another model", where->peer,
            words);
    }
    return a->choice ? 0 : reply_shape_error(where, "the answer has no text", err);
}

void reply_count_attempts(struct lm_reply *reply, struct buf *message)
{
    error_wrap(&reply->error, "after %u attempts", reply->attempts);
    if (!reply->message)
        return;
    buf_printf(message, "after %u attempts: %s", reply->attempts, reply->message);
    if (!buf_failed(message))
        reply->message = message->data;
}
