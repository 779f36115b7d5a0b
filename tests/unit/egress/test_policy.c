/* Rules: what they are, and what they allow. */
#include "../test.h"

#include <ifaddrs.h>

#include "base/cleanup.h"
#include "egress/policy.h"

static struct egress_policy *policy_of(const char *a, const char *b)
{
    struct list rules = { 0 };
    struct egress_policy *policy = NULL;
    static const struct egress_limits limits = { 0 };
    assert_ok(list_add(&rules, a, err));
    if (b)
        assert_ok(list_add(&rules, b, err));
    assert_ok(egress_policy_parse(&rules, &limits, &policy, err));
    list_clear(&rules);
    return policy;
}

/* "tunnel", "GET" or another method: whether the rules allow it. */
static bool allows(
    const char *a, const char *b, const char *method, const char *authority, const char *path)
{
    struct egress_policy *policy = policy_of(a, b);
    struct egress_host host;
    unsigned port = 80;
    assert_null(egress_authority_parse(authority, strlen(authority), &host, &port));
    bool yes = path ? egress_policy_allows_request(policy, false, &host, port, method, path)
                    : egress_policy_allows_tunnel(policy, &host, port);
    egress_policy_release(policy);
    return yes;
}

/* Whether an approval is needed, with 'w' where that is for the whole destination. */
static char asks(const char *a, const char *b, const char *authority, const char *path)
{
    struct egress_policy *policy = policy_of(a, b);
    struct egress_host host;
    unsigned port = 80;
    bool whole;
    assert_null(egress_authority_parse(authority, strlen(authority), &host, &port));
    bool yes = egress_policy_needs_approval(
        policy, !path, false, &host, port, path ? "GET" : "CONNECT", path, &whole);
    egress_policy_release(policy);
    return yes ? whole ? 'w' : 'r' : '-';
}

static void a_rule_that_asks_gives_way_to_one_that_does_not(void **state)
{
    assert_true(allows("ask a.example:443", NULL, NULL, "a.example:443", NULL));
    assert_false(allows("ask a.example:443", NULL, NULL, "b.example:443", NULL));
    assert_int_equal(asks("ask a.example:443", NULL, "a.example:443", NULL), 'w');
    assert_int_equal(asks("ask a.example:443", "*.example:443", "a.example:443", NULL), '-');
    assert_int_equal(asks("*.example:443", "ask a.example:443", "a.example:443", NULL), '-');
    assert_int_equal(asks("ask all", "a.example:443", "b.example:443", NULL), 'w');
    assert_int_equal(asks("ask http://a.example/**", NULL, "a.example:80", "/x"), 'r');
    assert_int_equal(
        asks("ask http://a.example/**", "GET http://a.example/x", "a.example:80", "/x?y"), '-');
    assert_int_equal(asks("ask a.example:80", NULL, "a.example:80", "/x"), 'w');
}

static void a_name_and_a_port_are_exactly_these(void **state)
{
    assert_true(allows("a.example:443", NULL, NULL, "a.example:443", NULL));
    assert_true(allows("A.example.:443", NULL, NULL, "a.EXAMPLE:443", NULL));
    assert_true(allows("x:1", "a.example:*", NULL, "a.example:8080", NULL));
    assert_true(allows("a.example:80", NULL, "POST", "a.example:80", "/any?thing"));
    assert_false(allows("a.example:443", NULL, NULL, "a.example:80", NULL));
    assert_false(allows("a.example:443", NULL, NULL, "b.a.example:443", NULL));
    assert_false(allows("a.example:443", NULL, NULL, "a.example.evil:443", NULL));
    assert_false(allows("a.example:443", NULL, NULL, "xa.example:443", NULL));
}

static void a_star_is_the_names_below(void **state)
{
    assert_true(allows("*.example.com:443", NULL, NULL, "a.example.com:443", NULL));
    assert_true(allows("*.example.com:443", NULL, NULL, "a.b.example.com:443", NULL));
    assert_false(allows("*.example.com:443", NULL, NULL, "example.com:443", NULL));
    assert_false(allows("*.example.com:443", NULL, NULL, "badexample.com:443", NULL));
    assert_false(allows("*.example.com:443", NULL, NULL, "example.com.evil:443", NULL));
}

