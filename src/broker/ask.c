/* broker/ask.c: see ask.h. */
#include "broker/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/text.h"
#include "broker/shared_value.h"
#include "session/session.h"

/* ---- errors for guests ---- */

static struct json_object *error_object(const struct error *e)
{
    struct json_object *o = json_object_new_object();
    cleanup_buf struct buf text = { 0 };
    text_append_utf8(&text, e->text, strlen(e->text));
    if (!o)
        return NULL;
    json_put_text(o, "code", error_code_name(e->code));
    json_put_text(o, "message", buf_text(&text));
    if (e->code == ERROR_ARGUMENT)
        json_put_text(o, "type", "ValueError");
    return o;
}

/* NULL: it has none. */
static struct json_object *item_error(const struct item *item)
{
    struct json_object *o = NULL;
    if (item->error.code != ERROR_NONE)
        return error_object(&item->error);
    if (item->failure)
        json_parse(item->failure, strlen(item->failure), &json_limits_large, &o, NULL);
    return o;
}

void ask_refuse(struct session *s, uint64_t id, const struct error *why)
{
    cleanup_json struct json_object *head = json_object_new_object();
    if (head && json_put(head, "error", error_object(why)))
        session_reply(s, id, head, NULL, 0, NULL);
}

/* ---- the end of an ask ---- */

void ask_unlink(struct ask *ask)
{
    ask->broker->under_way -= ask->bytes;
    for (struct ask **at = &ask->broker->asks; *at; at = &(*at)->next) {
        if (*at != ask)
            continue;
        *at = ask->next;
        return;
    }
}

static void give_record_back(struct item *item)
{
    budget_unreserve_record(item->ask->broker->options.budget, item->unwritten);
    item->unwritten = 0;
}

void item_recorded(struct item *item)
{
    item->unwritten = 0;
}

void ask_free(struct ask *ask)
{
    if (ask->network)
        ask->network->drop(ask);
    timer_free(ask->patience);
    for (size_t i = 0; i < ask->context_count; i++)
        shared_value_drop(ask->contexts[i]);
    free(ask->contexts);
    ask->broker->map_bytes -= ask->map.bytes;
    json_object_put(ask->map.outputs);
    for (size_t i = 0; i < ask->count; i++) {
        if (ask->items[i].unwritten > 0)
            give_record_back(&ask->items[i]);
        free(ask->items[i].text);
        free(ask->items[i].values);
        free(ask->items[i].kept);
        free(ask->items[i].failure);
    }
    free(ask->model);
    free(ask->values);
    free(ask);
}

/* Builds {"errors": {"3": {…}}}, and {"outputs": …} of a fork_map; an answer without both has no
 * head. */
static int reply_head(struct ask *ask, struct json_object **out, struct error *err)
{
    struct json_object *errors = NULL;
    if (ask->map.outputs) {
        *out = json_object_new_object();
        if (!*out || !json_put(*out, "outputs", steal(&ask->map.outputs)))
            return error_memory(err);
    }
    for (size_t i = 0; i < ask->count; i++) {
        char key[24];
        struct json_object *error = item_error(&ask->items[i]);
        if (!error)
            continue;
        if (!*out)
            *out = json_object_new_object();
        if (!errors) {
            errors = json_object_new_object();
            if (!*out || !errors || !json_put(*out, "errors", errors))
                return error_memory(err);
        }
        snprintf(key, sizeof key, "%zu", i);
        if (!json_put(errors, key, error))
            return error_memory(err);
    }
    return 0;
}

void ask_reply(struct ask *ask)
{
    if (ask->network) {
        ask->network->reply(ask);
        return;
    }
    cleanup_json struct json_object *head = NULL;
    cleanup_free struct session_part *parts = calloc(ask->count + 1, sizeof *parts);
    struct error err = { 0 };
    int rc = parts ? reply_head(ask, &head, &err) : error_memory(&err);
    ask_unlink(ask);
    for (size_t i = 0; parts && i < ask->count; i++)
        parts[i] = (struct session_part){ ask->items[i].text ? ask->items[i].text : "",
            ask->items[i].len };
    size_t count = ask->count;
    if (parts && ask->is_tool && ask->items[0].values)
        parts[count++] = (struct session_part){ ask->items[0].values, ask->items[0].values_len };
    if (rc < 0 || session_reply(ask->session, ask->id, head, parts, count, &err) < 0)
        ask_refuse(ask->session, ask->id, &err);
    ask_free(ask);
}

/* ---- one prompt ---- */

void item_over(struct item *item)
{
    struct ask *ask = item->ask;
    give_record_back(item);
    ask->done++;
    if (ask->done < ask->count || ask->starting)
        return;
    struct session *s = ask->session;
    uint64_t spent_ns = ask->spent_ns, begun = clock_thread_ns();
    ask_reply(ask);
    session_charge(s, spent_ns + clock_thread_ns() - begun);
}

void broker_tell_changed(struct broker *b)
{
    if (b->options.changed)
        b->options.changed(b->options.arg);
}

void broker_unrecorded(const struct broker *b, const struct error *why)
{
    if (why->code == ERROR_STORE && b->options.unrecorded)
        b->options.unrecorded(b->options.arg, why);
}

void item_keep_text(struct item *item, const char *text, size_t len, bool quote)
{
    struct buf quoted = { 0 };
    if (quote) {
        json_append_string(&quoted, text, len);
        item->len = quoted.len;
        item->text = buf_steal(&quoted);
    } else {
        item->len = len;
        item->text = text_copy(text, len);
    }
    if (item->text)
        return;
    item->len = 0;
    error_memory(&item->error);
}

void item_keep_values(struct item *item, const char *values, size_t len)
{
    item->values = text_copy(values, len);
    item->values_len = len;
    if (!item->values)
        error_memory(&item->error);
}

void item_keep_failure(struct item *item, char *json)
{
    item->failure = json;
    if (!json)
        error_memory(&item->error);
}

void item_start(struct item *item, const char *text, size_t len)
{
    item->asked = text;
    item->asked_len = len;
    if (item->ask->function->start(item, text, len, &item->error) == 0)
        return;
    broker_unrecorded(item->ask->broker, &item->error);
    budget_unreserve(item->ask->broker->options.budget, item->reserved);
    item_over(item);
}

void item_start_again(struct item *item)
{
    cleanup_free char *prompt = steal(&item->kept);
    item->waits = WAITS_NOT;
    item_start(item, prompt, item->asked_len);
}
