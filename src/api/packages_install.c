/* api/packages_install.c: see packages_install.h.
 *
 * To the broker it is a tool of the host, so it is recorded, counted and approved like one. The set
 * is found or built (packages.h) in a thread, one at a time for each session or run, and its files
 * then appear in a directory that the sandbox has seen since it started (packages/shown.h). The
 * answer names the set, and the guest puts it into sys.path (guest/python/core/packages.py). The
 * code itself gets no network: what it says are names with versions, which the host checks.
 */
#include "api/packages_install.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/api.h"
#include "api/packages.h"
#include "api/tool_facts.h"
#include "base/cleanup.h"
#include "base/job.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "broker/tool_call.h"
#include "broker/tools.h"
#include "packages/shown.h"

enum { REQUIREMENTS_MAX = 100, REQUIREMENT_MAX = 300 };

static const char install_name[] = "install_packages";

/* What the tool of one session or run needs; forks share it. */
struct installer {
    unsigned holders; /* tools and installations */
    droste *d;
    struct settings settings;
    int64_t count;
    struct install *first, **last; /* those that wait, behind the one that runs */
    struct installed *sets;
};

/* A set that cannot be removed, and whose files are shown, until the session and its forks end. */
struct installed {
    struct installed *next;
    struct package_set *set;
};

struct install {
    struct install *next;
    struct installer *of;
    struct tool_call *call;
    struct package_request request;
    int cancel;
    char key[HASH_TEXT_SIZE];
    struct package_set *set;
    struct error why;
};

static void installer_hold(void *arg)
{
    ((struct installer *)arg)->holders++;
}

/* Sessions of a template need what was installed before it was made: then the sets stay. */
static void installer_release(droste *d, struct package_set *set)
{
    if (d->templates) {
        (void)api_packages_add(d, package_set_id(set), set, NULL);
        return;
    }
    if (d->shown)
        package_shown_remove(d->shown, set);
    package_set_drop(set);
}

static void installer_drop(void *arg)
{
    struct installer *of = arg;
    if (--of->holders > 0)
        return;
    for (struct installed *next; of->sets; of->sets = next) {
        next = of->sets->next;
        installer_release(of->d, of->sets->set);
        free(of->sets);
    }
    settings_free(&of->settings);
    free(of);
}

/* Takes the set, which is shown. */
static int installer_keep(struct installer *of, struct package_set *set, struct error *err)
{
    struct installed *kept = calloc(1, sizeof *kept);
    if (!kept) {
        installer_release(of->d, set);
        return error_memory(err);
    }
    *kept = (struct installed){ of->sets, set };
    of->sets = kept;
    return 0;
}

/* ---- one installation ---- */

static void install_work(void *arg)
{
    struct install *i = arg;
    const struct package_wish wish = { i->of->d, &i->of->settings, &i->request, i->cancel };
    int rc = api_packages_resolve(&wish, i->key, &i->set, &i->why);
    if (rc == 0)
        rc = package_shown_add(i->of->d->shown, i->set, &i->why);
    if (rc < 0) {
        package_set_drop(i->set);
        i->set = NULL;
    }
}

static void install_answer(struct install *i)
{
    cleanup_buf struct buf json = { 0 };
    field_open(&json, NULL, '{');
    field_string(&json, "set", package_set_id(i->set));
    field_json(&json, "packages", package_set_packages(i->set));
    field_close(&json, '}');
    if (installer_keep(i->of, steal(&i->set), NULL) < 0 || buf_failed(&json))
        tool_call_fail(i->call, "MemoryError", "out of memory");
    else
        tool_call_answer(i->call, json.data, json.len);
}

static void install_free(struct install *i)
{
    if (i->set)
        installer_release(i->of->d, i->set);
    package_request_free(&i->request);
    close_fd(&i->cancel);
    installer_drop(i->of);
    free(i);
}

static void install_start(struct install *i);

static void install_done(void *arg)
{
    struct install *i = arg;
    struct installer *of = i->of;
    struct install *next = i->next;
    of->first = next;
    if (!next)
        of->last = &of->first;
    if (i->set && !tool_call_is_cancelled(i->call))
        install_answer(i);
    else /* of a call that was cancelled, nothing is said */
        tool_call_fail(i->call, "RuntimeError", i->why.text);
    installer_hold(of);
    install_free(i);
    if (next)
        install_start(next);
    installer_drop(of);
}

/* Cancelled before its turn, it still has one, in which it ends at once. */
static void install_start(struct install *i)
{
    if (tool_call_is_cancelled(i->call) ||
        job_start(i->of->d->loop, install_work, install_done, i, &i->why) < 0)
        install_done(i);
}

static void install_cancelled(void *arg, struct tool_call *call)
{
    struct install *i = arg;
    uint64_t one = 1;
    (void)!write(i->cancel, &one, sizeof one);
}

/* ---- the call ---- */

