/* env/remote/bridge_spec.c: writes "open" messages and reads declared features. */
#include "env/remote/bridge_spec.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "env/common/owner_labels.h"

/* Of an optional feature, which is recognised by this text's address. */
static const char if_declared[] = "if the program declares support for it";
#define IF_DECLARED FEATURE_YES(if_declared)

const struct feature_state bridge_features[FEATURE_COUNT] = {
    [FEATURE_STREAM] = FEATURE_YES("its standard streams"),
    [FEATURE_REATTACH] = FEATURE_YES("if the program reports the new connection"),
    [FEATURE_MEMORY] = FEATURE_YES("of each process"),
    [FEATURE_PROCESSES] = FEATURE_YES("it is told"),
    [FEATURE_WORKSPACE] = FEATURE_YES("sent at the start"),
    [FEATURE_DEVICE] = FEATURE_NO("its environment decides"),
    FEATURES_OF_REMOTE,
    [FEATURE_IMAGE] = IF_DECLARED,
    [FEATURE_SNAPSHOT] = IF_DECLARED,
    [FEATURE_NETWORK] = IF_DECLARED,
    [FEATURE_ALLOW] = IF_DECLARED,
    [FEATURE_CPUS] = IF_DECLARED,
    [FEATURE_GPUS] = IF_DECLARED,
    [FEATURE_DISK] = IF_DECLARED,
    [FEATURE_ROOT] = FEATURE_NO("the sandbox's files are its own"),
    [FEATURE_LABELS] = IF_DECLARED,
    [FEATURE_IDLE] = IF_DECLARED,
    [FEATURE_REGION] = IF_DECLARED,
    [FEATURE_APP] = IF_DECLARED,
    [FEATURE_RESUME] = IF_DECLARED,
    [FEATURE_VOLUME] = FEATURE_YES("a copy of this machine's, brought back after each cell"),
};

/* Optional features, which depend on the program. */
static bool is_optional(enum feature p)
{
    return bridge_features[p].text == if_declared;
}

uint64_t bridge_spec_needs(const struct sandbox_spec *spec)
{
    uint64_t needs = 0;
    for (enum feature p = 0; p < FEATURE_COUNT; p++)
        needs |= is_optional(p) ? (uint64_t)1 << p : 0;
    uint64_t asked = spec->asked | (spec->limits.cpus > 0 ? (uint64_t)1 << FEATURE_CPUS : 0);
    return asked & needs;
}

/* ---- the "open" message ---- */

static void write_text(struct buf *out, const char *name, const char *text)
{
    if (text)
        field_string(out, name, text);
}

static void write_number(struct buf *out, const char *name, double number)
{
    if (number > 0)
        field_number(out, name, number);
}

/* Writes only settings that were set explicitly; the others have defaults that nothing asked
 * for. */
static void write_settings(struct buf *out, const struct sandbox_spec *spec)
{
    const struct container_spec *c = sandbox_container(spec);
    const uint64_t needs = bridge_spec_needs(spec);
    const struct {
        enum feature feature;
        const char *setting, *text;
    } texts[] = {
        { FEATURE_IMAGE, "image", c->image },
        { FEATURE_SNAPSHOT, "snapshot", c->snapshot },
        { FEATURE_NETWORK, "network", c->network },
        { FEATURE_GPUS, "gpus", c->gpus },
        { FEATURE_REGION, "region", c->region },
        { FEATURE_APP, "app-name", c->app },
        { FEATURE_RESUME, "sandbox", c->resume },
        { FEATURE_RESUME, "on-close", c->keep ? "stop" : NULL },
    };
    for (size_t i = 0; i < array_length(texts); i++)
        if (needs & (uint64_t)1 << texts[i].feature)
            write_text(out, texts[i].setting, texts[i].text);
    write_number(out, "cpus", spec->limits.cpus);
    if (needs & (uint64_t)1 << FEATURE_DISK)
        write_number(out, "disk-size", (double)c->disk);
    if (needs & (uint64_t)1 << FEATURE_IDLE)
        write_number(out, "idle-timeout", c->idle);
    if (needs & (uint64_t)1 << FEATURE_ALLOW)
        field_list(out, "network-allow", c->allow);
}

/* Its name, and the directories to create in it. */
static void write_volume(struct buf *out, const struct sandbox_spec *spec)
{
    const struct container_spec *c = spec->container;
    write_text(out, "volume-name", c->volume);
    write_text(out, "volume-subpath", c->volume_subpath);
    if (c->volume_there)
        field_bool(out, "volume-there", true);
    field_strings(out, "directories", layout_of(spec->layout)->directories);
}

void bridge_spec_write(struct buf *out, int64_t id, const struct sandbox_spec *spec,
    const char *const *words, bool keeps_volumes)
{
    const struct container_spec *c = sandbox_container(spec);
    buf_putc(out, '{');
    field_int(out, "open", id);
    field_strings(out, "words", words);
    field_int(out, "memory", (int64_t)spec->limits.memory);
    field_int(out, "processes", (int64_t)spec->limits.processes);
    write_number(out, "timeout", c->life);
    write_settings(out, spec);
    if (keeps_volumes && c->volume)
        write_volume(out, spec);
    field_open(out, "labels", '{');
    owner_labels_write(out, c->labels);
    buf_puts(out, "}}\n");
}

/* ---- the greeting ---- */

void bridge_spec_take_features(
    struct feature_state table[FEATURE_COUNT], struct json_object *features)
{
    static const struct feature_state silent =
        FEATURE_NO("the program does not declare support for it (docs/environments.md)");
    uint64_t can = 0;
    if (json_object_is_type(features, json_type_object)) {
        json_object_object_foreach(features, setting, value)
        {
            enum feature p = feature_of_setting(setting);
            if (p != FEATURE_COUNT && !json_object_is_type(value, json_type_null) &&
                (!json_object_is_type(value, json_type_boolean) || json_object_get_boolean(value)))
                can |= (uint64_t)1 << p;
        }
    }
    for (enum feature p = 0; p < FEATURE_COUNT; p++)
        if (is_optional(p) && !(can & (uint64_t)1 << p))
            table[p] = silent;
}
