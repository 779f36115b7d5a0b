/* The event loop: callbacks run when they should and never after they were cancelled, and
 * everything is freed (which the address sanitizer checks). */
#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/job.h"
#include "base/loop.h"

struct scene {
    struct loop *loop;
    struct timer *timer;
    struct watch *watch;
    int ends[2]; /* a pipe */
    int fired;
    int status, events; /* of the watch */
    bool done;
};

static int open_scene(void **state)
{
    static struct scene scene;
    scene = (struct scene){ 0 };
    *state = &scene;
    if (loop_open(&scene.loop, NULL) < 0)
        return -1;
    return pipe2(scene.ends, O_CLOEXEC);
}

static int close_scene(void **state)
{
    struct scene *scene = *state;
    loop_close(scene->loop);
    close(scene->ends[0]);
    close(scene->ends[1]);
    return 0;
}

#define loop_test(f) cmocka_unit_test_setup_teardown(f, open_scene, close_scene)

static void count(void *arg)
{
    struct scene *scene = arg;
    scene->fired++;
}

/* ---- work from other threads ---- */

struct numbered {
    struct post post;
    struct scene *scene;
    int number;
};

enum { POSTS = 1000 };

static int last_number;

static void run_numbered(struct post *post)
{
    struct numbered *n = (struct numbered *)(void *)post;
    assert_int_equal(n->number, last_number + 1);
    last_number = n->number;
    n->scene->done = n->number == POSTS;
    free(n);
}

static void *post_all(void *arg)
{
    struct scene *scene = arg;
    for (int i = 1; i <= POSTS; i++) {
        struct numbered *n = calloc(1, sizeof *n);
        *n = (struct numbered){ { NULL, run_numbered }, scene, i };
        loop_post(scene->loop, &n->post);
    }
    return NULL;
}

/* Another thread's work wakes a loop that sleeps, and is done in its order. */
static void posts_are_run_in_their_order(void **state)
{
    struct scene *scene = *state;
    struct watch *watch = watch_new(scene->loop, scene->ends[0], NULL, NULL);
    pthread_t thread;
    watch_events(
        watch, UV_READABLE); /* nothing comes there: without posts it would wait for ever */
    last_number = 0;
    assert_int_equal(pthread_create(&thread, NULL, post_all, scene), 0);
    assert_ok(loop_run_until(scene->loop, &scene->done, err));
    pthread_join(thread, NULL);
    assert_int_equal(last_number, POSTS);
    watch_free(watch);
}

/* Without a turn of the loop: what is left before it is closed. */
static void posts_can_be_run_now(void **state)
{
    struct scene *scene = *state;
    last_number = 0;
    post_all(scene);
    loop_run_posts(scene->loop);
    assert_int_equal(last_number, POSTS);
    assert_true(scene->done);
}

static void finish(void *arg)
{
    struct scene *scene = arg;
    scene->done = true;
}

/* Waits `ms` on the loop, whatever else happens on it. */
static void wait_ms(struct scene *scene, uint64_t ms)
{
    struct timer *timer = timer_new(scene->loop, finish, scene);
    scene->done = false;
    timer_start(timer, ms, 0);
    assert_ok(loop_run_until(scene->loop, &scene->done, err));
    timer_free(timer);
}

/* ---- the loop ---- */

/* With nothing to wait for, waiting is an error and not for ever; what is done already is done. */
static void nothing_left_is_an_error(void **state)
{
    struct scene *scene = *state;
    assert_fails(ERROR_IO, loop_run_until(scene->loop, &scene->done, err));
    struct timer *stopped = timer_new(scene->loop, count, scene);
    timer_start(stopped, 1, 0);
    timer_stop(stopped);
    assert_fails(ERROR_IO, loop_run_until(scene->loop, &scene->done, err));
    timer_free(stopped);
    assert_fails(ERROR_IO, loop_run_until(scene->loop, &scene->done, err));
    scene->done = true;
    assert_ok(loop_run_until(scene->loop, &scene->done, err));
}

/* Waiting for what comes soon finds what comes at once, and what comes after it went to sleep. */
static void waiting_for_soon_finds_the_late_too(void **state)
{
    static const uint64_t delays_ms[] = { 0, 20, 0, 20 };
    static const bool soon[] = { true, true, false, false };
    struct scene *scene = *state;
    assert_fails(ERROR_IO, loop_wait_soon(scene->loop, &scene->done, &soon[0], -1, err));
    for (size_t i = 0; i < 4; i++) {
        struct timer *timer = timer_new(scene->loop, finish, scene);
        scene->done = false;
        timer_start(timer, delays_ms[i], 0);
        assert_ok(loop_wait_soon(scene->loop, &scene->done, &soon[i], -1, err));
        assert_true(scene->done);
        timer_free(timer);
    }
}

