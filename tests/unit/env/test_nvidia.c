/* What is found of NVIDIA's GPUs and their driver, below a directory that stands for the machine.
 * Device files are made as root only. */
#include "../test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "env/common/devices.h"
#include "env/local/nvidia.h"

#ifdef __aarch64__
enum { THIS_MACHINE = 0xa03, ANOTHER = 0x303 };
#else
enum { THIS_MACHINE = 0x303, ANOTHER = 0xa03 };
#endif

static char root[] = "/tmp/droste-test-nvidia-XXXXXX";

static void put(const char *path, const char *text, size_t len)
{
    char at[512];
    snprintf(at, sizeof at, "%s%s", root, path);
    char *end = strrchr(at, '/');
    *end = '\0';
    assert_ok(file_make_directories(at, err));
    *end = '/';
    cleanup_fd int fd = open(at, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_int_equal(file_write_all(fd, text, len), 0);
}

static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static void put_device(const char *path, mode_t mode)
{
    char at[512];
    put_text(path, "");
    snprintf(at, sizeof at, "%s%s", root, path);
    assert_int_equal(unlink(at), 0);
    assert_int_equal(mknod(at, S_IFCHR | mode, makedev(1, 3)), 0);
    assert_int_equal(chmod(at, mode), 0);
}

static bool has(const struct list *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], path) == 0)
            return true;
    return false;
}

static void needs_root(void)
{
    if (geteuid() == 0)
        return;
    print_message("# skipped: only root makes device files\n");
    skip();
}

/* As ldconfig writes it, with one library, for this kind of machine or another. */
static void put_cache(int32_t flags, uint32_t count, const char *path)
{
    struct {
        char magic[20];
        uint32_t count, strings;
        uint8_t rest[20];
        int32_t flags;
        uint32_t name, path, version;
        uint64_t capabilities;
        char text[128];
    } file = {
        .magic = "glibc-ld.so.cache1.", .count = count, .flags = flags, .name = 72, .path = 85
    };
    memcpy(file.magic, "glibc-ld.so.cache1.1", sizeof file.magic);
    memcpy(file.text, "libcuda.so.1", 13);
    snprintf(file.text + 13, sizeof file.text - 13, "%s", path);
    put("/etc/ld.so.cache", (const char *)&file, 72 + 13 + strlen(path) + 1);
}

static void make_machine(void)
{
    static const char *const libraries[] = { "libcuda.so.535.1", "libcuda.so.1",
        "libnvidia-ml.so.1", "libnvidia-glcore.so.535.1", "libcudart.so.12", "libc.so.6",
        "libnvidia-ml.txt" };
    put_device("/dev/nvidiactl", 0666);
    put_device("/dev/nvidia-uvm", 0666);
    put_device("/dev/nvidia-uvm-tools", 0600);
    put_device("/dev/nvidia0", 0666);
    put_device("/dev/nvidia2", 0666);
    put_device("/dev/nvidia-modeset", 0666);
    for (int i = 1; i <= 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "/dev/nvidia-caps/nvidia-cap%d", i);
        put_device(path, i == 1 ? 0400 : 0444);
    }
    put_text(
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 3\nMode: 292");
    put_text("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 4\n");
    put_text("/proc/driver/nvidia/capabilities/gpu2/mig/gi1/access", "DeviceFileMinor: 5\n");
    put_text("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: A\nDevice Minor: \t 0\n");
    put_text("/proc/driver/nvidia/gpus/0000:02:00.0/information", "Model: A\nDevice Minor: \t 2\n");
    put_text("/proc/driver/nvidia/gpus/0000:03:00.0/information", "none");
    for (size_t i = 0; i < array_length(libraries); i++) {
        char path[128];
        snprintf(path, sizeof path, "/opt/driver/%s", libraries[i]);
        put_text(path, "");
    }
    put_cache(THIS_MACHINE, 1, "/opt/driver/libcuda.so.1");
}

/* Of the files in /dev, those for computing that all users may open; of the parts and the facts,
 * those of the GPUs that are asked for; of the libraries, those that CUDA loads. */
