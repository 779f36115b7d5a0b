/* base/loop.c: waits, posts from other threads, and handles that free themselves. */
#include "base/loop.h"

#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

struct timer {
    uv_timer_t uv; /* first: uv_handle_t * and struct timer * are the same address */
    timer_fn *fn;
    void *arg;
};

struct every_turn {
    uv_idle_t uv; /* first, as in struct timer */
    timer_fn *fn;
    void *arg;
};

struct watch {
    uv_poll_t uv; /* first, as above */
    watch_fn *fn;
    void *arg;
};

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static void loop_nudged(uv_async_t *waker)
{
    struct loop *loop = (struct loop *)waker->loop;
    loop->over = true;
    uv_stop(&loop->uv);
}

static void loop_patience_is_over(void *arg)
{
    struct loop *loop = arg;
    loop->over = true;
    uv_stop(&loop->uv);
}

static void loop_posted(uv_async_t *poster)
{
    struct loop *loop = (struct loop *)poster->loop;
    loop->fired++;
    loop_run_posts(loop);
}

/* Adds a handle that does not keep the loop running when nothing else is left. */
static int add_async(struct loop *loop, uv_async_cb fn, uv_async_t **out)
{
    uv_async_t *async = calloc(1, sizeof *async);
    int rc = async ? uv_async_init(&loop->uv, async, fn) : UV_ENOMEM;
    if (rc < 0) {
        free(async);
        return rc;
    }
    uv_unref((uv_handle_t *)async);
    *out = async;
    return 0;
}

static int add_own_handles(struct loop *loop)
{
    int rc = add_async(loop, loop_nudged, &loop->waker);
    if (rc == 0)
        rc = add_async(loop, loop_posted, &loop->poster);
    if (rc < 0)
        return rc;
    loop->patience = timer_new(loop, loop_patience_is_over, loop);
    return loop->patience ? 0 : UV_ENOMEM;
}

int loop_open(struct loop **out, struct error *err)
{
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return error_memory(err);
    int rc = uv_loop_init(&loop->uv);
    if (rc < 0) {
        free(loop);
        return error_set(err, ERROR_IO, "starting an event loop: %s", uv_strerror(rc));
    }
    rc = add_own_handles(loop);
    if (rc < 0) {
        loop_close(loop);
        return error_set(err, ERROR_IO, "starting an event loop: %s", uv_strerror(rc));
    }
    *out = loop;
    return 0;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, free_handle);
}

void loop_close(struct loop *loop)
{
    if (!loop)
        return;
    while (loop->held > 0)
        uv_run(&loop->uv, UV_RUN_ONCE);
    uv_walk(&loop->uv, close_handle, NULL);
    while (uv_loop_close(&loop->uv) == UV_EBUSY)
        uv_run(&loop->uv, UV_RUN_ONCE);
    free(loop);
}

static int base_loop_turn(struct loop *loop, uv_run_mode mode)
{
    loop->running = true;
    int left = uv_run(&loop->uv, mode);
    loop->running = false;
    return left;
}

bool loop_is_running(const struct loop *loop)
{
    return loop->running;
}

static int nothing_left(struct error *err)
{
    return error_set(err, ERROR_IO, "the event loop has nothing left to wait for");
}

int loop_run_until(struct loop *loop, const bool *done, struct error *err)
{
    while (!*done)
        if (base_loop_turn(loop, UV_RUN_ONCE) == 0 && !*done)
            return nothing_left(err);
    return 0;
}

/* Polls until nothing has arrived for a while. After a poll in vain it skips the next turns,
 * more of them each time: polling takes a processor, and with few processors the guest waits for
 * it. */
static void look_around(struct loop *loop, const bool *done)
{
    enum { LOOK_NS = 150000, PASS_MOST = 63 };
    if (loop->far > 0)
        return; /* no poll, so none in vain */
    if (loop->pass > 0) {
        loop->pass--;
        return;
    }
    uint64_t moved = clock_ns(), fired = loop->fired, before = fired;
    for (uint64_t now = moved; !*done && loop->far == 0 && now - moved < LOOK_NS;
         now = clock_ns()) {
        base_loop_turn(loop, UV_RUN_NOWAIT);
        if (fired != loop->fired)
            moved = now;
        fired = loop->fired;
    }
    loop->missed = *done || fired != before ? 0 : 2 * loop->missed + 1;
    if (loop->missed > PASS_MOST)
        loop->missed = PASS_MOST;
    loop->pass = loop->missed;
}

int loop_wait_soon(struct loop *loop, const bool *done, const bool *soon, int ms, struct error *err)
{
    int rc = 0;
    loop->over = false;
    if (*soon && !*done)
        look_around(loop, done);
    if (ms >= 0 && !*done)
        timer_start(loop->patience, (uint64_t)ms, 0);
    while (rc == 0 && !*done && !loop->over) {
        if (base_loop_turn(loop, UV_RUN_ONCE) == 0 && !*done && !loop->over)
            rc = nothing_left(err);
        if (*soon && !*done && !loop->over)
            look_around(loop, done);
    }
    timer_stop(loop->patience);
    return rc < 0 ? rc : !*done;
}

void loop_nudge(struct loop *loop)
{
    uv_async_send(loop->waker);
}

void loop_post(struct loop *loop, struct post *post)
{
    post->next = atomic_load(&loop->posts);
    while (!atomic_compare_exchange_weak(&loop->posts, &post->next, post))
        ;
    uv_async_send(loop->poster);
}

