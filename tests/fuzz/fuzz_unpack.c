/* What a sandbox sends of its copy of a volume (volume/pack.h). Broken or not, nothing outside of
 * the volume changes, and with the stream that says that nothing is there any more all of it
 * goes. */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/tree.h"
#include "volume/pack.h"

static char home[] = "/tmp/droste-fuzz-XXXXXX";

static void remove_home(void)
{
    tree_remove(AT_FDCWD, home);
}

static struct volume *volume(void)
{
    static struct volume *v;
    struct volume_limits limits = { .size = 1 << 16, .files = 64 };
    if (v)
        return v;
    expect(mkdtemp(home) != NULL);
    atexit(remove_home);
    expect(volume_make_ephemeral(home, &limits, &v, NULL) == 0);
    return v;
}

/* How many names are in a directory; all of them are removed from it. */
static size_t empty(int directory, bool remove)
{
    size_t count = 0;
    struct dirent *e;
    DIR *d = fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    expect(d != NULL);
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        count++;
        expect(!remove || tree_remove(directory, e->d_name));
    }
    closedir(d);
    return count;
}

static int unpack(const void *data, size_t len, struct pack_state *state, struct error *err)
{
    bool over;
    cleanup_fd int file = -1;
    expect(volume_pack_file(volume(), &file, NULL) == 0);
    expect(write(file, data, len) == (ssize_t)len);
    return volume_unpack(volume(), file, state, &over, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char nothing[PACK_HEADER_SIZE] = { PACK_END };
    struct pack_state state = { 0 };
    struct error err = { 0 };
    cleanup_fd int top = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = unpack(data, size, &state, &err);
    expect(top < 0 || empty(top, false) <= 3); /* the volume, and what its root has */
    if (rc < 0) {
        expect_error(rc, &err);
        expect(err.code != ERROR_PROTOCOL || empty(volume_data(volume()), false) == 0);
    } else {
        expect(unpack(nothing, sizeof nothing, &state, NULL) == 0);
        expect(state.paths.count == 0 && empty(volume_data(volume()), false) == 0);
    }
    empty(volume_data(volume()), true);
    list_clear(&state.paths);
    return 0;
}
