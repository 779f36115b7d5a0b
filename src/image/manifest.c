/* image/manifest.c: reads the JSON of images: OCI's index, manifest and configuration
 * (image-spec 1.1), and the manifest.json of `docker save`. All of it is untrusted. Digests are
 * SHA-256 only.
 */
#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "image/internal.h"

static const struct json_limits manifest_limits = { IMAGE_JSON_MAX, 32, 200000 };

static int manifest_broken(const char *what, struct error *err)
{
    return error_set(err, ERROR_PROTOCOL, "the image is invalid: %s", what);
}

static int manifest_read(
    const struct buf *json, enum json_type type, struct json_object **out, struct error *err)
{
    int rc = json_parse(buf_text(json), json->len, &manifest_limits, out, err);
    if (rc == 0 && !json_object_is_type(*out, type))
        return manifest_broken("its manifest is JSON of another kind", err);
    return rc;
}

/* "sha256:…" with 64 digits. */
static int manifest_digest(const char *text, char out[HASH_TEXT_SIZE], struct error *err)
{
    static const char prefix[] = "sha256:";
    size_t n = strlen(prefix);
    if (strncmp(text, prefix, n) != 0 || strlen(text + n) != HASH_TEXT_SIZE - 1 ||
        strspn(text + n, "0123456789abcdef") != HASH_TEXT_SIZE - 1)
        return error_set(err, ERROR_PROTOCOL,
            "the image is invalid: '%.80s' is not a digest of the form sha256:HEX", text);
    memcpy(out, text + n, HASH_TEXT_SIZE);
    return 0;
}

static const char *manifest_architecture(void)
{
    static const char *const names[][2] = { { "x86_64", "amd64" }, { "aarch64", "arm64" },
        { "riscv64", "riscv64" }, { "ppc64le", "ppc64le" }, { "s390x", "s390x" } };
    struct utsname host;
    uname(&host);
    for (size_t i = 0; i < array_length(names); i++)
        if (strcmp(host.machine, names[i][0]) == 0)
            return names[i][1];
    return "unknown";
}

static bool manifest_fits(struct json_object *entry, const char *tag, unsigned depth)
{
    struct json_object *notes = json_get_typed(entry, "annotations", json_type_object);
    struct json_object *platform = json_get_typed(entry, "platform", json_type_object);
    const char *name = notes ? json_get_string(notes, "org.opencontainers.image.ref.name", "") : "";
    if (depth == 0 && tag)
        return strcmp(name, tag) == 0;
    if (!platform)
        return depth == 0;
    return strcmp(json_get_string(platform, "os", ""), "linux") == 0 &&
           strcmp(json_get_string(platform, "architecture", ""), manifest_architecture()) == 0;
}

int image_parse_index(const struct buf *json, const char *tag, unsigned depth,
    struct blob_name *out, bool *is_index, struct error *err)
{
    cleanup_json struct json_object *index = NULL;
    struct json_object *found = NULL;
    size_t count = 0;
    int rc = manifest_read(json, json_type_object, &index, err);
    if (rc < 0)
        return rc;
    struct json_object *all = json_get_typed(index, "manifests", json_type_array);
    for (size_t i = 0; i < json_length(all); i++) {
        struct json_object *entry = json_object_array_get_idx(all, i);
        if (!json_object_is_type(entry, json_type_object) || !manifest_fits(entry, tag, depth))
            continue;
        found = entry;
        count++;
    }
    if (count == 0)
        return error_set(err, ERROR_NOT_FOUND, "the image layout has no image %s%.100s%s",
            tag && depth == 0 ? "with the tag '" : "for linux/",
            tag && depth == 0 ? tag : manifest_architecture(), tag && depth == 0 ? "'" : "");
    if (count > 1 && depth == 0)
        return error_set(
            err, ERROR_ARGUMENT, "the image layout has %zu images: name one as oci:DIR:TAG", count);
    *is_index = strstr(json_get_string(found, "mediaType", ""), "index") ||
                strstr(json_get_string(found, "mediaType", ""), "manifest.list");
    return manifest_digest(json_get_string(found, "digest", ""), out->digest, err);
}

static int manifest_add_layer(
    struct json_object *layer, struct image_manifest *out, struct error *err)
{
    char digest[HASH_TEXT_SIZE];
    if (!json_object_is_type(layer, json_type_object))
        return manifest_broken("a layer is not an object", err);
    const char *type = json_get_string(layer, "mediaType", "");
    if (!strstr(type, "tar") || strstr(type, "encrypted"))
        return error_set(err, ERROR_UNSUPPORTED,
            "the image has a layer of the type '%.100s'; Droste reads tar, plain or in gzip or zstd",
            type);
    int rc = manifest_digest(json_get_string(layer, "digest", ""), digest, err);
    return rc < 0 ? rc : list_add(&out->layers, digest, err);
}