static void count_turn(uv_prepare_t *prepare)
{
    ++*(unsigned *)prepare->data;
}

/* Before the guest is there, and while a server is waited for, the host does not go round and
 * round. */
static void what_is_far_is_slept_for(void **state)
{
    static const bool soon[] = { false, true };
    struct scene *scene = *state;
    unsigned turns = 0;
    uv_prepare_t prepare;
    uv_prepare_init(&scene->loop->uv, &prepare);
    prepare.data = &turns;
    uv_prepare_start(&prepare, count_turn);
    loop_far(scene->loop, true); /* twice, as of two servers: one answer does not bring it near */
    loop_far(scene->loop, true);
    loop_far(scene->loop, false);
    for (size_t i = 0; i < 2; i++) {
        struct timer *timer = timer_new(scene->loop, finish, scene);
        scene->done = false;
        turns = 0;
        timer_start(timer, 20, 0);
        assert_ok(loop_wait_soon(scene->loop, &scene->done, &soon[i], -1, err));
        if (turns > 4)
            fail_msg("it went round %u times", turns);
        timer_free(timer);
    }
    uv_close((uv_handle_t *)&prepare, NULL);
    loop_turn(scene->loop, 0);
}

/* A watch that was skipped because it is far away does not count as a failed search: the next one
 * that is near is searched for at once. A search that failed is remembered. */
static void what_is_far_is_not_in_vain(void **state)
{
    static const bool soon = true;
    struct scene *scene = *state;
    for (int far = 1; far >= 0; far--) {
        struct timer *timer = timer_new(scene->loop, finish, scene);
        scene->done = false;
        timer_start(timer, 200, 0);
        if (far)
            loop_far(scene->loop, true);
        assert_ok(loop_wait_soon(scene->loop, &scene->done, &soon, -1, err));
        if (far)
            loop_far(scene->loop, false);
        assert_int_equal(scene->loop->missed > 0, !far);
        timer_free(timer);
    }
}

/* The last event may be the one that was waited for. */
static void the_last_event_counts(void **state)
{
    struct scene *scene = *state;
    struct timer *timer = timer_new(scene->loop, finish, scene);
    timer_start(timer, 1, 0);
    assert_ok(loop_run_until(scene->loop, &scene->done, err));
    timer_free(timer);
}

/* Running what is ready does not wait for what is not. */
static void running_what_is_ready_does_not_wait(void **state)
{
    struct scene *scene = *state;
    struct timer *timer = timer_new(scene->loop, count, scene);
    timer_start(timer, 60000, 0);
    uint64_t start = clock_ns();
    loop_turn(scene->loop, 0);
    assert_true(clock_seconds_since(start) < 10);
    assert_int_equal(scene->fired, 0);
    timer_start(timer, 0, 0);
    loop_turn(scene->loop, 0);
    assert_int_equal(scene->fired, 1);
    timer_free(timer);
}

/* Closing the loop frees what its owners forgot: running, stopped, freed already, watching. */
/* ---- jobs ---- */

struct blocking {
    struct scene *scene;
    pthread_t worker, ender;
    int ended;
};

static void block(void *arg)
{
    struct blocking *b = arg;
    char byte;
    b->worker = pthread_self();
    assert_int_equal(read(b->scene->ends[0], &byte, 1), 1);
}

static void blocked(void *arg)
{
    struct blocking *b = arg;
    b->ender = pthread_self();
    b->ended++;
    b->scene->done = true;
}

static void write_byte(void *arg)
{
    struct scene *scene = arg;
    scene->fired++;
    assert_int_equal(write(scene->ends[1], "x", 1), 1);
}

/* What would block the loop for ever ends by a timer of the same loop: the job is in another
 * thread, and its end in the loop's, which waits for it although nothing else is left. */
static void a_job_leaves_the_loop_going(void **state)
{
    struct scene *scene = *state;
    struct blocking b = { .scene = scene };
    struct timer *timer = timer_new(scene->loop, write_byte, scene);
    assert_ok(job_start(scene->loop, block, blocked, &b, err));
    timer_start(timer, 1, 0);
    assert_ok(loop_run_until(scene->loop, &scene->done, err));
    assert_int_equal(scene->fired, 1);
    assert_int_equal(b.ended, 1);
    assert_false(pthread_equal(b.worker, pthread_self()));
    assert_true(pthread_equal(b.ender, pthread_self()));
    timer_free(timer);
}

