/* lm/openai_reply.c: see openai_reply.h. */
#include "lm/openai_reply.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"

enum {
    WORDS_MOST = 110, /* bytes of a server's message in an error */
    KEY_LEAST = 6, /* a shorter key ("x", "none") is a placeholder, and masking it mangles text */
};

/* What a status means; the first row that fits. A `word` is the error's code or type. The cure is
 * named before the server's words, which may be cut. */
static const struct meaning {
    long status; /* 0: any */
    const char *word;
    enum error_code code;
    bool retry;
    const char *cure;
} meanings[] = {
    { 0, "insufficient_quota", ERROR_MODEL_RATE, false, "the account's quota is used up" },
    { 0, "model_not_found", ERROR_MODEL_UNKNOWN, false, "check --model" },
    { 401, NULL, ERROR_MODEL_AUTH, false, "set OPENAI_API_KEY to a key that it accepts" },
    { 403, NULL, ERROR_MODEL_AUTH, false, "set OPENAI_API_KEY to a key that may do this" },
    { 404, NULL, ERROR_MODEL_UNKNOWN, false, "check --model and the base URL" },
    { 408, NULL, ERROR_MODEL_SERVER, true, "try again later" },
    { 429, NULL, ERROR_MODEL_RATE, true, "lower the concurrency or try later" },
    { 500, NULL, ERROR_MODEL_SERVER, true, "try again later" },
    { 502, NULL, ERROR_MODEL_SERVER, true, "try again later" },
    { 503, NULL, ERROR_MODEL_SERVER, true, "try again later" },
    { 504, NULL, ERROR_MODEL_SERVER, true, "try again later" },
    { 529, NULL, ERROR_MODEL_SERVER, true, "try again later" },
    { 0, NULL, ERROR_MODEL, false, "the request was refused" },
};

void openai_answer_reset(struct openai_answer *a)
{
    buf_clear(&a->text);
    buf_clear(&a->refusal);
    a->finish[0] = '\0';
    a->input_tokens = a->output_tokens = -1;
    a->choice = a->finished = false;
}

void openai_answer_free(struct openai_answer *a)
{
    buf_free(&a->text);
    buf_free(&a->refusal);
}

void openai_mask(char *text, size_t len, const char *key)
{
    size_t n = strlen(key);
    char *end = text + len, *p = text;
    if (n < KEY_LEAST || len < n)
        return;
    while ((p = memmem(p, (size_t)(end - p), key, n))) {
        memset(p, '*', n);
        p += n;
    }
}

size_t openai_held_back(const char *text, size_t len, const char *key)
{
    size_t n = strlen(key);
    if (n < KEY_LEAST)
        return 0;
    for (size_t held = len < n ? len : n - 1; held > 0; held--)
        if (memcmp(text + len - held, key, held) == 0)
            return held;
    return 0;
}

/* A server's words, fit for an error. */
static void put_words(
    char out[WORDS_MOST + 1], const struct openai_where *where, const char *text, size_t len)
{
    cleanup_buf struct buf copy = { 0 }, seen = { 0 };
    buf_append(&copy, text, len < 65536 ? len : 65536);
    if (copy.data)
        openai_mask(copy.data, copy.len, where->key);
    text_append_visible(&seen, buf_text(&copy), copy.len);
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, WORDS_MOST);
    memcpy(out, buf_text(&seen), n);
    out[n] = '\0';
}

static struct json_object *get(struct json_object *o, const char *key)
{
    struct json_object *v = NULL;
    if (o && json_object_is_type(o, json_type_object))
        json_object_object_get_ex(o, key, &v);
    return v;
}

/* Servers say it as {"error":{"message":…}}, {"error":"…"}, {"message":…} or {"detail":"…"}. */
static struct json_object *find_message(struct json_object *root)
{
    struct json_object *error = get(root, "error");
    struct json_object *const places[] = { get(error, "message"), error, get(root, "message"),
        get(root, "detail") };
    for (size_t i = 0; i < array_length(places); i++)
        if (json_object_is_type(places[i], json_type_string))
            return places[i];
    return NULL;
}

static bool has_word(struct json_object *root, const char *word)
{
    struct json_object *error = get(root, "error");
    return strcmp(json_get_string(error, "code", ""), word) == 0 ||
           strcmp(json_get_string(error, "type", ""), word) == 0;
}

static void message_words(char words[WORDS_MOST + 1], const struct openai_where *where,
    struct json_object *root, const char *body, size_t len)
{
    struct json_object *message = find_message(root);
    if (message)
        put_words(words, where, json_object_get_string(message),
            (size_t)json_object_get_string_len(message));
    else
        put_words(words, where, body, len);
}

