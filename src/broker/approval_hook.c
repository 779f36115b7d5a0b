/* broker/approval_hook.c: see approval_hook.h.
 *
 *   sending ── confirmed ──► told            (others, or the hook later through the server, decide)
 *     ▲  └──── decided ────► over
 *     └── pause ── failed
 */
#include "broker/approval_hook.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "base/text.h"
#include "net/rest.h"
#include "net/url.h"

enum {
    SECRET_LEAST = 16,
    ANSWER_SECONDS = 60, /* for all tries of an attempt; a hook may ask a person meanwhile */
    ANSWER_MOST = 64 << 10,
    PAUSE_FIRST_MS = 10000,
    PAUSE_MOST_MS = 600000,
};

struct approval_hook {
    struct loop *loop;
    struct rest *rest;
    char *secret, *path; /* path: the query of the URL */
};

struct announcement {
    struct approval_hook *hook;
    const droste_approval *approval;
    struct rest_request *request; /* NULL: confirmed, or in a pause */
    struct timer *pause;
    uint64_t pause_ms;
    hook_answer_fn *fn;
    void *arg;
    struct announcement **owner;
};

/* ---- the hook ---- */

static bool hook_host_is_local(const char *host)
{
    static const char *const local[] = { "localhost", "[::1]" };
    for (size_t i = 0; i < array_length(local); i++)
        if (strcmp(host, local[i]) == 0)
            return true;
    return strncmp(host, "127.", 4) == 0 && host[strspn(host, "0123456789.")] == '\0';
}

int approval_hook_check(const struct approval_hook_options *o, struct error *err)
{
    cleanup_url struct url url = { 0 };
    if (!o->url)
        return 0;
    int rc = url_parse(o->url, "ask-webhook-secret", &url, err);
    if (rc < 0)
        return error_wrap(err, "ask-webhook");
    if (!url.secure && !hook_host_is_local(url.host))
        return error_set(err, ERROR_ARGUMENT,
            "ask-webhook: the answer decides, so the URL must be https:// unless it is of this "
            "machine");
    if (!o->secret || strlen(o->secret) < SECRET_LEAST)
        return error_set(err, ERROR_CONFIG,
            "ask-webhook needs a secret of at least %d characters: set DROSTE_ASK_WEBHOOK_SECRET, "
            "or ask-webhook-secret in the configuration file",
            SECRET_LEAST);
    return 0;
}

static int hook_fill(
    struct approval_hook *hook, const struct approval_hook_options *o, struct error *err)
{
    cleanup_url struct url url = { 0 };
    int rc = url_parse(o->url, "ask-webhook-secret", &url, err);
    if (rc < 0)
        return rc;
    hook->secret = strdup(o->secret);
    hook->path = text_printf("%s%s", url.query[0] ? "?" : "", url.query);
    if (!hook->secret || !hook->path)
        return error_memory(err);
    struct rest_options rest = { .base_url = url.base,
        .name = "the webhook",
        .key_variable = "ask-webhook-secret",
        .ca_file = o->ca_file,
        .connections = 4,
        .answer_limit = ANSWER_MOST };
    return rest_open(hook->loop, &rest, &hook->rest, err);
}

int approval_hook_open(struct loop *loop, const struct approval_hook_options *o,
    struct approval_hook **out, struct error *err)
{
    struct approval_hook *hook = calloc(1, sizeof *hook);
    if (!hook)
        return error_memory(err);
    hook->loop = loop;
    int rc = hook_fill(hook, o, err);
    if (rc < 0) {
        approval_hook_close(hook);
        return rc;
    }
    *out = hook;
    return 0;
}

void approval_hook_close(struct approval_hook *hook)
{
    if (!hook)
        return;
    rest_close(hook->rest);
    free(hook->secret);
    free(hook->path);
    free(hook);
}

int approval_hook_sign(const char *secret, int64_t seconds, const char *body, size_t len,
    char out[HOOK_SIGNATURE_SIZE])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    char hex[2 * 32 + 1];
    unsigned mac_len = 0;
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "%lld.", (long long)seconds);
    buf_append(&text, body, len);
    if (buf_failed(&text) || !HMAC(EVP_sha256(), secret, (int)strlen(secret),
                                 (const unsigned char *)text.data, text.len, mac, &mac_len))
        return -ERROR_MEMORY;
    text_hex(mac, 32, hex);
    snprintf(out, HOOK_SIGNATURE_SIZE, "t=%lld,v1=%s", (long long)seconds, hex);
    return 0;
}

