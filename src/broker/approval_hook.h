/* broker/approval_hook.h: announces calls that wait for an approval to a webhook.
 *
 * Each call is a POST to one URL: {"type": "approval.waiting", "approval": {…}}, signed with
 *
 *     Droste-Signature: t=SECONDS,v1=HMAC-SHA256 of "SECONDS.BODY", in hexadecimal
 *
 * The response may decide ({"decision": "approve" | "deny", "reason": …}). Any other successful one
 * only confirms that the call was announced. Where the hook cannot be reached, redirects, refuses,
 * or answers with a decision that is none, the call is announced again, after pauses that grow from
 * ten seconds to ten minutes, for as long as it waits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "droste/approval.h"

struct announcement;
struct approval_hook;
struct loop;

struct approval_hook_options {
    const char *url; /* NULL: there is no hook */
    const char *secret, *ca_file;
};

/* What became of an announcement. The hook has decided, or this attempt has failed. */
struct hook_answer {
    bool decided, approve;
    const char *reason; /* may be NULL */
    const char *failure;
};
/* May cancel the announcement; one that decides has ended. */
typedef void hook_answer_fn(void *arg, const struct hook_answer *answer);

/* ERROR_ARGUMENT or ERROR_CONFIG unless the URL is https:// (or http:// to a loopback address) and
 * there is a secret. */
int approval_hook_check(const struct approval_hook_options *options, struct error *err);
int approval_hook_open(struct loop *loop, const struct approval_hook_options *options,
    struct approval_hook **out, struct error *err);
/* After its announcements have ended. NULL is fine. */
void approval_hook_close(struct approval_hook *hook);

/* Announces a call, which must outlive the announcement. *out is NULL after a decision. */
int approval_hook_announce(struct approval_hook *hook, const droste_approval *approval,
    hook_answer_fn *fn, void *arg, struct announcement **out, struct error *err);
/* NULL is fine. */
void announcement_cancel(struct announcement *a);

/* SIGNATURE_SIZE: "t=…,v1=…" with its NUL. */
enum { HOOK_SIGNATURE_SIZE = 100 };
int approval_hook_sign(const char *secret, int64_t seconds, const char *body, size_t len,
    char out[HOOK_SIGNATURE_SIZE]);
