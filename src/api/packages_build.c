/* api/packages_build.c: builds a package set.
 *
 * pip or uv runs in a sandbox of its own, with a droste object and a loop of its own, so that a
 * build may happen wherever a session is opened. The sandbox has a workspace on disk, of limited
 * size, and reaches the hosts of the package index and nothing else. What it leaves there is
 * copied, hashed and published by the host (packages/cache.h), which executes none of it.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "api/packages_build.h"
#include "api/packages.h"
#include "api/packages_embedded.h"
#include "api/session_api.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "volume/volume.h"
#include "volume/workspace.h"

enum { FILES_MAX = 1000000, PROCESSES = 512 };

/* ---- how pip is configured here ---- */

static int read_configuration(
    const struct package_job *job, struct json_object **out, struct error *err)
{
    cleanup_buf struct buf answer = { 0 };
    cleanup_free char *code = strndup(
        (const char *)embedded_packages_configuration, embedded_packages_configuration_size);
    const char *index = job->settings->package_index;
    if (!code)
        return error_memory(err);
    int rc = api_packages_ask(job->executable, code, index ? index : "", &answer, err);
    if (rc == 0 && json_parse(buf_text(&answer), answer.len, &json_limits_small, out, NULL) < 0)
        rc = error_set(err, ERROR_CONFIG,
            "'%.100s' did not say how pip is configured: try `%.100s -m pip config list`",
            job->executable, job->executable);
    const char *why = rc == 0 ? json_get_string(*out, "error", NULL) : NULL;
    return why ? error_set(err, ERROR_CONFIG, "packages: %.500s", why) : rc;
}

/* ---- the sandbox ---- */

struct package_build {
    const struct package_job *job;
    struct json_object *configuration;
    droste *inner;
    struct watch *interrupt;
    droste_session *session;
    struct workspace *workspace;
    bool cancelled;
};

static int build_set(
    struct package_build *b, const char *name, const char *value, struct error *err)
{
    return settings_set(&b->inner->settings, name, value, name, err);
}

static int build_set_number(
    struct package_build *b, const char *name, double value, struct error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", value);
    return build_set(b, name, text, err);
}

static int build_set_all(
    struct package_build *b, const char *name, const char *member, struct error *err)
{
    struct json_object *list = json_get_typed(b->configuration, member, json_type_array);
    int rc = 0;
    for (size_t i = 0; rc == 0 && list && i < json_object_array_length(list); i++) {
        const char *item = json_object_get_string(json_object_array_get_idx(list, i));
        if (item && (strcmp(name, "read") != 0 || item[0] == '/'))
            rc = build_set(b, name, item, err);
    }
    return rc;
}

static int build_show(struct package_build *b, struct error *err)
{
    const struct settings *s = b->job->settings;
    const char *const files[] = { json_get_string(b->configuration, "cert", NULL),
        json_get_string(b->configuration, "uv", NULL) };
    int rc = build_set_all(b, "read", "links", err);
    for (size_t i = 0; rc == 0 && i < array_length(files); i++)
        if (files[i])
            rc = build_set(b, "read", files[i], err);
    for (size_t i = 0; rc == 0 && i < s->find_links.count; i++) {
        cleanup_free char *real = realpath(s->find_links.items[i], NULL);
        rc = real ? build_set(b, "read", real, err)
                  : error_set_errno(
                        err, ERROR_NOT_FOUND, "find-links '%.200s'", s->find_links.items[i]);
    }
    return rc;
}

