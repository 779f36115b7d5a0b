/* Base URLs: what is accepted, and the parts that requests and messages use. */
#include "../test.h"

#include "base/cleanup.h"
#include "net/url.h"

static void parses(const char *text, const char *base, const char *query, const char *peer,
    unsigned port, bool secure)
{
    cleanup_url struct url url;
    assert_ok(url_parse(text, "KEY", &url, err));
    assert_string_equal(url.base, base);
    assert_string_equal(url.query, query);
    assert_string_equal(url.peer, peer);
    assert_int_equal(url.port, port);
    assert_int_equal(url.secure, secure);
}

static void the_base_has_no_slash_at_its_end(void **state)
{
    parses("https://host/v1", "https://host/v1", "", "host", 443, true);
    parses("https://host/v1//", "https://host/v1", "", "host", 443, true);
    parses("http://host", "http://host", "", "host", 80, false);
}

/* Messages name the port only if the user did. */
static void a_port_is_the_urls_or_the_schemes(void **state)
{
    parses("http://host:8000/v1", "http://host:8000/v1", "", "host:8000", 8000, false);
    parses("http://127.0.0.1:1/", "http://127.0.0.1:1", "", "127.0.0.1:1", 1, false);
    parses("http://[::1]:9/v1", "http://[::1]:9/v1", "", "[::1]:9", 9, false);
}

/* A query goes behind the path of each request; a fragment goes nowhere. */
static void query_and_fragment_are_taken_off(void **state)
{
    parses("https://host/v1?a=b&c=%20#part", "https://host/v1", "a=b&c=%20", "host", 443, true);
    parses("https://host/#part", "https://host", "", "host", 443, true);
}

static void other_addresses_are_refused(void **state)
{
    static const char *const wrong[] = { "", "host", "host:80/v1", "ftp://host/", "file:///etc",
        "http://", "http://host:port/", "http://host:99999/", "//host/v1", "http://a b/" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct url url;
        assert_fails_saying(
            ERROR_CONFIG, "is not a URL like http", url_parse(wrong[i], "KEY", &url, err));
        assert_null(url.base);
    }
}

/* A password in a URL would stand in the record and in messages. */
static void a_user_or_a_password_is_refused(void **state)
{
    static const char *const wrong[] = { "https://user@host/", "https://user:secret@host/",
        "https://:secret@host/" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct error why = { 0 };
        struct url url;
        assert_int_equal(url_parse(wrong[i], "OPENAI_API_KEY", &url, &why), -ERROR_CONFIG);
        assert_non_null(strstr(why.text, "give the key as OPENAI_API_KEY"));
        assert_null(strstr(why.text, "secret"));
    }
}

static void escaped_text_is_one_part_of_a_path(void **state)
{
    cleanup_buf struct buf out = { 0 };
    url_escape(&out, "a/b?c=d&e#f g%\xC3\xA9-._~Z9");
    assert_string_equal(buf_text(&out), "a%2Fb%3Fc%3Dd%26e%23f%20g%25%C3%A9-._~Z9");
    url_escape(&out, "");
    assert_int_equal(buf_failed(&out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_base_has_no_slash_at_its_end),
        cmocka_unit_test(a_port_is_the_urls_or_the_schemes),
        cmocka_unit_test(query_and_fragment_are_taken_off),
        cmocka_unit_test(other_addresses_are_refused),
        cmocka_unit_test(a_user_or_a_password_is_refused),
        cmocka_unit_test(escaped_text_is_one_part_of_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
