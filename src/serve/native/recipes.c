/* serve/native/recipes.c: see recipes.h. */
#include "serve/native/recipes.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cluster/registry.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/http/upstream.h"
#include "serve/native/templates.h"
#include "serve/queue/queue.h"

enum { RECIPE_ANSWER_MAX = 64 << 10 };

static const char recipes_bucket[] = "droste-templates",
                  recipe_removed[] = "droste.template.removed";
static const int64_t recipe_ttl_ms = (int64_t)7 * 86400000;

struct recipe_wait {
    struct request *r; /* NULL: it has ended */
    struct recipe_wait *next;
};

/* A template that is being made here, for all requests that wait for it. */
struct recipe_build {
    struct server *s;
    char account[KEY_ID_SIZE], id[SERVE_ID_SIZE];
    struct recipe_wait *waits;
    struct upstream *u;
    struct buf answer;
    struct recipe_build *next;
};

void recipes_make_bucket(struct bus *b, bus_done_fn *done, void *arg)
{
    bus_bucket_make(
        b, &(struct bus_bucket){ .name = recipes_bucket, .ttl_ms = recipe_ttl_ms }, done, arg);
}

static void recipe_key(const struct request *r, const char *id, char out[BUS_SUBJECT_MAX + 1])
{
    snprintf(out, BUS_SUBJECT_MAX + 1, "%s.%s", queue_key_of(r), id);
}

/* ---- what waits ---- */

static void recipe_on_gone(struct request *r)
{
    struct recipe_wait *wait = r->state;
    wait->r = NULL;
    r->state = NULL;
}

static bool recipe_add(struct recipe_build *b, struct request *r)
{
    struct recipe_wait *wait = request_alloc(r, sizeof *wait);
    if (!wait)
        return false;
    *wait = (struct recipe_wait){ r, b->waits };
    b->waits = wait;
    r->state = wait;
    r->on_gone = recipe_on_gone;
    return true;
}

/* The next request; NULL: there is none. */
static struct request *recipe_next(struct recipe_build *b)
{
    struct request *r = NULL;
    while (b->waits && !r) {
        struct recipe_wait *wait = b->waits;
        b->waits = wait->next;
        r = wait->r;
        free(wait);
    }
    if (r) {
        r->state = NULL;
        r->on_gone = NULL;
    }
    return r;
}

/* ---- making ---- */

static void recipe_build_free(struct recipe_build *b)
{
    struct recipe_build **at = &b->s->recipe_builds;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    bus_forget(registry_bus(b->s->nodes), b);
    if (b->u)
        upstream_drop(b->u);
    buf_free(&b->answer);
    free(b);
}

static void recipe_on_field(void *arg, const char *name, const char *value)
{
}

static void recipe_on_event(void *arg)
{
}

static void recipe_on_data(void *arg, const char *data, size_t len)
{
    struct recipe_build *b = arg;
    if (b->answer.len + len <= RECIPE_ANSWER_MAX)
        buf_append(&b->answer, data, len);
}

