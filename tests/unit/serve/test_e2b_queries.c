/* What E2B's clients put into queries: signatures of URLs, and the filters and pages of the list of
 * sandboxes. */
#include "../test.h"

#include <time.h>

#include "base/cleanup.h"
#include "serve/e2b/e2b.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"

static struct {
    const char *name, *value;
} query[8];
static unsigned refused;
static char total[32], next_token[32], listed[256];

/* What the files under test need of the others, and of libmicrohttpd. */
const char *MHD_lookup_connection_value(
    struct MHD_Connection *connection, enum MHD_ValueKind kind, const char *name)
{
    for (size_t i = 0; i < array_length(query) && query[i].name; i++)
        if (strcmp(query[i].name, name) == 0)
            return query[i].value;
    return NULL;
}

void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    refused = status;
}

void request_header(struct request *r, const char *name, const char *value)
{
    snprintf(strcmp(name, "X-Total-Running") == 0 ? total : next_token, sizeof total, "%s", value);
}

void request_reply_json(struct request *r, unsigned status, struct json_object *tree)
{
    listed[0] = '\0';
    for (size_t i = 0; i < json_length(tree); i++)
        strcat(listed, json_get_string(json_object_array_get_idx(tree, i), "sandboxID", "?"));
    json_object_put(tree);
}

void relay_gather(struct request *r, const char *name, struct json_object *own,
    void (*done)(struct request *r, struct json_object *all))
{
    done(r, own);
}

bool sandbox_is_visible(const struct sandbox *sb, const struct account *account)
{
    return strcmp(sb->id, "x") != 0;
}

struct json_object *e2b_describe(const struct e2b_sandbox *e)
{
    char text[48];
    time_t seconds = (time_t)(e->started_us / 1000000);
    struct tm tm;
    struct json_object *o = json_object_new_object();
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &tm));
    snprintf(text + n, sizeof text - n, ".%06dZ", (int)(e->started_us % 1000000));
    json_put_text(o, "sandboxID", e->sandbox->id);
    json_put_text(o, "startedAt", text);
    return o;
}

static void ask(const char *const *pairs)
{
    memset(query, 0, sizeof query);
    for (size_t i = 0; pairs[2 * i]; i++) {
        query[i].name = pairs[2 * i];
        query[i].value = pairs[2 * i + 1];
    }
    refused = 0;
}
#define ASK(...) ask((const char *const[]){ __VA_ARGS__, NULL })

/* ---- signatures ---- */

static bool fits(const char *method, const char *token)
{
    const struct route route = { .method = method };
    struct request r = { .route = &route };
    return e2b_signature_fits(&r, token);
}

static void a_signature_is_of_path_operation_user_and_token(void **state)
{
    /* printf '/a b:read:user:secret' | sha256sum, as base64 without padding */
    static const char signature[] = "v1_PEA/icv+z+JO9bsZ7QQJfW5MQV9ADdOES2Wk1FxeiFU";
    ASK("path", "/a b", "username", "user", "signature", signature);
    assert_true(fits("GET", "secret"));
    assert_false(fits("POST", "secret"));
    assert_false(fits("GET", "other"));
    ASK("path", "/a", "username", "user", "signature", signature);
    assert_false(fits("GET", "secret"));
    ASK("path", "/a b", "signature", signature);
    assert_false(fits("GET", "secret"));
    ASK("path", "/a b", "username", "user", "signature", signature, "signature_expiration", "1");
    assert_false(fits("GET", "secret"));
    ASK("path", "/a b", "username", "user");
    assert_false(fits("GET", "secret"));
    ASK("path", "/a b", "username", "user", "signature", "");
    assert_false(fits("GET", "secret"));
}

static void an_expired_signature_is_refused(void **state)
{
    const struct route route = { .method = "GET" };
    struct request r = { .route = &route };
    /* '/a:read::secret:1', and the same with 99999999999 */
    ASK("path", "/a", "signature", "v1_Aw8PTjoM3a6XCFQF1WukHY4aqwqyZUefgFjQmJ1hCgs",
        "signature_expiration", "1");
    assert_true(e2b_signature_fits(&r, "secret"));
    assert_false(e2b_signature_check(&r, "secret"));
    assert_int_equal(refused, 401);
    ASK("path", "/a", "signature", "v1_CvjLkGUTUg5hdJlBTDVEMGNAt1lp1vBWnRVg68+ETq8",
        "signature_expiration", "99999999999");
    assert_true(e2b_signature_check(&r, "secret"));
    assert_int_equal(refused, 0);
}

