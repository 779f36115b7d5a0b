/* What a guest sends to the proxy of its network, and what servers answer: byte 0 chooses a
 * request, one within TLS to which a secret is bound, an answer, or a text in which the secret is
 * looked for; its head follows, and then its body. What goes on to the other side must have one
 * reading, and the same one for our own reader.
 */
#include "fuzz.h"

#include "egress/head.h"
#include "egress/request.h"

/* The body takes what belongs to it and nothing else, in pieces as in one. */
static void check_body(struct egress_body body, const char *data, size_t len)
{
    struct egress_body whole = body;
    bool bad = false, bad_whole = false;
    size_t taken = 0, all = egress_body_take(&whole, data, len, &bad_whole);
    expect(all <= len);
    for (size_t i = 0; i < len && !bad && !egress_body_has_ended(&body); i++) {
        size_t one = egress_body_take(&body, data + i, 1, &bad);
        expect(one <= 1);
        taken += one;
    }
    expect(bad == bad_whole && taken == all);
    expect(bad || egress_body_has_ended(&body) == egress_body_has_ended(&whole));
}

static unsigned count_fields(const struct egress_head *head, const char *name)
{
    unsigned count = 0;
    for (size_t i = 0; i < head->count; i++)
        count += egress_span_is(head->fields[i].name, name);
    return count;
}

/* Returns the framing of a head that goes on. */
static void check_head(struct buf *text, struct egress_head *head)
{
    expect(!buf_failed(text));
    expect(egress_head_end(text->data, text->len, 0) == text->len);
    expect(egress_head_parse(text->data, text->len, head));
    expect(count_fields(head, "content-length") + count_fields(head, "transfer-encoding") <= 1);
    expect(count_fields(head, "proxy-authorization") == 0 && count_fields(head, "upgrade") == 0);
}

#define VALUE "sk-fuzzed/0123+ab"

/* A policy with a secret, whose placeholder is not random. */
static struct egress_grant *fuzz_grant(void)
{
    static struct egress_grant *grant;
    char rule[] = "all", *items[] = { rule };
    struct list rules = { items, 1 };
    struct egress_limits limits = { 0 };
    struct egress_policy *policy;
    struct egress_secret s;
    if (grant)
        return grant;
    static const char *const secrets[] = { "K for a header X-Key: {}", "K for a query k",
        "K for a basic" };
    expect(egress_policy_parse(&rules, &limits, &policy, NULL) == 0);
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        expect(egress_secret_parse(secrets[i], &s, NULL) == 0);
        expect(egress_secret_set(&s, VALUE, strlen(VALUE), NULL) == 0);
        expect(egress_policy_add_secret(policy, &s, NULL) == 0);
    }
    expect(egress_grant_new(policy, &grant, NULL) == 0);
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        snprintf(grant->placeholders[i], PLACEHOLDER_SIZE, "PLACE");
    egress_policy_release(policy);
    return grant;
}

/* No form of the secret is left, its length stays, and pieces make no difference. */
static void check_redaction(const char *data, size_t len)
{
    const struct egress_forms *forms = egress_policy_forms(fuzz_grant()->policy);
    struct egress_redactor r = { 0 };
    struct buf out = { 0 }, whole = { 0 };
    for (size_t at = 0, step = 1; at < len; at += step, step = 1 + step * 7 % 61)
        egress_redact(forms, &r, data + at, len - at < step ? len - at : step, &out);
    egress_redact_end(&r, &out);
    buf_append(&whole, data, len);
    egress_redact_all(forms, whole.data, whole.len);
    expect(out.len == len && whole.len == len);
    expect(!memmem(buf_text(&out), out.len, VALUE, strlen(VALUE)));
    expect(!memmem(buf_text(&whole), whole.len, VALUE, strlen(VALUE)));
    buf_free(&out);
    buf_free(&whole);
}

static void check_within(const char *data, size_t len, const char *body, size_t body_len)
{
    struct egress_target target;
    struct egress_head head;
    struct egress_host host;
    const char *why = NULL;
    expect(!egress_host_parse("a", 1, &host));
    const struct egress_scope scope = { &host, 443, fuzz_grant() };
    int status = egress_request_parse(data, len, &scope, &target, &why);
    expect(status == 0 || (status >= 400 && why && why[0]));
    expect(strcmp(target.host.name, "a") == 0 && target.port == 443 && !target.is_tunnel);
    if (!status) {
        check_head(&target.head, &head);
        expect(count_fields(&head, "host") == 1 && count_fields(&head, "accept-encoding") == 1);
        expect(count_fields(&head, "range") == 0 && target.path[0] == '/');
        expect(target.secrets || memmem(data, len, VALUE, strlen(VALUE)) ||
               !memmem(target.head.data, target.head.len, VALUE, strlen(VALUE)));
        check_body(target.body, body, body_len);
    }
    egress_target_clear(&target);
}

static void check_request(const char *data, size_t len, const char *body, size_t body_len)
{
    static const struct egress_scope proxy = { 0 };
    struct egress_target target;
    struct egress_head head;
    const char *why = NULL;
    int status = egress_request_parse(data, len, &proxy, &target, &why);
    if (status) {
        expect(status >= 400 && status < 600 && why && why[0]);
    } else {
        struct egress_host again;
        unsigned port = target.port;
        expect(target.port > 0 && target.port <= 65535);
        expect(!egress_host_parse(target.host.name, strlen(target.host.name), &again));
        expect(strcmp(again.name, target.host.name) == 0 && port == target.port);
        expect(again.is_address == target.host.is_address);
        expect(target.is_tunnel == (target.path == NULL));
    }
    if (!status && !target.is_tunnel) {
        check_head(&target.head, &head);
        expect(count_fields(&head, "host") == 1 && count_fields(&head, "connection") == 1);
        expect(target.path[0] == '/' && !strpbrk(target.path, " \r\n\t#"));
        check_body(target.body, body, body_len);
    }
    egress_target_clear(&target);
}

static void check_answer(
    const char *method, const char *data, size_t len, const char *body, size_t body_len)
{
    struct egress_answer answer;
    struct egress_head head;
    struct buf out = { 0 };
    struct egress_target target = { .keeps = len % 2 };
    snprintf(target.method, sizeof target.method, "%s", method);
    if (egress_answer_parse(data, len, &target, &answer, &out)) {
        expect(answer.status >= 100 && answer.status <= 999 && answer.status != 101);
        check_head(&out, &head);
        check_body(answer.body, body, body_len);
    }
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const methods[] = { "GET", "HEAD", "POST" };
    struct input in = { data, size };
    uint8_t kind = input_byte(&in);
    size_t end = egress_head_end((const char *)in.p, in.left, 0), len, body_len;
    for (size_t scanned = 0; scanned < in.left && scanned < end; scanned++)
        expect(egress_head_end((const char *)in.p, in.left, scanned > 0 ? scanned - 1 : 0) == end);
    char *head = input_piece(&in, end ? end : in.left, &len);
    char *body = input_piece(&in, in.left, &body_len);
    if (kind == 255)
        check_redaction(head, len);
    else if (kind == 254)
        check_within(head, len, body, body_len);
    else if (kind % 4 == 0)
        check_request(head, len, body, body_len);
    else
        check_answer(methods[kind % 4 - 1], head, len, body, body_len);
    free(head);
    free(body);
    return 0;
}
