/* api/mcp_api.c: see mcp_api.h. */
#include "api/mcp_api.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/tool_facts.h"
#include "base/cleanup.h"
#include "broker/tool_mcp.h"
#include "mcp_client/client.h"
#include "mcp_client/spec.h"
#include "session/names.h"

struct mcp_entry {
    struct mcp_entry *next;
    char *value; /* of the setting */
    struct mcp_client *client;
};

static struct mcp_entry *mcp_find(const droste *d, const char *value)
{
    struct mcp_entry *e = d->mcp_servers;
    while (e && strcmp(e->value, value) != 0)
        e = e->next;
    return e;
}

static void mcp_entry_free(struct mcp_entry *e)
{
    mcp_client_release(e->client);
    free(e->value);
    free(e);
}

void api_mcp_close(droste *d)
{
    struct mcp_entry *e;
    while ((e = d->mcp_servers)) {
        d->mcp_servers = e->next;
        mcp_entry_free(e);
    }
}

/* ---- the clients ---- */

static void mcp_tell_notice(void *arg, const char *text)
{
    const droste *d = arg;
    if (d->notice)
        d->notice(d->notice_arg, text);
}

static int mcp_open_one(droste *d, const struct settings *s, const char *value, struct error *err)
{
    struct mcp_spec spec;
    const struct mcp_client_options options = {
        .loop = d->loop, .ca_file = s->ca_file, .notice = mcp_tell_notice, .arg = d
    };
    struct mcp_entry *e = calloc(1, sizeof *e);
    if (!e)
        return error_memory(err);
    int rc = mcp_spec_parse(value, &spec, err);
    if (rc == 0 && guest_name_check(spec.name, "mcp-server", err) < 0) {
        mcp_spec_free(&spec);
        rc = -(int)ERROR_ARGUMENT;
    }
    if (rc == 0) {
        e->value = strdup(value);
        rc = e->value ? mcp_client_new(&spec, &options, &e->client, err) : error_memory(err);
        mcp_spec_free(&spec);
    }
    if (rc < 0) {
        mcp_entry_free(e);
        return rc;
    }
    e->next = d->mcp_servers;
    d->mcp_servers = e;
    return 0;
}

static int mcp_check_names(const struct list *list, struct error *err)
{
    for (size_t i = 0; i < list->count; i++)
        for (size_t k = 0; k < i; k++) {
            size_t n = mcp_spec_name_length(list->items[i]);
            if (n == mcp_spec_name_length(list->items[k]) &&
                strncmp(list->items[i], list->items[k], n) == 0)
                return error_set(err, ERROR_ARGUMENT,
                    "mcp-server: two servers have the name '%.*s'", n < 64 ? (int)n : 64,
                    list->items[i]);
        }
    return 0;
}

static int mcp_add_fact(struct buf *facts, const char *value, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    cleanup_free char *name = strndup(value, mcp_spec_name_length(value));
    mcp_spec_write_public(value, &shown);
    if (!name || buf_failed(&shown))
        return error_memory(err);
    return tool_facts_add(facts, "server", name, NULL, buf_text(&shown), shown.len, err);
}

int api_mcp_open(droste *d, const struct settings *s, struct buf *facts, struct error *err)
{
    int rc = mcp_check_names(&s->mcp_server, err);
    for (size_t i = 0; rc == 0 && i < s->mcp_server.count; i++) {
        const char *value = s->mcp_server.items[i];
        if (!mcp_find(d, value))
            rc = mcp_open_one(d, s, value, err);
        if (rc == 0)
            rc = mcp_add_fact(facts, value, err);
    }
    return rc;
}

static struct mcp_client *mcp_client_at(const droste *d, const struct settings *s, size_t i)
{
    return mcp_find(d, s->mcp_server.items[i])->client;
}

bool api_mcp_is_ready(const droste *d, const struct settings *s)
{
    for (size_t i = 0; i < s->mcp_server.count; i++)
        if (!mcp_client_is_ready(mcp_client_at(d, s, i)))
            return false;
    return true;
}

int api_mcp_add(droste *d, const struct settings *s, struct tools *tools, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->mcp_server.count; i++)
        rc = tools_add_mcp(tools, mcp_client_at(d, s, i), err);
    return rc;
}

/* ---- waiting ---- */

struct one_wait {
    struct mcp_client_wait wait;
    struct mcp_client *client;
    struct api_mcp_wait *all;
};

struct api_mcp_wait {
    struct timer *end; /* tells it from the loop, never from within a call */
    struct error why;
    api_mcp_done_fn *done;
    void *arg;
    size_t count, left;
    struct one_wait each[];
};

void api_mcp_wait_free(struct api_mcp_wait *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->count; i++) {
        mcp_client_stop_waiting(w->each[i].client, &w->each[i].wait);
        mcp_client_release(w->each[i].client);
    }
    timer_free(w->end);
    free(w);
}

static void mcp_wait_over(void *arg)
{
    struct api_mcp_wait *w = arg;
    struct error why = w->why;
    api_mcp_done_fn *done = w->done;
    void *done_arg = w->arg;
    api_mcp_wait_free(w);
    done(done_arg, why.code == ERROR_NONE ? NULL : &why);
}

static void mcp_wait_one_over(void *arg, const struct error *why)
{
    struct one_wait *one = arg;
    struct api_mcp_wait *w = one->all;
    w->left--;
    if (why && w->why.code == ERROR_NONE)
        w->why = *why;
    if (why || w->left == 0)
        timer_start(w->end, 0, 0);
}

void api_mcp_wait_cancel(struct api_mcp_wait *w)
{
    if (w->why.code == ERROR_NONE)
        error_set(&w->why, ERROR_CANCELLED, "interrupted while the MCP servers were reached");
    timer_start(w->end, 0, 0);
}

int api_mcp_wait(droste *d, const struct settings *s, api_mcp_done_fn *done, void *arg,
    struct api_mcp_wait **out, struct error *err)
{
    size_t count = s->mcp_server.count;
    struct api_mcp_wait *w = calloc(1, sizeof *w + count * sizeof w->each[0]);
    if (!w)
        return error_memory(err);
    *w = (struct api_mcp_wait){ .done = done, .arg = arg, .left = count };
    w->end = timer_new(d->loop, mcp_wait_over, w);
    if (!w->end) {
        free(w);
        return error_memory(err);
    }
    w->count = count;
    for (size_t i = 0; i < count; i++) {
        struct one_wait *one = &w->each[i];
        *one = (struct one_wait){ .client = mcp_client_hold(mcp_client_at(d, s, i)), .all = w };
        one->wait.done = mcp_wait_one_over;
        one->wait.arg = one;
    }
    for (size_t i = 0; i < count; i++) {
        if (mcp_client_is_ready(w->each[i].client))
            mcp_wait_one_over(&w->each[i], NULL);
        else
            mcp_client_wait_for(w->each[i].client, &w->each[i].wait);
    }
    *out = w;
    return 0;
}