bool openai_status_error(
    const struct openai_where *where, long status, const char *body, size_t len, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    char words[WORDS_MOST + 1];
    const struct meaning *m = meanings;
    (void)json_parse(body, len, &json_limits_small, &root, NULL); /* what is no JSON is text */
    message_words(words, where, root, body, len);
    while ((m->status != 0 && m->status != status) || (m->word && !has_word(root, m->word)))
        m++;
    error_set(err, m->code, "%.60s answered %ld for the model '%.60s': %s: %s", where->peer, status,
        where->model, m->cure, words);
    return m->retry;
}

static int reply_error(const struct openai_where *where, struct error *err, const char *what)
{
    return error_set(
        err, ERROR_MODEL_REPLY, "%.80s: %s; check the base URL and --model", where->peer, what);
}

/* The text of a message: a string, or a list of parts of which the texts count. */
static void append_content(struct buf *out, struct json_object *content)
{
    if (json_object_is_type(content, json_type_string)) {
        buf_append(
            out, json_object_get_string(content), (size_t)json_object_get_string_len(content));
        return;
    }
    if (!json_object_is_type(content, json_type_array))
        return;
    for (size_t i = 0; i < json_object_array_length(content); i++) {
        struct json_object *text = get(json_object_array_get_idx(content, i), "text");
        if (json_object_is_type(text, json_type_string))
            buf_append(out, json_object_get_string(text), (size_t)json_object_get_string_len(text));
    }
}

static void take_choice(struct openai_answer *a, struct json_object *choice, const char *member)
{
    struct json_object *message = get(choice, member);
    struct json_object *content = get(message, "content");
    append_content(&a->text, content);
    append_content(&a->refusal, get(message, "refusal"));
    /* An empty text is an answer; a null is none. */
    if (json_object_is_type(content, json_type_string) ||
        json_object_is_type(content, json_type_array))
        a->choice = true;
    const char *finish = json_get_string(choice, "finish_reason", NULL);
    if (!finish)
        return;
    size_t n = text_utf8_floor(finish, strlen(finish), sizeof a->finish - 1);
    memcpy(a->finish, finish, n);
    a->finish[n] = '\0';
    a->finished = true;
}

static void take_usage(struct openai_answer *a, struct json_object *usage)
{
    int64_t in = json_get_int(usage, "prompt_tokens", -1);
    int64_t out = json_get_int(usage, "completion_tokens", -1);
    if (in < 0 || out < 0)
        return;
    a->input_tokens = in;
    a->output_tokens = out;
}

static int take_error(const struct openai_where *where, struct json_object *root, const char *json,
    size_t len, struct error *err)
{
    char words[WORDS_MOST + 1];
    message_words(words, where, root, json, len);
    return error_set(
        err, ERROR_MODEL_SERVER, "%.60s broke off with an error: %s", where->peer, words);
}

static int take_reply(struct openai_answer *a, const struct openai_where *where, const char *json,
    size_t len, const char *member, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    struct error why = { 0 };
    if (!text_is_utf8(json, len, NULL))
        return reply_error(where, err, "its answer is not UTF-8");
    if (json_parse(json, len, &json_limits_large, &root, &why) < 0)
        return error_set(err, ERROR_MODEL_REPLY, "%.80s: its answer is no JSON (%.90s); %s",
            where->peer, why.text, "is the base URL right?");
    if (get(root, "error"))
        return take_error(where, root, json, len, err);
    struct json_object *choices = json_get_typed(root, "choices", json_type_array);
    take_usage(a, json_get_typed(root, "usage", json_type_object));
    if (choices && json_object_array_length(choices) > 0)
        take_choice(a, json_object_array_get_idx(choices, 0), member);
    else if (strcmp(member, "message") == 0)
        return reply_error(
            where, err, choices ? "its list of choices is empty" : "its answer has no choices");
    return buf_failed(&a->text) || buf_failed(&a->refusal) ? error_memory(err) : 0;
}

int openai_answer_event(struct openai_answer *a, const struct openai_where *where, const char *json,
    size_t len, struct error *err)
{
    if (len == 6 && memcmp(json, "[DONE]", 6) == 0) {
        a->finished = true;
        return 0;
    }
    return take_reply(a, where, json, len, "delta", err);
}

int openai_answer_whole(struct openai_answer *a, const struct openai_where *where, const char *json,
    size_t len, struct error *err)
{
    int rc = take_reply(a, where, json, len, "message", err);
    a->finished = rc == 0;
    return rc;
}

int openai_answer_check(
    const struct openai_answer *a, const struct openai_where *where, struct error *err)
{
    char words[WORDS_MOST + 1];
    if (a->text.len == 0 && a->refusal.len > 0) {
        put_words(words, where, a->refusal.data, a->refusal.len);
        return error_set(
            err, ERROR_MODEL_REPLY, "the model '%.60s' refused to answer: %s", where->model, words);
    }
    if (!a->choice && a->finish[0])
        return error_set(err, ERROR_MODEL_REPLY,
            "%.60s: the answer has no text (finish_reason '%s'); try another model", where->peer,
            a->finish);
    return a->choice ? 0 : reply_error(where, err, "the answer has no text");
}
