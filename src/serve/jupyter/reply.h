/* serve/jupyter/reply.h: replies to the requests of clients. */
#pragma once

#include "serve/jupyter/jupyter.h"

/* "execute_request" is answered with "execute_reply". */
void reply_send(
    struct jupyter_kernel *k, const struct jupyter_message *m, const struct buf *content);
/* Removes the first request of the queue. */
void reply_pop(struct jupyter_kernel *k);
/* Answers the first request of the queue, which ends. */
void reply_first(struct jupyter_kernel *k, const struct buf *content);
void reply_first_text(struct jupyter_kernel *k, const char *json);
/* The first request is a cell that failed; the cells that wait behind it do not run. */
void reply_failed(
    struct jupyter_kernel *k, const char *type, const char *message, const char *traceback);
void reply_put_ok(struct jupyter_kernel *k, struct buf *content, const char *expressions);
/* The members of an error, which follow each other. */
void reply_put_error(struct buf *out, const char *type, const char *message, const char *traceback);
