/* The bus on NATS, with a server that each test starts. */
#include "nats_server.h"

#include <pthread.h>

#include "base/clock.h"
#include "cluster/bus.h"

struct setup {
    struct nats_server server;
    uv_loop_t loop;
    struct bus *e;
};

/* What an operation has answered. */
struct answer {
    bool is_there;
    unsigned calls;
    enum bus_result result;
    uint64_t sequence, messages, unacknowledged;
    bool is_duplicate;
    char data[256];
    size_t len;
};

static void on_done(void *arg, const struct bus_answer *a)
{
    struct answer *out = arg;
    assert_non_null(a->why);
    out->is_there = true;
    out->calls++;
    out->result = a->result;
    out->sequence = a->sequence;
    out->messages = a->messages;
    out->unacknowledged = a->unacknowledged;
    out->is_duplicate = a->is_duplicate;
    out->len = a->len;
    snprintf(out->data, sizeof out->data, "%s", a->data ? a->data : "");
}

static void run_a_moment(struct setup *s)
{
    uv_run(&s->loop, UV_RUN_NOWAIT);
    usleep(1000);
}

/* Runs the loop until *flag, for a minute at most. */
static void run_until(struct setup *s, const bool *flag)
{
    uint64_t began = clock_ns();
    while (!*flag && clock_seconds_since(began) < 60)
        run_a_moment(s);
    assert_true(*flag);
}

static struct answer await(struct setup *s, struct answer *a)
{
    run_until(s, &a->is_there);
    struct answer taken = *a;
    *a = (struct answer){ 0 };
    return taken;
}

static int open_all(void **state)
{
    struct setup *s = calloc(1, sizeof *s);
    *state = s;
    if (!nats_server_is_installed()) {
        print_message("# nats-server is not installed\n");
        return 0;
    }
    nats_server_start(&s->server);
    uv_loop_init(&s->loop);
    assert_ok(bus_open(&s->loop, &(struct bus_options){ .urls = s->server.url }, &s->e, err));
    return 0;
}

static int close_all(void **state)
{
    struct setup *s = *state;
    if (s->e) {
        bus_close(s->e);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&s->loop), 0);
    }
    nats_server_end(&s->server);
    free(s);
    return 0;
}

static struct setup *setup_of(void **state)
{
    struct setup *s = *state;
    if (!s->e)
        skip();
    return s;
}

/* ---- the connection ---- */

static void test_a_server_that_is_not_there_is_an_error(void **state)
{
    struct setup *s = setup_of(state);
    struct bus *e = NULL;
    char url[64];
    snprintf(url, sizeof url, "nats://127.0.0.1:%d", nats_server_free_port());
    assert_fails_saying(ERROR_IO, "NATS",
        bus_open(&s->loop, &(struct bus_options){ .urls = url, .connect_ms = 500 }, &e, err));
    assert_null(e);
    assert_true(bus_is_connected(s->e));
}

static void *start_later(void *server)
{
    usleep(300000);
    nats_server_start(server);
    return NULL;
}

static void test_a_server_that_starts_at_the_same_time_is_waited_for(void **state)
{
    struct setup *s = setup_of(state);
    struct nats_server later = { 0 };
    struct bus *e = NULL;
    pthread_t thread;
    nats_server_start(&later);
    nats_server_stop(&later); /* its port and directory are known now */
    assert_int_equal(pthread_create(&thread, NULL, start_later, &later), 0);
    assert_ok(bus_open(
        &s->loop, &(struct bus_options){ .urls = later.url, .connect_ms = 60000 }, &e, err));
    pthread_join(thread, NULL);
    bus_close(e);
    nats_server_end(&later);
}

static void test_addresses_are_checked_and_not_repeated(void **state)
{
    struct setup *s = setup_of(state);
    static const char *const wrong[] = { "", ",", "127.0.0.1:4222", "http://u:secret@h:1" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct bus *e = NULL;
        struct error err = { 0 };
        assert_int_equal(bus_open(&s->loop, &(struct bus_options){ .urls = wrong[i] }, &e, &err),
            -ERROR_ARGUMENT);
        assert_null(strstr(err.text, "secret"));
    }
}

/* ---- messages ---- */

static void answer_twice(void *arg, struct bus_message *m)
{
    char text[128];
    snprintf(text, sizeof text, "%s%s", m->data, m->data);
    bus_reply(m, text, strlen(text));
}

