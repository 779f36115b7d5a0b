/* Addresses that a sandbox may not reach unasked, and the forms in which hosts are written. */
#include "../test.h"

#include "base/cleanup.h"
#include "egress/address.h"

static const char *refusal(const char *text)
{
    struct egress_address address;
    assert_true(egress_address_parse(text, &address));
    return egress_address_refusal(&address);
}

static void public_addresses_are_not_refused(void **state)
{
    static const char *const these[] = { "8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.255.255",
        "172.32.0.1", "100.63.255.255", "100.128.0.1", "169.253.1.1", "192.167.1.1", "198.20.0.1",
        "223.255.255.255", "::ffff:8.8.8.8", "2606:4700::1111", "2a00:1450::1",
        "64:ff9b::808:808" };
    for (size_t i = 0; i < array_length(these); i++)
        if (refusal(these[i]))
            fail_msg("%s is %s", these[i], refusal(these[i]));
}

static void special_addresses_are_refused(void **state)
{
    static const char *const these[] = { "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255",
        "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.255",
        "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192",
        "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
        "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1",
        "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1",
        "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a00:1",
        "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1",
        "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "5f00::1",
        "4000::1" };
    for (size_t i = 0; i < array_length(these); i++)
        if (!refusal(these[i]))
            fail_msg("%s is not refused", these[i]);
}

/* Each address has one form, whatever it came as. */
static void a_mapped_address_is_the_inner_one(void **state)
{
    struct egress_address a, b;
    char text[EGRESS_ADDRESS_SIZE];
    assert_true(egress_address_parse("::ffff:10.1.2.3", &a));
    assert_true(egress_address_parse("10.1.2.3", &b));
    assert_true(egress_address_same(&a, &b));
    egress_address_print(&a, text);
    assert_string_equal(text, "10.1.2.3");
}

static void the_loopback_is_this_machines_own(void **state)
{
    struct egress_address address;
    egress_address_parse("127.0.0.1", &address);
    assert_true(egress_address_is_own(&address));
    egress_address_parse("8.8.8.8", &address);
    assert_false(egress_address_is_own(&address));
}

static void hosts_have_one_form(void **state)
{
    static const struct {
        const char *text, *name;
        bool is_address;
    } these[] = { { "Example.COM", "example.com", false }, { "example.com.", "example.com", false },
        { "a-b.c_d.e", "a-b.c_d.e", false },
        { "xn--bcher-kva.example", "xn--bcher-kva.example", false }, { "1.2.3.4", "1.2.3.4", true },
        { "1.2.3.4.", "1.2.3.4", true }, { "::1", "::1", true }, { "0:0:0:0:0:0:0:1", "::1", true },
        { "::ffff:1.2.3.4", "1.2.3.4", true } };
    for (size_t i = 0; i < array_length(these); i++) {
        struct egress_host host;
        const char *wrong = egress_host_parse(these[i].text, strlen(these[i].text), &host);
        if (wrong)
            fail_msg("%s: %s", these[i].text, wrong);
        assert_string_equal(host.name, these[i].name);
        assert_int_equal(host.is_address, these[i].is_address);
    }
}

static void odd_hosts_are_refused(void **state)
{
    static const char *const these[] = { "", ".", "..", ".a", "a..b", "a b", "a/b", "a@b", "a%b",
        "127.1", "127.0.1", "2130706433", "0x7f.1", "0x7f000001", "0X7F000001", "0177.0.0.1",
        "017700000001", "1.2.3.4.5", "1.2.3.256", "a.0x10", "a.1", "fe80::1%eth0", "b\xc3\xbc.de",
        "\xe2\x91\xa0.2.3.4", "a\r\nb", "[::1]", "1.2.3.4..", "a\x7f" };
    for (size_t i = 0; i < array_length(these); i++) {
        struct egress_host host;
        if (!egress_host_parse(these[i], strlen(these[i]), &host))
            fail_msg("'%s' is taken for %s", these[i], host.name);
    }
    struct egress_host host;
    assert_non_null(egress_host_parse("a\0b", 3, &host));
}

static void authorities_have_a_port(void **state)
{
    struct egress_host host;
    unsigned port = 0;
    assert_null(egress_authority_parse("example.com:443", 15, &host, &port));
    assert_int_equal(port, 443);
    port = 0;
    assert_null(egress_authority_parse("[::1]:80", 8, &host, &port));
    assert_string_equal(host.name, "::1");
    port = 80;
    assert_null(egress_authority_parse("example.com", 11, &host, &port));
    assert_int_equal(port, 80);
    static const char *const wrong[] = { "example.com", "example.com:", "a:0", "a:65536",
        "a:999999", "a:-1", "a:+1", "a: 1", "a:80x", "::1:80", "[::1", "[::1]x", "[1.2.3.4]:80",
        "[a]:1", "u@a:1", ":80" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        port = 0;
        if (!egress_authority_parse(wrong[i], strlen(wrong[i]), &host, &port))
            fail_msg("'%s' is taken for %s:%u", wrong[i], host.name, port);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_addresses_are_not_refused),
        cmocka_unit_test(special_addresses_are_refused),
        cmocka_unit_test(a_mapped_address_is_the_inner_one),
        cmocka_unit_test(the_loopback_is_this_machines_own),
        cmocka_unit_test(hosts_have_one_form),
        cmocka_unit_test(odd_hosts_are_refused),
        cmocka_unit_test(authorities_have_a_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
