/* Which containers the environment `docker` makes, shares, keeps and removes, with a daemon that
 * answers as a test says: the engine and its streams are replaced here. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/common/environment.h"
#include "env/common/owner_labels.h"
#include "env/docker/engine.h"

/* ---- the daemon ---- */

struct engine_request {
    struct engine_ask ask;
    struct timer *timer; /* its answer comes from the loop, as a daemon's does */
    char path[256];
};

static struct loop *loop;
static struct buf deleted; /* the ids, each with a space */
static unsigned created;
static const char *listed;         /* the answer to the request for containers */
static enum error_code list_error; /* and that the daemon fails it with */
static long delete_status;
static int the_stream;

static void engine_answer_due(void *arg)
{
    struct engine_request *r = arg;
    struct engine_ask ask = r->ask;
    struct engine_answer answer = { .status = 200 };
    cleanup_json struct json_object *body = NULL;
    cleanup_buf struct buf text = { 0 };
    if (strncmp(r->path, "/containers/create", 18) == 0)
        buf_printf(&text, "{\"Id\":\"made%u\"}", ++created);
    else if (strncmp(r->path, "/containers/json", 16) == 0)
        buf_puts(&text, listed);
    if (text.len > 0)
        assert_non_null(body = json_tokener_parse(buf_text(&text)));
    answer.body = body;
    if (strncmp(r->path, "/containers/json", 16) == 0 && list_error != ERROR_NONE)
        error_set(&answer.error, list_error, "the daemon says no");
    if (strcmp(ask.method, "DELETE") == 0) {
        buf_printf(&deleted, "%.*s ", (int)strcspn(r->path + 12, "?"), r->path + 12);
        answer.status = delete_status;
        if (delete_status >= 400)
            error_set(&answer.error, ERROR_ENVIRONMENT, "removal is already in progress");
    }
    engine_cancel(r);
    ask.done(ask.arg, &answer);
}

int engine_send(
    struct engine *e, const struct engine_ask *ask, struct engine_request **out, struct error *err)
{
    struct engine_request *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->ask = *ask;
    snprintf(r->path, sizeof r->path, "%s", ask->path);
    r->timer = timer_new(loop, engine_answer_due, r);
    assert_non_null(r->timer);
    timer_start(r->timer, 0, 0);
    *out = r;
    return 0;
}

void engine_cancel(struct engine_request *r)
{
    if (!r)
        return;
    timer_free(r->timer);
    free(r);
}

/* Containers stay at this step: no supervisor ever says anything. */
int engine_hijack(struct engine *e, const char *path, const struct stream_events *events, void *arg,
    struct stream **stream, struct error *err)
{
    *stream = (struct stream *)&the_stream;
    return 0;
}

int engine_open(struct loop *of, struct engine **out, struct error *err)
{
    *out = NULL;
    return 0;
}

void engine_close(struct engine *e)
{
}

int engine_configured(struct error *err)
{
    return 0;
}

const char *engine_address(const struct engine *e)
{
    return "unix:///a-daemon";
}

bool engine_is_local(const struct engine *e)
{
    return true;
}

void stream_close(struct stream *s)
{
}

void stream_pause(struct stream *s, bool paused)
{
}

int stream_send(struct stream *s, const struct iovec *iov, int count, struct error *err)
{
    return 0;
}

size_t stream_waiting(const struct stream *s)
{
    return 0;
}

/* ---- the tests ---- */

static struct environment *env;

static int docker_setup(void **state)
{
    listed = "[]";
    list_error = ERROR_NONE;
    delete_status = 204;
    created = 0;
    assert_ok(loop_open(&loop, err));
    assert_ok(docker_environment.open(loop, NULL, &env, err));
    return 0;
}

static int docker_teardown(void **state)
{
    environment_ops_of(env)->free(env);
    buf_free(&deleted);
    loop_close(loop);
    return 0;
}

static bool on_bytes(void *arg, const char *data, size_t len)
{
    return false;
}

static void on_output(void *arg, int stream, const char *data, size_t len)
{
}

static void on_ended(void *arg, const struct sandbox_exit *how)
{
    fail_msg("a sandbox has ended: %s", how->error.text);
}

static void settle(void)
{
    for (int i = 0; i < 10; i++)
        loop_turn(loop, 0);
}

/* Sandboxes with the same memory are of one kind. */
static struct sandbox *open_box(uint64_t memory, bool reuse)
{
    static const struct sandbox_events events = { on_bytes, on_output, on_ended };
    struct container_spec c = { .reuse = reuse };
    struct sandbox_spec spec = { .limits = jail_default_limits, .container = &c };
    struct sandbox *s = NULL;
    spec.limits.memory = memory;
    assert_ok(environment_ops_of(env)->open(env, &spec, &events, NULL, &s, err));
    settle();
    return s;
}

static void close_box(struct sandbox *s)
{
    environment_ops_of(env)->close(s);
    settle();
}

static void took_away(const char *expected)
{
    assert_string_equal(buf_text(&deleted), expected);
    buf_clear(&deleted);
}

