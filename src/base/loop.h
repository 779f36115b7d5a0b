/* base/loop.h: the event loop, a thin hand on libuv.
 *
 * libuv's handles must outlive uv_close's callback; timers and watches here are freed by that
 * callback, so that their owners can simply forget them. Everything runs on the thread that runs
 * the loop.
 */
#ifndef DROSTE_BASE_LOOP_H
#define DROSTE_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"

struct loop {
    uv_loop_t uv;
};

int loop_open(struct loop **out, struct error *err);
/* Closes every handle that is left and frees the loop; NULL is fine. */
void loop_close(struct loop *loop);

/* Runs until *done. Returns 0, or ERROR_IO if nothing is left that could make it true. */
int loop_run_until(struct loop *loop, const bool *done, struct error *err);
/* The same for an answer that is expected soon: looks again and again for a moment before it sleeps,
 * and after each event. Sleeping and being woken by another processor takes 30 to 60 µs in a virtual
 * machine, which is more than a small cell takes. */
int loop_run_until_soon(struct loop *loop, const bool *done, struct error *err);
/* Waits until something happens, for at most so many milliseconds (negative: as long as it takes), and
 * runs what is ready. Errors: ERROR_MEMORY. */
int loop_turn(struct loop *loop, int ms, struct error *err);
/* From a callback that makes true what loop_run_until waits for: the loop may be about to sleep, as
 * timers come first in its turn. */
void loop_wake(struct loop *loop);
/* Runs what is ready, without waiting. */
void loop_run_ready(struct loop *loop);

struct timer;
typedef void timer_fn(void *arg);
/* A stopped timer; NULL without memory. */
struct timer *timer_new(struct loop *loop, timer_fn *fn, void *arg);
/* Fires once after `ms`, and then every `repeat_ms` if that is not 0. Restarts a running timer. */
void timer_start(struct timer *timer, uint64_t ms, uint64_t repeat_ms);
void timer_stop(struct timer *timer);
/* NULL is fine. */
void timer_free(struct timer *timer);

struct watch;
/* `events` is a set of UV_READABLE and UV_WRITABLE; `status` < 0 is a libuv error (the descriptor
 * is bad). */
typedef void watch_fn(void *arg, int status, int events);
/* Does not own the descriptor: free the watch before closing it. NULL without memory. */
struct watch *watch_new(struct loop *loop, int fd, watch_fn *fn, void *arg);
/* 0 stops watching. */
int watch_events(struct watch *watch, int events);
void watch_free(struct watch *watch);

#endif
