/* Secrets: what is bound where, and what is found in answers. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"
#include "egress/grant.h"
#include "egress/request.h"

#define VALUE "sk-test/0123+abcdef&\"x\"=="

static struct egress_secret secret_of(const char *text)
{
    struct egress_secret s;
    assert_ok(egress_secret_parse(text, &s, err));
    assert_ok(egress_secret_set(&s, VALUE, strlen(VALUE), err));
    return s;
}

static void a_secret_names_its_source_its_destination_and_its_place(void **state)
{
    struct egress_secret s =
        secret_of("KEY=!sh -c 'echo for you' for a.example header X-Key: k {}!");
    assert_string_equal(s.name, "KEY");
    assert_string_equal(s.source, "!sh -c 'echo for you'");
    assert_string_equal(s.host.name, "a.example");
    assert_int_equal(s.port, 443);
    assert_string_equal(s.key, "X-Key");
    assert_string_equal(s.before, "k ");
    assert_string_equal(s.behind, "!");
    egress_secret_clear(&s);
    s = secret_of("KEY for http://10.0.0.1:8000 query k");
    assert_false(s.is_tls);
    assert_int_equal(s.place, PLACE_QUERY);
    assert_int_equal(s.port, 8000);
    egress_secret_clear(&s);
}

static void a_wrong_secret_is_refused_and_its_value_is_not_shown(void **state)
{
    static const char *const wrong[] = { "KEY", "KEY=value-itself for a.example",
        "K-Y for a.example", "KEY for", "KEY for *.example",
        "KEY for a.example header Authorization: Bearer", "KEY for a.example header Host: {}",
        "KEY for a.example header X: {}{}", "KEY for a.example query",
        "KEY for a.example basic a:b", "KEY for a.example cookie x", "KEY=@ for a.example",
        "KEY=value-itself" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct egress_secret s;
        struct error why = { 0 };
        if (egress_secret_parse(wrong[i], &s, &why) == 0)
            fail_msg("'%s' is a secret", wrong[i]);
        assert_null(strstr(why.text, "value-itself"));
    }
}

static void a_value_is_neither_short_nor_binary(void **state)
{
    struct egress_secret s;
    struct error why;
    assert_ok(egress_secret_parse("KEY for a.example", &s, err));
    assert_true(egress_secret_set(&s, "short\n\n\n", 8, &why) < 0);
    assert_true(egress_secret_set(&s, "long enough\r\nX: y", 17, &why) < 0);
    assert_null(strstr(why.text, "long enough"));
    assert_ok(egress_secret_set(&s, "long enough\r\n", 13, err));
    assert_int_equal(s.len, 11);
    egress_secret_clear(&s);
}

/* The value of the field, or NULL. */
static char *put(struct egress_secret *s, const char *name, const char *value)
{
    struct buf out = { 0 };
    struct egress_field field = { { name, strlen(name) }, { value, strlen(value) } };
    bool done = egress_secret_put_field(s, "placeholder-1", &field, &out);
    assert_true(done || out.len == 0);
    return done ? buf_steal(&out) : NULL;
}

static void it_goes_into_its_place_alone(void **state)
{
    static const char *const others[][2] = { { "X-Api-Key", "Bearer placeholder-1" },
        { "Authorization", "placeholder-1" }, { "Authorization", "Bearer placeholder-1 " },
        { "Authorization", "Basic placeholder-1" }, { "Authorization", "Bearer placeholder-2" },
        { "Authorization", "Bearer  placeholder-1" }, { "Authorization", "" } };
    struct egress_secret s = secret_of("KEY for a.example");
    cleanup_free char *got = put(&s, "authorization", "bearer placeholder-1");
    assert_string_equal(got, "bearer " VALUE);
    for (size_t i = 0; i < array_length(others); i++)
        assert_null(put(&s, others[i][0], others[i][1]));
    egress_secret_clear(&s);
}

