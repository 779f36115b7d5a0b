/* serve/http/upgrade.h: a connection after 101 Switching Protocols: bytes in both directions, until
 * the request that asked for it is freed.
 *
 * The owner of the request embeds one and sets arg and functions. It is not told of what it does
 * itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/fifo.h"

struct request;

struct upgrade {
    struct request *r;
    struct MHD_UpgradeResponseHandle *handle; /* NULL: the answer was not sent yet */
    int fd;
    uv_poll_t *poll; /* NULL: not open, or over */
    struct fifo out;
    bool is_paused, is_ending, is_over;

    void *arg;
    void (*on_bytes)(void *arg, const char *data, size_t len);
    void (*on_sent)(void *arg);                  /* nothing is unsent */
    void (*on_closed)(void *arg);                /* the client has left; nothing follows */
    void (*on_drain)(void *arg);                 /* the server stops; may be NULL */
    void (*on_tick)(void *arg, uint64_t now_ns); /* some times a second; may be NULL */
};

/* Answers with 101; the caller adds its fields with request_header. */
void upgrade_begin(struct request *r, struct upgrade *u);
void upgrade_send(struct upgrade *u, const void *data, size_t len);
static inline size_t upgrade_unsent(const struct upgrade *u)
{
    return fifo_len(&u->out);
}
/* Nothing is read while paused. */
void upgrade_pause(struct upgrade *u, bool is_paused);
/* Ends the connection: when everything is sent, or at once. Nothing follows. */
void upgrade_end(struct upgrade *u);
void upgrade_drop(struct upgrade *u);
/* The same, for the end of the server, whose loop does not turn any more. */
void upgrade_drop_now(struct upgrade *u);
void upgrade_free(struct upgrade *u);
