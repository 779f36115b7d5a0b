/* Compiled plans of sandboxes with a volume or a workspace. Needs no privileges. */
#include "plans.h"

#include "jail/landlock.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

/* The volumes wait on /dev/shm, each sandbox gets its own from there, by what it must be and before
 * a private /tmp or /dev/shm goes over them, and may write to it; without one nothing is shown. */
static void a_volume_is_bound_before_what_covers_the_others(void **state)
{
    static const char *const expected[] = { "keeper volume /dev/shm on v/data (/data)\n",
        "keeper mount tmpfs on /tmp (", "keeper mount tmpfs on /dev/shm (",
        "worker allow /data as its own\n", "worker enter the Landlock domain" };
    struct jail_host host = { .volumes = "/srv/volumes", .has_volume = true };
    struct jail_mount with = { .volume = { "v/data", 7, 8 } };
    cleanup_free struct jail_plan *zygote = NULL, *plan = NULL, *none = NULL;
    cleanup_buf struct buf made = { 0 }, out = { 0 }, bare = { 0 };
    assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
    assert_ok(
        jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &with, &plan, err));
    assert_ok(
        jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &place, &none, err));
    jail_print(zygote, &made);
    jail_print(plan, &out);
    jail_print(none, &bare);
    assert_non_null(strstr(buf_text(&made), "bind /old/srv/volumes on /new/dev/shm\n"));
    int bind = find(zygote, JAIL_BIND, 0);
    while (strcmp(text(zygote, bind, 1), "/new/dev/shm") != 0)
        bind = find(zygote, JAIL_BIND, bind + 1);
    assert_int_equal(zygote->ops[bind].a, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    const char *at = buf_text(&out);
    for (size_t i = 0; i < array_length(expected); i++) {
        if (i == 3 && landlock_abi() == 0)
            break;
        at = strstr(at, expected[i]);
        if (!at)
            fail_msg("%s does not come where it should", expected[i]);
    }
    assert_null(strstr(buf_text(&bare), "volume"));
    assert_null(strstr(buf_text(&bare), "/data"));
    assert_non_null(strstr(buf_text(&bare), "mount tmpfs on /dev/shm ("));
}

/* As of a provider whose sandboxes have other names, for the same directories. */
static const struct layout layout_with_aliases = { .name = "cloud",
    .volume = { "/data", "/home/cloud/memory" },
    .workspace = { "/home/cloud/workspace", "/workspace" } };

/* A workspace is bound in the same way, at its own places, beside a volume and without one; a
 * zygote that shows only one of them has no places for the other. */
static void a_workspace_is_bound_as_a_volume_is(void **state)
{
    struct jail_host host = {
        .volumes = "/srv/volumes", .has_workspace = true, .layout = &layout_with_aliases
    };
    struct jail_mount with = { .workspace = { ".session-1/data", 7, 8 },
        .layout = &layout_with_aliases };
    cleanup_free struct jail_plan *zygote = NULL, *plan = NULL;
    cleanup_buf struct buf made = { 0 }, out = { 0 };
    assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
    assert_ok(
        jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &with, &plan, err));
    jail_print(zygote, &made);
    jail_print(plan, &out);
    assert_non_null(strstr(buf_text(&made), "directory /new/home/cloud/workspace\n"));
    assert_null(strstr(buf_text(&made), "/new/data"));
    const char *at =
        strstr(buf_text(&out), "volume /dev/shm on .session-1/data (/home/cloud/workspace)\n");
    assert_non_null(at);
    assert_non_null(strstr(at, "volume /dev/shm on .session-1/data (/workspace)\n"));
    assert_non_null(strstr(at, "keeper mount tmpfs on /dev/shm ("));
    if (landlock_abi() > 0)
        assert_non_null(strstr(at, "worker allow /home/cloud/workspace as its own\n"));
}

/* One that comes as a mount, of a sandbox that is a user of its own, is attached and not bound from
 * among the others, and its second name is the same mount again. Without a mount it is bound (the
 * tests above). */
static void a_mapped_volume_is_attached(void **state)
{
    struct jail_host host = { .volumes = "/v",
        .has_volume = true,
        .has_workspace = true,
        .lends_users = true,
        .layout = &layout_with_aliases };
    struct jail_mount with = { .volume = { "v/data", 7, 8, .mapped = true },
        .workspace = { ".s/data", 7, 9, .mapped = true },
        .layout = &layout_with_aliases,
        .user = 70001 };
    cleanup_free struct jail_plan *zygote = NULL, *plan = NULL;
    cleanup_buf struct buf out = { 0 };
    assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
    assert_ok(
        jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &with, &plan, err));
    int volume = find_stage(plan, JAIL_KEEPER, JAIL_ATTACH, 0);
    int workspace = find_stage(plan, JAIL_KEEPER, JAIL_ATTACH, volume + 1);
    assert_int_equal(plan->ops[volume].a, 0);
    assert_string_equal(text(plan, volume, 1), "/data");
    assert_string_equal(text(plan, volume + 1, 0), "/data");
    assert_int_equal(plan->ops[volume + 1].a, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    assert_int_equal(plan->ops[workspace].a, 1);
    jail_print(plan, &out);
    assert_non_null(strstr(buf_text(&out), "idmapped volume on /data\n"));
    assert_null(strstr(buf_text(&out), "volume /dev/shm"));
}

