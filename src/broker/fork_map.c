/* broker/fork_map.c: see fork_map.h.
 *
 *   the guest calls ─► FORK for each item that may start ─► the fork runs the item as a cell
 *          ▲                                                        │ its value, or how it died
 *          └── reply, once all items have ended ◄───────────────────┘ the fork is ended
 *
 * The value is a container (wire/values.h), which the host passes on. What the forks print comes
 * with the reply, so that it is in the order of the items.
 *
 * Forks at depth 1 wait for those at depth 2, which therefore have slots of their own, and wait
 * for none.
 */
#include "broker/fork_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/text.h"
#include "broker/ask.h"
#include "session/session.h"
#include "wire/values.h"

enum {
    DEPTH_MAX = 2,
    ITEMS_MAX = 4096,
    PATH_SIZE = 64,
    KEPT_MAX = 256 << 20, /* bytes of the values of all forks that wait for the reply */
};

/* How many forks may be at work at once, by their depth. */
static const unsigned slots[DEPTH_MAX + 1] = { 0, 8, 24 };

struct map_fork {
    LIST_ENTRY(map_fork) link;
    struct broker *broker;
    struct item *item;
    struct session *session;
    unsigned depth, calls; /* of fork_map that it has made */
    char path[PATH_SIZE];
};

static struct map_fork *map_fork_of(const struct broker *b, const struct session *s)
{
    struct map_fork *fork;
    LIST_FOREACH(fork, &b->forks, link)
    if (fork->session == s)
        return fork;
    return NULL;
}

const char *fork_map_path(const struct broker *b, const struct session *s)
{
    const struct map_fork *fork = map_fork_of(b, s);
    return fork ? fork->path : NULL;
}

uint64_t fork_map_busy_ns(const struct broker *b)
{
    const struct map_fork *fork;
    const struct ask *ask = b->asks;
    uint64_t ns = 0;
    LIST_FOREACH(fork, &b->forks, link)
    ns += session_busy_ns(fork->session);
    while (ask && map_fork_of(b, ask->session))
        ask = ask->next;
    return ask ? ns + session_busy_ns(ask->session) : ns;
}

/* ---- the end of an item ---- */

static void map_fork_end(struct map_fork *fork)
{
    struct broker *b = fork->broker;
    fork->item->fork = NULL;
    fork->item->ask->map.running--;
    b->forks_at[fork->depth]--;
    session_retire(fork->session); /* its own calls end, and their forks */
    LIST_REMOVE(fork, link);
    free(fork);
}

void fork_map_cancel(struct item *item)
{
    map_fork_end(item->fork);
}

/* Adds a stream's output to the reply, as much as the session keeps of a cell. */
static bool map_put_output(struct fork_map *map, struct json_object *to, const struct buf *text)
{
    size_t len = text->len <= map->output_left
                     ? text->len
                     : text_utf8_floor(buf_text(text), text->len, map->output_left);
    map->output_left -= len;
    struct json_object *o = json_object_new_string_len(buf_text(text), (int)len);
    if (o && json_object_array_add(to, o) == 0)
        return true;
    json_object_put(o);
    return false;
}

static void map_keep_output(struct item *item, const struct cell_result *c)
{
    struct fork_map *map = &item->ask->map;
    char key[24];
    if (c->out.len == 0 && c->err.len == 0)
        return;
    if (!map->outputs)
        map->outputs = json_object_new_object();
    struct json_object *pair = json_object_new_array();
    snprintf(key, sizeof key, "%zu", (size_t)(item - item->ask->items));
    if (!map->outputs || !pair || !map_put_output(map, pair, &c->out) ||
        !map_put_output(map, pair, &c->err) || !json_put(map->outputs, key, pair))
        error_memory(&item->error);
}

static void map_keep_value(struct item *item, struct submission *submit)
{
    struct broker *b = item->ask->broker;
    size_t len = 0;
    const char *values = submission_values(submit, &len);
    if (!values) {
        error_set(&item->error, ERROR_LOST, "the fork returned no value");
        return;
    }
    if (len > KEPT_MAX - b->map_bytes) {
        error_set(&item->error, ERROR_BUDGET,
            "the values of fork_map have more than %d MiB; return less from each call, or pass "
            "fewer items at once",
            KEPT_MAX >> 20);
        return;
    }
    item_keep_text(item, values, len, false);
    if (item->error.code == ERROR_NONE) {
        b->map_bytes += len;
        item->ask->map.bytes += len;
    }
}

static void map_explain(struct item *item, const struct cell_result *c)
{
    if (c->status == CELL_TIMEOUT)
        error_set(&item->error, ERROR_TIMEOUT, "the fork did not return within its time");
    else if (c->reason.code != ERROR_NONE)
        item->error = c->reason;
    else
        error_set(&item->error, ERROR_LOST, "the fork failed: %.400s",
            c->error.message ? c->error.message : "no reason was given");
}

