/* TLS of the proxy: a session's authority, and both sides of a handshake, in memory. */
#include "../test.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "egress/tls.h"

static struct egress_host host_of(const char *text)
{
    struct egress_host host;
    assert_null(egress_host_parse(text, strlen(text), &host));
    return host;
}

/* Trusts the authority, as the guest does, by a file. */
static struct egress_trust *trust_of(const struct egress_authority *authority)
{
    char path[] = "/tmp/droste-test-XXXXXX";
    struct egress_trust *trust;
    cleanup_buf struct buf text = { 0 };
    cleanup_fd int fd = mkstemp(path);
    egress_authority_print(authority, &text);
    assert_int_equal(file_write_all(fd, text.data, text.len), 0);
    assert_ok(egress_trust_new(path, &trust, err));
    unlink(path);
    return trust;
}

static bool pump(struct egress_tls *from, struct egress_tls *to)
{
    char *data;
    size_t len = egress_tls_peek(from, &data);
    bool fed = len == 0 || egress_tls_feed(to, data, len);
    egress_tls_sent(from);
    return fed;
}

static bool shake(struct egress_tls *client, struct egress_tls *server)
{
    for (int i = 0; i < 10; i++) {
        if (!egress_tls_shake(client) || !pump(client, server) || !egress_tls_shake(server) ||
            !pump(server, client))
            return false;
    }
    return egress_tls_is_up(client) && egress_tls_is_up(server);
}

/* Whether a client that wants one host accepts a server that is another, if it trusts `by`. */
static bool meet(struct egress_authority *authority, struct egress_authority *by, const char *wants,
    const char *is)
{
    struct egress_host client_host = host_of(wants), server_host = host_of(is);
    struct egress_trust *trust = trust_of(by);
    struct egress_tls *client = egress_tls_connect(trust, &client_host);
    struct egress_tls *server = egress_tls_accept(authority, &server_host);
    char data[8] = "";
    bool met = shake(client, server);
    if (met) {
        assert_true(egress_tls_write(client, "hello", 5) && pump(client, server));
        assert_int_equal(egress_tls_read(server, data, sizeof data), 5);
        assert_memory_equal(data, "hello", 5);
        assert_int_equal(egress_tls_read(server, data, sizeof data), 0);
        assert_false(egress_tls_has_ended(server));
        egress_tls_end(client);
        assert_true(pump(client, server));
        assert_int_equal(egress_tls_read(server, data, sizeof data), 0);
        assert_true(egress_tls_has_ended(server));
    }
    egress_tls_free(client);
    egress_tls_free(server);
    egress_trust_free(trust);
    return met;
}

static void a_guest_trusts_the_authority_of_its_session_alone(void **state)
{
    struct egress_authority *one, *other;
    assert_ok(egress_authority_new(&one, err));
    assert_ok(egress_authority_new(&other, err));
    assert_true(meet(one, one, "a.example", "a.example"));
    assert_true(meet(one, one, "a.example", "a.example")); /* the certificate is kept */
    assert_true(meet(one, one, "10.0.0.1", "10.0.0.1"));
    assert_true(meet(one, one, "fd00::1", "fd00::1"));
    assert_false(meet(one, other, "a.example", "a.example"));
    egress_authority_free(one);
    egress_authority_free(other);
}

static void names_and_addresses_are_checked(void **state)
{
    static const char *const pairs[][2] = { { "a.example", "b.example" },
        { "a.example", "x.a.example" }, { "10.0.0.1", "10.0.0.2" }, { "10.0.0.1", "a.example" } };
    struct egress_authority *authority;
    assert_ok(egress_authority_new(&authority, err));
    for (size_t i = 0; i < array_length(pairs); i++)
        assert_false(meet(authority, authority, pairs[i][0], pairs[i][1]));
    egress_authority_free(authority);
}

static void many_hosts_have_certificates(void **state)
{
    char name[32];
    struct egress_authority *authority;
    assert_ok(egress_authority_new(&authority, err));
    for (unsigned i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "h%u.example", i);
        struct egress_host host = host_of(name);
        struct egress_tls *server = egress_tls_accept(authority, &host);
        assert_non_null(server);
        egress_tls_free(server);
    }
    assert_true(meet(authority, authority, "h3.example", "h3.example"));
    egress_authority_free(authority);
}

static void what_is_no_tls_fails(void **state)
{
    struct egress_host host = host_of("a.example");
    struct egress_authority *authority;
    char why[160];
    assert_ok(egress_authority_new(&authority, err));
    struct egress_tls *server = egress_tls_accept(authority, &host);
    assert_true(egress_tls_feed(server, "GET / HTTP/1.1\r\n\r\n", 18));
    assert_false(egress_tls_shake(server));
    egress_tls_why(server, why, sizeof why);
    assert_true(why[0]);
    egress_tls_free(server);
    egress_authority_free(authority);
}

static void a_file_without_certificates_is_refused(void **state)
{
    struct egress_trust *trust;
    struct error why;
    assert_true(egress_trust_new("/dev/null", &trust, &why) < 0);
    assert_non_null(strstr(why.text, "/dev/null"));
    assert_true(egress_trust_new("/nonexistent", &trust, &why) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guest_trusts_the_authority_of_its_session_alone),
        cmocka_unit_test(names_and_addresses_are_checked),
        cmocka_unit_test(many_hosts_have_certificates),
        cmocka_unit_test(what_is_no_tls_fails),
        cmocka_unit_test(a_file_without_certificates_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