/* By itself a sandbox has Droste's names only; another product's have to be asked for. */
static void other_products_mount_names_are_opt_in(void **state)
{
    struct jail_host host = { .volumes = "/v", .has_volume = true, .has_workspace = true };
    struct jail_mount with = { .volume = { "v/data", 7, 8 }, .workspace = { ".s/data", 7, 9 } };
    const struct layout *const layouts[] = { NULL, &default_layout, &layout_with_aliases };
    for (size_t i = 0; i < array_length(layouts); i++) {
        bool aliases = layouts[i] == &layout_with_aliases;
        cleanup_free struct jail_plan *zygote = NULL, *plan = NULL;
        cleanup_buf struct buf out = { 0 };
        host.layout = with.layout = layouts[i];
        assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
        assert_ok(
            jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &with, &plan, err));
        jail_print(zygote, &out);
        jail_print(plan, &out);
        assert_non_null(strstr(buf_text(&out), "on v/data (/data)\n"));
        assert_non_null(strstr(buf_text(&out), "on .s/data (/workspace)\n"));
        assert_int_equal(strstr(buf_text(&out), "cloud") != NULL, aliases);
        assert_int_equal(
            strstr(buf_text(&out), "on v/data (/home/cloud/memory)\n") != NULL, aliases);
    }
}

/* What is to be shown of this machine at a workspace's place is refused; elsewhere it is shown. */
static void what_a_workspace_would_hide_is_refused(void **state)
{
    const char *inside[] = { "/workspace/data" }, *beside[] = { "/workspaces" };
    struct jail_host host = {
        .volumes = "/srv/volumes", .has_workspace = true, .read_paths = inside, .read_path_count = 1
    };
    cleanup_free struct jail_plan *zygote = NULL;
    assert_fails(ERROR_ARGUMENT, jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
    host.read_paths = beside;
    assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
}

/* A private root: what the zygote shows is bound read-only, proc is read-only and mounted before
 * the zygote's goes, and the last mounts are in the new root. */
static void a_private_root_shows_what_the_zygote_does(void **state)
{
    struct jail_host host = { .prefixes = prefixes,
        .prefix_count = array_length(prefixes),
        .read_paths = read_paths,
        .read_path_count = 1,
        .private_root = true };
    cleanup_free struct jail_plan *zygote = NULL, *plan = NULL, *beside = NULL;
    assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
    assert_ok(
        jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &place, &plan, err));
    int proc = -1, shown = 0, pivot = find_stage(plan, JAIL_KEEPER, JAIL_PIVOT, 0);
    for (int i = 0; (i = find_stage(plan, JAIL_KEEPER, JAIL_MOUNT, i)) >= 0; i++) {
        assert_int_equal(plan->ops[i].a & 6, 6); /* MS_NOSUID, MS_NODEV */
        assert_true(i < pivot);
        if (strcmp(text(plan, i, 0), "tmpfs") == 0)
            assert_non_null(strstr(text(plan, i, 2), "size=268435456"));
        else
            proc = i;
    }
    assert_string_equal(text(plan, proc, 1), "/dev/shm/proc");
    assert_int_equal(plan->ops[proc].a & 1, 1); /* MS_RDONLY */
    for (int i = 0; (i = find_stage(plan, JAIL_KEEPER, JAIL_BIND, i)) >= 0; i++) {
        assert_true(i < pivot);
        assert_true(plan->ops[i].a & MOUNT_ATTR_RDONLY);
        assert_int_equal(strncmp(text(plan, i, 1), "/dev/shm/", 9), 0);
        shown +=
            strcmp(text(plan, i, 0), "/data/set") == 0 || strcmp(text(plan, i, 0), "/usr") == 0;
    }
    assert_int_equal(shown, 2);
    assert_int_equal(
        limit_means(LIMIT_TMP_SIZE, &jail_default_limits, plan, false), LIMIT_BY_MOUNT);
    assert_int_equal(plan->ops[pivot + 1].kind, JAIL_DETACH);
    int confine = find_stage(plan, JAIL_WORKER, JAIL_CONFINE, 0);
    if (confine >= 0) {
        assert_string_equal(text(plan, confine - 1, 0), "/");
        assert_true(plan->ops[confine - 1].a & LANDLOCK_MAKE_DIR);
        assert_false(plan->ops[confine - 1].a & (LANDLOCK_MAKE_BLOCK | LANDLOCK_MAKE_CHAR));
    }
    assert_ok(
        jail_compile_companion(ISOLATION_FULL, zygote, &jail_default_limits, &place, &beside, err));
    assert_int_equal(find_stage(beside, JAIL_KEEPER, JAIL_PIVOT, 0), -1);
    assert_int_equal(
        jail_compile_zygote(ISOLATION_LANDLOCK, &host, &zygote, NULL), -(int)ERROR_UNSUPPORTED);
}

