/* Requests with an Idempotency-Key: the first answer is repeated, and only what may be repeated is
 * kept. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/http/request.h"
#include "serve/http/idempotency.h"

static struct server server;
static struct account accounts[2];
static const struct route create = { .method = "POST", .path = "/v1/sandboxes", .creates = true };
static const char *key;
static char answer[256]; /* what was sent: "STATUS TYPE BODY; NAME=VALUE; …" */

/* What idempotency.c needs of the other files. */
const char *request_header_of(struct request *r, const char *name)
{
    assert_string_equal(name, "Idempotency-Key");
    return key;
}

void request_reply(struct request *r, unsigned status, const char *type, const void *data, size_t n)
{
    snprintf(answer, sizeof answer, "%u %s %.*s", status, type ? type : "-", (int)n,
        data ? (const char *)data : "");
}

void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    snprintf(answer, sizeof answer, "%u %s", status, code);
}

void request_header(struct request *r, const char *name, const char *value)
{
    size_t n = strlen(answer);
    snprintf(answer + n, sizeof answer - n, "; %s=%s", name, value);
}

static int idempotency_setup(void **state)
{
    memset(&server, 0, sizeof server);
    strcpy(accounts[0].key.id, "aaaa");
    strcpy(accounts[1].key.id, "bbbb");
    key = "k1";
    return 0;
}

static int idempotency_teardown(void **state)
{
    idempotency_close(&server);
    return 0;
}

/* True: its handler is to run. */
static bool begin(struct request *r, int account, const char *body)
{
    static char target[] = "/v1/sandboxes";
    *r = (struct request){
        .server = &server, .account = &accounts[account], .route = &create, .target = target
    };
    answer[0] = '\0';
    buf_puts(&r->body, body);
    bool runs = idempotency_begin(r);
    buf_free(&r->body);
    return runs;
}

static void end(struct request *r, unsigned status, const char *body)
{
    idempotency_keep(r, status, "application/json", body, strlen(body));
    idempotency_end(r);
}

static void the_first_answer_is_repeated(void **state)
{
    struct request r;
    assert_true(begin(&r, 0, "{}"));
    idempotency_locate(&r, "/v1/sandboxes/1");
    end(&r, 201, "{\"id\": 1}");
    for (int i = 0; i < 2; i++) {
        assert_false(begin(&r, 0, "{}"));
        assert_string_equal(answer, "201 application/json {\"id\": 1}; Idempotency-Replayed=true; "
                                    "Location=/v1/sandboxes/1");
    }
}

static void without_a_key_each_request_runs(void **state)
{
    struct request r;
    key = NULL;
    for (int i = 0; i < 2; i++)
        assert_true(begin(&r, 0, "{}"));
    assert_null(server.idempotency);
}

static void another_request_with_the_key_is_refused(void **state)
{
    struct request first, r;
    assert_true(begin(&first, 0, "{}"));
    assert_false(begin(&r, 0, "{}"));
    assert_string_equal(answer, "409 idempotency_in_progress; Retry-After=1");
    end(&first, 201, "");
    assert_false(begin(&r, 0, "{\"a\": 1}"));
    assert_string_equal(answer, "409 idempotency_request_mismatch");
}

/* One account's keys say nothing to another. */
static void another_accounts_key_is_another(void **state)
{
    struct request r;
    assert_true(begin(&r, 0, "{}"));
    end(&r, 201, "");
    assert_true(begin(&r, 1, "{}"));
    end(&r, 201, "");
    key = "k2";
    assert_true(begin(&r, 0, "{}"));
    idempotency_end(&r);
}

/* What may be another answer the next time is forgotten, and so is a request without an answer. */
static void passing_failures_are_forgotten(void **state)
{
    static const unsigned passing[] = { 409, 429, 500, 503 };
    struct request r;
    for (size_t i = 0; i < array_length(passing); i++) {
        assert_true(begin(&r, 0, "{}"));
        end(&r, passing[i], "");
    }
    assert_true(begin(&r, 0, "{}"));
    idempotency_end(&r);
    assert_true(begin(&r, 0, "{}"));
    end(&r, 400, "no"); /* it will be the same */
    assert_false(begin(&r, 0, "{}"));
    assert_string_equal(answer, "400 application/json no; Idempotency-Replayed=true");
}

static void a_key_has_255_visible_characters_at_most(void **state)
{
    static char longest[257];
    static const char *const wrong[] = { "", "a b", "a\tb", "\x7f", "\xc3\xa4" };
    struct request r;
    for (size_t i = 0; i < array_length(wrong); i++) {
        key = wrong[i];
        assert_false(begin(&r, 0, "{}"));
        assert_string_equal(answer, "400 argument");
    }
    memset(longest, 'k', 256);
    key = longest;
    assert_false(begin(&r, 0, "{}"));
    longest[255] = '\0';
    assert_true(begin(&r, 0, "{}"));
    idempotency_end(&r);
}

/* The oldest answers make room, but never a request that is under way. */
static void the_oldest_answers_make_room(void **state)
{
    enum { MOST = 4096 };
    static struct request under_way[MOST];
    char name[16];
    struct request r;
    key = name;
    for (int i = 0; i < MOST; i++) {
        snprintf(name, sizeof name, "k%d", i);
        assert_true(begin(&under_way[i], 0, "{}"));
    }
    strcpy(name, "more");
    assert_false(begin(&r, 0, "{}"));
    assert_string_equal(answer, "503 busy");
    end(&under_way[7], 201, "");
    assert_true(begin(&r, 0, "{}"));
    end(&r, 201, "");
    strcpy(name, "k7"); /* forgotten */
    assert_true(begin(&r, 0, "{}"));
    idempotency_end(&r);
    for (int i = 0; i < MOST; i++)
        if (i != 7)
            idempotency_end(&under_way[i]);
}

static void answers_are_kept_for_a_day(void **state)
{
    struct request r;
    assert_true(begin(&r, 0, "{}"));
    end(&r, 201, "");
    idempotency_sweep(&server, clock_ns() + 86399 * (uint64_t)1000000000);
    assert_false(begin(&r, 0, "{}"));
    idempotency_sweep(&server, clock_ns() + 86401 * (uint64_t)1000000000);
    assert_true(begin(&r, 0, "{}"));
    idempotency_end(&r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, idempotency_setup, idempotency_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_first_answer_is_repeated),
        TEST(without_a_key_each_request_runs),
        TEST(another_request_with_the_key_is_refused),
        TEST(another_accounts_key_is_another),
        TEST(passing_failures_are_forgotten),
        TEST(a_key_has_255_visible_characters_at_most),
        TEST(the_oldest_answers_make_room),
        TEST(answers_are_kept_for_a_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
