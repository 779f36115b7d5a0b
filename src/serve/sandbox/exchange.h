/* serve/sandbox/exchange.h: what one request has to do with one command or file of a sandbox: it
 * starts the command or attaches to it, or opens the file, does one thing or streams, and gives its
 * handle up. A process beside the session serves it, so it does not wait for a running cell.
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
    bool attached; /* it has a handle */
    bool of_file;
    unsigned pending; /* replies that the sandbox owes */
    uint64_t handle;
    int64_t pid;
    struct trace_step command; /* that it has started */
    const char *input;         /* of exchange_write */
    size_t len, sent;
    char *owned_input;                /* is freed with the exchange; or NULL */
    bool eof;                         /* nothing follows the input */
    void (*next)(struct exchange *x); /* it has a handle */
    void (*done)(struct exchange *x); /* after exchange_write, or exchange_on_done */
    /* Tells the client of an error; NULL: as an answer to the request. */
    void (*fail)(struct exchange *x, const droste_error *err);
    void *arg; /* the protocol's */
};

/* Of the request's sandbox; NULL: the request was refused. */
struct exchange *exchange_new(struct request *r);
/* False: it could not be asked, and the client was told. */
bool exchange_ask(
    struct exchange *x, const droste_command_request *request, droste_command_fn *done);
bool exchange_ask_file(
    struct exchange *x, const droste_file_request *request, droste_file_fn *done);
/* After a reply. True: there is nothing more to do. */
bool exchange_is_over(struct exchange *x, const droste_error *err);
/* The same, after the reply to opening a file, whose handle it takes. */
bool exchange_is_over_opened(
    struct exchange *x, const droste_file_reply *reply, const droste_error *err);
/* After the reply to a request with nothing to tell: calls `done`. */
void exchange_on_done(void *arg, const droste_command_reply *reply, const droste_error *err);
void exchange_on_file_done(void *arg, const droste_file_reply *reply, const droste_error *err);
/* Closes the file, then calls `done`. */
void exchange_close_file(struct exchange *x);
/* Writes the input that is left, in pieces, then calls `done`. */
void exchange_write(struct exchange *x);
/* Starts or attaches, then calls `next`. */
void exchange_open(struct exchange *x, const droste_command_request *request);
void exchange_start(struct exchange *x, struct json_object *o);
void exchange_attach(struct exchange *x, const char *name, int flags);
/* The request is freed. */
void exchange_on_free(struct request *r);
