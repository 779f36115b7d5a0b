/* Quotas of volumes that several sandboxes use, and the mounts by which they use them. */
#include "../volume/fixture.h"

#include "env/common/mounts.h"
#include "env/common/quota.h"

struct scene {
    struct loop *loop;
    struct quotas *quotas;
    struct volume *volume;
};

struct guest {
    struct quota_user user;
    enum limit limit; /* that was told */
    unsigned reports;
    bool over;
};

static struct scene scene;

static int scene_open(void **state)
{
    struct error err;
    scene = (struct scene){ 0 };
    if (make_directory(state) < 0 || loop_open(&scene.loop, &err) < 0 ||
        quotas_open(scene.loop, &scene.quotas, &err) < 0)
        return -1;
    scene.volume = new_volume();
    return 0;
}

static int scene_close(void **state)
{
    volume_release(scene.volume);
    quotas_close(scene.quotas);
    loop_close(scene.loop);
    return remove_directory(state);
}

#define quota_test(f) cmocka_unit_test_setup_teardown(f, scene_open, scene_close)

static void guest_over(void *arg, enum limit limit)
{
    struct guest *g = arg;
    g->limit = limit;
    g->reports++;
    g->over = true;
}

static void join(struct guest *g)
{
    *g = (struct guest){ .user = { .over = guest_over, .arg = g } };
    assert_ok(quotas_join(scene.quotas, scene.volume, &g->user, err));
    assert_non_null(g->user.quota);
}

static void fill_with(size_t bytes)
{
    cleanup_free char *text = malloc(bytes + 1);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    write_inside(scene.volume, "big", text);
}

/* All users of a volume share one measuring, learn of its end, and none of another volume's. */
static void all_users_of_a_full_volume_are_notified(void **state)
{
    struct guest one, two, elsewhere;
    struct volume *other = NULL;
    assert_ok(volume_create(root, "w", &limits, err));
    assert_ok(volume_open(root, "w", VOLUME_SHARED, &other, err));
    join(&one);
    join(&two);
    assert_ptr_equal(one.user.quota, two.user.quota);
    elsewhere = (struct guest){ .user = { .over = guest_over, .arg = &elsewhere } };
    assert_ok(quotas_join(scene.quotas, other, &elsewhere.user, err));
    assert_ptr_not_equal(elsewhere.user.quota, one.user.quota);
    fill_with(9 << 20);
    assert_ok(loop_run_until(scene.loop, &one.over, err));
    assert_ok(loop_run_until(scene.loop, &two.over, err));
    assert_int_equal(one.limit, LIMIT_VOLUME_SIZE);
    assert_int_equal(two.limit, LIMIT_VOLUME_SIZE);
    assert_int_equal(elsewhere.reports, 0);
    quotas_leave(&one.user);
    quotas_leave(&two.user);
    quotas_leave(&elsewhere.user);
    volume_release(other);
}

static void guest_leaves(void *arg, enum limit limit)
{
    guest_over(arg, limit);
    quotas_leave(&((struct guest *)arg)->user);
}

/* A user may leave when it is told, also the last one, with which the measuring ends. */
static void a_user_may_leave_when_it_is_notified(void **state)
{
    struct guest g = { .user = { .over = guest_leaves, .arg = &g } };
    assert_ok(quotas_join(scene.quotas, scene.volume, &g.user, err));
    fill_with(9 << 20);
    assert_ok(loop_run_until(scene.loop, &g.over, err));
    assert_null(g.user.quota);
    assert_int_equal(g.reports, 1);
}

/* Too many files are a limit of their own. */
static void files_are_counted(void **state)
{
    struct guest g;
    const struct volume_limits few = { 8 << 20, 3 };
    assert_ok(volume_set_limits(scene.volume, &few, err));
    join(&g);
    for (unsigned i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%u", i);
        write_inside(scene.volume, name, "");
    }
    assert_ok(loop_run_until(scene.loop, &g.over, err));
    assert_int_equal(g.limit, LIMIT_VOLUME_FILES);
    quotas_leave(&g.user);
}

/* A volume that is over its limit is not joined, with words that say what to do; one that holds as
 * much as it may is. */
static void a_full_volume_is_refused(void **state)
{
    struct error why = { 0 };
    struct guest g = { .user = { .over = guest_over, .arg = &g } };
    struct volume_usage used;
    fill_with(1 << 20);
    assert_ok(volume_measure(scene.volume, &used, err));
    struct volume_limits tight = { used.size - 1, 10 };
    assert_ok(volume_set_limits(scene.volume, &tight, err));
    assert_int_equal(quotas_join(scene.quotas, scene.volume, &g.user, &why), -ERROR_ENVIRONMENT);
    assert_non_null(strstr(why.text, "droste volume limit v"));
    assert_null(g.user.quota);
    quotas_leave(&g.user); /* of what was not joined: nothing */
    tight.size = used.size;
    assert_ok(volume_set_limits(scene.volume, &tight, err));
    join(&g);
    quotas_leave(&g.user);
    assert_int_equal(g.reports, 0);
}

/* ---- mounts ---- */

/* Neither a volume nor a workspace: nothing to mount, to name or to leave. */
static void no_mounts_are_no_work(void **state)
{
    struct mounts m = { 0 };
    struct jail_mount out = { 0 };
    mounts_hold(&m, ISOLATION_FULL, NULL);
    assert_false(mounts_any(&m));
    assert_ok(mounts_enter(&m, scene.quotas, geteuid(), NULL, NULL, &out, err));
    assert_null(mounts_volume(&m));
    assert_null(mounts_workspace(&m));
    assert_null(out.volume.path);
    assert_false(out.volume.mapped);
    mounts_leave(&m);
}

static void mounts_full(void *arg, enum limit limit)
{
    *(enum limit *)arg = limit;
}

/* With a root of its own the guest sees the volume under the layout's name; without one, where it
 * is. The plan names what was opened, and the quota reaches the sandbox. */
static void a_volume_is_named_as_the_guest_sees_it(void **state)
{
    const struct sandbox_spec spec = { .volume = scene.volume };
    const enum isolation levels[] = { ISOLATION_FULL, ISOLATION_PROCESS };
    for (size_t i = 0; i < array_length(levels); i++) {
        struct mounts m = { 0 };
        struct jail_mount out = { 0 };
        enum limit limit = LIMIT_NONE;
        bool own = isolation_has_own_root(levels[i]);
        mounts_hold(&m, levels[i], &spec);
        assert_true(mounts_any(&m));
        assert_ok(mounts_enter(&m, scene.quotas, geteuid(), mounts_full, &limit, &out, err));
        assert_string_equal(
            mounts_volume(&m), own ? default_layout.volume[0] : volume_path(scene.volume));
        assert_string_equal(out.volume.path, own ? "v/data" : volume_path(scene.volume));
        assert_int_equal(out.volume.inode, volume_inode(scene.volume));
        assert_false(out.volume.mapped);
        m.quota.over(m.quota.arg, LIMIT_VOLUME_SIZE);
        assert_int_equal(limit, LIMIT_VOLUME_SIZE);
        m.workspace_quota.over(m.workspace_quota.arg, LIMIT_VOLUME_FILES);
        assert_int_equal(limit, LIMIT_WORKSPACE_FILES);
        mounts_leave(&m);
        assert_false(mounts_any(&m));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        quota_test(all_users_of_a_full_volume_are_notified),
        quota_test(a_user_may_leave_when_it_is_notified),
        quota_test(files_are_counted),
        quota_test(a_full_volume_is_refused),
        quota_test(no_mounts_are_no_work),
        quota_test(a_volume_is_named_as_the_guest_sees_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
