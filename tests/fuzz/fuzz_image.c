/* A layer of an image, or the files of a docker archive (image/layer.c), and their JSON
 * (image/manifest.c). Whatever they have, nothing outside of the root directory changes, and in it
 * there are no more files and bytes than were allowed, no devices, and no set-user-id bits. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "image/internal.h"

enum { BYTES_MAX = 1 << 20, ENTRIES_MAX = 200 };

static char home[] = "/tmp/droste-fuzz-XXXXXX";

static void remove_home(void)
{
    tree_remove(AT_FDCWD, home);
}

/* A directory with a file beside the root directory. */
static int home_open(void)
{
    static int top = -1;
    if (top >= 0)
        return top;
    expect(mkdtemp(home) != NULL);
    atexit(remove_home);
    top = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    expect(top >= 0 && mkdirat(top, "outside", 0755) == 0);
    cleanup_fd int kept = openat(top, "outside/kept", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    expect(kept >= 0 && write(kept, "kept", 4) == 4);
    return top;
}

struct measured {
    uint64_t files, bytes;
};

static int measure(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    struct measured *m = arg;
    (void)err;
    if (visit != TREE_ENTRY)
        return 0;
    mode_t mode = place->st->st_mode;
    expect(S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISFIFO(mode));
    expect(!(mode & (S_ISUID | S_ISGID)));
    m->files++;
    if (S_ISREG(mode) && place->st->st_nlink == 1)
        m->bytes += (uint64_t)place->st->st_size;
    return 0;
}

static struct measured measured_of(int directory)
{
    struct measured m = { 0 };
    expect(tree_walk(directory, measure, &m, NULL) == 0);
    return m;
}

static void expect_only_the_root(int top)
{
    struct stat st;
    struct measured m;
    expect(fstatat(top, "outside/kept", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == 4);
    expect(S_ISREG(st.st_mode) && st.st_nlink == 1 && (st.st_mode & 07777) == 0600);
    cleanup_fd int outside = openat(top, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    m = measured_of(outside);
    expect(m.files == 1);
}

/* A second time over what the first has made, as an upper layer. */
static void apply(int root, int file)
{
    struct layer_room room = { BYTES_MAX, ENTRIES_MAX, NULL };
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        struct error err = { 0 };
        expect(lseek(file, 0, SEEK_SET) == 0);
        rc = layer_apply(root, file, NULL, NULL, &room, &err);
        expect(rc <= 0);
        if (rc < 0)
            expect_error(rc, &err);
    }
    struct measured m = measured_of(root);
    expect(m.files <= ENTRIES_MAX && m.bytes <= BYTES_MAX);
}

static void extract(int to, int file)
{
    struct error err = { 0 };
    struct list names = { 0 };
    expect(lseek(file, 0, SEEK_SET) == 0);
    int rc = layer_extract_files(to, file, NULL, &names, &err);
    if (rc < 0)
        expect_error(rc, &err);
    struct measured m = measured_of(to);
    expect(m.files >= names.count && m.files <= names.count + (rc < 0));
    list_clear(&names);
}

static void in_new_directory(int top, int file, void (*use)(int directory, int file))
{
    expect(mkdirat(top, "root", 0755) == 0);
    cleanup_fd int root = openat(top, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    expect(root >= 0);
    use(root, file);
    expect_only_the_root(top);
    expect(tree_remove(top, "root"));
}

static bool is_digest(const char *text)
{
    return strlen(text) == HASH_TEXT_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == HASH_TEXT_SIZE - 1;
}

static void expect_outcome(int rc, const struct error *err, bool fine)
{
    if (rc < 0)
        expect_error(rc, err);
    else
        expect(rc == 0 && fine);
}

static void parse(const struct buf *json)
{
    struct error err = { 0 };
    struct blob_name blob = { "" };
    struct image_manifest m = { 0 }, archive = { 0 };
    struct image_config c = { 0 };
    bool is_index;
    for (unsigned i = 0; i < 3; i++) {
        int rc = image_parse_index(json, i == 1 ? "tag" : NULL, i / 2, &blob, &is_index, &err);
        expect_outcome(rc, &err, is_digest(blob.digest));
        err = (struct error){ 0 };
    }
    int rc = image_parse_manifest(json, &m, &err);
    expect_outcome(rc, &err, is_digest(m.config) && m.layers.count <= IMAGE_LAYERS_MAX);
    err = (struct error){ 0 };
    rc = image_parse_archive(json, &archive, &err);
    expect_outcome(rc, &err, archive.config_path != NULL);
    err = (struct error){ 0 };
    rc = image_parse_config(json, &c, &err);
    expect_outcome(rc, &err, c.variables.count <= IMAGE_VARIABLES_MAX);
    for (size_t i = 0; rc == 0 && i < c.diff_ids.count; i++)
        expect(is_digest(c.diff_ids.items[i]));
    image_manifest_free(&m);
    image_manifest_free(&archive);
    image_config_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_buf struct buf json = { 0 };
    if (size > 0 && (data[0] == '{' || data[0] == '[')) {
        buf_append(&json, (const char *)data, size);
        parse(&json);
        return 0;
    }
    int top = home_open();
    cleanup_fd int file = open(input_file(data, size), O_RDONLY | O_CLOEXEC);
    expect(file >= 0);
    in_new_directory(top, file, apply);
    in_new_directory(top, file, extract);
    return 0;
}
