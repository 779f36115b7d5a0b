/* A recording: it is refused with a reason, or it answers calls, each at most once and in UTF-8. */
#include "fuzz.h"

#include "lm/lm.h"

struct ask {
    struct lm_call *call; /* NULL once it is answered */
    unsigned answers;
};

static void answered(void *arg, const struct lm_reply *reply)
{
    struct ask *ask = arg;
    ask->answers++;
    ask->call = NULL;
    expect(ask->answers == 1);
    expect(reply->text && reply->text[reply->len] == '\0' && reply->finish);
    expect(text_is_utf8(reply->text, reply->len, NULL));
    expect(text_is_utf8(reply->finish, strlen(reply->finish), NULL));
    expect(reply->usage.input_tokens >= 0 && reply->usage.input_tokens <= 1000000000000);
    expect(reply->usage.output_tokens >= 0 && reply->usage.output_tokens <= 1000000000000);
    if (reply->error.code != ERROR_NONE) {
        expect(reply->len == 0);
        expect(text_is_utf8(reply->error.text, strlen(reply->error.text), NULL));
    }
}

/* Asks at two depths, by the recorded model and by another; what waits for its delay is cancelled,
 * or left to lm_close. */
static void ask_all(struct loop *loop, struct lm *lm)
{
    static const struct lm_message messages[] = { { "system", "a", 1 }, { "user", "b 1000", 6 } };
    struct ask asks[6] = { 0 };
    for (unsigned i = 0; i < 6; i++) {
        struct lm_request request = { .messages = messages,
            .message_count = 2,
            .depth = i % 2,
            .model = i < 4 ? NULL : "m",
            .temperature = -1 };
        struct error err = { 0 };
        int rc = lm_start(lm, &request, answered, NULL, &asks[i], &asks[i].call, &err);
        if (rc < 0)
            expect_error(rc, &err);
    }
    for (int i = 0; i < 3; i++)
        loop_turn(loop, 0);
    for (unsigned i = 0; i < 3; i++)
        if (asks[i].call)
            lm_cancel(asks[i].call, NULL);
    lm_close(lm);
    loop_turn(loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct loop *loop;
    char model[80];
    struct error err = { 0 };
    struct lm *lm = NULL;
    if (!loop)
        expect(loop_open(&loop, NULL) == 0);
    snprintf(model, sizeof model, "replay:%s", input_file(data, size));
    struct lm_options options = { .model = model };
    int rc = lm_open(loop, &options, &lm, &err);
    if (rc < 0)
        expect_error(rc, &err);
    else
        ask_all(loop, lm);
    return 0;
}