static void closing_waits_for_jobs(void **state)
{
    struct blocking b = { .scene = *state };
    struct loop *loop;
    assert_ok(loop_open(&loop, err));
    assert_ok(job_start(loop, block, blocked, &b, err));
    assert_int_equal(write(b.scene->ends[1], "x", 1), 1);
    loop_close(loop);
    assert_int_equal(b.ended, 1);
}

static void note_event(void *arg, int status, int events);

/* What was freed, what was stopped and what goes on: nothing of it fires later or keeps the loop
 * from being closed. That their memory goes is for the address sanitizer. */
static void closing_frees_what_is_left(void **state)
{
    struct scene *scene = *state;
    struct loop *loop;
    char byte;
    assert_ok(loop_open(&loop, err));
    struct watch *watch = watch_new(loop, scene->ends[0], note_event, scene);
    watch_events(watch, UV_READABLE);
    timer_start(timer_new(loop, count, scene), 0, 1);
    timer_new(loop, count, scene);
    timer_free(timer_new(loop, count, scene));
    int backend = loop_backend(loop);
    assert_true(fcntl(backend, F_GETFD) >= 0);
    assert_int_equal(write(scene->ends[1], "x", 1), 1);
    loop_close(loop);
    assert_int_equal(fcntl(backend, F_GETFD), -1);
    assert_int_equal(scene->fired, 0);
    assert_int_equal(read(scene->ends[0], &byte, 1), 1); /* the descriptor is the caller's */
    loop_close(NULL);
    timer_free(NULL);
    watch_free(NULL);
}

/* ---- timers ---- */

/* A timer fires once, not before its time; one that repeats goes on until it is stopped. */
static void timers_fire_when_they_should(void **state)
{
    struct scene *scene = *state;
    struct timer *timer = timer_new(scene->loop, count, scene);
    uint64_t start = clock_ns();
    timer_start(timer, 20, 0);
    while (scene->fired == 0)
        wait_ms(scene, 1);
    assert_true(clock_seconds_since(start) >= 0.019);
    wait_ms(scene, 50);
    assert_int_equal(scene->fired, 1);
    timer_start(timer, 1, 1);
    while (scene->fired < 5)
        wait_ms(scene, 1);
    timer_stop(timer);
    int fired = scene->fired;
    wait_ms(scene, 10);
    assert_int_equal(scene->fired, fired);
    timer_free(timer);
}

/* Time spent outside the loop is not taken off a timer that is started after it. */
static void a_timer_counts_from_its_start(void **state)
{
    struct scene *scene = *state;
    loop_turn(scene->loop, 0);
    usleep(50000);
    struct timer *timer = timer_new(scene->loop, finish, scene);
    uint64_t start = clock_ns();
    timer_start(timer, 40, 0);
    assert_ok(loop_run_until(scene->loop, &scene->done, err));
    assert_true(clock_seconds_since(start) >= 0.039);
    timer_free(timer);
}

/* Starting a running timer puts it off. */
static void restarting_puts_a_timer_off(void **state)
{
    struct scene *scene = *state;
    struct timer *timer = timer_new(scene->loop, count, scene);
    timer_start(timer, 1, 0);
    timer_start(timer, 60000, 0);
    wait_ms(scene, 20);
    assert_int_equal(scene->fired, 0);
    timer_free(timer);
}

static void free_own_timer(void *arg)
{
    struct scene *scene = arg;
    scene->fired++;
    timer_free(scene->timer);
    timer_free(scene->timer); /* until the loop goes on it is still there, and this is nothing */
}

/* A timer can be freed where it fires, and does not fire again. */
static void a_timer_is_freed_in_its_own_callback(void **state)
{
    struct scene *scene = *state;
    scene->timer = timer_new(scene->loop, free_own_timer, scene);
    timer_start(scene->timer, 1, 1);
    wait_ms(scene, 20);
    assert_int_equal(scene->fired, 1);
}

static void free_other_timer(void *arg)
{
    struct scene *scene = arg;
    timer_free(scene->timer);
}

/* A timer that another one frees in the same turn of the loop does not fire any more. */
static void a_freed_timer_does_not_fire(void **state)
{
    struct scene *scene = *state;
    struct timer *first = timer_new(scene->loop, free_other_timer, scene);
    scene->timer = timer_new(scene->loop, count, scene);
    timer_start(first, 1, 0);
    timer_start(scene->timer, 1, 0);
    usleep(5000);
    wait_ms(scene, 10);
    assert_int_equal(scene->fired, 0);
    timer_free(first);
}

