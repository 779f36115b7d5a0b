/* base/loop.h: the event loop, a thin layer over libuv.
 *
 * libuv's handles must outlive the callback of uv_close; timers and watches here are freed by that
 * callback, so their owners can forget them at once. Everything except loop_post and loop_nudge
 * runs on the loop's thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"

/* Work for the loop's thread, embedded in the object that it concerns; `run` may free it. */
struct post {
    struct post *next;
    void (*run)(struct post *post);
};

struct loop {
    uv_loop_t uv;          /* first: a pointer to it is a pointer to the loop */
    uint64_t fired;        /* callbacks of watches, so far */
    unsigned far;          /* see loop_far */
    unsigned missed, pass; /* see look_around */
    uv_async_t *waker, *poster;
    _Atomic(struct post *) posts; /* from other threads, the last one first */
    unsigned held;                /* posts announced by loop_hold */
    struct timer *patience;       /* limits loop_wait_soon */
    bool over;                    /* the loop should return */
    bool running;                 /* see loop_is_running */
};

int loop_open(struct loop **out, struct error *err);
/* Closes all remaining handles and frees the loop; NULL is fine. */
void loop_close(struct loop *loop);

/* Runs until *done. Returns 0, or ERROR_IO if nothing is left that could set it. */
int loop_run_until(struct loop *loop, const bool *done, struct error *err);
/* The same, for an answer that is expected soon: once *soon is true, and after each event, the
 * loop polls for a moment before it sleeps. Sleeping and being woken by another processor takes
 * 30 to 60 µs in a virtual machine, more than a small cell takes. It runs for at most `ms`
 * milliseconds (negative: without a limit) or until loop_nudge; returns 1 if *done is still
 * false. */
int loop_wait_soon(
    struct loop *loop, const bool *done, const bool *soon, int ms, struct error *err);
/* Makes loop_wait_soon and loop_turn return; from any thread. */
void loop_nudge(struct loop *loop);
/* Queues work for the loop's thread, in order, from any thread. loop_run_posts runs it now. */
void loop_post(struct loop *loop, struct post *post);
void loop_run_posts(struct loop *loop);
/* Announces a post from another thread: until loop_let_go, the loop and loop_close wait for it. */
void loop_hold(struct loop *loop);
void loop_let_go(struct loop *loop);
/* A descriptor that becomes readable when there is something to do, for embedding in another
 * loop. The caller watches it and calls loop_settle before each wait. Timers are set in
 * `timer_fd`, a timerfd that the caller owns, and again only if they have changed: `due_ms`, 0 for
 * a new one, says for when it is set. */
int loop_backend(const struct loop *loop);
void loop_settle(struct loop *loop, int timer_fd, uint64_t *due_ms);
/* In the child of a fork: closes the descriptors that the loop watches, and its epoll
 * descriptor. The child must neither use nor close the loop, because its handles belong to the
 * parent. */
void loop_forked(struct loop *loop);
/* Marks the start (true) or end (false) of an operation that is slow anyway, such as a call of a
 * server, or that leaves no processor to spare. Meanwhile the loop does not poll, and reads in
 * larger pieces. */
void loop_far(struct loop *loop, bool under_way);
/* Waits for events, for at most `ms` milliseconds (negative: without a limit), and handles them. */
void loop_turn(struct loop *loop, int ms);
/* True inside of the loop's callbacks, which must not wait. */
bool loop_is_running(const struct loop *loop);
/* For a callback that sets the flag that loop_run_until waits for. Timers run first in a turn of
 * the loop, which would otherwise sleep afterwards. */
void loop_wake(struct loop *loop);

struct timer;
typedef void timer_fn(void *arg);
/* Creates a stopped timer; NULL without memory. */
struct timer *timer_new(struct loop *loop, timer_fn *fn, void *arg);
/* Fires after `ms`, and then every `repeat_ms` unless that is 0. Restarts a running timer. */
void timer_start(struct timer *timer, uint64_t ms, uint64_t repeat_ms);
void timer_stop(struct timer *timer);
/* NULL is fine. */
void timer_free(struct timer *timer);

/* A function that runs once in each turn of the loop, before it polls the watches; such a turn
 * does not sleep. (A timer of 0 ms that restarts itself would fire again in the same turn.) */
struct every_turn;
/* Creates a stopped one; NULL without memory. */
struct every_turn *every_turn_new(struct loop *loop, timer_fn *fn, void *arg);
void every_turn_start(struct every_turn *each);
void every_turn_stop(struct every_turn *each);
/* NULL is fine. */
void every_turn_free(struct every_turn *each);

struct watch;
/* `events` is a set of UV_READABLE and UV_WRITABLE; a negative `status` is a libuv error (a bad
 * descriptor). */
typedef void watch_fn(void *arg, int status, int events);
/* Does not own the descriptor: free the watch before closing it. NULL without memory. */
struct watch *watch_new(struct loop *loop, int fd, watch_fn *fn, void *arg);
/* 0 stops watching. */
int watch_events(struct watch *watch, int events);
/* A background watch does not keep the loop running when nothing else is left. */
void watch_background(struct watch *watch, bool background);
void watch_free(struct watch *watch);
