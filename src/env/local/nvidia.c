/* env/local/nvidia.c: finds the device files, libraries and facts that CUDA needs.
 *
 * CUDA opens /dev/nvidiactl, /dev/nvidia-uvm and a /dev/nvidiaN for each GPU; with MIG also files
 * of /dev/nvidia-caps, whose numbers are below /proc/driver/nvidia/capabilities/gpuN. The driver's
 * libraries are those of its version, so they are always this machine's: those that its loader
 * finds (ld.so.cache), or else those of a usual directory. From /sys it reads the directories of
 * the GPUs on the PCI bus.
 *
 * What is for displays, for the settings of the driver and for other kinds of devices is left out.
 */
#include "env/local/nvidia.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/beneath.h"
#include "base/text.h"

enum { CACHE_MAX = 16 << 20, FACTS_MAX = 64 << 10 };

static const char driver[] = "libcuda.so.1";

/* ---- device files ---- */

/* As root, a guest is another user. */
static bool nvidia_can_open(const char *path, bool writes)
{
    struct stat st;
    if (geteuid() != 0)
        return access(path, writes ? R_OK | W_OK : R_OK) == 0;
    mode_t wanted = writes ? S_IROTH | S_IWOTH : S_IROTH;
    return stat(path, &st) == 0 && (st.st_mode & wanted) == wanted;
}

static bool nvidia_is_device(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

/* `cure`: what to do if there is none; NULL: it is optional. */
static int nvidia_add_file(
    const char *root, const char *path, const char *cure, struct list *to, struct error *err)
{
    cleanup_free char *at = text_printf("%s%s", root, path);
    if (!at)
        return error_memory(err);
    bool there = nvidia_is_device(at), opens = there && nvidia_can_open(at, true);
    if (opens)
        return list_add(to, path, err);
    if (!cure)
        return 0;
    if (there)
        return error_set(err, ERROR_PERMISSION,
            "device nvidia: users of sandboxes cannot open %s; permit all users to read and write "
            "it (NVreg_DeviceFileMode=0666 of the kernel module)",
            path);
    return error_set(err, ERROR_NOT_FOUND, "device nvidia: this machine has no %s; %s", path, cure);
}

static int nvidia_add_gpus(const char *root, const struct device_request *request,
    struct nvidia *out, uint64_t *gpus, struct error *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < DEVICE_GPUS_MAX; i++) {
        char path[32];
        size_t before = out->devices.files.count;
        bool named = request->gpus & (uint64_t)1 << i;
        if (request->gpus && !named)
            continue;
        snprintf(path, sizeof path, "/dev/nvidia%u", i);
        rc = nvidia_add_file(root, path,
            named ? "`nvidia-smi -L` lists its GPUs, by the same numbers" : NULL,
            &out->devices.files, err);
        if (out->devices.files.count == before)
            continue;
        *gpus |= (uint64_t)1 << i;
        out->count++;
    }
    if (rc == 0 && *gpus == 0)
        return error_set(err, ERROR_NOT_FOUND,
            "device nvidia: this machine has no /dev/nvidia0 that users of sandboxes can open; "
            "`nvidia-smi` as an ordinary user shows why");
    return rc;
}

/* The number after a word, in a file of the driver's; -1: none. */
static long nvidia_read_number(const char *path, const char *word)
{
    cleanup_buf struct buf text = { 0 };
    if (file_read(path, FACTS_MAX, &text, NULL) < 0)
        return -1;
    const char *at = strstr(buf_text(&text), word);
    return at ? strtol(at + strlen(word), NULL, 10) : -1;
}

/* Parts of a GPU (MIG): a file of /dev/nvidia-caps for each. */
static int nvidia_add_parts(const char *root, unsigned gpu, struct nvidia *out, struct error *err)
{
    static const char *const patterns[] = { "gi*/access", "gi*/ci*/access" };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_length(patterns); i++) {
        cleanup_free char *pattern =
            text_printf("%s/proc/driver/nvidia/capabilities/gpu%u/mig/%s", root, gpu, patterns[i]);
        glob_t found = { 0 };
        if (!pattern)
            return error_memory(err);
        bool any = glob(pattern, 0, NULL, &found) == 0;
        for (size_t k = 0; any && rc == 0 && k < found.gl_pathc; k++) {
            long minor = nvidia_read_number(found.gl_pathv[k], "DeviceFileMinor:");
            cleanup_free char *path = text_printf("/dev/nvidia-caps/nvidia-cap%ld", minor);
            cleanup_free char *at = text_printf("%s%s", root, path ? path : "");
            if (minor > 0 && path && at && nvidia_is_device(at) && nvidia_can_open(at, false))
                rc = list_add(&out->devices.files, path, err);
        }
        globfree(&found);
    }
    return rc;
}

