/* broker/fork_map.h: implements fork_map: each item is handled by a fork of the calling session.
 *
 * Forks call the broker as their parent does, under the same budget and for the same cell; they may
 * call fork_map, too. The number of forks at once and the depth of calls are bounded here, whatever
 * the guest asks for.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ask;
struct broker;
struct frame_parts;
struct item;
struct json_object;
struct map_fork;
struct session;

/* Where a fork's calls come from: "1:3" is item 3 of the first fork_map of its cell, "1:3/2:0" the
 * first item of the second fork_map of that fork. NULL: the session is not a fork. */
const char *fork_map_path(const struct broker *b, const struct session *s);
/* Processor time of all guests of the broker; session_busy_ns has it of one. */
uint64_t fork_map_busy_ns(const struct broker *b);

/* The function "fork_map" of guests (struct broker_function). */
int fork_map_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
int fork_map_find(struct item *item, const char *text, size_t len, struct error *err);
int fork_map_start(struct item *item, const char *text, size_t len, struct error *err);
/* Ends the fork of an item. */
void fork_map_cancel(struct item *item);
