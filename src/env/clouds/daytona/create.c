/* env/clouds/daytona/create.c: builds the body of a create request.
 *
 * Every sandbox gets limits that the provider enforces: it is stopped when idle, and deleted once
 * it is stopped or its lifetime is over. These bound the cost of a sandbox whose host has died.
 */
#include "env/clouds/daytona/create.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "env/common/owner_labels.h"

enum {
    IDLE_MINUTES = 15,
    LIFE_MINUTES = 24 * 60,     /* if the session has no deadline */
    AFTER_MINUTES = 5,          /* after the session's deadline, which the host enforces */
    KEPT_MINUTES = 7 * 24 * 60, /* for a stopped sandbox that is kept */
};

static const struct container_spec all_defaults;

static const struct container_spec *container_of(const struct sandbox_spec *spec)
{
    return spec->container ? spec->container : &all_defaults;
}

static bool is_asked(const struct sandbox_spec *spec, enum feature p)
{
    return spec->asked & (uint64_t)1 << p;
}

static bool is_set(const char *text)
{
    return text && text[0];
}

/* ---- validation ---- */

static int check_resources(const struct sandbox_spec *spec, struct error *err)
{
    static const struct {
        enum feature feature;
        const char *setting;
    } rows[] = { { FEATURE_CPUS, "cpus" }, { FEATURE_DISK, "disk-size" },
        { FEATURE_GPUS, "gpus" } };
    const struct container_spec *c = container_of(spec);
    const char *gpus = is_set(c->gpus) ? c->gpus : "1";
    if (gpus[strspn(gpus, "0123456789")] != '\0' || atoi(gpus) <= 0 || strlen(gpus) > 3)
        return error_set(
            err, ERROR_ARGUMENT, "gpus '%.60s': for Daytona, give a number of GPUs", gpus);
    for (size_t i = 0; !is_set(c->image) && i < array_length(rows); i++)
        if (is_asked(spec, rows[i].feature))
            return error_set(err, ERROR_UNSUPPORTED,
                "the environment 'daytona' applies --%s only to a sandbox made from an image: "
                "name one with --image (a snapshot has its own)",
                rows[i].setting);
    return 0;
}

int daytona_check(const struct sandbox_spec *spec, struct error *err)
{
    const struct container_spec *c = container_of(spec);
    if (is_set(c->image) && is_set(c->snapshot))
        return error_set(err, ERROR_ARGUMENT,
            "a sandbox is made from an image or from a snapshot: give --image or --snapshot, not "
            "both");
    if (is_set(c->image) && c->image[strcspn(c->image, " \t\r\n")])
        return error_set(
            err, ERROR_ARGUMENT, "image '%.80s' is not the name of an image", c->image);
    if (is_set(c->network) && strcmp(c->network, "none") != 0 && strcmp(c->network, "open") != 0)
        return error_set(err, ERROR_ARGUMENT,
            "network '%.40s': the environment 'daytona' supports none and open", c->network);
    if (is_set(c->network) && strcmp(c->network, "open") == 0 && c->allow && c->allow->count > 0)
        return error_set(err, ERROR_ARGUMENT,
            "--network open and --network-allow exclude each other: give one of them");
    if (is_set(c->volume_subpath) && !is_set(c->volume))
        return error_set(err, ERROR_ARGUMENT, "--volume-subpath is of a volume: --volume-name");
    int rc = is_set(c->volume) ? volume_check_name("volume", c->volume, err) : 0;
    return rc == 0 ? check_resources(spec, err) : rc;
}

static bool daytona_create_put_number(struct json_object *o, const char *key, double value)
{
    return json_put(o, key, json_object_new_int64((int64_t)value));
}

static double daytona_create_minutes(double seconds, double otherwise)
{
    return seconds > 0 ? ceil(seconds / 60) : otherwise;
}

static bool put_times(struct json_object *o, const struct container_spec *c)
{
    bool ok = daytona_create_put_number(
                  o, "autoStopInterval", daytona_create_minutes(c->idle, IDLE_MINUTES)) &&
              daytona_create_put_number(o, "autoDeleteInterval", c->keep ? KEPT_MINUTES : 0);
    /* A sandbox that is kept outlives its session. */
    if (ok && !c->keep)
        ok = daytona_create_put_number(
            o, "ttlMinutes", daytona_create_minutes(c->life, LIFE_MINUTES) + AFTER_MINUTES);
    return ok;
}