static void recipe_refuse(struct request *r, unsigned status, const char *answer, size_t len)
{
    cleanup_json struct json_object *o = NULL;
    if (json_parse(answer, len, &json_limits_large, &o, NULL) < 0)
        o = NULL;
    const char *why = json_get_string(
        json_get_typed(o, "error", json_type_object), "message", "the node is stopping");
    request_refuse(r, status == 429 ? 429 : 503, "template",
        "the template '%s' cannot be made on this node: %s", r->id, why);
    request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

static void recipe_on_end(void *arg, bool is_whole)
{
    struct recipe_build *b = arg;
    unsigned status = is_whole ? b->u->status : 0;
    b->u = NULL;
    for (struct request *r; (r = recipe_next(b));)
        if (status == 201)
            r->route->handle(r);
        else
            recipe_refuse(r, status, buf_text(&b->answer), b->answer.len);
    recipe_build_free(b);
}

/* As the client has asked its first node. */
static bool recipe_make(struct recipe_build *b, const char *body, size_t len)
{
    struct server *s = b->s;
    cleanup_buf struct buf fields = { 0 };
    buf_printf(&fields, "Content-Type: application/json\r\n" RELAY_TEMPLATE ": %s\r\n", b->id);
    b->u = nodes_ask_as(s, registry_own(s->nodes), b->account, "POST", "/v1/templates",
        buf_text(&fields), body, len);
    if (!b->u)
        return false;
    b->u->arg = b;
    b->u->on_field = recipe_on_field;
    b->u->on_head = b->u->on_sent = recipe_on_event;
    b->u->on_data = recipe_on_data;
    b->u->on_end = recipe_on_end;
    return true;
}

/* One of a live sandbox is on one of the other nodes, or nowhere. */
static void recipe_pass_on(struct request *r)
{
    if (!relay_on_node(r))
        nodes_refuse_absent(r, "template", r->id, "makes");
}

static void recipe_on_value(void *arg, const struct bus_answer *a)
{
    struct recipe_build *b = arg;
    if (a->result == BUS_OK && recipe_make(b, a->data, a->len))
        return;
    for (struct request *r; (r = recipe_next(b));)
        if (a->result == BUS_OK)
            request_refuse_memory(r);
        else if (a->result == BUS_NOT_FOUND)
            recipe_pass_on(r);
        else
            queue_refuse_bus(r, a);
    recipe_build_free(b);
}

bool recipes_await(struct request *r)
{
    struct server *s = r->server;
    char key[BUS_SUBJECT_MAX + 1];
    if (!s->nodes)
        return false;
    if (r->client->is_relay && request_header_of(r, RELAY_FIRST)) {
        recipe_pass_on(r); /* there is no recipe */
        return true;
    }
    for (struct recipe_build *b = s->recipe_builds; b; b = b->next)
        if (strcmp(b->id, r->id) == 0 && strcmp(b->account, r->account->key.id) == 0)
            return recipe_add(b, r) || true;
    struct recipe_build *b = request_alloc(r, sizeof *b);
    if (!b)
        return true;
    b->s = s;
    snprintf(b->account, sizeof b->account, "%s", r->account->key.id);
    snprintf(b->id, sizeof b->id, "%s", r->id);
    b->next = s->recipe_builds;
    s->recipe_builds = b;
    recipe_key(r, r->id, key);
    if (recipe_add(b, r))
        bus_get(registry_bus(s->nodes), recipes_bucket, key, recipe_on_value, b);
    else
        recipe_build_free(b);
    return true;
}

/* ---- publishing and removing ---- */

const char *recipes_id_of(struct request *r)
{
    const char *id = r->client->is_relay ? request_header_of(r, RELAY_TEMPLATE) : NULL;
    return id && strlen(id) == SERVE_ID_SIZE - 1 && text_is_name(id) ? id : NULL;
}

void recipes_put(struct request *r, const char *id)
{
    char key[BUS_SUBJECT_MAX + 1];
    size_t len = 0;
    const char *text = json_object_to_json_string_length(r->json, JSON_C_TO_STRING_PLAIN, &len);
    recipe_key(r, id, key);
    if (r->server->nodes && text && len < BUS_MESSAGE_MAX)
        bus_put(registry_bus(r->server->nodes), recipes_bucket, key, text, len, NULL, NULL);
}

void recipes_remove(struct request *r)
{
    char key[BUS_SUBJECT_MAX + 1];
    if (!r->server->nodes)
        return;
    struct bus *bus = registry_bus(r->server->nodes);
    recipe_key(r, r->id, key);
    bus_delete(bus, recipes_bucket, key, 0, NULL, NULL);
    bus_tell(bus, recipe_removed, key, strlen(key));
}

static void recipe_on_removed(void *arg, struct bus_message *m)
{
    const char *dot = strchr(m->data, '.');
    if (dot)
        templates_drop(arg, m->data, (size_t)(dot - m->data), dot + 1);
    bus_message_free(m);
}

int recipes_open(struct server *s, struct error *err)
{
    return bus_subscribe(registry_bus(s->nodes), recipe_removed, NULL, recipe_on_removed, s, err);
}

void recipes_close(struct server *s)
{
    if (s->nodes)
        bus_forget(registry_bus(s->nodes), s);
    while (s->recipe_builds) {
        while (recipe_next(s->recipe_builds))
            continue;
        recipe_build_free(s->recipe_builds);
    }
}