static void an_address_is_its_rule_alone(void **state)
{
    struct egress_policy *policy = policy_of("10.0.0.1:80", "[fd00::1]:*");
    struct egress_address address;
    assert_true(allows("10.0.0.1:80", NULL, NULL, "[::ffff:10.0.0.1]:80", NULL));
    assert_false(allows("10.0.0.1:80", NULL, NULL, "10.0.0.2:80", NULL));
    assert_false(allows("a:80", NULL, NULL, "10.0.0.1:80", NULL));
    egress_address_parse("10.0.0.1", &address);
    assert_true(egress_policy_lists(policy, &address, 80));
    assert_true(egress_policy_lists(policy, &address, 0));
    assert_false(egress_policy_lists(policy, &address, 81));
    egress_address_parse("fd00::1", &address);
    assert_true(egress_policy_lists(policy, &address, 5));
    egress_policy_release(policy);
    policy = policy_of("all", NULL);
    assert_false(egress_policy_lists(policy, &address, 5));
    egress_policy_release(policy);
    assert_true(allows("all", NULL, NULL, "anything:1", NULL));
}

static void methods_and_paths_are_of_http(void **state)
{
    static const char rule[] = "GET http://api.example/repos/*/tags/**";
    assert_true(allows(rule, NULL, "GET", "api.example", "/repos/x/tags/"));
    assert_true(allows(rule, NULL, "GET", "api.example", "/repos/x/tags/a/b?q=/../"));
    assert_false(allows(rule, NULL, "POST", "api.example", "/repos/x/tags/a"));
    assert_false(allows(rule, NULL, "get", "api.example", "/repos/x/tags/a"));
    assert_false(allows(rule, NULL, "GET", "api.example:8080", "/repos/x/tags/a"));
    assert_false(allows(rule, NULL, "GET", "api.example", "/repos/x/y/tags/a"));
    assert_false(allows(rule, NULL, "GET", "api.example", "/repos"));
    assert_false(allows(rule, NULL, NULL, "api.example", NULL));
    assert_true(allows("http://api.example:8080/a", NULL, "PUT", "api.example:8080", "/a"));
    assert_true(allows("http://api.example", NULL, "PUT", "api.example", "/any/where"));
}

/* What a server may read as another path matches no rule that has one. */
static void a_path_that_may_be_another_is_refused(void **state)
{
    static const char *const these[] = { "/repos/x/tags/../../../admin", "/repos/x/tags/./a",
        "/repos/x/tags/..", "/repos/x/tags/%2e%2e/a", "/repos/x/tags/%2E./a", "/repos/x/tags/a%2fb",
        "/repos/x/tags//a", "/repos/x/tags/a\\b", "/repos/x/tags/a%5cb", "/repos/x/tags/a%252fb",
        "/repos/x/tags/a;b", "/repos/x/tags/a%00" };
    for (size_t i = 0; i < array_length(these); i++)
        if (allows("http://api.example/repos/*/tags/**", NULL, "GET", "api.example", these[i]))
            fail_msg("%s is allowed", these[i]);
    assert_true(allows(
        "http://api.example/repos/*/tags/**", NULL, "GET", "api.example", "/repos/x/tags/...a/.b"));
}

