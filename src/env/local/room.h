/* env/local/room.h: sandboxes for which the machine has no room wait for it.
 *
 * Room is what starting another sandbox needs: descriptors of this process, memory and processes of
 * the machine. Sandboxes that wait start in order, as others are closed.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/loop.h"

struct room;
struct sandbox;

/* Starts a sandbox that has waited. With an error, it waited too long, or was killed. */
typedef void room_fn(struct sandbox *s, const struct error *why);

int room_open(struct loop *loop, room_fn *fn, struct room **out, struct error *err);
/* NULL is fine. */
void room_close(struct room *r);

/* Whether another sandbox fits beside this number. ERROR_ENVIRONMENT names what is missing and what
 * to do. Always true for the first ones, except for descriptors. */
int room_check(struct room *r, unsigned sandboxes, struct error *why);
/* Appends a sandbox to those that wait, for at most so many seconds. ERROR_MEMORY. */
int room_wait(struct room *r, struct sandbox *s, double seconds, struct error *err);
/* True while others wait, which come first. */
bool room_is_awaited(const struct room *r);
bool room_has(const struct room *r, const struct sandbox *s);
/* Removes it if it waits. */
void room_leave(struct room *r, const struct sandbox *s);
/* Ends its wait with ERROR_CANCELLED, later from the loop. */
void room_cancel(struct room *r, const struct sandbox *s);
/* A sandbox was closed, so there may be room. `sandboxes` are left. */
void room_changed(struct room *r, unsigned sandboxes);
