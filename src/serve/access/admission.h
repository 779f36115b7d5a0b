/* serve/access/admission.h: when a request may create a sandbox.
 *
 * A key's own limits refuse at once (429, with Retry-After). Where the server is short (as many
 * sandboxes as it may have, or as many starts under way as it does well at once), requests wait,
 * and the next one is taken from the key that was served least, so that a key which asks for a
 * thousand delays another that asks for one by one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct account;
struct request;
struct server;

/* A wish for a sandbox or a run, of a request or of another protocol's part. */
struct admission {
    struct server *server;
    struct account *account;
    bool has_place, is_starting;
    /* Called once with a place, or why there is none. `wait`: seconds until it may be asked again;
     * 0: that does not help. */
    void (*go)(struct admission *a);
    void (*refuse)(
        struct admission *a, unsigned status, const char *code, const char *text, double wait);
    struct admission *next, **link; /* link: NULL unless it waits */
    uint64_t since_ns;
};

/* Calls go(r) with a place reserved, now or later, or refuses the request. The place passes to the
 * sandbox (sandbox_add), or returns with the request's end. */
void admission_ask(struct request *r, void (*go)(struct request *r));
/* The start is no longer under way, however it ended. */
void admission_end(struct request *r);

/* The same without a request: server, account, go and refuse are set. */
void admission_seek(struct admission *a);
/* Ends the wait, or the start, and returns the place if it was not passed on. */
void admission_leave(struct admission *a);

/* The start is over; the place is kept. */
void admission_settle(struct admission *a);

/* Serves those that wait; the loop calls it. */
void admission_serve(struct server *s, uint64_t now_ns);
