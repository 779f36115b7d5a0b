/* The JSON of images: which manifest is chosen, and what no image may have. */
#include "../test.h"

#include <sys/utsname.h>

#include "base/cleanup.h"
#include "image/internal.h"

#define DIGEST_A   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B   "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define INDEX_TYPE "application/vnd.oci.image.index.v1+json"
#define LAYER_TYPE "application/vnd.oci.image.layer.v1.tar+gzip"

/* This machine's architecture, as images name it. */
static const char *here(void)
{
    static struct utsname host;
    uname(&host);
    return strcmp(host.machine, "x86_64") == 0    ? "amd64"
           : strcmp(host.machine, "aarch64") == 0 ? "arm64"
                                                  : host.machine;
}

static int parse_index(
    const char *text, const char *tag, unsigned depth, struct blob_name *out, struct error *err)
{
    bool is_index;
    cleanup_buf struct buf json = { 0 };
    buf_puts(&json, text);
    return image_parse_index(&json, tag, depth, out, &is_index, err);
}

static int parse_manifest(const char *text, struct error *err)
{
    struct image_manifest m = { 0 };
    cleanup_buf struct buf json = { 0 };
    buf_puts(&json, text);
    int rc = image_parse_manifest(&json, &m, err);
    image_manifest_free(&m);
    return rc;
}

static int parse_archive(const char *text, struct error *err)
{
    struct image_manifest m = { 0 };
    cleanup_buf struct buf json = { 0 };
    buf_puts(&json, text);
    int rc = image_parse_archive(&json, &m, err);
    image_manifest_free(&m);
    return rc;
}

/* A configuration of this architecture (NULL: this machine's), with these members. */
static int parse_config(const char *architecture, const char *members, struct error *err)
{
    struct image_config c = { 0 };
    cleanup_buf struct buf json = { 0 };
    buf_printf(&json, "{\"os\":\"linux\",\"architecture\":\"%s\",%s}",
        architecture ? architecture : here(), members);
    int rc = image_parse_config(&json, &c, err);
    image_config_free(&c);
    return rc;
}

static const char two_tags[] =
    "{\"manifests\":[{\"digest\":\"sha256:" DIGEST_A "\",\"annotations\":"
    "{\"org.opencontainers.image.ref.name\":\"one\"}},{\"digest\":\"sha256:" DIGEST_B "\","
    "\"annotations\":{\"org.opencontainers.image.ref.name\":\"two\"}}]}";

static void a_tag_chooses_one_of_several_images(void **state)
{
    struct blob_name blob;
    assert_ok(parse_index(two_tags, "two", 0, &blob, err));
    assert_string_equal(blob.digest, DIGEST_B);
    assert_fails_saying(ERROR_NOT_FOUND, "'three'", parse_index(two_tags, "three", 0, &blob, err));
    assert_fails_saying(ERROR_ARGUMENT, "2 images", parse_index(two_tags, NULL, 0, &blob, err));
}

static void an_index_chooses_this_machines_platform(void **state)
{
    struct blob_name blob;
    bool is_index = false;
    cleanup_buf struct buf json = { 0 };
    buf_printf(&json,
        "{\"manifests\":[{\"digest\":\"sha256:" DIGEST_A "\",\"platform\":{\"os\":\"linux\","
        "\"architecture\":\"other\"}},{\"digest\":\"sha256:" DIGEST_B "\",\"mediaType\":"
        "\"" INDEX_TYPE "\",\"platform\":{\"os\":\"linux\",\"architecture\":\"%s\"}}]}",
        here());
    assert_ok(image_parse_index(&json, "any", 1, &blob, &is_index, err));
    assert_string_equal(blob.digest, DIGEST_B);
    assert_true(is_index);
    assert_fails_saying(ERROR_NOT_FOUND, "linux/",
        parse_index("{\"manifests\":[{\"digest\":\"sha256:" DIGEST_A "\",\"platform\":{\"os\":"
                    "\"linux\",\"architecture\":\"other\"}}]}",
            NULL, 1, &blob, err));
}

/* A digest becomes part of a path. */
static void only_sha256_in_lower_case_is_a_digest(void **state)
{
    static const char *const wrong[] = { "", "sha256:", "sha256:" DIGEST_A "0", DIGEST_A,
        "sha512:" DIGEST_A, "sha256:../../../../../../../../../../../../etc/passwd",
        "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" };
    struct blob_name blob;
    char text[200];
    for (size_t i = 0; i < array_length(wrong); i++) {
        snprintf(text, sizeof text, "{\"manifests\":[{\"digest\":\"%s\"}]}", wrong[i]);
        assert_fails(ERROR_PROTOCOL, parse_index(text, NULL, 0, &blob, err));
    }
    assert_ok(
        parse_index("{\"manifests\":[{\"digest\":\"sha256:" DIGEST_A "\"}]}", NULL, 0, &blob, err));
    assert_string_equal(blob.digest, DIGEST_A);
}