static void each_sandbox_has_a_container_that_ends_with_it(void **state)
{
    struct sandbox *a = open_box(1 << 30, false), *b = open_box(1 << 30, false);
    assert_int_equal(created, 2);
    assert_string_equal(environment_ops_of(env)->id(a), "made1");
    assert_string_equal(environment_ops_of(env)->id(b), "made2");
    close_box(a);
    took_away("made1 ");
    close_box(b);
    took_away("made2 ");
}

static void equal_sandboxes_share_a_container_where_they_may(void **state)
{
    struct sandbox *a = open_box(1 << 30, true), *b = open_box(1 << 30, true);
    struct sandbox *other = open_box(1 << 29, true), *alone = open_box(1 << 30, false);
    assert_string_equal(environment_ops_of(env)->id(a), "made1");
    assert_string_equal(environment_ops_of(env)->id(b), "made1");
    assert_string_equal(environment_ops_of(env)->id(other), "made2");
    assert_string_equal(environment_ops_of(env)->id(alone), "made3");
    close_box(a);
    close_box(alone);
    took_away("made3 ");
    close_box(b);
    close_box(other);
    took_away("");
    a = open_box(1 << 30, true); /* an empty one takes the next */
    assert_string_equal(environment_ops_of(env)->id(a), "made1");
    close_box(a);
}

/* Empty containers are kept for later sandboxes, but only the newest. */
static void few_empty_containers_are_kept(void **state)
{
    struct sandbox *all[6];
    for (size_t i = 0; i < array_length(all); i++)
        all[i] = open_box((1 << 30) + (i << 20), true);
    for (size_t i = 0; i < 4; i++)
        close_box(all[i]);
    took_away("");
    close_box(all[4]);
    took_away("made1 ");
    close_box(all[5]);
    took_away("made2 ");
}

static void all_containers_go_with_the_environment(void **state)
{
    close_box(open_box(1 << 30, true));
    took_away("");
    environment_ops_of(env)->free(env);
    took_away("made1 ");
    assert_ok(docker_environment.open(loop, NULL, &env, err));
}

/* ---- orphans ---- */

struct collected {
    unsigned reports, removed;
    struct error why;
};

static void on_collected(void *arg, unsigned removed, const struct error *why)
{
    struct collected *c = arg;
    c->reports++;
    c->removed = removed;
    c->why = *why;
}

static struct collected collect(void)
{
    struct collected c = { 0 };
    assert_ok(environment_ops_of(env)->collect(env, on_collected, &c, err));
    settle();
    assert_int_equal(c.reports, 1);
    return c;
}

/* A member of the list: the labels are those of this process, or of a dead one of its machine. */
static void list_container(struct buf *list, const char *id, bool alive)
{
    cleanup_buf struct buf owner = { 0 }, machine = { 0 };
    owner_labels(&owner, &machine);
    const char *rest = strchr(buf_text(&owner), ' ');
    assert_non_null(rest);
    buf_printf(list, "%s{\"Id\":\"%s\",\"Labels\":{\"%s\":\"%s%s\",\"%s\":\"%s\"}}",
        list->len ? "," : "[", id, LABEL_OWNER, alive ? "" : "4194303",
        alive ? buf_text(&owner) : rest, LABEL_MACHINE, buf_text(&machine));
}

/* Ids become part of a path: none that is no name is asked for. */
static void only_containers_of_dead_hosts_are_removed(void **state)
{
    cleanup_buf struct buf list = { 0 };
    list_container(&list, "dead", false);
    list_container(&list, "alive", true);
    list_container(&list, "../images/python", false);
    list_container(&list, "", false);
    list_container(&list, "dead2", false);
    buf_puts(
        &list, ",{\"Id\":\"bare\"},{\"Id\":\"odd\",\"Labels\":[]},{\"Id\":7},null,[],\"dead\"]");
    listed = buf_text(&list);
    struct collected c = collect();
    assert_int_equal(c.removed, 2);
    assert_int_equal(c.why.code, ERROR_NONE);
    took_away("dead dead2 ");
}

static void a_container_that_is_being_removed_is_no_error(void **state)
{
    cleanup_buf struct buf list = { 0 };
    list_container(&list, "dead", false);
    buf_puts(&list, "]");
    listed = buf_text(&list);
    delete_status = 409;
    struct collected c = collect();
    assert_int_equal(c.removed, 0);
    assert_int_equal(c.why.code, ERROR_NONE);
    delete_status = 500;
    c = collect();
    assert_int_equal(c.why.code, ERROR_ENVIRONMENT);
    took_away("dead dead ");
}

static void an_answer_that_is_no_list_removes_nothing(void **state)
{
    listed = "{\"Id\":\"dead\"}";
    assert_int_equal(collect().removed, 0);
    list_error = ERROR_LOST;
    assert_int_equal(collect().why.code, ERROR_LOST);
    took_away("");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, docker_setup, docker_teardown)
    const struct CMUnitTest tests[] = {
        TEST(each_sandbox_has_a_container_that_ends_with_it),
        TEST(equal_sandboxes_share_a_container_where_they_may),
        TEST(few_empty_containers_are_kept),
        TEST(all_containers_go_with_the_environment),
        TEST(only_containers_of_dead_hosts_are_removed),
        TEST(a_container_that_is_being_removed_is_no_error),
        TEST(an_answer_that_is_no_list_removes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