static void test_a_request_is_answered(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    assert_ok(bus_subscribe(s->e, "echo.*", NULL, answer_twice, s, err));
    bus_request(s->e, "echo.a", "ab", 2, 30000, on_done, &a);
    assert_false(a.is_there);
    struct answer got = await(s, &a);
    assert_int_equal(got.result, BUS_OK);
    assert_string_equal(got.data, "abab");
}

static void test_a_request_without_a_subscriber_says_so(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    bus_request(s->e, "no.subscriber", "x", 1, 30000, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_NO_RESPONDERS);
    bus_request(s->e, "not valid", "x", 1, 30000, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_REFUSED);
}

static void keep_silent(void *arg, struct bus_message *m)
{
    bus_message_free(m);
}

static void test_a_request_without_an_answer_ends_in_time(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    assert_ok(bus_subscribe(s->e, "silent", NULL, keep_silent, s, err));
    bus_request(s->e, "silent", "x", 1, 100, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_TIMEOUT);
}

static void test_what_is_forgotten_calls_nothing(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 }, b = { 0 };
    assert_ok(bus_subscribe(s->e, "echo.*", NULL, answer_twice, s, err));
    bus_request(s->e, "echo.a", "1", 1, 30000, on_done, &a);
    bus_request(s->e, "echo.b", "2", 1, 30000, on_done, &b);
    bus_forget(s->e, &a);
    assert_string_equal(await(s, &b).data, "22");
    assert_false(a.is_there);
}

/* ---- streams ---- */

static const char *const work_subjects[] = { "work.>", NULL };

