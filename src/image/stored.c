/* image/stored.c: shows and removes unpacked images.
 *
 * An image is removed under an exclusive lock, which is refused while a program uses it. It is
 * renamed first, so that a program that waits for the lock finds that it is gone. The next use of
 * any image removes what a killed removal has left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "base/text.h"
#include "image/internal.h"

enum { NAME_MAX_BYTES = 8192, ID_LEAST = 4 };

static bool stored_is_hex(const char *text)
{
    return text[strspn(text, "0123456789abcdef")] == '\0';
}

/* What a file of names has: the id, and after a line feed the name. */
static bool stored_read_name(int images, const char *file, struct buf *out, const char **name)
{
    cleanup_fd int fd = open_beneath(images, file, O_RDONLY, 0);
    buf_clear(out);
    if (fd < 0 || file_read_fd(fd, file, NAME_MAX_BYTES, out, NULL) < 0 ||
        out->len < HASH_TEXT_SIZE || out->data[HASH_TEXT_SIZE - 1] != '\n')
        return false;
    out->data[HASH_TEXT_SIZE - 1] = '\0';
    *name = buf_text(out) + HASH_TEXT_SIZE;
    return stored_is_hex(out->data);
}

/* Visits the files of names of an image, and removes them or adds the names to a list. */
static int stored_names(
    int images, const char *id, bool removes, struct list *names, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    const char *name;
    int rc = 0;
    cleanup_listing DIR *listing = open_listing(images, ".");
    if (!listing)
        return images_failed("listing", err);
    for (const char *file; rc == 0 && (file = next_listed(listing));) {
        if (strncmp(file, IMAGE_NAME_FILE, strlen(IMAGE_NAME_FILE)) != 0 ||
            !stored_read_name(images, file, &text, &name) || strcmp(buf_text(&text), id) != 0)
            continue;
        if (removes)
            unlinkat(images, file, 0);
        else if (!list_has(names, name))
            rc = list_add(names, name, err);
    }
    return rc;
}

/* ---- finding ---- */

static int stored_ids(int images, struct list *out, struct error *err)
{
    int rc = 0;
    cleanup_listing DIR *listing = open_listing(images, ".");
    if (!listing)
        return images_failed("listing", err);
    for (const char *name; rc == 0 && (name = next_listed(listing));)
        if (strlen(name) == HASH_TEXT_SIZE - 1 && stored_is_hex(name))
            rc = list_add(out, name, err);
    return rc;
}

static bool stored_answers_to(int images, const char *id, const char *which)
{
    struct list names = { 0 };
    bool found =
        strlen(which) >= ID_LEAST && stored_is_hex(which) && strncmp(id, which, strlen(which)) == 0;
    if (!found && stored_names(images, id, false, &names, NULL) == 0)
        found = list_has(&names, which);
    list_clear(&names);
    return found;
}

/* The id of one image. */
static int stored_find(int images, const char *which, char id[HASH_TEXT_SIZE], struct error *err)
{
    struct list all = { 0 };
    size_t found = 0;
    int rc = stored_ids(images, &all, err);
    for (size_t i = 0; i < all.count; i++)
        if (stored_answers_to(images, all.items[i], which) && found++ == 0)
            memcpy(id, all.items[i], HASH_TEXT_SIZE);
    list_clear(&all);
    if (rc < 0 || found == 1)
        return rc;
    return error_set(err, ERROR_NOT_FOUND,
        "%s has the name or id '%.200s'; `droste image ls` lists what is unpacked",
        found ? "more than one image" : "no image", which);
}

/* ---- showing ---- */

static int stored_count(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    struct image_facts *facts = arg;
    (void)err;
    if (visit != TREE_ENTRY)
        return 0;
    facts->files++;
    if (S_ISREG(place->st->st_mode) && place->st->st_nlink > 0)
        facts->bytes += (uint64_t)place->st->st_size / place->st->st_nlink;
    return 0;
}

static int stored_show(
    int images, const char *path, const char *id, image_fn *fn, void *arg, struct error *err)
{
    cleanup_buf struct buf config = { 0 };
    struct list names = { 0 };
    struct image_config parsed = { 0 };
    struct stat st;
    cleanup_free char *root = text_printf("%s/%s/root", path, id);
    cleanup_fd int fd = open_beneath(images, id, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == ENOENT)
        return 0; /* removed meanwhile */
    if (!root)
        return error_memory(err);
    if (fd < 0)
        return images_failed("reading", err);
    struct image_facts facts = { .id = id, .root = root, .names = &names };
    cleanup_fd int top = open_beneath(fd, "root", O_RDONLY | O_DIRECTORY, 0);
    facts.in_use = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    flock(fd, LOCK_UN);
    facts.made = fstat(fd, &st) == 0 ? st.st_mtime : 0;
    bool is_counted = top >= 0 && tree_walk(top, stored_count, &facts, NULL) == 0;
    facts.damaged = !is_counted || image_read_config(fd, id, &config, NULL) < 0 ||
                    image_parse_config(&config, &parsed, NULL) < 0;
    facts.config = facts.damaged ? NULL : buf_text(&config);
    int rc = stored_names(images, id, false, &names, err);
    if (rc == 0)
        rc = fn(arg, &facts, err);
    list_clear(&names);
    image_config_free(&parsed);
    return rc;
}

int image_visit(const char *which, image_fn *fn, void *arg, struct error *err)
{
    char id[HASH_TEXT_SIZE];
    struct list all = { 0 };
    cleanup_free char *path = NULL;
    cleanup_fd int images = images_open(&path, err);
    if (images < 0)
        return images;
    int rc = which ? stored_find(images, which, id, err) : stored_ids(images, &all, err);
    if (rc == 0 && which)
        rc = stored_show(images, path, id, fn, arg, err);
    for (size_t i = 0; rc == 0 && i < all.count; i++)
        rc = stored_show(images, path, all.items[i], fn, arg, err);
    list_clear(&all);
    return rc;
}

int image_remove(const char *which, struct error *err)
{
    char id[HASH_TEXT_SIZE], gone[16 + HASH_TEXT_SIZE];
    cleanup_free char *path = NULL;
    cleanup_fd int images = images_open(&path, err);
    int rc = images < 0 ? images : stored_find(images, which, id, err);
    if (rc < 0)
        return rc;
    snprintf(gone, sizeof gone, ".fetch-%s", id); /* as what killed programs leave */
    cleanup_fd int fd = open_beneath(images, id, O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return error_set(err, ERROR_ARGUMENT,
            "the image '%.200s' (%.12s) is in use; end the programs that use it first", which, id);
    if (fd < 0 || !image_is_same(images, id, fd))
        return error_set(
            err, ERROR_NOT_FOUND, "another program has removed the image '%.200s'", which);
    tree_remove(images, gone);
    if (renameat(images, id, images, gone) < 0)
        return images_failed("writing to", err);
    rc = stored_names(images, id, true, NULL, err);
    if (!tree_remove(images, gone))
        rc = images_failed("removing an image from", err);
    return rc;
}