/* ---- an announcement ---- */

void announcement_cancel(struct announcement *a)
{
    if (!a)
        return;
    rest_cancel(a->request);
    timer_free(a->pause);
    *a->owner = NULL;
    free(a);
}

/* Begins the pause first: the function may cancel the announcement. */
static void announcement_fail(struct announcement *a, const char *why)
{
    struct hook_answer answer = { .failure = why };
    timer_start(a->pause, a->pause_ms, 0);
    a->pause_ms = a->pause_ms * 2 < PAUSE_MOST_MS ? a->pause_ms * 2 : PAUSE_MOST_MS;
    a->fn(a->arg, &answer);
}

static void announcement_decide(struct announcement *a, struct json_object *body)
{
    const char *decision = json_get_string(body, "decision", "");
    struct hook_answer answer = { .decided = true,
        .approve = strcmp(decision, "approve") == 0,
        .reason = json_get_string(body, "reason", NULL) };
    hook_answer_fn *fn = a->fn;
    void *arg = a->arg;
    if (!answer.approve && strcmp(decision, "deny") != 0) {
        announcement_fail(a, "the webhook's decision is neither \"approve\" nor \"deny\"");
        return;
    }
    announcement_cancel(a);
    fn(arg, &answer);
}

static void announcement_on_answer(void *arg, const struct rest_answer *answer)
{
    struct announcement *a = arg;
    struct json_object *decision = NULL;
    a->request = NULL;
    if (answer->error.code != ERROR_NONE)
        announcement_fail(a, answer->error.text);
    else if (answer->status >= 300)
        announcement_fail(a, "the webhook redirects, which is not followed: set its own URL");
    else if (json_object_is_type(answer->body, json_type_object) &&
             json_object_object_get_ex(answer->body, "decision", &decision))
        announcement_decide(a, answer->body);
}

static int hook_add_piece(void *arg, const char *data, size_t len)
{
    buf_append(arg, data, len);
    return 0;
}

static int announcement_write(const struct announcement *a, struct buf *out, struct error *err)
{
    droste_error why = { 0 };
    cleanup_buf struct buf approval = { 0 };
    if (droste_approval_json(a->approval, hook_add_piece, &approval, &why) < 0)
        return error_memory(err);
    field_open(out, NULL, '{');
    field_string(out, "type", "approval.waiting");
    field_json(out, "approval", buf_text(&approval));
    field_close(out, '}');
    return buf_failed(out) || buf_failed(&approval) ? error_memory(err) : 0;
}

static int announcement_send(struct announcement *a, struct error *err)
{
    cleanup_buf struct buf body = { 0 };
    char signature[HOOK_SIGNATURE_SIZE], header[HOOK_SIGNATURE_SIZE + 32];
    const char *headers[] = { header };
    int rc = announcement_write(a, &body, err);
    if (rc == 0 && approval_hook_sign(
                       a->hook->secret, clock_wall_ms() / 1000, body.data, body.len, signature) < 0)
        rc = error_memory(err);
    if (rc < 0)
        return rc;
    snprintf(header, sizeof header, "Droste-Signature: %s", signature);
    return rest_send(a->hook->rest,
        &(struct rest_ask){ .method = "POST",
            .path = a->hook->path,
            .data = body.data,
            .len = body.len,
            .type = "application/json",
            .headers = headers,
            .header_count = array_length(headers),
            .again = true, /* a decision counts once */
            .seconds = ANSWER_SECONDS,
            .done = announcement_on_answer,
            .arg = a },
        &a->request, err);
}

static void announcement_send_again(void *arg)
{
    struct announcement *a = arg;
    struct error why = { 0 };
    if (announcement_send(a, &why) < 0)
        announcement_fail(a, why.text);
}

int approval_hook_announce(struct approval_hook *hook, const droste_approval *approval,
    hook_answer_fn *fn, void *arg, struct announcement **out, struct error *err)
{
    struct announcement *a = calloc(1, sizeof *a);
    if (!a)
        return error_memory(err);
    *a = (struct announcement){ .hook = hook,
        .approval = approval,
        .pause = timer_new(hook->loop, announcement_send_again, a),
        .pause_ms = PAUSE_FIRST_MS,
        .fn = fn,
        .arg = arg,
        .owner = out };
    *out = a;
    int rc = a->pause ? announcement_send(a, err) : error_memory(err);
    if (rc < 0)
        announcement_cancel(a);
    return rc;
}
