/* serve/admission.h: when a request may create a sandbox.
 *
 * A key's own limits refuse at once (429, with Retry-After). Where the server is short (as many
 * sandboxes as it may have, or as many starts under way as it does well at once), requests wait,
 * and the next one is taken from the key that was served least, so that a key which asks for a
 * thousand delays another that asks for one by one.
 */
#ifndef DROSTE_SERVE_ADMISSION_H
#define DROSTE_SERVE_ADMISSION_H

#include <stdint.h>

struct request;
struct server;

/* Calls go(r) with a place reserved, now or later, or refuses the request. The place passes to the
 * sandbox (sandbox_add), or returns with the request's end. */
void admission_ask(struct request *r, void (*go)(struct request *r));
/* The start is no longer under way, however it ended. */
void admission_end(struct request *r);
/* Serves those that wait; the loop calls it. */
void admission_serve(struct server *s, uint64_t now_ns);

#endif
