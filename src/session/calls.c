/* session/calls.c: open calls of a guest, by id. */
#include "base/array.h"
#include "session/internal.h"

enum { CALLS_MAX = 16384 }; /* open at once */

static size_t calls_find(const struct session *s, uint64_t id)
{
    size_t i = 0;
    while (i < s->open_count && s->open_calls[i] != id)
        i++;
    return i;
}

int session_call_open(struct session *s, uint64_t id, struct error *err)
{
    if (s->open_count >= CALLS_MAX || calls_find(s, id) < s->open_count)
        return error_set(err, ERROR_PROTOCOL, "call %llu is open already, or too many are",
            (unsigned long long)id);
    if (!array_room(s->open_calls, s->open_count, &s->open_cap))
        return error_memory(err);
    s->open_calls[s->open_count++] = id;
    return 0;
}

bool session_call_close(struct session *s, uint64_t id)
{
    size_t i = calls_find(s, id);
    if (i == s->open_count)
        return false;
    s->open_calls[i] = s->open_calls[--s->open_count];
    return true;
}

void session_calls_drop(struct session *s)
{
    while (s->open_count > 0) {
        uint64_t id = s->open_calls[--s->open_count];
        s->events.call_dropped(s->arg, s, id);
    }
}