void loop_run_posts(struct loop *loop)
{
    struct post *last = atomic_exchange(&loop->posts, NULL), *first = NULL;
    while (last) {
        struct post *before = last->next;
        last->next = first;
        first = last;
        last = before;
    }
    while (first) {
        struct post *next = first->next;
        first->run(first);
        first = next;
    }
}

void loop_hold(struct loop *loop)
{
    if (loop->held++ == 0)
        uv_ref((uv_handle_t *)loop->poster);
}

void loop_let_go(struct loop *loop)
{
    if (--loop->held == 0)
        uv_unref((uv_handle_t *)loop->poster);
}

int loop_backend(const struct loop *loop)
{
    return uv_backend_fd(&loop->uv);
}

void loop_settle(struct loop *loop, int timer_fd, uint64_t *due_ms)
{
    uv_update_time(&loop->uv);
    int ms = uv_backend_timeout(&loop->uv);
    uint64_t due = ms < 0 ? UINT64_MAX : uv_now(&loop->uv) + (uint64_t)ms;
    struct itimerspec at = { 0 };
    if (ms != 0 && due == *due_ms)
        return; /* it is in the future, so the timer has not expired */
    *due_ms = due;
    if (ms >= 0)
        at.it_value =
            /* 1 ns: at once; 0 would disarm the timer */
            (struct timespec){ ms / 1000, ms > 0 ? (ms % 1000) * 1000000L : 1 };
    timerfd_settime(timer_fd, 0, &at, NULL);
}

static void close_watched(uv_handle_t *handle, void *arg)
{
    int fd = -1;
    if (handle->type == UV_POLL && uv_fileno(handle, &fd) == 0)
        close(fd);
}

void loop_forked(struct loop *loop)
{
    uv_walk(&loop->uv, close_watched, NULL);
    close(uv_backend_fd(&loop->uv));
}

void loop_far(struct loop *loop, bool under_way)
{
    if (under_way)
        loop->far++;
    else
        loop->far--;
}

void loop_wake(struct loop *loop)
{
    uv_stop(&loop->uv);
}

void loop_turn(struct loop *loop, int ms)
{
    /* A new timer would become a closing handle here, for which the next turn would not wait. */
    if (ms > 0)
        timer_start(loop->patience, (uint64_t)ms, 0);
    base_loop_turn(loop, ms == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    timer_stop(loop->patience);
}

static void timer_fired(uv_timer_t *uv)
{
    struct timer *timer = (struct timer *)uv;
    timer->fn(timer->arg);
}

struct timer *timer_new(struct loop *loop, timer_fn *fn, void *arg)
{
    struct timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return NULL;
    uv_timer_init(&loop->uv, &timer->uv);
    timer->fn = fn;
    timer->arg = arg;
    return timer;
}

void timer_start(struct timer *timer, uint64_t ms, uint64_t repeat_ms)
{
    /* libuv counts from the loop's cached time, which is stale after long work outside the loop.
     * A timer of 0 ms is due by a stale time too; each call of a model starts one, so it skips
     * the clock. */
    if (ms > 0 || repeat_ms > 0)
        uv_update_time(timer->uv.loop);
    uv_timer_start(&timer->uv, timer_fired, ms, repeat_ms);
}

void timer_stop(struct timer *timer)
{
    uv_timer_stop(&timer->uv);
}

void timer_free(struct timer *timer)
{
    if (timer && !uv_is_closing((uv_handle_t *)&timer->uv))
        uv_close((uv_handle_t *)&timer->uv, free_handle);
}

static void loop_turn_came(uv_idle_t *uv)
{
    struct every_turn *each = (struct every_turn *)uv;
    each->fn(each->arg);
}

struct every_turn *every_turn_new(struct loop *loop, timer_fn *fn, void *arg)
{
    struct every_turn *each = calloc(1, sizeof *each);
    if (!each)
        return NULL;
    uv_idle_init(&loop->uv, &each->uv);
    each->fn = fn;
    each->arg = arg;
    return each;
}

void every_turn_start(struct every_turn *each)
{
    uv_idle_start(&each->uv, loop_turn_came);
}

void every_turn_stop(struct every_turn *each)
{
    uv_idle_stop(&each->uv);
}

void every_turn_free(struct every_turn *each)
{
    if (each && !uv_is_closing((uv_handle_t *)&each->uv))
        uv_close((uv_handle_t *)&each->uv, free_handle);
}

static void watch_fired(uv_poll_t *uv, int status, int events)
{
    struct watch *watch = (struct watch *)uv;
    ((struct loop *)uv->loop)->fired++;
    watch->fn(watch->arg, status, events);
}

struct watch *watch_new(struct loop *loop, int fd, watch_fn *fn, void *arg)
{
    struct watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return NULL;
    if (uv_poll_init(&loop->uv, &watch->uv, fd) < 0) {
        free(watch);
        return NULL;
    }
    watch->fn = fn;
    watch->arg = arg;
    return watch;
}

int watch_events(struct watch *watch, int events)
{
    return events ? uv_poll_start(&watch->uv, events, watch_fired) : uv_poll_stop(&watch->uv);
}

void watch_background(struct watch *watch, bool background)
{
    if (background)
        uv_unref((uv_handle_t *)&watch->uv);
    else
        uv_ref((uv_handle_t *)&watch->uv);
}

void watch_free(struct watch *watch)
{
    if (watch && !uv_is_closing((uv_handle_t *)&watch->uv))
        uv_close((uv_handle_t *)&watch->uv, free_handle);
}
