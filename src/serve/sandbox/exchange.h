/* serve/sandbox/exchange.h: what one request has to do with one command of a sandbox: it starts it
 * or attaches to it, does one thing or streams its output, and gives its handle up.
 *
 * It outlives its request while the sandbox owes it a reply, and its sandbox is looked up by id,
 * since either may end first. A client that leaves does not end the command.
 */
#pragma once

#include "serve/http/request.h"

struct exchange {
    struct server *server;
    struct request *r; /* NULL: it has ended */
    char id[SERVE_ID_SIZE];
    bool attached;
    unsigned pending; /* replies that the sandbox owes */
    uint64_t handle;
    int64_t pid;
    struct trace_step command; /* that it has started */
    size_t sent;               /* of the body, which is input */
    bool eof;                  /* nothing follows it */
    void (*next)(struct exchange *x);
    /* Tells the client of an error; NULL: as an answer to the request. */
    void (*fail)(struct exchange *x, const droste_error *err);
    void *arg; /* of a request that is upgraded */
};

/* Of the request's sandbox; NULL: the request was refused. */
struct exchange *exchange_new(struct request *r);
/* False: it could not be asked, and the client was told. */
bool exchange_ask(
    struct exchange *x, const droste_command_request *request, droste_command_fn *done);
/* After a reply. True: there is nothing more to do. */
bool exchange_is_over(struct exchange *x, const droste_error *err);
/* Starts or attaches, then calls `next`. */
void exchange_start(struct exchange *x, struct json_object *o);
void exchange_attach(struct exchange *x, const char *name, int flags);
/* The request is freed. */
void exchange_on_free(struct request *r);