static int manifest_check_count(size_t count, struct error *err)
{
    return count <= IMAGE_LAYERS_MAX ? 0 : manifest_broken("it has too many layers", err);
}

int image_parse_manifest(const struct buf *json, struct image_manifest *out, struct error *err)
{
    cleanup_json struct json_object *manifest = NULL;
    int rc = manifest_read(json, json_type_object, &manifest, err);
    if (rc < 0)
        return rc;
    struct json_object *config = json_get_typed(manifest, "config", json_type_object);
    struct json_object *layers = json_get_typed(manifest, "layers", json_type_array);
    if (!config || !layers)
        return manifest_broken("its manifest has no config or layers", err);
    rc = manifest_digest(json_get_string(config, "digest", ""), out->config, err);
    if (rc == 0)
        rc = manifest_check_count(json_length(layers), err);
    for (size_t i = 0; rc == 0 && i < json_length(layers); i++)
        rc = manifest_add_layer(json_object_array_get_idx(layers, i), out, err);
    return rc;
}

/* Adds the texts of an array. */
static int manifest_texts(
    struct json_object *array, size_t most, struct list *out, struct error *err)
{
    if (json_length(array) > most)
        return manifest_broken("a list in it is too long", err);
    for (size_t i = 0; i < json_length(array); i++) {
        struct json_object *item = json_object_array_get_idx(array, i);
        const char *text = json_object_get_string(item);
        if (!json_object_is_type(item, json_type_string) ||
            strlen(text) != (size_t)json_object_get_string_len(item))
            return manifest_broken("a list in it has something other than texts", err);
        int rc = list_add(out, text, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int image_parse_archive(const struct buf *json, struct image_manifest *out, struct error *err)
{
    cleanup_json struct json_object *all = NULL;
    int rc = manifest_read(json, json_type_array, &all, err);
    if (rc < 0)
        return rc;
    if (json_length(all) != 1)
        return error_set(err, ERROR_ARGUMENT,
            "the archive has %zu images; `docker save` one of them alone", json_length(all));
    struct json_object *image = json_object_array_get_idx(all, 0);
    if (!json_object_is_type(image, json_type_object))
        return manifest_broken("its manifest.json has no object", err);
    out->config_path = strdup(json_get_string(image, "Config", ""));
    if (!out->config_path)
        return error_memory(err);
    return manifest_texts(
        json_get_typed(image, "Layers", json_type_array), IMAGE_LAYERS_MAX, &out->layers, err);
}

static int config_variables(struct json_object *config, struct image_config *out, struct error *err)
{
    int rc = manifest_texts(
        json_get_typed(config, "Env", json_type_array), IMAGE_VARIABLES_MAX, &out->variables, err);
    for (size_t i = 0; rc == 0 && i < out->variables.count; i++)
        if (strcspn(out->variables.items[i], "=") == 0 || !strchr(out->variables.items[i], '='))
            rc = manifest_broken("an environment variable has no name", err);
    return rc;
}

int image_parse_config(const struct buf *json, struct image_config *out, struct error *err)
{
    cleanup_json struct json_object *image = NULL;
    struct list digests = { 0 };
    int rc = manifest_read(json, json_type_object, &image, err);
    if (rc < 0)
        return rc;
    const char *os = json_get_string(image, "os", "");
    const char *architecture = json_get_string(image, "architecture", "");
    if (strcmp(os, "linux") != 0 || strcmp(architecture, manifest_architecture()) != 0)
        return error_set(err, ERROR_UNSUPPORTED,
            "the image is for %.20s/%.20s, and this machine runs linux/%s", os, architecture,
            manifest_architecture());
    struct json_object *rootfs = json_get_typed(image, "rootfs", json_type_object);
    struct json_object *config = json_get_typed(image, "config", json_type_object);
    if (!rootfs)
        return manifest_broken("its configuration has no rootfs", err);
    rc = manifest_texts(
        json_get_typed(rootfs, "diff_ids", json_type_array), IMAGE_LAYERS_MAX, &digests, err);
    for (size_t i = 0; rc == 0 && i < digests.count; i++) {
        char digest[HASH_TEXT_SIZE];
        rc = manifest_digest(digests.items[i], digest, err);
        if (rc == 0)
            rc = list_add(&out->diff_ids, digest, err);
    }
    list_clear(&digests);
    return rc < 0 || !config ? rc : config_variables(config, out, err);
}

void image_manifest_free(struct image_manifest *m)
{
    free(m->config_path);
    list_clear(&m->layers);
    *m = (struct image_manifest){ 0 };
}

void image_config_free(struct image_config *c)
{
    list_clear(&c->diff_ids);
    list_clear(&c->variables);
}