static void what_cuda_needs_is_found_and_nothing_else(void **state)
{
    const struct device_request all = { .nvidia = true }, second = { .nvidia = true, .gpus = 4 };
    struct nvidia n;
    needs_root();
    make_machine();
    assert_ok(nvidia_find(root, &all, &n, err));
    assert_int_equal(n.count, 2);
    assert_int_equal(n.devices.files.count, 7);
    assert_true(
        has(&n.devices.files, "/dev/nvidiactl") && has(&n.devices.files, "/dev/nvidia-uvm"));
    assert_true(has(&n.devices.files, "/dev/nvidia0") && has(&n.devices.files, "/dev/nvidia2"));
    for (int i = 3; i <= 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "/dev/nvidia-caps/nvidia-cap%d", i);
        assert_true(has(&n.devices.files, path));
    }
    assert_int_equal(n.devices.facts.count, 2);
    assert_true(n.cached);
    assert_string_equal(n.directory, "/opt/driver");
    assert_int_equal(n.devices.libraries.count, 3);
    assert_true(has(&n.devices.libraries, "/opt/driver/libcuda.so.1"));
    assert_true(has(&n.devices.libraries, "/opt/driver/libnvidia-ml.so.1"));
    nvidia_clear(&n);
    assert_ok(nvidia_find(root, &second, &n, err));
    assert_int_equal(n.devices.files.count, 4);
    assert_true(has(&n.devices.files, "/dev/nvidia2"));
    assert_true(has(&n.devices.files, "/dev/nvidia-caps/nvidia-cap5"));
    assert_int_equal(n.devices.facts.count, 1);
    assert_string_equal(n.devices.facts.items[0], "/sys/bus/pci/devices/0000:02:00.0");
    nvidia_clear(&n);
}

/* A cache of another kind of machine, of fewer bytes than it announces, or of none is passed over,
 * and a usual directory has the library. */
static void a_broken_cache_is_not_believed(void **state)
{
    const struct device_request all = { .nvidia = true };
    struct nvidia n;
    needs_root();
    make_machine();
    put_text("/usr/lib64/libcuda.so.1", "");
    for (int i = 0; i < 5; i++) {
        if (i == 0)
            put_cache(ANOTHER, 1, "/opt/driver/libcuda.so.1");
        else if (i == 1)
            put_cache(THIS_MACHINE, 0xFFFFFFFF, "relative/libcuda.so.1");
        else if (i == 2)
            put("/etc/ld.so.cache", "glibc-ld.so.cache1.1\xff\xff\xff\xff", 24);
        else if (i == 3)
            put_text("/etc/ld.so.cache", "");
        else
            put_cache(THIS_MACHINE, 0, "/opt/driver/libcuda.so.1");
        assert_ok(nvidia_find(root, &all, &n, err));
        assert_false(n.cached);
        assert_string_equal(n.directory, "/usr/lib64");
        nvidia_clear(&n);
    }
}

static void what_a_setting_names_is_parsed(void **state)
{
    static const char *const wrong[] = { "", "nvidia:", "nvidia:a", "nvidia:-1", "nvidia:+1",
        "nvidia:64", "nvidia:1,", "nvidia:1 ,2", "nvidia:99999999999999999999", "NVIDIA",
        "nvidia1" };
    struct device_request d = { 0 };
    cleanup_buf struct buf text = { 0 };
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_fails(ERROR_ARGUMENT, device_parse(wrong[i], &d, err));
    assert_false(d.nvidia);
    assert_ok(device_parse("nvidia:2,0", &d, err));
    assert_ok(device_parse("nvidia:63", &d, err));
    device_print_gpus(&d, &text);
    assert_string_equal(buf_text(&text), "0,2,63");
    assert_ok(device_parse("nvidia", &d, err));
    assert_true(d.nvidia && d.gpus == 0);
    assert_ok(device_parse("nvidia:1", &d, err));
    assert_int_equal(d.gpus, 0); /* all of them already */
}

static int make_root(void **state)
{
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    return tree_remove(AT_FDCWD, root) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cuda_needs_is_found_and_nothing_else),
        cmocka_unit_test(a_broken_cache_is_not_believed),
        cmocka_unit_test(what_a_setting_names_is_parsed),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
