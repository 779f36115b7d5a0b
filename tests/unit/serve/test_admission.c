/* Requests that wait for a sandbox: the account that was served least is next, and what is too much
 * is refused with a time to wait. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/http/request.h"
#include "serve/workers.h"

enum { SECOND = 1000000000 };

static struct serve_options options;
static struct server server;
static struct account accounts[3];
static char order[64]; /* the names of the accounts that were served */
static unsigned woken;

/* What admission.c needs of the other files. */
void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    assert_int_equal(r->status, 0);
    r->status = status;
    snprintf(r->name, sizeof r->name, "%s", code);
}

void request_header(struct request *r, const char *name, const char *value)
{
    assert_string_equal(name, "Retry-After");
    r->port = (unsigned)strtoul(value, NULL, 10);
}

void worker_wake(struct server *s, unsigned worker)
{
    woken = worker + 1;
}

static void go(struct request *r)
{
    strcat(order, r->account->key.name);
}

static int admission_setup(void **state)
{
    options = (struct serve_options){ .max_sandboxes = 1, .queue_seconds = 10 };
    server = (struct server){ .options = &options };
    assert_ok(table_new(2, &server.table, NULL, err));
    server.figures = &server.table->worker[0];
    for (int i = 0; i < 3; i++) {
        accounts[i] = (struct account){ .index = i };
        snprintf(accounts[i].key.name, KEY_NAME_SIZE, "%c", 'a' + i);
        assert_int_equal(table_account(server.table, accounts[i].key.name), i);
        accounts[i].row = &server.table->accounts[i];
    }
    order[0] = '\0';
    woken = 0;
    return 0;
}

static int admission_teardown(void **state)
{
    table_close(server.table);
    return 0;
}

static void ask(struct request *r, int account)
{
    *r = (struct request){ .server = &server, .account = &accounts[account] };
    admission_ask(r, go);
}

/* The sandbox of a request has started, and ends. */
static void serve_one_more(struct request *r)
{
    admission_end(r);
    admission_serve(&server, clock_ns());
}

static void a_request_with_room_goes_at_once(void **state)
{
    struct request r;
    ask(&r, 0);
    assert_string_equal(order, "a");
    assert_int_equal(table_sandboxes(server.table), 1);
    admission_end(&r);
    assert_int_equal(table_sandboxes(server.table), 0);
    assert_int_equal(server.starting, 0);
}

/* An account that asks for many does not delay another that asks for one. */
static void accounts_take_turns(void **state)
{
    struct request r[7];
    for (int i = 0; i < 4; i++)
        ask(&r[i], 0);
    ask(&r[4], 1);
    ask(&r[5], 1);
    ask(&r[6], 2);
    assert_string_equal(order, "a");
    assert_int_equal(server.figures->gauges[GAUGE_WAITING], 6);
    static const int served[] = { 0, 4, 6, 1, 5, 2 };
    for (size_t i = 0; i < array_length(served); i++)
        serve_one_more(&r[served[i]]);
    assert_string_equal(order, "abcabaa");
    assert_null(server.waiting);
    assert_int_equal(accounts[0].waiting, 0);
    serve_one_more(&r[3]);
    assert_int_equal(table_sandboxes(server.table), 0);
}

static void a_client_that_leaves_gives_up_its_turn(void **state)
{
    struct request r[4];
    for (int i = 0; i < 4; i++)
        ask(&r[i], i % 3);
    r[1].on_gone(&r[1]);
    r[3].on_gone(&r[3]); /* the last of the queue */
    assert_int_equal(server.figures->gauges[GAUGE_WAITING], 1);
    struct request late;
    ask(&late, 1);
    serve_one_more(&r[0]);
    serve_one_more(&r[2]);
    assert_string_equal(order, "acb");
    assert_null(server.waiting);
    serve_one_more(&late);
}

static void waiting_too_long_is_refused(void **state)
{
    struct request r[2];
    ask(&r[0], 0);
    ask(&r[1], 1);
    admission_serve(&server, clock_ns() + 9 * (uint64_t)SECOND);
    assert_int_equal(r[1].status, 0);
    admission_serve(&server, clock_ns() + 11 * (uint64_t)SECOND);
    assert_int_equal(r[1].status, 429);
    assert_string_equal(r[1].name, "capacity");
    assert_int_equal(r[1].port, 1); /* Retry-After */
    assert_null(r[1].on_gone);
    admission_end(&r[0]);
}

static void without_a_queue_a_full_server_refuses(void **state)
{
    struct request r[2];
    options.queue_seconds = 0;
    ask(&r[0], 0);
    ask(&r[1], 1);
    assert_int_equal(r[1].status, 429);
    assert_int_equal(server.figures->counters[COUNT_REFUSED_CAPACITY], 1);
    admission_end(&r[0]);
}

/* A key's own limits refuse at once; the time to wait is whole seconds, rounded up. */
static void a_keys_limits_do_not_wait(void **state)
{
    struct request r[4];
    options.max_sandboxes = 10;
    accounts[0].key.limits.sandboxes = 1;
    accounts[1].key.limits.starts = 0.4;
    for (int i = 0; i < 4; i++)
        ask(&r[i], i / 2);
    assert_string_equal(order, "ab");
    assert_string_equal(r[1].name, "sandboxes");
    assert_string_equal(r[3].name, "rate");
    assert_int_equal(r[3].port, 3);
    assert_int_equal(accounts[1].row->refused, 1);
    admission_end(&r[0]);
    admission_end(&r[2]);
}

/* A place that is free goes to the worker whose request is next in the order of all. */
static void another_worker_with_a_lower_number_is_first(void **state)
{
    struct request r[2];
    ask(&r[0], 0);
    ask(&r[1], 0); /* waits for its second start */
    server.table->worker[1].next_start = 1;
    serve_one_more(&r[0]);
    assert_int_equal(woken, 2);
    assert_string_equal(order, "a");
    server.table->worker[1].next_start = 0;
    admission_serve(&server, clock_ns());
    assert_string_equal(order, "aa");
    admission_end(&r[1]);
}

static void a_server_that_stops_admits_none(void **state)
{
    struct request r[3];
    ask(&r[0], 0);
    ask(&r[1], 1);
    server.draining = true;
    admission_serve(&server, clock_ns());
    ask(&r[2], 2);
    assert_int_equal(r[1].status, 503);
    assert_int_equal(r[2].status, 503);
    admission_end(&r[0]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, admission_setup, admission_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_request_with_room_goes_at_once),
        TEST(accounts_take_turns),
        TEST(a_client_that_leaves_gives_up_its_turn),
        TEST(waiting_too_long_is_refused),
        TEST(without_a_queue_a_full_server_refuses),
        TEST(a_keys_limits_do_not_wait),
        TEST(another_worker_with_a_lower_number_is_first),
        TEST(a_server_that_stops_admits_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