static bool put_labels(struct json_object *o, const struct daytona_create *create)
{
    const struct list *own = container_of(create->spec)->labels;
    struct json_object *labels = json_object_new_object();
    bool ok = labels != NULL;
    for (size_t i = 0; ok && own && i < own->count; i++) {
        const char *value = strchr(own->items[i], '=') + 1;
        cleanup_free char *name = text_copy(own->items[i], (size_t)(value - own->items[i]) - 1);
        ok = name && json_put_text(labels, name, value);
    }
    if (ok && json_put_text(labels, LABEL_OWNER, create->owner) &&
        json_put_text(labels, LABEL_MACHINE, create->machine))
        return json_put(o, "labels", labels);
    json_object_put(labels);
    return false;
}

/* True for an address or a range; anything else is a domain. */
static bool is_address(const char *text)
{
    return text[strspn(text, "0123456789./")] == '\0' || strchr(text, ':');
}

static bool daytona_create_put_network(struct json_object *o, const struct container_spec *c)
{
    cleanup_buf struct buf addresses = { 0 }, domains = { 0 };
    for (size_t i = 0; c->allow && i < c->allow->count; i++) {
        struct buf *to = is_address(c->allow->items[i]) ? &addresses : &domains;
        buf_printf(to, "%s%s", to->len ? "," : "", c->allow->items[i]);
    }
    bool open = is_set(c->network) && strcmp(c->network, "open") == 0;
    bool blocked = !open && addresses.len == 0 && domains.len == 0;
    return !buf_failed(&addresses) && !buf_failed(&domains) &&
           json_put(o, "networkBlockAll", json_object_new_boolean(blocked)) &&
           (addresses.len == 0 || json_put_text(o, "networkAllowList", addresses.data)) &&
           (domains.len == 0 || json_put_text(o, "domainAllowList", domains.data));
}

static double daytona_create_gigabytes(double bytes)
{
    return ceil(bytes / (1 << 30));
}

/* Writes the image with its resources, or the snapshot. */
static bool put_source(struct json_object *o, const struct sandbox_spec *spec)
{
    const struct container_spec *c = container_of(spec);
    if (!is_set(c->image))
        return !is_set(c->snapshot) || json_put_text(o, "snapshot", c->snapshot);
    cleanup_free char *lines = text_printf("FROM %s\n", c->image);
    struct json_object *build = json_object_new_object();
    if (!lines || !build || !json_put_text(build, "dockerfileContent", lines)) {
        json_object_put(build);
        return false;
    }
    bool ok = json_put(o, "buildInfo", build);
    if (ok && is_asked(spec, FEATURE_MEMORY))
        ok = daytona_create_put_number(
            o, "memory", daytona_create_gigabytes((double)spec->limits.memory));
    if (ok && spec->limits.cpus > 0)
        ok = daytona_create_put_number(o, "cpu", ceil(spec->limits.cpus));
    if (ok && c->disk > 0)
        ok = daytona_create_put_number(o, "disk", daytona_create_gigabytes((double)c->disk));
    if (ok && is_set(c->gpus))
        ok = daytona_create_put_number(o, "gpu", atoi(c->gpus));
    return ok;
}

static bool daytona_create_put_volume(struct json_object *o, const struct daytona_create *create)
{
    const char *subpath = container_of(create->spec)->volume_subpath;
    if (!create->volume_id)
        return true;
    struct json_object *all = json_object_new_array(), *one = json_object_new_object();
    bool ok = all && one && json_put_text(one, "volumeId", create->volume_id) &&
              json_put_text(one, "mountPath", DAYTONA_MEMORY) &&
              (!is_set(subpath) || json_put_text(one, "subpath", subpath));
    if (ok && json_object_array_add(all, one) == 0)
        return json_put(o, "volumes", all);
    json_object_put(one);
    json_object_put(all);
    return false;
}

int daytona_create_body(
    const struct daytona_create *create, struct json_object **out, struct error *err)
{
    const struct container_spec *c = container_of(create->spec);
    const char *target = is_set(c->region) ? c->region : create->target;
    cleanup_json struct json_object *o = json_object_new_object();
    bool ok = o && json_put_text(o, "name", create->name) && put_labels(o, create) &&
              daytona_create_put_network(o, c) && put_times(o, c) && put_source(o, create->spec) &&
              daytona_create_put_volume(o, create) &&
              (!target || json_put_text(o, "target", target)) &&
              (!is_set(c->user) || json_put_text(o, "user", c->user));
    if (!ok)
        return error_memory(err);
    *out = steal(&o);
    return 0;
}