/* ---- the list ---- */

enum { START = 1700000000 }; /* 2023-11-14T22:13:20Z */
static struct client client;
static struct account account;
static struct sandbox sandboxes[6];
static struct e2b_sandbox adapters[6];
static char base_template[] = "base", other_template[] = "other";

/* a to d, started one second after another; d is paused; x is another account's, n is not ready. */
static int list_setup(void **state)
{
    static const char ids[] = "abcdxn";
    memset(sandboxes, 0, sizeof sandboxes);
    for (int i = 0; i < 6; i++) {
        adapters[i] = (struct e2b_sandbox){ .sandbox = &sandboxes[i],
            .template = i == 1 ? other_template : base_template,
            .started_us = (START + i) * (int64_t)1000000 + 1,
            .ready = ids[i] != 'n',
            .paused = ids[i] == 'd' };
        sandboxes[i].id[0] = ids[i];
        sandboxes[i].e2b = &adapters[i];
        sandboxes[i].next = i < 5 ? &sandboxes[i + 1] : NULL;
    }
    sandboxes[0].metadata = json_tokener_parse("{\"team\": \"r&d\", \"n\": \"1\"}");
    return 0;
}

static int list_teardown(void **state)
{
    return json_object_put(sandboxes[0].metadata) == 1 ? 0 : -1;
}

static const char *list(void)
{
    struct server server = { .sandboxes = sandboxes };
    struct request r = { .server = &server, .client = &client, .account = &account };
    next_token[0] = listed[0] = '\0';
    e2b_handle_list(&r);
    return refused ? "refused" : listed;
}

static void the_newest_of_an_account_come_first(void **state)
{
    ASK(NULL);
    assert_string_equal(list(), "dcba");
    assert_string_equal(total, "3");
    ASK("order", "asc");
    assert_string_equal(list(), "abcd");
}

static void pages_follow_each_other(void **state)
{
    char token[32];
    ASK("limit", "3");
    assert_string_equal(list(), "dcb");
    strcpy(token, next_token);
    ASK("limit", "3", "nextToken", token);
    assert_string_equal(list(), "a");
    assert_string_equal(next_token, "");
    ASK("limit", "2", "order", "asc");
    assert_string_equal(list(), "ab");
    strcpy(token, next_token);
    ASK("limit", "2", "order", "asc", "nextToken", token);
    assert_string_equal(list(), "cd");
}

static void filters_leave_out(void **state)
{
    ASK("state", "paused");
    assert_string_equal(list(), "d");
    ASK("state", "running,paused");
    assert_string_equal(list(), "dcba");
    ASK("state", "run");
    assert_string_equal(list(), "");
    ASK("template", "other");
    assert_string_equal(list(), "b");
    ASK("metadata", "team%3Dr%2526d%26n%3D1"); /* escaped once more than the query */
    assert_string_equal(list(), "a");
    ASK("metadata", "team=r%2526d&n=2");
    assert_string_equal(list(), "");
    ASK("startedAfter", "2023-11-14T22:13:22Z");
    assert_string_equal(list(), "dc");
    ASK("startedAfter", "2023-11-15T00:13:22.5+02:00");
    assert_string_equal(list(), "d");
    ASK("startedAfter", "2023-11-14T20:13:22.000001-02:00"); /* the instant itself */
    assert_string_equal(list(), "dc");
}

static void other_values_are_refused(void **state)
{
    static const char *const wrong[][2] = { { "limit", "0" }, { "limit", "101" }, { "limit", "3x" },
        { "limit", "-1" }, { "nextToken", "x" }, { "nextToken", "-5" }, { "nextToken", "5x" },
        { "startedAfter", "yesterday" }, { "startedAfter", "2023-11-14T22:13:22" } };
    for (size_t i = 0; i < array_length(wrong); i++) {
        ASK(wrong[i][0], wrong[i][1]);
        if (strcmp(list(), "refused") != 0)
            fail_msg("%s=%s was accepted", wrong[i][0], wrong[i][1]);
    }
}

int main(void)
{
#define OF_LIST(name) cmocka_unit_test_setup_teardown(name, list_setup, list_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_of_path_operation_user_and_token),
        cmocka_unit_test(an_expired_signature_is_refused),
        OF_LIST(the_newest_of_an_account_come_first),
        OF_LIST(pages_follow_each_other),
        OF_LIST(filters_leave_out),
        OF_LIST(other_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