static int install_add(struct package_request *r, struct json_object *text, struct error *err)
{
    const char *word = json_object_get_string(text);
    size_t len = text && json_object_is_type(text, json_type_string)
                     ? (size_t)json_object_get_string_len(text)
                     : 0;
    if (len == 0 || len > REQUIREMENT_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "a requirement is a text of at most %d bytes, such as 'pandas>=2'", REQUIREMENT_MAX);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)word[i] < ' ' || word[i] == 0x7f)
            return error_set(err, ERROR_ARGUMENT, "a requirement has a control character");
    return package_request_add(r, word, err);
}

static int install_read(struct package_request *r, const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *arguments = NULL;
    int rc = json_parse(json, len, &json_limits_small, &arguments, err);
    struct json_object *list =
        rc == 0 ? json_get_typed(arguments, "requirements", json_type_array) : NULL;
    size_t count = list ? json_object_array_length(list) : 0;
    if (rc == 0 && (count == 0 || count > REQUIREMENTS_MAX))
        rc = error_set(err, ERROR_ARGUMENT, "name between 1 and %d packages", REQUIREMENTS_MAX);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = install_add(r, json_object_array_get_idx(list, i), err);
    return rc;
}

static int install_new(struct installer *of, struct tool_call *call, const char *json, size_t len,
    struct install **out, struct error *err)
{
    struct install *i = calloc(1, sizeof *i);
    if (!i)
        return error_memory(err);
    *i = (struct install){ .of = of, .call = call };
    installer_hold(of);
    i->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = i->cancel < 0 ? error_set_errno(err, ERROR_IO, "making an eventfd")
                           : install_read(&i->request, json, len, err);
    if (rc == 0 && of->count >= of->settings.max_installs)
        rc = error_set(err, ERROR_PERMISSION,
            "packages may be installed %lld times here (max-installs)",
            (long long)of->settings.max_installs);
    if (rc < 0)
        install_free(i);
    else
        *out = i;
    return rc;
}

static void install_call(void *arg, struct tool_call *call, const char *json, size_t len)
{
    struct installer *of = arg;
    struct install *i = NULL;
    struct error err = { 0 };
    if (install_new(of, call, json, len, &i, &err) < 0) {
        const char *type = err.code == ERROR_ARGUMENT     ? "ValueError"
                           : err.code == ERROR_PERMISSION ? "PermissionError"
                                                          : "RuntimeError";
        tool_call_fail(call, type, err.text);
        return;
    }
    of->count++;
    tool_call_on_cancel(call, install_cancelled, i);
    bool is_first = !of->first;
    *of->last = i;
    of->last = &i->next;
    if (is_first)
        install_start(i);
}

/* A resumed run has the answer from its record, and needs the set that this names. */
static int install_again(void *arg, const char *json, size_t len, struct error *err)
{
    struct installer *of = arg;
    cleanup_json struct json_object *answer = NULL;
    struct package_cache *cache = NULL;
    struct package_set *set = NULL;
    int rc = json_parse(json, len, &json_limits_small, &answer, err);
    const char *id = rc == 0 ? json_get_string(answer, "set", "") : NULL;
    if (rc == 0)
        rc = package_cache_open(&cache, err);
    if (rc == 0)
        rc = package_cache_find_id(cache, id, &set, err);
    package_cache_close(cache);
    if (rc == 0)
        rc = package_shown_add(of->d->shown, set, err);
    if (rc == 0)
        return installer_keep(of, set, err);
    package_set_drop(set);
    return error_wrap(err, "packages that the run had installed");
}

/* ---- the tool ---- */

int api_install_offer(
    droste *d, const struct settings *s, struct tools *tools, struct buf *facts, struct error *err)
{
    static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{\"requirements\":{\"type\":\"array\","
        "\"description\":\"names, which may have versions: ['numpy', 'pandas>=2']\"}},"
        "\"required\":[\"requirements\"]}";
    if (!s->allow_install)
        return 0;
    struct installer *of = calloc(1, sizeof *of);
    if (!of)
        return error_memory(err);
    *of = (struct installer){ .holders = 1, .d = d };
    of->last = &of->first;
    int rc = settings_copy(&of->settings, s, err);
    if (rc == 0)
        rc = api_packages_show(d, s, err);
    if (rc < 0) {
        installer_drop(of);
        return rc;
    }
    const struct tool_spec spec = { .name = install_name,
        .description = "Installs Python packages for this session, as pip does, and returns what "
                       "was installed. `%pip install NAME` does the same.",
        .parameters = parameters,
        .fn = install_call,
        .arg = of,
        .hold = installer_hold,
        .release = installer_drop,
        .seconds = s->packages_timeout,
        .installs = package_shown_path(d->shown),
        .again = install_again };
    rc = tools_add(tools, &spec, err);
    return rc < 0 ? rc : tool_facts_add_name(facts, "function", install_name, err);
}
