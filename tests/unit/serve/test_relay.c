/* Which worker answers a request: the one that its sandbox's id names, the one with the fewest
 * sandboxes, the one that keeps the answer to an idempotency key, or the next of the circle. */
#include "../test.h"

#include "base/cleanup.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/http/request.h"
#include "serve/http/upgrade.h"
#include "serve/http/upstream.h"

static struct table table;
static struct server server;
static struct client client;
static struct account account;
static struct request request;
static const char *key, *first;
static unsigned refused;

/* ---- what relay.c needs of the other files ---- */

bool trace_field(const struct traceparent *span, char out[TRACEPARENT_SIZE])
{
    return false;
}

const char *request_header_of(struct request *r, const char *name)
{
    return strcmp(name, "Idempotency-Key") == 0 ? key
           : strcmp(name, RELAY_FIRST) == 0     ? first
                                                : NULL;
}

void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    refused = status;
}

/* Choosing a worker relays nothing. */
#define NOT_CALLED(declaration, result)                                                            \
    declaration                                                                                    \
    {                                                                                              \
        fail_msg("%s is not to be called", __func__);                                              \
        return result;                                                                             \
    }

NOT_CALLED(void request_cut(struct request *r), )
NOT_CALLED(void request_end(struct request *r), )
NOT_CALLED(void request_header(struct request *r, const char *name, const char *value), )
NOT_CALLED(void request_push(struct request *r, const void *data, size_t len), )
NOT_CALLED(void request_reply(struct request *r, unsigned status, const char *type,
               const void *data, size_t len), )
NOT_CALLED(void request_reply_list(struct request *r, const char *name, struct json_object *list), )
NOT_CALLED(void request_resume(struct request *r), )
NOT_CALLED(void request_stream_as(struct request *r, unsigned status, const char *type), )
NOT_CALLED(void request_suspend(struct request *r), )
NOT_CALLED(void upgrade_begin(struct request *r, struct upgrade *u), )
NOT_CALLED(void upgrade_send(struct upgrade *u, const void *data, size_t len), )
NOT_CALLED(void upgrade_pause(struct upgrade *u, bool is_paused), )
NOT_CALLED(void upgrade_end(struct upgrade *u), )
NOT_CALLED(void upgrade_free(struct upgrade *u), )
NOT_CALLED(struct upstream *nodes_connect(struct server *s, unsigned number), NULL)
NOT_CALLED(unsigned nodes_next(const struct server *s, unsigned number), 0)
NOT_CALLED(void nodes_put_ticket(struct request *r, unsigned number, struct buf *head), )
NOT_CALLED(const struct node *nodes_peer_at(const struct server *s, size_t index), NULL)
NOT_CALLED(bool nodes_refuse_lost(struct request *r, const char *kind, const char *name), false)
NOT_CALLED(struct upstream *upstream_open(struct server *s, unsigned worker), NULL)
NOT_CALLED(void upstream_send(struct upstream *u, const void *data, size_t len), )
NOT_CALLED(void upstream_pause(struct upstream *u, bool is_paused), )
NOT_CALLED(void upstream_drop(struct upstream *u), )

/* ---- the tests ---- */

static const struct route of_sandbox = { 0 }, of_run = { .of_run = true },
                          creates = { .creates = true };
static const struct routes plain = { 0 };

static int relay_setup(void **state)
{
    memset(&table, 0, sizeof table);
    table.workers = 3;
    for (unsigned i = 0; i < 3; i++) {
        table.worker[i].pid = 100 + (int)i;
        table.worker[i].generation = 7;
    }
    server = (struct server){ .table = &table, .worker = 1 };
    client = (struct client){ 0 };
    account = (struct account){ 0 };
    snprintf(account.key.id, sizeof account.key.id, "k1");
    request = (struct request){ .server = &server,
        .client = &client,
        .account = &account,
        .routes = &plain,
        .route = &of_sandbox };
    key = first = NULL;
    refused = 0;
    return 0;
}

/* WORKER in two digits, GENERATION in four, and as much as makes an id. */
static void names(const char *begin)
{
    snprintf(request.id, sizeof request.id, "%s%026d", begin, 0);
    request.id[SERVE_ID_SIZE - 1] = '\0';
}

