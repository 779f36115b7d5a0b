/* cli/image.c: droste image: unpacks, lists, shows and removes container images. */
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/json/fields.h"
#include "cli/cli.h"
#include "cli/options/verbs.h"

enum { LS = 1, PULL = 2, INSPECT = 4, RM = 8, ID_SHOWN = 12 };

struct image_request {
    droste *d;
    const char *words[2]; /* the verb and the image */
    size_t count;
    bool json;
};

static int image_print(void *arg, const droste_image *image)
{
    ++*(size_t *)arg;
    printf("%.*s  %6llu MiB%s%s\n    %s\n", ID_SHOWN, image->id, image->bytes >> 20,
        image->in_use ? "  in use" : "", image->damaged ? "  damaged" : "", image->names);
    return 0;
}

static void image_add_fields(struct buf *out, const droste_image *image)
{
    field_string(out, "id", image->id);
    field_string(out, "path", image->path);
    field_json(out, "names", image->names);
    field_int(out, "bytes", (int64_t)image->bytes);
    field_int(out, "files", (int64_t)image->files);
    field_time(out, "made", image->made * 1000);
    field_bool(out, "in_use", image->in_use);
    field_bool(out, "damaged", image->damaged);
}

static int image_add_json(void *arg, const droste_image *image)
{
    struct buf *out = arg;
    field_open(out, NULL, '{');
    image_add_fields(out, image);
    field_close(out, '}');
    return 0;
}

static int image_add_details(void *arg, const droste_image *image)
{
    struct buf *out = arg;
    field_open(out, NULL, '{');
    image_add_fields(out, image);
    field_json(out, "config", image->config ? image->config : "null");
    field_close(out, '}');
    return 0;
}

static int image_ls(struct image_request *r, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    size_t count = 0;
    if (!r->json) {
        int listed = droste_image_visit(r->d, NULL, image_print, &count, err);
        if (listed == 0 && count == 0)
            cli_note("there are no images yet; `droste image pull NAME` unpacks one");
        return listed;
    }
    field_open(&out, NULL, '[');
    int rc = droste_image_visit(r->d, NULL, image_add_json, &out, err);
    field_close(&out, ']');
    if (rc == 0)
        puts(buf_text(&out));
    return rc;
}

static int image_inspect(struct image_request *r, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    int rc = droste_image_visit(r->d, r->words[1], image_add_details, &out, err);
    if (rc == 0)
        puts(buf_text(&out));
    return rc;
}

static int image_print_id(void *arg, const droste_image *image)
{
    (void)arg;
    puts(image->id);
    return 0;
}

static int image_pull(struct image_request *r, struct error *err)
{
    cli_catch_interrupts(r->d);
    return droste_image_pull(r->d, r->words[1], image_print_id, NULL, err);
}

static int image_rm(struct image_request *r, struct error *err)
{
    return droste_image_remove(r->d, r->words[1], err);
}

static const struct image_verb {
    struct verb verb;
    int (*run)(struct image_request *r, struct error *err);
} verbs[] = {
    { { "pull", PULL, 1, 1, NULL, "an image" }, image_pull },
    { { "ls", LS, 0, 0 }, image_ls },
    { { "inspect", INSPECT, 1, 1, "IMAGE", "an image" }, image_inspect },
    { { "rm", RM, 1, 1, "IMAGE", "an image" }, image_rm },
};

static int image_run(const struct command *self, droste *d, int argc, char **argv)
{
    struct image_request r = { .d = d };
    const struct flag flags[] = {
        { "json", NULL, "ls: print a JSON array.", NULL, &r.json },
        { 0 },
    };
    struct error err = { 0 };
    int status = cli_parse(self, argc, argv, flags, d, r.words, array_length(r.words), &r.count);
    if (status >= 0)
        return status;
    const struct verb_flag only[] = { { "json", r.json, LS } };
    const struct image_verb *row =
        verb_pick(self, r.words, r.count, only, array_length(only), &status);
    return row ? cli_end(row->run(&r, &err), &err, "the output") : status;
}

const struct command command_image = {
    .name = "image",
    .synopsis = "pull NAME | ls [--json] | inspect IMAGE | rm IMAGE",
    .summary = "unpack, list, show and remove container images",
    .details = "  pull NAME      unpack an image for --image; print its id\n"
               "  ls             list the unpacked images\n"
               "  inspect IMAGE  print the details of one as JSON\n"
               "  rm IMAGE       remove one that is not in use\n"
               "\n"
               "NAME is oci:DIR[:TAG], docker-archive:FILE, or a registry's name, which needs\n"
               "skopeo. IMAGE is such a name, an id, or the beginning of one (docs/images.md).\n"
               "\n"
               "Exit status: 0, 2 usage error or no such image, 1 reading or writing failed,\n"
               "4 skopeo could not be started.\n",
    .examples = "  droste image pull docker-archive:python.tar\n"
                "  droste image inspect docker-archive:python.tar\n",
    .settings = SETTINGS_NONE,
    .verbs = { verbs, array_length(verbs), sizeof *verbs },
    .run = image_run,
};