/* Work that is not acknowledged in this time comes again. */
static void make_work_for(struct setup *s, int64_t ack_ms)
{
    struct answer a = { 0 };
    bus_stream_make(s->e,
        &(struct bus_stream){ .name = "WORK", .subjects = work_subjects, .retention = BUS_WORK },
        on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
    bus_consumer_make(s->e,
        &(struct bus_consumer){ .stream = "WORK", .name = "node", .ack_ms = ack_ms }, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
}

static void make_work(struct setup *s)
{
    make_work_for(s, 60000);
}

static struct answer publish(struct setup *s, const char *subject, const char *data, const char *id)
{
    struct answer a = { 0 };
    bus_publish(s->e,
        &(struct bus_publication){
            .subject = subject, .data = data, .len = strlen(data), .id = id },
        on_done, &a);
    return await(s, &a);
}

static void test_a_publication_with_the_same_id_is_kept_once(void **state)
{
    struct setup *s = setup_of(state);
    make_work(s);
    struct answer first = publish(s, "work.a", "1", "run-1");
    assert_int_equal(first.result, BUS_OK);
    assert_false(first.is_duplicate);
    struct answer again = publish(s, "work.a", "1", "run-1");
    assert_true(again.is_duplicate);
    assert_int_equal(again.sequence, first.sequence);
    assert_false(publish(s, "work.a", "1", "run-2").is_duplicate);
    struct answer a = { 0 };
    bus_stream_info(s->e, "WORK", on_done, &a);
    assert_int_equal(await(s, &a).messages, 2);
}

static void test_a_publication_expects_a_sequence(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    make_work(s);
    struct bus_publication p = {
        .subject = "work.x", .data = "1", .len = 1, .expects_sequence = true
    };
    bus_publish(s->e, &p, on_done, &a);
    struct answer first = await(s, &a);
    assert_int_equal(first.result, BUS_OK);
    bus_publish(s->e, &p, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_CONFLICT);
    p.sequence = first.sequence;
    bus_publish(s->e, &p, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
    bus_stream_last(s->e, "WORK", "work.x", on_done, &a);
    struct answer last = await(s, &a);
    assert_string_equal(last.data, "1");
    assert_int_equal(last.sequence, 2);
}

static void test_a_full_stream_refuses(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    const char *const subjects[] = { "small", NULL };
    assert_int_equal(publish(s, "small", "0", NULL).result, BUS_NO_RESPONDERS);
    bus_stream_make(s->e,
        &(struct bus_stream){
            .name = "SMALL", .subjects = subjects, .messages = 1, .refuses_when_full = true },
        on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
    assert_int_equal(publish(s, "small", "1", NULL).result, BUS_OK);
    assert_int_equal(publish(s, "small", "2", NULL).result, BUS_FULL);
}

static void test_a_stream_that_is_there_is_left_as_it_is(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    make_work(s);
    publish(s, "work.a", "kept", NULL);
    bus_stream_make(s->e,
        &(struct bus_stream){ .name = "WORK", .subjects = work_subjects, .messages = 7 }, on_done,
        &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
    bus_stream_info(s->e, "WORK", on_done, &a);
    assert_int_equal(await(s, &a).messages, 1);
}

/* ---- fetching ---- */

struct messages {
    struct bus_message *m[16];
    size_t count;
    struct answer end;
};

static void on_message(void *arg, struct bus_message *m)
{
    struct messages *all = arg;
    assert_true(all->count < 16);
    all->m[all->count++] = m;
}

static void on_fetched(void *arg, const struct bus_answer *a)
{
    struct messages *all = arg;
    on_done(&all->end, a);
}

static void fetch(struct setup *s, struct messages *all, unsigned count, int wait_ms)
{
    *all = (struct messages){ 0 };
    bus_fetch(s->e, "WORK", "node", count, wait_ms, on_message, on_fetched, all);
    run_until(s, &all->end.is_there);
}

static void test_work_is_fetched_and_acknowledged(void **state)
{
    struct setup *s = setup_of(state);
    struct messages all;
    struct answer a = { 0 };
    make_work(s);
    for (int i = 0; i < 5; i++) {
        char id[8], text[8];
        snprintf(id, sizeof id, "id-%d", i);
        snprintf(text, sizeof text, "run %d", i);
        publish(s, "work.runs", text, id);
    }
    fetch(s, &all, 3, 30000);
    assert_int_equal(all.end.result, BUS_OK);
    assert_int_equal(all.count, 3);
    assert_string_equal(all.m[1]->data, "run 1");
    assert_string_equal(all.m[1]->id, "id-1");
    assert_string_equal(all.m[1]->subject, "work.runs");
    assert_int_equal(all.m[1]->delivered, 1);
    assert_int_equal(all.m[1]->sequence, 2);
    assert_true(all.m[1]->stored_ms > 1600000000000);
    for (int i = 0; i < 3; i++) {
        bus_ack(all.m[i], on_done, &a);
        assert_int_equal(await(s, &a).result, BUS_OK);
    }
    bus_consumer_info(s->e, "WORK", "node", on_done, &a);
    struct answer info = await(s, &a);
    assert_int_equal(info.messages, 2);
    assert_int_equal(info.unacknowledged, 0);
    fetch(s, &all, 16, 0);
    assert_int_equal(all.count, 2);
    bus_ack(all.m[0], NULL, NULL);
    bus_ack(all.m[1], on_done, &a);
    await(s, &a);
    fetch(s, &all, 16, 50);
    assert_int_equal(all.end.result, BUS_OK);
    assert_int_equal(all.count, 0);
}

static void test_work_that_is_not_done_comes_again(void **state)
{
    struct setup *s = setup_of(state);
    struct messages all;
    make_work_for(s, 1000);
    publish(s, "work.runs", "nak", NULL);
    fetch(s, &all, 1, 30000);
    bus_nak(all.m[0], 0);
    fetch(s, &all, 1, 30000);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.m[0]->delivered, 2);
    bus_message_free(all.m[0]); /* comes when ack_ms is over */
    fetch(s, &all, 1, 30000);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.m[0]->delivered, 3);
    bus_term(all.m[0]);
    fetch(s, &all, 1, 1500);
    assert_int_equal(all.count, 0);
}

static void test_progress_keeps_work(void **state)
{
    struct setup *s = setup_of(state);
    struct messages mine, others;
    make_work_for(s, 2000);
    publish(s, "work.runs", "long", NULL);
    fetch(s, &mine, 1, 30000);
    for (int i = 0; i < 4; i++) {
        bus_progress(mine.m[0]);
        fetch(s, &others, 1, 700);
        assert_int_equal(others.count, 0);
    }
    bus_ack(mine.m[0], NULL, NULL);
}

static void test_a_forgotten_fetch_gives_its_messages_back(void **state)
{
    struct setup *s = setup_of(state);
    struct messages gone = { 0 }, all;
    make_work(s);
    bus_fetch(s->e, "WORK", "node", 1, 300, on_message, on_fetched, &gone);
    bus_fetch(s->e, "WORK", "node", 1, 300, on_message, on_fetched, &all);
    all = (struct messages){ 0 };
    run_until(s, &all.end.is_there);
    assert_int_equal(all.end.result, BUS_REFUSED); /* one at a time */
    bus_forget(s->e, &gone);
    publish(s, "work.runs", "1", NULL);
    uint64_t began = clock_ns();
    while (clock_seconds_since(began) < 2.5) /* until the fetch has ended */
        run_a_moment(s);
    assert_int_equal(gone.count, 0);
    fetch(s, &all, 1, 30000);
    assert_int_equal(all.count, 1);
    bus_ack(all.m[0], NULL, NULL);
}

static void test_a_fetch_of_nothing_ends(void **state)
{
    struct setup *s = setup_of(state);
    struct messages all = { 0 };
    bus_fetch(s->e, "NONE", "none", 1, 500, on_message, on_fetched, &all);
    run_until(s, &all.end.is_there);
    assert_true(all.end.result == BUS_NOT_FOUND || all.end.result == BUS_TIMEOUT);
}

/* ---- buckets ---- */

static void make_bucket(struct setup *s, int64_t ttl_ms)
{
    struct answer a = { 0 };
    bus_bucket_make(s->e, &(struct bus_bucket){ .name = "nodes", .ttl_ms = ttl_ms }, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
}

static void test_a_key_is_created_once_and_updated_by_revision(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    make_bucket(s, 0);
    bus_get(s->e, "nodes", "a", on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_NOT_FOUND);
    bus_create(s->e, "nodes", "a", "1", 1, on_done, &a);
    struct answer made = await(s, &a);
    assert_int_equal(made.result, BUS_OK);
    bus_create(s->e, "nodes", "a", "2", 1, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_CONFLICT);
    bus_update(s->e, "nodes", "a", made.sequence + 1, "2", 1, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_CONFLICT);
    bus_update(s->e, "nodes", "a", made.sequence, "2", 1, on_done, &a);
    struct answer updated = await(s, &a);
    assert_int_equal(updated.result, BUS_OK);
    bus_get(s->e, "nodes", "a", on_done, &a);
    struct answer got = await(s, &a);
    assert_string_equal(got.data, "2");
    assert_int_equal(got.sequence, updated.sequence);
    bus_delete(s->e, "nodes", "a", made.sequence, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_CONFLICT);
    bus_delete(s->e, "nodes", "a", updated.sequence, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
    bus_get(s->e, "nodes", "a", on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_NOT_FOUND);
    bus_create(s->e, "nodes", "a", "3", 1, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
    bus_put(s->e, "nodes", "a", "4", 1, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
}

static void test_a_value_vanishes_after_its_time(void **state)
{
    struct setup *s = setup_of(state);
    struct answer a = { 0 };
    make_bucket(s, 1000);
    do { /* until it is seen within its time */
        bus_put(s->e, "nodes", "a", "1", 1, on_done, &a);
        assert_int_equal(await(s, &a).result, BUS_OK);
        bus_get(s->e, "nodes", "a", on_done, &a);
    } while (await(s, &a).result != BUS_OK);
    enum bus_result result = BUS_OK;
    for (int i = 0; i < 300 && result == BUS_OK; i++) {
        usleep(100000);
        bus_get(s->e, "nodes", "a", on_done, &a);
        result = await(s, &a).result;
    }
    assert_int_equal(result, BUS_NOT_FOUND);
}

struct seen {
    char text[512];
    unsigned completions;
    bool is_complete, has_c;
};

static void on_entry(void *arg, const struct bus_entry *entry)
{
    struct seen *seen = arg;
    size_t len = strlen(seen->text);
    if (!entry->key) {
        seen->completions++;
        seen->is_complete = true;
        return;
    }
    snprintf(seen->text + len, sizeof seen->text - len, "%s=%s;", entry->key,
        entry->data ? entry->data : "-");
    seen->has_c = seen->has_c || strcmp(entry->key, "n.c") == 0;
}

static void test_a_watch_sees_what_is_there_and_what_changes(void **state)
{
    struct setup *s = setup_of(state);
    struct seen seen = { 0 };
    struct answer a = { 0 };
    assert_ok(bus_watch(s->e, "nodes", "n.>", on_entry, &seen, err)); /* before the bucket */
    make_bucket(s, 0);
    run_until(s, &seen.is_complete);
    assert_string_equal(seen.text, "");
    struct seen later = { 0 };
    bus_put(s->e, "nodes", "n.a", "1", 1, NULL, NULL);
    bus_put(s->e, "nodes", "other", "1", 1, NULL, NULL);
    bus_put(s->e, "nodes", "n.a", "2", 1, on_done, &a);
    await(s, &a);
    assert_ok(bus_watch(s->e, "nodes", "n.>", on_entry, &later, err));
    run_until(s, &later.is_complete);
    assert_string_equal(later.text, "n.a=2;");
    bus_delete(s->e, "nodes", "n.a", 0, NULL, NULL);
    bus_put(s->e, "nodes", "n.c", "3", 1, NULL, NULL);
    run_until(s, &later.has_c);
    run_until(s, &seen.has_c);
    assert_non_null(strstr(later.text, "n.c=3;"));
    assert_non_null(strstr(seen.text, "n.a=-;n.c=3;")); /* what was replaced soon may be left out */
    bus_forget(s->e, &later);
}

/* ---- a server that restarts ---- */

static void test_all_goes_on_after_the_server_was_killed(void **state)
{
    struct setup *s = setup_of(state);
    struct seen seen = { 0 };
    struct answer a = { 0 }, lost = { 0 };
    make_work(s);
    make_bucket(s, 0);
    bus_put(s->e, "nodes", "n.a", "1", 1, on_done, &a);
    await(s, &a);
    publish(s, "work.runs", "kept", NULL);
    assert_ok(bus_watch(s->e, "nodes", ">", on_entry, &seen, err));
    run_until(s, &seen.is_complete);
    assert_ok(bus_subscribe(s->e, "silent", NULL, keep_silent, s, err));
    assert_ok(bus_subscribe(s->e, "echo", NULL, answer_twice, s, err));
    bus_request(s->e, "silent", "x", 1, 60000, on_done, &lost);
    nats_server_stop(&s->server);
    run_until(s, &lost.is_there);
    assert_int_equal(lost.result, BUS_TIMEOUT);
    while (bus_is_connected(s->e))
        run_a_moment(s);
    bus_put(s->e, "nodes", "n.b", "1", 1, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_DISCONNECTED);
    seen.is_complete = false;
    nats_server_start(&s->server);
    run_until(s, &seen.is_complete);
    assert_true(bus_is_connected(s->e));
    assert_string_equal(seen.text, "n.a=1;n.a=1;");
    bus_put(s->e, "nodes", "n.c", "2", 1, on_done, &a);
    assert_int_equal(await(s, &a).result, BUS_OK);
    run_until(s, &seen.has_c);
    bus_request(s->e, "echo", "y", 1, 30000, on_done, &a);
    assert_string_equal(await(s, &a).data, "yy");
    struct messages all;
    fetch(s, &all, 1, 30000);
    assert_int_equal(all.count, 1);
    assert_string_equal(all.m[0]->data, "kept");
    bus_ack(all.m[0], NULL, NULL);
}

static void test_many_operations_at_once_each_end_once(void **state)
{
    enum { MANY = 2000 };
    struct setup *s = setup_of(state);
    struct answer *all = calloc(MANY, sizeof *all);
    make_work(s);
    for (int i = 0; i < MANY; i++)
        bus_publish(s->e,
            &(struct bus_publication){ .subject = "work.many", .data = "x", .len = 1 }, on_done,
            &all[i]);
    for (int i = 0; i < MANY; i++) {
        run_until(s, &all[i].is_there);
        assert_int_equal(all[i].calls, 1);
        assert_int_equal(all[i].result, BUS_OK);
    }
    free(all);
}

#define bus_test(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        bus_test(test_a_server_that_is_not_there_is_an_error),
        bus_test(test_a_server_that_starts_at_the_same_time_is_waited_for),
        bus_test(test_addresses_are_checked_and_not_repeated),
        bus_test(test_a_request_is_answered),
        bus_test(test_a_request_without_a_subscriber_says_so),
        bus_test(test_a_request_without_an_answer_ends_in_time),
        bus_test(test_what_is_forgotten_calls_nothing),
        bus_test(test_a_publication_with_the_same_id_is_kept_once),
        bus_test(test_a_publication_expects_a_sequence),
        bus_test(test_a_full_stream_refuses),
        bus_test(test_a_stream_that_is_there_is_left_as_it_is),
        bus_test(test_work_is_fetched_and_acknowledged),
        bus_test(test_work_that_is_not_done_comes_again),
        bus_test(test_progress_keeps_work),
        bus_test(test_a_forgotten_fetch_gives_its_messages_back),
        bus_test(test_a_fetch_of_nothing_ends),
        bus_test(test_a_key_is_created_once_and_updated_by_revision),
        bus_test(test_a_value_vanishes_after_its_time),
        bus_test(test_a_watch_sees_what_is_there_and_what_changes),
        bus_test(test_all_goes_on_after_the_server_was_killed),
        bus_test(test_many_operations_at_once_each_end_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