/* Only what a sandbox of this build needs: none of the user's data, variables or permissions. */
static int build_settings(struct package_build *b, struct error *err)
{
    const struct settings *s = b->job->settings;
    int rc = build_set(b, "python", b->job->executable, err);
    if (rc == 0 && s->sandbox_users)
        rc = build_set(b, "sandbox-users", s->sandbox_users, err);
    if (rc == 0)
        rc = build_set(b, "warm-up", "no", err);
    if (rc == 0)
        rc = build_set(b, "volume-root", package_cache_building(b->job->cache), err);
    if (rc == 0)
        rc = build_set_number(b, "workspace-size", (double)s->packages_size, err);
    if (rc == 0)
        rc = build_set_number(b, "workspace-files", FILES_MAX, err);
    if (rc == 0)
        rc = build_set_number(b, "file-size", (double)s->packages_size, err);
    if (rc == 0)
        rc = build_set_number(b, "max-net-bytes", 4 * (double)s->packages_size, err);
    if (rc == 0)
        rc = build_set_number(b, "net-timeout", s->packages_timeout, err);
    if (rc == 0)
        rc = build_set_number(b, "processes", PROCESSES, err);
    if (rc == 0)
        rc = build_set_number(b, "execute-timeout", s->packages_timeout, err);
    if (rc == 0 && json_get_string(b->configuration, "uv", NULL))
        rc = build_set(b, "epoll", "yes", err); /* uv needs it */
    if (rc == 0)
        rc = build_show(b, err);
    if (rc == 0)
        rc = build_set_all(b, "allow-net", "allow", err);
    for (size_t i = 0; rc == 0 && i < s->package_hosts.count; i++)
        rc = build_set(b, "allow-net", s->package_hosts.items[i], err);
    return rc;
}

/* The user interrupts the droste, whose loop does not run. */
static void build_interrupted(void *arg, int status, int events)
{
    struct package_build *b = arg;
    b->cancelled = true;
    watch_events(b->interrupt, 0);
    api_interrupt_sessions(b->inner);
}

static int build_open(struct package_build *b, struct error *err)
{
    const struct settings *s = b->job->settings;
    const struct volume_limits limits = { (uint64_t)s->packages_size, FILES_MAX };
    int rc = b->job->d->open_another(&b->inner, err);
    if (rc == 0)
        rc = build_settings(b, err);
    if (rc == 0)
        rc = workspace_new(package_cache_building(b->job->cache), &limits, &b->workspace, err);
    if (rc < 0)
        return rc;
    b->interrupt = watch_new(b->inner->loop, b->job->interrupt, build_interrupted, b);
    if (!b->interrupt)
        return error_memory(err);
    watch_events(b->interrupt, UV_READABLE);
    return api_session_open_staged(b->inner, workspace_hold(b->workspace), &b->session, err);
}

static void build_free(struct package_build *b)
{
    droste_session_close(b->session);
    watch_free(b->interrupt);
    b->job->d->close_another(b->inner);
    workspace_release(b->workspace);
    json_object_put(b->configuration);
}

/* ---- what it does ---- */

static void put_member(struct buf *out, const struct json_object *from, const char *name)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(from, name, &value);
    field_json(out, name, value ? json_object_to_json_string(value) : NULL);
}

static int build_write_configuration(struct package_build *b, struct buf *out, struct error *err)
{
    const struct settings *s = b->job->settings;
    const struct package_request *r = b->job->request;
    struct json_object *links = json_get_typed(b->configuration, "links", json_type_array);
    field_open(out, NULL, '{');
    field_text(out, "requirements", buf_text(&r->requirements), r->requirements.len);
    field_text(out, "constraints", buf_text(&r->constraints), r->constraints.len);
    field_key(out, "documents");
    buf_printf(out, "[%s]", buf_text(&r->documents));
    field_bool(out, "sdists", s->sdists);
    put_member(out, b->configuration, "indexes");
    put_member(out, b->configuration, "trusted");
    put_member(out, b->configuration, "cert");
    put_member(out, b->configuration, "uv");
    field_open(out, "find_links", '[');
    for (size_t i = 0; i < s->find_links.count; i++) {
        cleanup_free char *real = realpath(s->find_links.items[i], NULL);
        field_string(out, NULL, real);
    }
    for (size_t i = 0; links && i < json_object_array_length(links); i++)
        field_string(out, NULL, json_object_get_string(json_object_array_get_idx(links, i)));
    field_close(out, ']');
    field_close(out, '}');
    return buf_failed(out) ? error_memory(err) : 0;
}