/* A loopback network: a namespace of the sandbox's own, which a process beside it joins, and an
 * interface that is raised before the capabilities go. */
static void a_loopback_network_is_the_sandboxs_own(void **state)
{
    struct jail_host host = {
        .prefixes = prefixes, .prefix_count = array_length(prefixes), .loopback = true
    };
    for (enum isolation level = ISOLATION_FULL; level <= ISOLATION_LIGHT; level++) {
        cleanup_free struct jail_plan *zygote = NULL, *plan = NULL, *beside = NULL;
        cleanup_free struct jail_plan *without = sandbox_plan(level);
        assert_ok(jail_compile_zygote(level, &host, &zygote, err));
        assert_ok(jail_compile_sandbox(level, zygote, &jail_default_limits, &place, &plan, err));
        assert_ok(
            jail_compile_companion(level, zygote, &jail_default_limits, &place, &beside, err));
        int raised = find_stage(plan, JAIL_KEEPER, JAIL_LOOPBACK, 0);
        assert_true(raised >= 0);
        assert_true(raised < find_stage(plan, JAIL_KEEPER, JAIL_DROP_BOUND, 0));
        assert_true(plan->clone_flags & CLONE_NEWNET);
        assert_true(beside->ops[find_stage(beside, JAIL_KEEPER, JAIL_JOIN, 0)].a & CLONE_NEWNET);
        assert_int_equal(find_stage(beside, JAIL_KEEPER, JAIL_LOOPBACK, 0), -1);
        assert_int_equal(find_stage(without, JAIL_KEEPER, JAIL_LOOPBACK, 0), -1);
        assert_false(without->clone_flags & CLONE_NEWNET);
    }
    struct jail_plan *none = NULL;
    assert_int_equal(
        jail_compile_zygote(ISOLATION_LANDLOCK, &host, &none, NULL), -(int)ERROR_UNSUPPORTED);
}

/* Devices come as they are, and cannot be executed; libraries read-only, each file once with its
 * other names as links, at their own paths or with an image in one directory. A sandbox may lock as
 * much memory as it may have. */
static void devices_come_with_what_their_driver_needs(void **state)
{
    char directory[] = "/tmp/droste-test-devices-XXXXXX", file[64], link[64], expected[256];
    char nvidia[] = "/dev/nvidia0", *files[] = { nvidia }, *libraries[] = { link, file };
    struct jail_devices devices = { .files = { files, 1 }, .libraries = { libraries, 2 } };
    assert_non_null(mkdtemp(directory));
    snprintf(file, sizeof file, "%s/libcuda.so.5", directory);
    snprintf(link, sizeof link, "%s/libcuda.so.1", directory);
    assert_int_equal(close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)), 0);
    assert_int_equal(symlink("libcuda.so.5", link), 0);
    for (int image = 0; image <= 1; image++) {
        struct jail_host host = { .devices = &devices, .image = image ? directory : NULL };
        cleanup_free struct jail_plan *zygote = NULL, *plan = NULL;
        cleanup_buf struct buf made = { 0 };
        assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
        assert_ok(
            jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &place, &plan, err));
        jail_print(zygote, &made);
        assert_non_null(strstr(buf_text(&made), "bind /old/dev/nvidia0 on /new/dev/nvidia0\n"));
        snprintf(expected, sizeof expected, "bind /old%s on /new%s/libcuda.so.5 read-only", file,
            image ? "/run/nvidia/lib" : directory);
        const char *bound = strstr(buf_text(&made), expected);
        assert_non_null(bound);
        assert_null(strstr(bound + 1, expected));
        snprintf(expected, sizeof expected, "symlink %s on /new%s/libcuda.so.1",
            image ? "libcuda.so.5" : file, image ? "/run/nvidia/lib" : directory);
        assert_non_null(strstr(buf_text(&made), expected));
        int limit = find_stage(plan, JAIL_WORKER, JAIL_LIMIT, 0);
        while (plan->ops[limit].a != RLIMIT_MEMLOCK)
            limit = find_stage(plan, JAIL_WORKER, JAIL_LIMIT, limit + 1);
        assert_int_equal(plan->ops[limit].b, jail_default_limits.memory);
    }
    assert_int_equal(unlink(link) | unlink(file) | rmdir(directory), 0);
    struct jail_host host = { .workdir = "/", .devices = &devices };
    struct jail_plan *none = NULL;
    assert_fails_saying(
        ERROR_UNSUPPORTED, "--device", jail_compile_zygote(ISOLATION_LANDLOCK, &host, &none, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_volume_is_bound_before_what_covers_the_others),
        cmocka_unit_test(a_workspace_is_bound_as_a_volume_is),
        cmocka_unit_test(a_mapped_volume_is_attached),
        cmocka_unit_test(other_products_mount_names_are_opt_in),
        cmocka_unit_test(what_a_workspace_would_hide_is_refused),
        cmocka_unit_test(a_private_root_shows_what_the_zygote_does),
        cmocka_unit_test(a_loopback_network_is_the_sandboxs_own),
        cmocka_unit_test(devices_come_with_what_their_driver_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
