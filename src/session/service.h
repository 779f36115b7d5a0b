/* session/service.h: requests to the process beside the guest, which serves files (session/files.h)
 * and commands (session/commands.h) whatever cells do.
 *
 * It has the guest's own rights and limits, so the host resolves no path and starts no program. It
 * starts with the first request and ends with the session. What it answers is as untrusted as all
 * that guests send. A request is answered once, in any order, with a frame of its type.
 */
#pragma once

#include <sys/queue.h>
#include <sys/uio.h>

#include "base/json/json.h"
#include "session/session.h"
#include "wire/frame.h"

struct service_request;

/* One of the two is called once, and takes the request. Both may start requests. */
struct service_request_ops {
    uint8_t asks, answers; /* types of frames */
    /* A negative return is a violation, which ends the service: then `fail` is called. */
    int (*take)(struct service_request *r, struct json_object *head, const struct frame *frame,
        struct error *err);
    void (*fail)(struct service_request *r, const struct error *why);
};

/* The first member of each kind of request; all but `ops` and `answer_ms` is the service's. */
struct service_request {
    const struct service_request_ops *ops;
    unsigned
        answer_ms; /* without an answer for so long the service ends; 0: it may take any time */
    uint64_t id;
    TAILQ_ENTRY(service_request) link;
};

/* Starts the service if there is none. ERROR_UNSUPPORTED: the environment cannot; the message says
 * that it gives no access to `what`. */
int service_ready(struct session *s, const char *what, struct error *err);
/* Sends a request to a service that is ready, and takes it; after an error it is the caller's. */
int service_ask(struct session *s, struct service_request *r, const struct buf *head,
    const struct iovec *blob, int count, struct error *err);
/* A handle of the current service, from the number that it sent, and back; ERROR_LOST if the
 * service that sent it has ended, and `what` is lost. */
uint64_t service_handle(const struct session *s, int64_t number);
int service_number(
    const struct session *s, uint64_t handle, const char *what, uint32_t *out, struct error *err);
/* Appends the beginning of a text in quotes, for messages. */
void service_quote(struct buf *out, const char *text, size_t len);
/* True if `answer` has a number that can be one of a handle. */
bool service_number_ok(int64_t number);
/* Calls `fn` for each open request. */
void service_each(
    struct session *s, void (*fn)(struct service_request *r, const void *arg), const void *arg);
