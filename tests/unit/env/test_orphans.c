/* Removing sandboxes of dead hosts, with an environment whose answers the test gives. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/common/orphans.h"
#include "env/common/owner_labels.h"

struct scene {
    struct orphans orphans;
    struct buf asked; /* "list CURSOR; remove ID; " */
    unsigned reports, removed;
    struct error why;
    const char *refused; /* the id that cannot even be asked for */
};

static int ask_list(void *arg, const char *cursor, struct error *err)
{
    struct scene *s = arg;
    buf_printf(&s->asked, "list %s; ", cursor ? cursor : "");
    return 0;
}

static int ask_remove(void *arg, const char *id, struct error *err)
{
    struct scene *s = arg;
    if (s->refused && strcmp(id, s->refused) == 0)
        return error_set(err, ERROR_MEMORY, "refused");
    buf_printf(&s->asked, "remove %s; ", id);
    return 0;
}

static const struct orphans_ops ops = { ask_list, ask_remove };

static void on_collected(void *arg, unsigned removed, const struct error *why)
{
    struct scene *s = arg;
    s->reports++;
    s->removed = removed;
    s->why = *why;
}

static void begin(struct scene *s)
{
    assert_ok(orphans_collect(&s->orphans, &ops, s, on_collected, s, err));
}

/* Of this machine: `alive` is this process, else one that cannot be. */
static void note(struct scene *s, const char *id, bool alive)
{
    cleanup_buf struct buf owner = { 0 }, machine = { 0 };
    owner_labels(&owner, &machine);
    const char *rest = strchr(buf_text(&owner), ' ');
    cleanup_free char *dead = NULL;
    assert_non_null(rest);
    assert_true(asprintf(&dead, "4194303%s", rest) > 0);
    orphans_note(&s->orphans, id, alive ? buf_text(&owner) : dead, buf_text(&machine));
}

static void say(
    struct scene *s, void (*what)(struct orphans *, const struct error *), enum error_code code)
{
    struct error why = { .code = code };
    what(&s->orphans, &why);
}

static void expect(struct scene *s, const char *asked, unsigned removed, enum error_code code)
{
    assert_string_equal(buf_text(&s->asked), asked);
    assert_int_equal(s->reports, 1);
    assert_int_equal(s->removed, removed);
    assert_int_equal(s->why.code, code);
    assert_null(s->orphans.ops);
    buf_free(&s->asked);
}

/* Page after page, and then one after the other; those of living processes and of other machines
 * stay. */
static void only_those_of_dead_hosts_are_removed(void **state)
{
    static const struct error none = { 0 };
    struct scene s = { 0 };
    begin(&s);
    note(&s, "a", false);
    note(&s, "b", true);
    orphans_listed(&s.orphans, &none, "next");
    note(&s, "c", false);
    orphans_note(&s.orphans, "d", "4194303 1 1 x", "another machine");
    note(&s, "", false);
    orphans_listed(&s.orphans, &none, "");
    say(&s, orphans_removed, ERROR_NONE);
    assert_int_equal(s.reports, 0);
    say(&s, orphans_removed, ERROR_NONE);
    expect(&s, "list ; list next; remove a; remove c; ", 2, ERROR_NONE);
}

/* The first failure is told, after all others were tried; one that is gone is none. */
static void a_failure_keeps_none_of_the_others(void **state)
{
    static const struct error none = { 0 };
    struct scene s = { 0 };
    begin(&s);
    note(&s, "a", false);
    note(&s, "b", false);
    note(&s, "c", false);
    orphans_listed(&s.orphans, &none, NULL);
    say(&s, orphans_removed, ERROR_NOT_FOUND);
    say(&s, orphans_removed, ERROR_PERMISSION);
    say(&s, orphans_removed, ERROR_NONE);
    expect(&s, "list ; remove a; remove b; remove c; ", 1, ERROR_PERMISSION);
}

/* A lost service is not asked again and again; neither is one whose list failed. */
static void a_lost_service_ends_it(void **state)
{
    static const struct error none = { 0 }, lost = { .code = ERROR_LOST };
    struct scene s = { 0 }, other = { 0 }, refused = { .refused = "a" };
    begin(&s);
    note(&s, "a", false);
    note(&s, "b", false);
    orphans_listed(&s.orphans, &none, NULL);
    say(&s, orphans_removed, ERROR_LOST);
    expect(&s, "list ; remove a; ", 0, ERROR_LOST);
    begin(&other);
    note(&other, "a", false);
    orphans_listed(&other.orphans, &lost, "next");
    expect(&other, "list ; ", 0, ERROR_LOST);
    begin(&refused);
    note(&refused, "a", false);
    orphans_listed(&refused.orphans, &none, NULL);
    expect(&refused, "list ; ", 0, ERROR_MEMORY);
}

/* A collection that nobody asked for is told to the one who asks meanwhile; two askers are one too
 * many. A cancelled one is not told. */
static void one_caller_at_a_time_is_notified(void **state)
{
    static const struct error none = { 0 };
    struct scene s = { 0 };
    struct error why = { 0 };
    assert_ok(orphans_collect(&s.orphans, &ops, &s, NULL, NULL, err));
    begin(&s);
    assert_int_equal(
        orphans_collect(&s.orphans, &ops, &s, on_collected, &s, &why), -(int)ERROR_ARGUMENT);
    orphans_listed(&s.orphans, &none, NULL);
    expect(&s, "list ; ", 0, ERROR_NONE);
    begin(&s);
    orphans_cancel(&s.orphans);
    orphans_end(&s.orphans, &none);
    assert_int_equal(s.reports, 1);
    buf_free(&s.asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_those_of_dead_hosts_are_removed),
        cmocka_unit_test(a_failure_keeps_none_of_the_others),
        cmocka_unit_test(a_lost_service_ends_it),
        cmocka_unit_test(one_caller_at_a_time_is_notified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