static int build_write_cell(struct package_build *b, struct buf *out, struct error *err)
{
    cleanup_buf struct buf json = { 0 };
    int rc = build_write_configuration(b, &json, err);
    buf_append(out, embedded_packages_build, embedded_packages_build_size);
    buf_puts(out, "\nSUBMIT(outcome=build_packages(");
    json_append_string(out, buf_text(&json), json.len); /* is also a string of Python */
    buf_puts(out, "))\n");
    return rc == 0 && buf_failed(out) ? error_memory(err) : rc;
}

/* What the guest says is only shown. */
static int build_outcome(struct package_build *b, const droste_result *r, struct error *err)
{
    cleanup_json struct json_object *answer = NULL;
    size_t len = 0;
    const char *json = droste_result_submit(r, &len), *status = droste_result_status(r);
    if (b->cancelled)
        return error_set(err, ERROR_CANCELLED, "interrupted while packages were built");
    if (strcmp(status, "timeout") == 0)
        return error_set(err, ERROR_TIMEOUT,
            "building the packages took longer than %g s; raise --packages-timeout",
            b->job->settings->packages_timeout);
    if (!json || json_parse(json, len, &json_limits_small, &answer, NULL) < 0) {
        const char *traceback = droste_result_traceback(r);
        droste_error why;
        droste_result_error(r, &why);
        return error_set(err, ERROR_ENVIRONMENT,
            "building the packages ended with '%s': %.300s; --packages-size limits their size",
            status,
            why.code    ? why.text
            : traceback ? traceback
                        : "");
    }
    struct json_object *outcome = json_get_typed(answer, "outcome", json_type_object);
    if (json_get_bool(outcome, "disk_full", false))
        return package_cache_disk_full(b->job->cache, err);
    if (json_get_bool(outcome, "too_large", false))
        return error_set(err, ERROR_CONFIG,
            "the packages have a file that is larger than --packages-size allows (%lld bytes)",
            (long long)b->job->settings->packages_size);
    const char *error = json_get_string(outcome, "error", NULL);
    return error ? error_set(err, ERROR_CONFIG, "the packages were not built: %.1600s", error) : 0;
}

static int build_run(struct package_build *b, struct error *err)
{
    cleanup_buf struct buf cell = { 0 };
    droste_result *r = NULL;
    int rc = build_write_cell(b, &cell, err);
    if (rc < 0)
        return rc;
    rc = droste_session_exec(b->session, cell.data, cell.len, 0, &r, err);
    if (rc < 0)
        return rc;
    rc = build_outcome(b, r, err);
    droste_result_free(r);
    return rc;
}

static int build_publish(struct package_build *b, struct package_set **out, struct error *err)
{
    static const char staged[] = "site";
    cleanup_buf struct buf to = { 0 };
    droste_volume_count count;
    buf_printf(&to, "%s/%s", package_cache_building(b->job->cache), staged);
    if (buf_failed(&to))
        return error_memory(err);
    int rc = volume_get(workspace_volume(b->workspace), "site", buf_text(&to), &count, err);
    if (rc < 0 && err && (err->sys == ENOSPC || err->sys == EDQUOT))
        return package_cache_disk_full(b->job->cache, err);
    if (rc == 0 && count.left_out > 0)
        rc = error_set(err, ERROR_CONFIG,
            "the packages have %llu entries that are neither files nor directories",
            (unsigned long long)count.left_out);
    return rc < 0
               ? rc
               : package_cache_publish(b->job->cache, b->job->key, staged, b->job->facts, out, err);
}

int api_packages_build(const struct package_job *job, struct package_set **out, struct error *err)
{
    struct package_build b = { .job = job };
    int rc = read_configuration(job, &b.configuration, err);
    if (rc == 0 && job->d->notice && !job->beside)
        job->d->notice(job->d->notice_arg, "building packages");
    if (rc == 0)
        rc = build_open(&b, err);
    if (rc == 0)
        rc = b.cancelled ? error_set(err, ERROR_CANCELLED, "interrupted while packages were built")
                         : build_run(&b, err);
    if (job->d->notice && !job->beside)
        job->d->notice(job->d->notice_arg, "");
    droste_session_close(steal(&b.session)); /* nothing writes to its files any more */
    if (rc == 0)
        rc = build_publish(&b, out, err);
    build_free(&b);
    return rc;
}
