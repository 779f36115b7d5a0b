/* serve/http/idempotency.h: requests with an Idempotency-Key have their effect once.
 *
 * A client that got no answer asks again with the same key, and gets the answer to the first. The
 * first request goes on when its client has gone: the sandbox is for the client that asks again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct request;
struct server;

/* Before the handler of a route that creates. False: the request was answered, as before or with a
 * refusal. */
bool idempotency_begin(struct request *r);
/* With the answer of such a request. One that may be another the next time (a limit, a failure of
 * the server) is forgotten. */
void idempotency_keep(
    struct request *r, unsigned status, const char *type, const void *data, size_t len);
void idempotency_locate(struct request *r, const char *location);
/* The request ends; without an answer it is forgotten. */
void idempotency_end(struct request *r);
void idempotency_sweep(struct server *s, uint64_t now_ns);
void idempotency_close(struct server *s);