static void it_is_the_password_of_basic_authentication(void **state)
{
    struct egress_secret s = secret_of("KEY for a.example basic git");
    cleanup_buf struct buf text = { 0 };
    json_append_base64(&text, "git:" VALUE, strlen("git:" VALUE));
    /* git:placeholder-1, other:placeholder-1, git:placeholder */
    cleanup_free char *got = put(&s, "Authorization", "Basic Z2l0OnBsYWNlaG9sZGVyLTE=");
    assert_string_equal(got + strlen("Basic "), buf_text(&text));
    assert_null(put(&s, "Authorization", "Basic b3RoZXI6cGxhY2Vob2xkZXItMQ=="));
    assert_null(put(&s, "Authorization", "Basic Z2l0OnBsYWNlaG9sZGVy"));
    assert_null(put(&s, "Authorization", "Basic ***"));
    egress_secret_clear(&s);
}

static void it_is_a_parameter_of_the_query(void **state)
{
    struct egress_secret s = secret_of("KEY for a.example query key");
    static const struct {
        const char *path, *expected;
    } these[] = { { "/a?x=1&key=placeholder-1&y",
                      "/a?x=1&key=sk-test%2F0123%2Babcdef%26%22x%22%3D%3D&y" },
        { "/a?key=placeholder-1", "/a?key=sk-test%2F0123%2Babcdef%26%22x%22%3D%3D" },
        { "/a?xkey=placeholder-1", NULL }, { "/key=placeholder-1", NULL },
        { "/a?key=placeholder-12", NULL }, { "/a?key=", NULL } };
    for (size_t i = 0; i < array_length(these); i++) {
        cleanup_buf struct buf out = { 0 };
        bool done = egress_secret_put_query(
            &s, "placeholder-1", these[i].path, strlen(these[i].path), &out);
        assert_int_equal(done, these[i].expected != NULL);
        if (done)
            assert_string_equal(buf_text(&out), these[i].expected);
    }
    egress_secret_clear(&s);
}

/* ---- removing it ---- */

/* Sends the text in pieces of this length. */
static void redact(const struct egress_forms *forms, const char *text, size_t step, struct buf *out)
{
    struct egress_redactor r = { 0 };
    size_t len = strlen(text);
    for (size_t at = 0; at < len; at += step)
        egress_redact(forms, &r, text + at, len - at < step ? len - at : step, out);
    egress_redact_end(&r, out);
    assert_false(buf_failed(out));
    assert_int_equal(out->len, len);
}

static void every_form_is_found_wherever_it_is_cut(void **state)
{
    static const char *const shown[] = { VALUE, "sk-test%2F0123%2Babcdef%26%22x%22%3D%3D",
        "sk-test%2f0123%2babcdef%26%22x%22%3d%3d", "sk-test/0123%2Babcdef%26%22x%22%3D%3D",
        "sk-test\\/0123+abcdef&\\\"x\\\"==", "sk-test/0123+abcdef&\\\"x\\\"==",
        "sk-test/0123+abcdef\\u0026\\\"x\\\"==", "sk-test/0123+abcdef&amp;&quot;x&quot;==",
        "sk-test/0123+abcdef&amp;&#34;x&#34;==",
        "736b2d746573742f303132332b616263646566262278223d3d",
        "736B2D746573742F303132332B616263646566262278223D3D" };
    struct egress_secret s = secret_of("KEY for a.example");
    struct egress_forms *forms = NULL;
    assert_ok(egress_forms_add(&forms, &s, err));
    for (size_t i = 0; i < array_length(shown); i++) {
        cleanup_free char *text = text_printf("[%s]\n[%s%s]", shown[i], shown[i], shown[i]);
        for (size_t step = 1; step <= strlen(text); step++) {
            cleanup_buf struct buf out = { 0 };
            redact(forms, text, step, &out);
            for (const char *at = buf_text(&out); *at; at++)
                if (!strchr("[]\n*", *at))
                    fail_msg("'%s' leaves '%s'", text, buf_text(&out));
        }
    }
    egress_forms_free(forms);
    egress_secret_clear(&s);
}