static void an_id_names_its_worker(void **state)
{
    names("020007");
    assert_int_equal(relay_worker_of(&request), 2);
    names("000007");
    assert_int_equal(relay_worker_of(&request), 0);
    assert_int_equal(refused, 0);
}

/* It is another process now, or none: the sandbox is gone with the one that made it. */
static void the_sandboxes_of_a_dead_worker_are_gone(void **state)
{
    names("020006");
    relay_worker_of(&request);
    assert_int_equal(refused, 410);
    refused = 0;
    names("020007");
    table.worker[2].pid = 0;
    relay_worker_of(&request);
    assert_int_equal(refused, 410);
}

/* A run is in the record, so any worker has it. */
static void a_run_outlives_its_worker(void **state)
{
    request.route = &of_run;
    names("020006");
    assert_int_equal(relay_worker_of(&request), 2);
    names("050001");
    assert_int_equal(relay_worker_of(&request), 5 % 3);
    assert_int_equal(refused, 0);
}

/* This worker answers that there is no such sandbox. */
static void other_ids_are_for_this_worker(void **state)
{
    static const char *const ids[] = { "090007", "zz0007", "02", "../../" };
    for (size_t i = 0; i < array_length(ids); i++) {
        names(ids[i]);
        if (i == 2)
            request.id[2] = '\0';
        assert_int_equal(relay_worker_of(&request), 1);
    }
    assert_int_equal(refused, 0);
}

/* Others only if they have clearly fewer: passing a request on costs something. */
static void a_new_sandbox_goes_where_there_are_few(void **state)
{
    request.route = &creates;
    table.worker[0].sandboxes = 3;
    table.worker[1].sandboxes = 4;
    table.worker[2].sandboxes = 2;
    assert_int_equal(relay_worker_of(&request), 1);
    table.worker[1].sandboxes = 5;
    assert_int_equal(relay_worker_of(&request), 2);
    table.worker[2].pid = 0;
    assert_int_equal(relay_worker_of(&request), 1);
    table.worker[1].sandboxes = 6;
    assert_int_equal(relay_worker_of(&request), 0);
    client.is_relay = true; /* it was placed already */
    assert_int_equal(relay_worker_of(&request), 1);
}

/* The same key of an account always, that of another account elsewhere for some of them. */
static void a_key_always_has_the_same_worker(void **state)
{
    unsigned differ = 0, used = 0;
    request.route = &creates;
    for (char c = 'a'; c <= 'p'; c++) {
        char text[2] = { c, '\0' };
        key = text;
        unsigned one = relay_worker_of(&request);
        table.worker[one].sandboxes += 100;
        assert_int_equal(relay_worker_of(&request), one);
        account.key.id[1] = '2';
        differ += relay_worker_of(&request) != one;
        account.key.id[1] = '1';
        used |= 1u << one;
    }
    assert_true(differ > 0);
    assert_int_equal(used, 7);
}

static bool is_elsewhere(struct request *r)
{
    return true;
}

/* A request without an id goes round once, past workers that do not run. */
static void the_circle_ends_where_it_began(void **state)
{
    static const struct routes searching = { .is_elsewhere = is_elsewhere };
    request.routes = &searching;
    assert_int_equal(relay_worker_of(&request), 2);
    table.worker[2].pid = 0;
    assert_int_equal(relay_worker_of(&request), 0);
    client.is_relay = true;
    first = "0"; /* where it came from: asked already */
    assert_int_equal(relay_worker_of(&request), 1);
    first = "2";
    assert_int_equal(relay_worker_of(&request), 1);
    first = "99"; /* no worker: as if it began here */
    table.worker[2].pid = 102;
    assert_int_equal(relay_worker_of(&request), 2);
}

static void a_single_worker_answers_everything(void **state)
{
    table.workers = 1;
    server.worker = 0;
    names("020007");
    assert_int_equal(relay_worker_of(&request), 0);
    assert_int_equal(refused, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, relay_setup)
    const struct CMUnitTest tests[] = {
        TEST(an_id_names_its_worker),
        TEST(the_sandboxes_of_a_dead_worker_are_gone),
        TEST(a_run_outlives_its_worker),
        TEST(other_ids_are_for_this_worker),
        TEST(a_new_sandbox_goes_where_there_are_few),
        TEST(a_key_always_has_the_same_worker),
        TEST(the_circle_ends_where_it_began),
        TEST(a_single_worker_answers_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
