/* What a model server answers. Byte 0 chooses the dialect and what is read: events of a stream
 * (each ended by a line of its own), a whole reply, or the body of a refusal. Texts are UTF-8,
 * numbers are none that a sum could not take, and what is wrong is said on one line, without the
 * key.
 */
#include "fuzz.h"

#include "lm/dialect.h"

#define KEY "sk-canary-0123456789"

static const struct dialect *const dialects[] = { &dialect_openai, &dialect_anthropic,
    &dialect_gemini };
static const struct reply_where where = { "host:443", "model", KEY, "SOME_API_KEY" };

static void expect_answer(const struct model_answer *a)
{
    struct lm_usage usage = { 0 };
    expect(text_is_utf8(buf_text(&a->text), a->text.len, NULL));
    expect(text_is_utf8(a->finish, strlen(a->finish), NULL));
    if (!model_answer_usage(a, &usage))
        return;
    expect(usage.input_tokens >= 0 && usage.output_tokens >= 0 && !usage.estimated);
}

static void expect_refusal(int rc, const struct error *err)
{
    if (rc == 0)
        return;
    expect_error(rc, err);
    expect(!strstr(err->text, KEY));
}

static void read_events(const struct dialect *d, struct model_answer *a, struct input *in)
{
    struct error err = { 0 };
    int rc = 0;
    while (rc == 0 && in->left > 0) {
        const uint8_t *end = memchr(in->p, '\n', in->left);
        size_t len, want = end ? (size_t)(end - in->p) : in->left;
        char *event = input_piece(in, want, &len);
        size_t before = a->text.len;
        rc = d->event(a, &where, event, len, &err);
        expect(a->text.len >= before); /* what was streamed is never taken back */
        input_byte(in);
        free(event);
    }
    expect_refusal(rc, &err);
    expect_answer(a);
    if (rc == 0)
        expect_refusal(model_answer_check(a, &where, &err), &err);
}

static void read_whole(const struct dialect *d, struct model_answer *a, struct input *in)
{
    struct error err = { 0 };
    size_t len;
    char *body = input_piece(in, in->left, &len);
    int rc = d->whole(a, &where, body, len, &err);
    expect_refusal(rc, &err);
    expect_answer(a);
    if (rc == 0)
        expect_refusal(model_answer_check(a, &where, &err), &err);
    free(body);
}

static void read_refusal(struct input *in)
{
    static const long statuses[] = { 400, 401, 404, 429, 500, 529 };
    struct error err = { 0 };
    long status = statuses[input_byte(in) % 6];
    double retry_after = 0;
    size_t len;
    char *body = input_piece(in, in->left, &len);
    struct model_answer a = { 0 };
    reply_status_error(&a, &where, status, body, len, &retry_after, &err);
    expect_refusal(-(int)err.code, &err);
    expect(err.code != ERROR_NONE && retry_after >= 0);
    expect(text_is_utf8(buf_text(&a.message), a.message.len, NULL));
    model_answer_free(&a);
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct model_answer a = { 0 };
    uint8_t what = input_byte(&in);
    const struct dialect *d = dialects[what % 3];
    model_answer_reset(&a);
    switch (what / 3 % 3) {
    case 0:
        read_events(d, &a, &in);
        break;
    case 1:
        read_whole(d, &a, &in);
        break;
    default:
        read_refusal(&in);
    }
    model_answer_free(&a);
    return 0;
}