/* A pattern that would try for ever gives up. */
static void matching_is_bounded(void **state)
{
    char path[4000];
    memset(path, 'a', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    assert_false(allows("http://h/**a**a**a**a**a**a**a**b", NULL, "GET", "h", path));
}

static void other_rules_are_refused(void **state)
{
    static const char *const these[] = { "", "example.com", "example.com:", "example.com:x",
        "https:/example.com/a", "get https://example.com/a", "ftp://a/b", "get http://a/",
        "GET  http://a/", "http://a/b?c", "http://a/b#c", "http://a/b c", "*:443", "*.:1",
        "*.1.2.3.4:1", "a.*.b:1", "localhost:80", "http://localhost/", "0x7f.1:80", "127.1:80",
        "u:p@a:1", "none", "[::1:80", "::1:80", "1.2.3.4/8:80", "b\xc3\xbc.de:1" };
    static const struct egress_limits limits = { 0 };
    for (size_t i = 0; i < array_length(these); i++) {
        struct egress_policy *policy = NULL;
        struct error why = { 0 };
        struct list rules = { 0 };
        assert_ok(list_add(&rules, "a:1", err));
        assert_int_equal(list_add(&rules, these[i], &why), 0);
        if (egress_policy_parse(&rules, &limits, &policy, &why) == 0)
            fail_msg("'%s' is a rule", these[i]);
        assert_int_equal(why.code, ERROR_ARGUMENT);
        assert_non_null(strstr(why.text, these[i]));
        assert_null(policy);
        list_clear(&rules);
    }
}

static void nothing_is_no_policy(void **state)
{
    struct list rules = { 0 };
    static const struct egress_limits limits = { 0 };
    struct egress_policy *policy = (struct egress_policy *)&rules;
    assert_ok(egress_policy_parse(&rules, &limits, &policy, err));
    assert_null(policy);
    assert_null(policy_of("none", NULL));
}

static bool covers(const char *rule, const char *asked)
{
    bool yes = false;
    assert_ok(egress_rule_covers(rule, asked, &yes, err));
    return yes;
}

static void a_rule_covers_what_it_allows_and_no_more(void **state)
{
    static const struct {
        const char *rule, *covered, *beyond;
    } rows[] = {
        { "a.example:443", "A.example.:443", "a.example:80" },
        { "a.example:443", "https://a.example/x/**", "http://a.example/x" },
        { "a.example:443", "ask a.example:443", "b.example:443" },
        { "a.example:443", "GET https://a.example/", "*.a.example:443" },
        { "a.example:*", "a.example:1", "b.a.example:1" },
        { "a.example:*", "a.example:*", "all" },
        { "a.example:443", "a.example:443", "a.example:*" },
        { "*.example:443", "a.example:443", "example:443" },
        { "*.example:443", "*.example:443", "*.example:*" },
        { "*.example:443", "*.a.example:443", "badexample:443" },
        { "*.a.example:443", "b.a.example:443", "*.example:443" },
        { "10.0.0.5:5432", "10.0.0.5:5432", "10.0.0.6:5432" },
        { "10.0.0.5:*", "[::ffff:10.0.0.5]:80", "10.0.0.50:80" },
        { "ask a.example:443", "ask a.example:443", "a.example:443" },
        { "ask all", "ask a.example:1", "a.example:1" },
        { "GET https://a.example/**", "GET https://a.example/x/*", "https://a.example/x" },
        { "https://a.example/x/**", "GET https://a.example/x/**", "https://a.example/x/y" },
        { "https://a.example/**", "https://a.example/", "a.example:443" },
        { "http://a.example/x", "http://a.example:80/x", "https://a.example:80/x" },
        { "all", "all", "169.254.169.254:80" },
        { "all", "*.example:*", "127.0.0.1:8000" },
        { "all", "1.1.1.1:53", "http://10.0.0.5/" },
        { "all", "https://a.example/**", "[::1]:80" },
        { "all", "ask all", "[64:ff9b::a9fe:a9fe]:80" },
        { "all", "a.example:1", "[::ffff:192.168.0.1]:80" },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        if (!covers(rows[i].rule, rows[i].covered))
            fail_msg("'%s' does not cover '%s'", rows[i].rule, rows[i].covered);
        if (covers(rows[i].rule, rows[i].beyond))
            fail_msg("'%s' covers '%s'", rows[i].rule, rows[i].beyond);
    }
}

/* The host's own services listen there, whatever kind of address it is. */
static void all_covers_no_address_of_this_machine(void **state)
{
    struct ifaddrs *every = NULL;
    assert_int_equal(getifaddrs(&every), 0);
    for (const struct ifaddrs *at = every; at; at = at->ifa_next) {
        struct egress_address address;
        char text[EGRESS_ADDRESS_SIZE], rule[EGRESS_ADDRESS_SIZE + 8];
        if (!at->ifa_addr || !egress_address_from(at->ifa_addr, &address))
            continue;
        egress_address_print(&address, text);
        snprintf(rule, sizeof rule, strchr(text, ':') ? "[%s]:80" : "%s:80", text);
        assert_false(covers("all", rule));
        assert_true(covers(rule, rule));
    }
    freeifaddrs(every);
}

static void what_is_no_rule_covers_nothing(void **state)
{
    bool yes = true;
    assert_fails(ERROR_ARGUMENT, egress_rule_covers("none", "a:1", &yes, err));
    assert_false(yes);
    assert_fails(ERROR_ARGUMENT, egress_rule_covers("all", "none", &yes, err));
    assert_fails(ERROR_ARGUMENT, egress_rule_covers("all", "GET http://a/b?c", &yes, err));
    assert_false(yes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_and_a_port_are_exactly_these),
        cmocka_unit_test(a_rule_that_asks_gives_way_to_one_that_does_not),
        cmocka_unit_test(a_star_is_the_names_below),
        cmocka_unit_test(an_address_is_its_rule_alone),
        cmocka_unit_test(methods_and_paths_are_of_http),
        cmocka_unit_test(a_path_that_may_be_another_is_refused),
        cmocka_unit_test(matching_is_bounded),
        cmocka_unit_test(other_rules_are_refused),
        cmocka_unit_test(nothing_is_no_policy),
        cmocka_unit_test(a_rule_covers_what_it_allows_and_no_more),
        cmocka_unit_test(all_covers_no_address_of_this_machine),
        cmocka_unit_test(what_is_no_rule_covers_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
