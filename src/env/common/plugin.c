/* env/common/plugin.c: see plugin.h. The object has our rights: it is as trusted as this program. */
#include "env/common/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "droste_environment.h"
#include "env/remote/stdio_env.h"

#define SYMBOL "droste_environment_v1"

struct plugin {
    struct transport_ops ops;
    struct loop *loop;
    void *object;
    const droste_environment *table;
};

/* One carrier: ours, and what the plugin calls its own. */
struct droste_transport {
    struct plugin *plugin;
    struct transport *transport;
    void *own;
};

struct droste_watch {
    struct watch *watch;
    droste_watch_fn *fn;
    void *arg;
};

/* ---- what is done for it ---- */

static int uv_events(int events)
{
    return (events & DROSTE_READABLE ? UV_READABLE : 0) |
           (events & DROSTE_WRITABLE ? UV_WRITABLE : 0);
}

static void watch_ready(void *arg, int status, int events)
{
    const droste_watch *w = arg;
    int found =
        (events & UV_READABLE ? DROSTE_READABLE : 0) | (events & UV_WRITABLE ? DROSTE_WRITABLE : 0);
    w->fn(w->arg, status < 0 ? DROSTE_READABLE | DROSTE_WRITABLE : found);
}

static droste_watch *host_watch(
    droste_transport *c, int fd, int events, droste_watch_fn *fn, void *arg)
{
    droste_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (droste_watch){ .fn = fn, .arg = arg };
    w->watch = watch_new(c->plugin->loop, fd, watch_ready, w);
    if (!w->watch) {
        free(w);
        return NULL;
    }
    watch_events(w->watch, uv_events(events));
    return w;
}

static void host_change(droste_watch *w, int events)
{
    watch_events(w->watch, uv_events(events));
}

static void host_unwatch(droste_watch *w)
{
    if (!w)
        return;
    watch_free(w->watch);
    free(w);
}

static void host_joined(droste_transport *c)
{
    transport_joined(c->transport);
}

static void host_bytes(droste_transport *c, const char *data, size_t len)
{
    transport_bytes(c->transport, data, len);
}

static void host_lost(droste_transport *c)
{
    transport_cut(c->transport);
}

static void host_ended(droste_transport *c, const char *why)
{
    struct error err = { 0 };
    if (why)
        error_set(&err, ERROR_ENVIRONMENT, "environment '%.40s': %.180s", c->plugin->ops.name, why);
    transport_ended(c->transport, &err);
}

static const droste_environment_host host = {
    .size = sizeof host,
    .watch = host_watch,
    .change = host_change,
    .unwatch = host_unwatch,
    .joined = host_joined,
    .bytes = host_bytes,
    .lost = host_lost,
    .ended = host_ended,
};

/* ---- what it does ---- */

static int plugin_start(void *arg, struct transport *transport, const struct sandbox_spec *spec,
    const char *const *words, void **own, struct error *err)
{
    struct plugin *p = arg;
    char why[200] = "it does not say why";
    droste_environment_spec wanted = { .size = sizeof wanted,
        .words = words,
        .memory = spec->limits.memory,
        .processes = spec->limits.processes };
    droste_transport *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    *c = (droste_transport){ .plugin = p, .transport = transport };
    if (p->table->start(&host, c, &wanted, &c->own, why, sizeof why) < 0) {
        free(c);
        return error_set(err, ERROR_ENVIRONMENT, "environment '%.40s': %.180s", p->ops.name, why);
    }
    *own = c;
    return 0;
}

static void plugin_write(void *own, const struct iovec *iov, int count)
{
    droste_transport *c = own;
    for (int i = 0; i < count; i++)
        c->plugin->table->write(c->own, iov[i].iov_base, iov[i].iov_len);
}

static void plugin_pause(void *own, bool paused)
{
    droste_transport *c = own;
    if (c->plugin->table->pause)
        c->plugin->table->pause(c->own, paused);
}

static void plugin_end(void *own)
{
    droste_transport *c = own;
    c->plugin->table->end(c->own);
    free(c);
}

static void plugin_free(void *arg)
{
    struct plugin *p = arg;
    if (p->object)
        dlclose(p->object);
    free(p);
}

/* ---- loading ---- */

static int plugin_load(struct plugin *p, const char *path, struct error *err)
{
    if (access(path, R_OK) < 0)
        return error_set_errno(err, ERROR_NOT_FOUND, "environment plugin:%.100s", path);
    /* A path without a slash would be looked for elsewhere. */
    cleanup_free char *whole = realpath(path, NULL);
    if (!whole)
        return error_set_errno(err, ERROR_NOT_FOUND, "environment plugin:%.100s", path);
    p->object = dlopen(whole, RTLD_NOW | RTLD_LOCAL);
    if (!p->object)
        return error_set(err, ERROR_CONFIG, "environment plugin: %.200s", dlerror());
    p->table = dlsym(p->object, SYMBOL);
    if (!p->table)
        return error_set(err, ERROR_CONFIG,
            "%.100s is no environment: it does not export %s (see droste_environment.h)", path,
            SYMBOL);
    const droste_environment *t = p->table;
    if (t->size < sizeof *t || !t->name || !t->start || !t->write || !t->end)
        return error_set(err, ERROR_CONFIG,
            "%.100s: its %s is not whole: size, name, start, write and end are needed", path,
            SYMBOL);
    return 0;
}

int plugin_open(struct loop *loop, const char *path, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    struct plugin *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    p->loop = loop;
    int rc = plugin_load(p, path, err);
    if (rc < 0) {
        plugin_free(p);
        return rc;
    }
    p->ops = (struct transport_ops){ .name = p->table->name,
        .start = plugin_start,
        .write = plugin_write,
        .pause = plugin_pause,
        .end = plugin_end,
        .free = plugin_free,
        .form = p->table->is_text ? LINK_TEXT : LINK_BARE };
    return stdio_env_open(loop, &p->ops, p, out, err);
}
