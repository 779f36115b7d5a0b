/* base/loop.c: see loop.h. */
#include "base/loop.h"

#include <stdlib.h>

#include "base/clock.h"

struct timer {
    uv_timer_t uv; /* first: uv_handle_t * and struct timer * are the same address */
    timer_fn *fn;
    void *arg;
};

struct watch {
    uv_poll_t uv; /* first, as above */
    watch_fn *fn;
    void *arg;
};

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
    *out = loop;
    return 0;
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
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
    uv_walk(&loop->uv, close_handle, NULL);
    while (uv_loop_close(&loop->uv) == UV_EBUSY)
        uv_run(&loop->uv, UV_RUN_ONCE);
    free(loop);
}

static int nothing_left(struct error *err)
{
    return error_set(err, ERROR_IO, "the event loop has nothing left to wait for");
}

int loop_run_until(struct loop *loop, const bool *done, struct error *err)
{
    while (!*done)
        if (uv_run(&loop->uv, UV_RUN_ONCE) == 0 && !*done)
            return nothing_left(err);
    return 0;
}

int loop_run_until_soon(struct loop *loop, const bool *done, struct error *err)
{
    enum { LOOK_NS = 150000 };
    while (!*done) {
        uint64_t start = clock_ns();
        while (!*done && clock_ns() - start < LOOK_NS) {
            uv_run(&loop->uv, UV_RUN_NOWAIT);
        }
        if (!*done && uv_run(&loop->uv, UV_RUN_ONCE) == 0 && !*done)
            return nothing_left(err);
    }
    return 0;
}

void loop_run_ready(struct loop *loop)
{
    uv_run(&loop->uv, UV_RUN_NOWAIT);
}

static void time_is_over(void *arg)
{
}

void loop_wake(struct loop *loop)
{
    uv_stop(&loop->uv);
}

int loop_turn(struct loop *loop, int ms, struct error *err)
{
    struct timer *end = ms > 0 ? timer_new(loop, time_is_over, NULL) : NULL;
    if (ms > 0 && !end)
        return error_memory(err);
    if (end)
        timer_start(end, (uint64_t)ms, 0);
    uv_run(&loop->uv, ms == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    timer_free(end);
    return 0;
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
    /* libuv counts from the loop's cached time, which is old after long work outside the loop. */
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

static void watch_fired(uv_poll_t *uv, int status, int events)
{
    struct watch *watch = (struct watch *)uv;
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

void watch_free(struct watch *watch)
{
    if (watch && !uv_is_closing((uv_handle_t *)&watch->uv))
        uv_close((uv_handle_t *)&watch->uv, free_handle);
}