static void json_of_another_kind_is_refused(void **state)
{
    static const char *const wrong[] = { "", "[]", "null", "1", "{", "{\"manifests\":{}}",
        "{\"manifests\":[1,null,[]]}" };
    struct blob_name blob;
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct error err = { 0 };
        assert_true(parse_index(wrong[i], NULL, 0, &blob, &err) < 0);
        assert_true(parse_manifest(wrong[i], &err) < 0);
        assert_true(strcmp(wrong[i], "[]") == 0 || parse_archive(wrong[i], &err) < 0);
    }
    assert_fails(ERROR_ARGUMENT, parse_archive("[]", err));
    assert_fails(ERROR_PROTOCOL, parse_archive("[1]", err));
}

static void layers_are_tar_archives_that_are_not_encrypted(void **state)
{
    static const char form[] = "{\"config\":{\"digest\":\"sha256:" DIGEST_A "\"},\"layers\":"
                               "[{\"digest\":\"sha256:" DIGEST_B "\",\"mediaType\":\"%s\"}]}";
    char text[600];
    snprintf(text, sizeof text, form, LAYER_TYPE);
    assert_ok(parse_manifest(text, err));
    snprintf(text, sizeof text, form, LAYER_TYPE "+encrypted");
    assert_fails_saying(ERROR_UNSUPPORTED, "encrypted", parse_manifest(text, err));
    snprintf(text, sizeof text, form, "application/wasm");
    assert_fails_saying(ERROR_UNSUPPORTED, "wasm", parse_manifest(text, err));
}

static void too_many_layers_are_refused(void **state)
{
    for (int count = IMAGE_LAYERS_MAX; count <= IMAGE_LAYERS_MAX + 1; count++) {
        cleanup_buf struct buf text = { 0 };
        buf_puts(&text, "{\"config\":{\"digest\":\"sha256:" DIGEST_A "\"},\"layers\":[");
        for (int i = 0; i < count; i++)
            buf_printf(&text,
                "%s{\"digest\":\"sha256:" DIGEST_B "\",\"mediaType\":\"" LAYER_TYPE "\"}",
                i ? "," : "");
        buf_puts(&text, "]}");
        if (count <= IMAGE_LAYERS_MAX)
            assert_ok(parse_manifest(buf_text(&text), err));
        else
            assert_fails_saying(
                ERROR_PROTOCOL, "too many layers", parse_manifest(buf_text(&text), err));
    }
}

static void an_archive_has_one_image(void **state)
{
    assert_ok(parse_archive("[{\"Config\":\"a.json\",\"Layers\":[\"b/layer.tar\"]}]", err));
    assert_fails_saying(ERROR_ARGUMENT, "2 images", parse_archive("[{},{}]", err));
    assert_fails(ERROR_PROTOCOL, parse_archive("[{\"Config\":\"a\",\"Layers\":[1]}]", err));
    assert_fails(
        ERROR_PROTOCOL, parse_archive("[{\"Config\":\"a\",\"Layers\":[\"a\\u0000b\"]}]", err));
}

static void images_for_other_machines_are_refused(void **state)
{
    assert_ok(parse_config(NULL, "\"rootfs\":{\"diff_ids\":[]}", err));
    assert_fails_saying(ERROR_UNSUPPORTED, "linux/z80", parse_config("z80", "\"rootfs\":{}", err));
}

static void variables_have_names(void **state)
{
    static const char *const wrong[] = { "\"=x\"", "\"x\"", "\"\"", "1", "\"a=\\u0000\"" };
    char text[200];
    assert_ok(parse_config(NULL, "\"rootfs\":{},\"config\":{\"Env\":[\"A=b=c\",\"B=\"]}", err));
    for (size_t i = 0; i < array_length(wrong); i++) {
        snprintf(text, sizeof text, "\"rootfs\":{},\"config\":{\"Env\":[%s]}", wrong[i]);
        assert_fails(ERROR_PROTOCOL, parse_config(NULL, text, err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tag_chooses_one_of_several_images),
        cmocka_unit_test(an_index_chooses_this_machines_platform),
        cmocka_unit_test(only_sha256_in_lower_case_is_a_digest),
        cmocka_unit_test(json_of_another_kind_is_refused),
        cmocka_unit_test(layers_are_tar_archives_that_are_not_encrypted),
        cmocka_unit_test(too_many_layers_are_refused),
        cmocka_unit_test(an_archive_has_one_image),
        cmocka_unit_test(images_for_other_machines_are_refused),
        cmocka_unit_test(variables_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
