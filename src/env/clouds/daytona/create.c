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
#include "base/json/fields.h"
#include "env/common/owner_labels.h"

enum {
    IDLE_MINUTES = 15,
    LIFE_MINUTES = 24 * 60,     /* if the session has no deadline */
    AFTER_MINUTES = 5,          /* after the session's deadline, which the host enforces */
    KEPT_MINUTES = 7 * 24 * 60, /* for a stopped sandbox that is kept */
};

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
    const struct container_spec *c = sandbox_container(spec);
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
    const struct container_spec *c = sandbox_container(spec);
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

static double daytona_create_minutes(double seconds, double otherwise)
{
    return seconds > 0 ? ceil(seconds / 60) : otherwise;
}

static void write_times(struct buf *out, const struct container_spec *c)
{
    field_int(out, "autoStopInterval", (int64_t)daytona_create_minutes(c->idle, IDLE_MINUTES));
    field_int(out, "autoDeleteInterval", c->keep ? KEPT_MINUTES : 0);
    /* A sandbox that is kept outlives its session. */
    if (!c->keep)
        field_int(out, "ttlMinutes",
            (int64_t)daytona_create_minutes(c->life, LIFE_MINUTES) + AFTER_MINUTES);
}

/* True for an address or a range; anything else is a domain. */
static bool is_address(const char *text)
{
    return text[strspn(text, "0123456789./")] == '\0' || strchr(text, ':');
}

static void write_network(struct buf *out, const struct container_spec *c)
{
    cleanup_buf struct buf addresses = { 0 }, domains = { 0 };
    for (size_t i = 0; c->allow && i < c->allow->count; i++) {
        struct buf *to = is_address(c->allow->items[i]) ? &addresses : &domains;
        buf_printf(to, "%s%s", to->len ? "," : "", c->allow->items[i]);
    }
    bool open = is_set(c->network) && strcmp(c->network, "open") == 0;
    field_bool(out, "networkBlockAll", !open && addresses.len == 0 && domains.len == 0);
    if (addresses.len > 0)
        field_string(out, "networkAllowList", addresses.data);
    if (domains.len > 0)
        field_string(out, "domainAllowList", domains.data);
    out->failed |= buf_failed(&addresses) || buf_failed(&domains);
}

static int64_t daytona_create_gigabytes(uint64_t bytes)
{
    return (int64_t)ceil((double)bytes / (1 << 30));
}

/* Writes the image with its resources, or the snapshot. */
static void write_source(struct buf *out, const struct sandbox_spec *spec)
{
    const struct container_spec *c = sandbox_container(spec);
    cleanup_buf struct buf lines = { 0 };
    if (!is_set(c->image)) {
        if (is_set(c->snapshot))
            field_string(out, "snapshot", c->snapshot);
        return;
    }
    buf_printf(&lines, "FROM %s\n", c->image);
    field_open(out, "buildInfo", '{');
    field_string(out, "dockerfileContent", buf_text(&lines));
    field_close(out, '}');
    out->failed |= buf_failed(&lines);
    if (is_asked(spec, FEATURE_MEMORY))
        field_int(out, "memory", daytona_create_gigabytes(spec->limits.memory));
    if (spec->limits.cpus > 0)
        field_int(out, "cpu", (int64_t)ceil(spec->limits.cpus));
    if (c->disk > 0)
        field_int(out, "disk", daytona_create_gigabytes(c->disk));
    if (is_set(c->gpus))
        field_int(out, "gpu", atoi(c->gpus));
}

static void write_volume(struct buf *out, const struct daytona_create *create)
{
    const char *subpath = sandbox_container(create->spec)->volume_subpath;
    if (!create->volume_id)
        return;
    field_open(out, "volumes", '[');
    field_open(out, NULL, '{');
    field_string(out, "volumeId", create->volume_id);
    field_string(out, "mountPath", DAYTONA_MEMORY);
    if (is_set(subpath))
        field_string(out, "subpath", subpath);
    buf_puts(out, "}]");
}

int daytona_create_body(
    const struct daytona_create *create, struct json_object **out, struct error *err)
{
    const struct container_spec *c = sandbox_container(create->spec);
    const char *target = is_set(c->region) ? c->region : create->target;
    cleanup_buf struct buf text = { 0 };
    buf_putc(&text, '{');
    field_string(&text, "name", create->name);
    field_open(&text, "labels", '{');
    owner_labels_write(&text, c->labels);
    field_close(&text, '}');
    write_network(&text, c);
    write_times(&text, c);
    write_source(&text, create->spec);
    write_volume(&text, create);
    if (target)
        field_string(&text, "target", target);
    if (is_set(c->user))
        field_string(&text, "user", c->user);
    buf_putc(&text, '}');
    return json_parse_written(&text, out, err);
}
