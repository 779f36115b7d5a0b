/* base/loop.h: the event loop, a thin hand on libuv.
 *
 * libuv's handles must outlive uv_close's callback; timers and watches here are freed by that
 * callback, so that their owners can simply forget them. Everything runs on the thread that runs
 * the loop.
 */
#ifndef DROSTE_BASE_LOOP_H
#define DROSTE_BASE_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"

/* Work for the loop's thread, embedded in what it is about; `run` may free it. */
struct post {
    struct post *next;
    void (*run)(struct post *post);
};

struct loop {
    uv_loop_t uv;          /* first, so that a handle's loop is one of these */
    uint64_t fired;        /* watches, so far */
    unsigned far;          /* see loop_far */
    unsigned missed, pass; /* see look_around */
    uv_async_t *waker, *poster;
    _Atomic(struct post *) posts; /* from other threads, the last one first */
    unsigned held;                /* posts that will come */
    struct timer *patience;       /* of loop_wait_soon */
    bool over;                    /* it is to return */
    bool running;                 /* see loop_is_running */
};

int loop_open(struct loop **out, struct error *err);
/* Closes every handle that is left and frees the loop; NULL is fine. */
void loop_close(struct loop *loop);

/* Runs until *done. Returns 0, or ERROR_IO if nothing is left that could make it true. */
int loop_run_until(struct loop *loop, const bool *done, struct error *err);
/* The same for an answer that is expected soon: from when *soon is true it looks again and again for a
 * moment before it sleeps, and after each event. Sleeping and being woken by another processor takes 30
 * to 60 µs in a virtual machine, which is more than a small cell takes. */
int loop_run_until_soon(struct loop *loop, const bool *done, const bool *soon, struct error *err);
/* The same for at most so many milliseconds (negative: as long as it takes), or until loop_nudge:
 * returns 1 if *done is not true then. */
int loop_wait_soon(
    struct loop *loop, const bool *done, const bool *soon, int ms, struct error *err);
/* Has loop_wait_soon and loop_turn return: from any thread. */
void loop_nudge(struct loop *loop);
/* Has the loop's thread run it soon, in the order in which they came; from any thread. loop_run_posts does it now. */
void loop_post(struct loop *loop, struct post *post);
void loop_run_posts(struct loop *loop);
/* A post will come: the loop waits for it, and loop_close does; until loop_let_go. */
void loop_hold(struct loop *loop);
void loop_let_go(struct loop *loop);
/* A descriptor that is readable when there is something to do, for a loop of somebody else's; the
 * caller watches it, and calls loop_settle before each wait for it. Timers are in `timer_fd`, a timerfd
 * of the caller's. */
int loop_backend(const struct loop *loop);
void loop_settle(struct loop *loop, int timer_fd);
/* In the child of a fork: closes the descriptors that the loop watches, and the one by which it waits. The loop is not to
 * be used any more, nor closed: what it watches is the parent's. */
void loop_forked(struct loop *loop);
/* Something is under way (true), or no longer (false), that takes its time, as a server does, or there is no
 * processor to spare: meanwhile nobody looks for answers without sleeping, and what comes is handled in larger pieces. */
void loop_far(struct loop *loop, bool under_way);
/* Waits until something happens, for at most so many milliseconds (negative: as long as it takes), and
 * runs what is ready. Errors: ERROR_MEMORY. */
int loop_turn(struct loop *loop, int ms, struct error *err);
/* A turn is under way: who asks was called from within it, and cannot wait. */
bool loop_is_running(const struct loop *loop);
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

/* What is done once in each turn of the loop, before it looks at its watches; a turn that began with one does not
 * sleep. (A timer of 0 ms that is started again by its function would come again in the same turn.) */
struct every_turn;
/* A stopped one; NULL without memory. */
struct every_turn *every_turn_new(struct loop *loop, timer_fn *fn, void *arg);
void every_turn_start(struct every_turn *each);
void every_turn_stop(struct every_turn *each);
/* NULL is fine. */
void every_turn_free(struct every_turn *each);

struct watch;
/* `events` is a set of UV_READABLE and UV_WRITABLE; `status` < 0 is a libuv error (the descriptor
 * is bad). */
typedef void watch_fn(void *arg, int status, int events);
/* Does not own the descriptor: free the watch before closing it. NULL without memory. */
struct watch *watch_new(struct loop *loop, int fd, watch_fn *fn, void *arg);
/* 0 stops watching. */
int watch_events(struct watch *watch, int events);
/* A watch in the background does not keep the loop waiting when nothing else is left to wait for. */
void watch_background(struct watch *watch, bool background);
void watch_free(struct watch *watch);

#endif