static void fork_map_go_on(struct broker *b);

static void map_done(void *arg, struct cell_result *c)
{
    struct map_fork *fork = arg;
    struct item *item = fork->item;
    struct broker *b = fork->broker;
    map_keep_output(item, c);
    if (c->status == CELL_SUBMITTED)
        map_keep_value(item, c->submit);
    else
        map_explain(item, c);
    cell_result_free(c);
    map_fork_end(fork);
    item_over(item);
    fork_map_go_on(b);
}

/* ---- its beginning ---- */

static int map_begin(struct item *item, struct error *err)
{
    struct ask *ask = item->ask;
    struct broker *b = ask->broker;
    size_t index = (size_t)(item - ask->items);
    const char *above = fork_map_path(b, ask->session);
    const struct session_cell cell = { .code = "",
        .name = "<fork_map>",
        .item = true,
        .values = VALUES_VERSION,
        .only_values = true,
        .execute_timeout = ask->map.timeout };
    struct map_fork *fork = calloc(1, sizeof *fork);
    if (!fork)
        return error_memory(err);
    *fork = (struct map_fork){ .broker = b, .item = item, .depth = ask->map.depth };
    int len = snprintf(fork->path, sizeof fork->path, "%s%s%u:%zu", above ? above : "",
        above ? "/" : "", ask->map.number, index);
    if (len < 0 || (size_t)len >= sizeof fork->path) {
        free(fork);
        return error_set(err, ERROR_ARGUMENT, "this cell calls fork_map too often");
    }
    int rc =
        session_fork_for_call(ask->session, ask->id, index, b->fork_events, b, &fork->session, err);
    if (rc == 0 && (rc = session_exec(fork->session, &cell, map_done, fork, err)) < 0)
        session_retire(fork->session);
    if (rc < 0) {
        free(fork);
        return rc;
    }
    LIST_INSERT_HEAD(&b->forks, fork, link);
    b->forks_at[fork->depth]++;
    ask->map.running++;
    item->fork = fork;
    return 0;
}

static bool map_has_place(const struct ask *ask)
{
    const struct fork_map *map = &ask->map;
    return map->running < map->most && ask->broker->forks_at[map->depth] < slots[map->depth];
}

int fork_map_start(struct item *item, const char *text, size_t len, struct error *err)
{
    struct fork_map *map = &item->ask->map;
    if (item->waits == WAITS_NOT &&
        (map->next < (size_t)(item - item->ask->items) || !map_has_place(item->ask))) {
        item->waits = WAITS_FOR_FORK;
        return 0;
    }
    item->waits = WAITS_NOT;
    map->next++;
    return map_begin(item, err);
}

/* Starts items in order, as many as there are slots. */
static void map_fill(struct ask *ask)
{
    struct fork_map *map = &ask->map;
    bool outer = ask->starting;
    ask->starting = true;
    while (map->next < ask->count && map_has_place(ask))
        item_start(&ask->items[map->next], "", 0);
    ask->starting = outer;
    if (!outer && ask->done == ask->count)
        ask_reply(ask);
}

/* Starts the items that can be started now that forks have ended. */
static void fork_map_go_on(struct broker *b)
{
    for (struct ask *ask = b->asks, *next; ask; ask = next) {
        next = ask->next;
        if (ask->map.most > 0 && !ask->starting)
            map_fill(ask);
    }
}

/* ---- the call ---- */

int fork_map_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err)
{
    struct broker *b = ask->broker;
    struct map_fork *above = map_fork_of(b, ask->session);
    struct json_object *timeout = NULL;
    int64_t most = json_get_int(head, "workers", slots[1]);
    unsigned depth = above ? above->depth + 1 : 1;
    if (depth > DEPTH_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "fork_map is nested more than %d deep; use map() in the innermost function", DEPTH_MAX);
    if (ask->count > ITEMS_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "%zu items in one fork_map, but at most %d are allowed; pass lists of several items",
            ask->count, ITEMS_MAX);
    for (const struct ask *other = b->asks; other; other = other->next)
        if (other->session == ask->session && other->map.most > 0)
            return error_set(err, ERROR_ARGUMENT, "another fork_map of this session is under way");
    json_object_object_get_ex(head, "timeout", &timeout);
    ask->map = (struct fork_map){ .depth = depth,
        .most = most < 1              ? 1
                : most > slots[depth] ? slots[depth]
                                      : (unsigned)most,
        .number = above ? ++above->calls : ++b->maps,
        .timeout = timeout ? json_object_get_double(timeout) : -1,
        .output_left = session_limits_of(ask->session)->output };
    if (timeout && !(ask->map.timeout > 0))
        return error_set(err, ERROR_ARGUMENT, "the timeout of fork_map must be above 0");
    return 0;
}

/* The record has what the forks ask for, not the forks. */
int fork_map_find(struct item *item, const char *text, size_t len, struct error *err)
{
    return 0;
}