static int nvidia_add_devices(const char *root, const struct device_request *request,
    struct nvidia *out, uint64_t *gpus, struct error *err)
{
    struct list *files = &out->devices.files;
    int rc = nvidia_add_file(root, "/dev/nvidiactl",
        "it needs an NVIDIA GPU and its driver, so that `nvidia-smi` works; or leave out --device",
        files, err);
    if (rc == 0)
        rc = nvidia_add_file(root, "/dev/nvidia-uvm",
            "load the module that CUDA needs: nvidia-modprobe -u -c 0", files, err);
    if (rc == 0)
        rc = nvidia_add_file(root, "/dev/nvidia-uvm-tools", NULL, files, err);
    if (rc == 0)
        rc = nvidia_add_gpus(root, request, out, gpus, err);
    for (unsigned i = 0; rc == 0 && i < DEVICE_GPUS_MAX; i++)
        if (*gpus & (uint64_t)1 << i)
            rc = nvidia_add_parts(root, i, out, err);
    return rc;
}

/* ---- libraries ---- */

/* The file /etc/ld.so.cache of glibc, which ldconfig writes (sysdeps/generic/dl-cache.h). Since
 * glibc 2.32 it is this alone; before, an older form came first. */
struct cache_head {
    char magic[20];
    uint32_t count, strings;
    uint8_t flags, padding[3];
    uint32_t extensions, unused[3];
};

struct cache_row {
    int32_t flags;
    uint32_t name, path; /* offsets from the head */
    uint32_t version;
    uint64_t capabilities;
};

#if defined(__x86_64__)
enum { CACHE_FLAGS = 0x303 };
#elif defined(__aarch64__)
enum { CACHE_FLAGS = 0xa03 };
#else
enum { CACHE_FLAGS = 3 };
#endif

/* The path of a library; NULL: it is not there, or the file is not as expected. */
static const char *cache_find(const struct buf *file, const char *name)
{
    static const char magic[] = "glibc-ld.so.cache1.1";
    struct cache_head head;
    const char *start = file->len ? memmem(file->data, file->len, magic, sizeof magic - 1) : NULL;
    size_t size = start ? file->len - (size_t)(start - file->data) : 0;
    if (size < sizeof head)
        return NULL;
    memcpy(&head, start, sizeof head);
    for (size_t i = 0; i < head.count && sizeof head + (i + 1) * sizeof(struct cache_row) <= size;
         i++) {
        struct cache_row row;
        memcpy(&row, start + sizeof head + i * sizeof row, sizeof row);
        if (row.flags != CACHE_FLAGS || row.name >= size || row.path >= size)
            continue;
        if (!memchr(start + row.name, 0, size - row.name) ||
            !memchr(start + row.path, 0, size - row.path))
            continue;
        if (strcmp(start + row.name, name) == 0 && start[row.path] == '/')
            return start + row.path;
    }
    return NULL;
}

/* Sets the directory of the driver's library. */
static int nvidia_find_libraries(const char *root, struct nvidia *out, struct error *err)
{
    static const char *const usual[] = {
#if defined(__x86_64__)
        "/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
        "/usr/lib/aarch64-linux-gnu",
#endif
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
        "/usr/local/nvidia/lib64",
        "/run/opengl-driver/lib"
    };
    cleanup_buf struct buf cache = { 0 };
    cleanup_free char *path = text_printf("%s/etc/ld.so.cache", root);
    if (path && file_read(path, CACHE_MAX, &cache, NULL) == 0) {
        const char *found = cache_find(&cache, driver);
        out->cached = found != NULL;
        out->directory = found ? text_copy(found, (size_t)(strrchr(found, '/') - found)) : NULL;
    }
    for (size_t i = 0; !out->directory && i < array_length(usual); i++) {
        cleanup_free char *library = text_printf("%s%s/%s", root, usual[i], driver);
        if (library && access(library, F_OK) == 0)
            out->directory = strdup(usual[i]);
    }
    if (out->directory)
        return 0;
    return error_set(err, ERROR_NOT_FOUND,
        "device nvidia: this machine has no %s, in ld.so.cache or in a usual directory; install "
        "the libraries of the driver's version, and run ldconfig",
        driver);
}