static void base64_is_found_at_each_offset(void **state)
{
    struct egress_secret s = secret_of("KEY for a.example");
    struct egress_forms *forms = NULL;
    assert_ok(egress_forms_add(&forms, &s, err));
    for (size_t before = 0; before < 6; before++)
        for (size_t behind = 0; behind < 6; behind++) {
            cleanup_buf struct buf plain = { 0 }, text = { 0 }, out = { 0 };
            buf_append(&plain, "abcdef", before);
            buf_puts(&plain, VALUE);
            buf_append(&plain, "ghijkl", behind);
            json_append_base64(&text, plain.data, plain.len);
            redact(forms, buf_text(&text), 7, &out);
            assert_true(strspn(strchr(buf_text(&out), '*'), "*") >= strlen(VALUE) * 4 / 3 - 3);
        }
    egress_forms_free(forms);
    egress_secret_clear(&s);
}

/* How much waits must not tell whether the beginning of a guess was right. */
static void what_waits_depends_on_its_length_alone(void **state)
{
    struct egress_secret s = secret_of("KEY for a.example");
    struct egress_forms *forms = NULL;
    assert_ok(egress_forms_add(&forms, &s, err));
    for (size_t prefix = 0; prefix < strlen(VALUE); prefix++) {
        struct egress_redactor right = { 0 }, wrong = { 0 };
        cleanup_buf struct buf a = { 0 }, b = { 0 }, guess = { 0 };
        buf_puts(&guess, "line\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        buf_append(&guess, VALUE, prefix);
        egress_redact(forms, &right, guess.data, guess.len, &a);
        memset(guess.data + guess.len - prefix, '#', prefix);
        egress_redact(forms, &wrong, guess.data, guess.len, &b);
        assert_int_equal(a.len, b.len);
        assert_true(a.len >= strlen("line\n"));
        egress_redactor_free(&right);
        egress_redactor_free(&wrong);
    }
    egress_forms_free(forms);
    egress_secret_clear(&s);
}

static void other_text_stays(void **state)
{
    struct egress_secret s = secret_of("KEY for a.example");
    struct egress_forms *forms = NULL;
    assert_ok(egress_forms_add(&forms, &s, err));
    static const char text[] = "sk-test/0123+abcdef&\"x\"= sk-test/0123 c2stdGVzdA placeholder-1";
    for (size_t step = 1; step < sizeof text; step++) {
        cleanup_buf struct buf out = { 0 };
        redact(forms, text, step, &out);
        assert_string_equal(buf_text(&out), text);
    }
    egress_forms_free(forms);
    egress_secret_clear(&s);
}

/* ---- in requests ---- */

static struct egress_policy *policy_with(const char *rule, const char *text)
{
    char *items[] = { (char *)(uintptr_t)rule };
    struct list rules = { items, 1 };
    struct egress_limits limits = { 0 };
    struct egress_policy *policy;
    assert_ok(egress_policy_parse(&rules, &limits, &policy, err));
    struct egress_secret s = secret_of(text);
    assert_ok(egress_policy_add_secret(policy, &s, err));
    return policy;
}

static void a_secret_needs_a_rule_for_its_destination(void **state)
{
    char rule[] = "b.example:443", *items[] = { rule };
    struct list rules = { items, 1 };
    struct egress_limits limits = { 0 };
    struct egress_policy *policy;
    struct error why;
    assert_ok(egress_policy_parse(&rules, &limits, &policy, err));
    struct egress_secret s = secret_of("KEY for a.example");
    assert_true(egress_policy_add_secret(policy, &s, &why) < 0);
    assert_non_null(strstr(why.text, "--allow-net a.example:443"));
    s = secret_of("KEY for b.example");
    assert_ok(egress_policy_add_secret(policy, &s, err));
    egress_policy_release(policy);
}

/* The head that goes to `where`, with the placeholder of the grant for every %s. */
static char *sent_to(struct egress_grant *grant, const char *where)
{
    const char *p = grant->placeholders[0], *why = NULL;
    struct egress_host host;
    struct egress_target target;
    assert_null(egress_host_parse(where, strlen(where), &host));
    cleanup_free char *text =
        text_printf("GET /x?k=%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer "
                    "%s\r\nAccept-Encoding: gzip\r\nRange: bytes=1-2\r\nX-Key: "
                    "%s\r\nCookie: %s\r\n\r\n",
            p, where, p, p, p);
    const struct egress_scope scope = { &host, 443, grant };
    assert_int_equal(egress_request_parse(text, strlen(text), &scope, &target, &why), 0);
    assert_null(strstr(target.path, VALUE)); /* which is recorded */
    char *head = strdup(buf_text(&target.head));
    egress_target_clear(&target);
    return head;
}

static void a_request_has_the_value_in_one_place(void **state)
{
    struct egress_grant *grant;
    struct egress_policy *policy = policy_with("all", "KEY for a.example header X-Key: {}");
    assert_ok(egress_grant_new(policy, &grant, err));
    egress_policy_release(policy);
    cleanup_free char *bound = sent_to(grant, "a.example");
    assert_non_null(strstr(bound, "\r\nX-Key: " VALUE "\r\n"));
    assert_null(strstr(strstr(bound, VALUE) + 1, VALUE));
    assert_non_null(strstr(bound, "\r\nAccept-Encoding: identity\r\n"));
    assert_null(strstr(bound, "gzip"));
    assert_null(strstr(bound, "Range"));
    cleanup_free char *other = sent_to(grant, "b.example");
    assert_null(strstr(other, VALUE));
    assert_non_null(strstr(other, "gzip"));
    assert_non_null(strstr(other, "Range"));
    egress_grant_release(grant);
}

static void tls_ends_where_requests_must_be_read(void **state)
{
    struct egress_host a, b;
    assert_null(egress_host_parse("a.example", strlen("a.example"), &a));
    assert_null(egress_host_parse("b.example", strlen("b.example"), &b));
    struct egress_policy *policy = policy_with("all", "KEY for a.example");
    assert_true(egress_policy_ends_tls(policy, &a, 443));
    assert_false(egress_policy_ends_tls(policy, &a, 8443));
    assert_false(egress_policy_ends_tls(policy, &b, 443));
    egress_policy_release(policy);
    policy = policy_with("GET https://a.example/x/**", "KEY for a.example");
    assert_true(egress_policy_allows_request(policy, true, &a, 443, "GET", "/x/y"));
    assert_false(egress_policy_allows_request(policy, true, &a, 443, "POST", "/x/y"));
    assert_false(egress_policy_allows_request(policy, true, &a, 443, "GET", "/y"));
    assert_false(egress_policy_allows_request(policy, false, &a, 443, "GET", "/x/y"));
    assert_false(egress_policy_allows_tunnel(policy, &a, 443));
    egress_policy_release(policy);
}

static void placeholders_differ_and_a_name_has_one(void **state)
{
    struct egress_grant *one, *other;
    struct egress_policy *policy = policy_with("all", "KEY for a.example");
    struct egress_secret s = secret_of("KEY for b.example query k");
    assert_ok(egress_policy_add_secret(policy, &s, err));
    assert_ok(egress_grant_new(policy, &one, err));
    assert_ok(egress_grant_new(policy, &other, err));
    assert_string_equal(one->placeholders[0], one->placeholders[1]);
    assert_string_not_equal(one->placeholders[0], other->placeholders[0]);
    egress_grant_release(one);
    egress_grant_release(other);
    egress_policy_release(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_secret_names_its_source_its_destination_and_its_place),
        cmocka_unit_test(a_wrong_secret_is_refused_and_its_value_is_not_shown),
        cmocka_unit_test(a_value_is_neither_short_nor_binary),
        cmocka_unit_test(it_goes_into_its_place_alone),
        cmocka_unit_test(it_is_the_password_of_basic_authentication),
        cmocka_unit_test(it_is_a_parameter_of_the_query),
        cmocka_unit_test(every_form_is_found_wherever_it_is_cut),
        cmocka_unit_test(base64_is_found_at_each_offset),
        cmocka_unit_test(what_waits_depends_on_its_length_alone),
        cmocka_unit_test(other_text_stays),
        cmocka_unit_test(a_secret_needs_a_rule_for_its_destination),
        cmocka_unit_test(a_request_has_the_value_in_one_place),
        cmocka_unit_test(tls_ends_where_requests_must_be_read),
        cmocka_unit_test(placeholders_differ_and_a_name_has_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