/* ---- watches ---- */

static void note_event(void *arg, int status, int events)
{
    struct scene *scene = arg;
    char byte;
    scene->fired++;
    scene->status = status;
    scene->events = events;
    if (events & UV_READABLE)
        (void)!read(scene->ends[0], &byte, 1);
}

/* A watch speaks when its descriptor is ready, and only then. */
static void a_watch_sees_what_is_ready(void **state)
{
    struct scene *scene = *state;
    struct watch *watch = watch_new(scene->loop, scene->ends[0], note_event, scene);
    assert_int_equal(watch_events(watch, UV_READABLE), 0);
    wait_ms(scene, 10);
    assert_int_equal(scene->fired, 0);
    assert_int_equal(write(scene->ends[1], "x", 1), 1);
    wait_ms(scene, 10);
    assert_int_equal(scene->fired, 1);
    assert_int_equal(scene->status, 0);
    assert_int_equal(scene->events, UV_READABLE);
    watch_free(watch);
}

/* A watch that was told to stop is silent, and can be told to go on. */
static void a_watch_can_be_stopped(void **state)
{
    struct scene *scene = *state;
    struct watch *watch = watch_new(scene->loop, scene->ends[1], note_event, scene);
    watch_events(watch, UV_WRITABLE);
    wait_ms(scene, 5);
    assert_true(scene->fired > 0);
    assert_int_equal(scene->events, UV_WRITABLE);
    assert_int_equal(watch_events(watch, 0), 0);
    int fired = scene->fired;
    wait_ms(scene, 10);
    assert_int_equal(scene->fired, fired);
    watch_events(watch, UV_WRITABLE);
    wait_ms(scene, 5);
    assert_true(scene->fired > fired);
    watch_free(watch);
}

/* The other end's closing wakes a reader. */
static void a_watch_sees_the_end(void **state)
{
    struct scene *scene = *state;
    struct watch *watch = watch_new(scene->loop, scene->ends[0], note_event, scene);
    watch_events(watch, UV_READABLE);
    close(scene->ends[1]);
    wait_ms(scene, 10);
    assert_true(scene->fired > 0);
    watch_free(watch);
    scene->ends[1] = dup(scene->ends[0]);
}

static void free_own_watch(void *arg, int status, int events)
{
    struct scene *scene = arg;
    scene->fired++;
    watch_free(scene->watch);
    watch_free(scene->watch); /* as with timers */
    close(scene->ends[0]);
    scene->ends[0] = -1;
}

/* A watch can be freed where it speaks, its descriptor closed, and both are gone. */
static void a_watch_is_freed_in_its_own_callback(void **state)
{
    struct scene *scene = *state;
    scene->watch = watch_new(scene->loop, scene->ends[0], free_own_watch, scene);
    watch_events(scene->watch, UV_READABLE);
    assert_int_equal(write(scene->ends[1], "xx", 2), 2);
    wait_ms(scene, 10);
    assert_int_equal(scene->fired, 1);
    scene->ends[0] = dup(scene->ends[1]);
}

/* A descriptor that is nobody's, or a file, which is always ready, cannot be watched. */
static void some_descriptors_cannot_be_watched(void **state)
{
    struct scene *scene = *state;
    FILE *file = tmpfile();
    assert_null(watch_new(scene->loop, -1, note_event, scene));
    assert_null(watch_new(scene->loop, 9999, note_event, scene));
    assert_null(watch_new(scene->loop, fileno(file), note_event, scene));
    watch_free(NULL);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(nothing_left_is_an_error),
        loop_test(posts_are_run_in_their_order),
        loop_test(posts_can_be_run_now),
        loop_test(waiting_for_soon_finds_the_late_too),
        loop_test(what_is_far_is_not_in_vain),
        loop_test(what_is_far_is_slept_for),
        loop_test(the_last_event_counts),
        loop_test(running_what_is_ready_does_not_wait),
        loop_test(a_job_leaves_the_loop_going),
        loop_test(closing_waits_for_jobs),
        loop_test(closing_frees_what_is_left),
        loop_test(timers_fire_when_they_should),
        loop_test(a_timer_counts_from_its_start),
        loop_test(restarting_puts_a_timer_off),
        loop_test(a_timer_is_freed_in_its_own_callback),
        loop_test(a_freed_timer_does_not_fire),
        loop_test(a_watch_sees_what_is_ready),
        loop_test(a_watch_can_be_stopped),
        loop_test(a_watch_sees_the_end),
        loop_test(a_watch_is_freed_in_its_own_callback),
        loop_test(some_descriptors_cannot_be_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