/* Those for computing, and for asking about GPUs; not those for displays and video. */
static bool nvidia_is_library(const char *name)
{
    static const char *const stems[] = { "cuda", "cudadebugger", "nvidia-ml", "nvidia-cfg",
        "nvidia-opencl", "nvidia-compiler", "nvidia-gpucomp", "nvidia-ptxjitcompiler",
        "nvidia-fatbinaryloader", "nvidia-allocator", "nvidia-nvvm", "nvidia-nvvm70",
        "nvidia-pkcs11", "nvidia-pkcs11-openssl3", "nvidia-sandboxutils" };
    for (size_t i = 0; strncmp(name, "lib", 3) == 0 && i < array_length(stems); i++) {
        size_t n = strlen(stems[i]);
        if (strncmp(name + 3, stems[i], n) == 0 && strncmp(name + 3 + n, ".so", 3) == 0)
            return true;
    }
    return false;
}

static int nvidia_add_libraries(const char *root, struct nvidia *out, struct error *err)
{
    int rc = nvidia_find_libraries(root, out, err);
    cleanup_free char *at = rc == 0 ? text_printf("%s%s", root, out->directory) : NULL;
    DIR *listing = at ? open_listing(AT_FDCWD, at) : NULL;
    if (rc == 0 && !listing)
        return error_set_errno(err, ERROR_IO, "device nvidia: listing %.200s", out->directory);
    for (const char *name; rc == 0 && (name = next_listed(listing));)
        if (nvidia_is_library(name))
            rc =
                list_take(&out->devices.libraries, text_printf("%s/%s", out->directory, name), err);
    if (listing)
        closedir(listing);
    return rc;
}

/* ---- facts ---- */

/* The directories of the GPUs on the PCI bus; a GPU without one (of Tegra) is fine. */
static int nvidia_add_facts(const char *root, uint64_t gpus, struct nvidia *out, struct error *err)
{
    static const char end[] = "/information";
    cleanup_free char *pattern = text_printf("%s/proc/driver/nvidia/gpus/*%s", root, end);
    glob_t found = { 0 };
    int rc = 0;
    if (!pattern)
        return error_memory(err);
    bool any = glob(pattern, 0, NULL, &found) == 0;
    for (size_t i = 0; any && rc == 0 && i < found.gl_pathc; i++) {
        char *path = found.gl_pathv[i];
        long minor = nvidia_read_number(path, "Device Minor:");
        if (minor < 0 || minor >= DEVICE_GPUS_MAX || !(gpus & (uint64_t)1 << minor))
            continue;
        path[strlen(path) - strlen(end)] = '\0';
        rc = list_take(&out->devices.facts,
            text_printf("/sys/bus/pci/devices/%s", strrchr(path, '/') + 1), err);
    }
    globfree(&found);
    return rc;
}

int nvidia_find(
    const char *root, const struct device_request *request, struct nvidia *out, struct error *err)
{
    uint64_t gpus = 0;
    *out = (struct nvidia){ 0 };
    int rc = nvidia_add_devices(root, request, out, &gpus, err);
    if (rc == 0)
        rc = nvidia_add_libraries(root, out, err);
    if (rc == 0)
        rc = nvidia_add_facts(root, gpus, out, err);
    if (rc < 0)
        nvidia_clear(out);
    return rc;
}

void nvidia_clear(struct nvidia *n)
{
    list_clear(&n->devices.files);
    list_clear(&n->devices.libraries);
    list_clear(&n->devices.facts);
    free(n->directory);
    *n = (struct nvidia){ 0 };
}
