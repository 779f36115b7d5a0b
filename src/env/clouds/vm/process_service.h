/* env/clouds/vm/process_service.h: runs one program through a process service of a remote machine.
 *
 * It speaks E2B's process.Process, and Prime's command_session.CommandSession, which differs only
 * in names and keys. Start opens a stream of the program's output; Connect opens another one after
 * a loss. Input goes by SendInput. Several requests are sent at once, and one may overtake another;
 * the link (wire/link.h) requests what it misses.
 *
 * A stream that is cut is rejoined for up to a minute. Output from in between is lost, and input in
 * transit may be; the link retransmits both.
 */
#pragma once

#include <sys/uio.h>

#include "base/loop.h"
#include "net/connect.h"

/* How the two services differ. */
struct process_dialect {
    const char *path;      /* of the service, after the base URL: "/process.Process" */
    uint32_t start_key;    /* field of a Start with the client's key of the program */
    uint32_t selector_key; /* field of a selector with that key */
    bool keyed;            /* Start and SendInput are idempotent, by their key */
};

struct process_service;

/* None fires within the functions below. They may do anything but close `rest` and, except `ended`,
 * the service. */
struct process_events {
    void (*joined)(void *arg);
    void (*cut)(void *arg);
    void (*bytes)(void *arg, const char *data, size_t len);
    /* The token was rejected: process_renewed or process_close must follow. */
    void (*refused)(void *arg);
    /* Rejoining failed; it is tried again. An owner who knows that the machine is gone should close
     * the service. */
    void (*doubtful)(void *arg, const struct connect_result *why);
    /* The last event. ERROR_NONE: the program has ended by itself. */
    void (*ended)(void *arg, const struct error *why);
};

/* Starts the program. The arguments end with NULL and are copied. */
int process_service_open(struct loop *loop, struct rest *rest,
    const struct process_dialect *dialect, const char *const *words,
    const struct process_events *events, void *arg, struct process_service **out,
    struct error *err);
/* `rest` has a new token. */
void process_service_renewed(struct process_service *p);
/* Uses another connection from now on; the stream may be cut in between. */
void process_service_move(struct process_service *p, struct rest *rest);
/* Only while joined. Accepts all bytes. */
void process_service_write(struct process_service *p, const struct iovec *iov, int count);
/* Input bytes that the server has not confirmed. */
size_t process_service_waiting(const struct process_service *p);
/* Forgets the program, which ends with its machine. NULL is fine. */
void process_service_close(struct process_service *p);
/* Writes the request that kills the program, for machines that outlive their session; false: its
 * pid is not known. */
bool process_service_kill(const struct process_service *p, struct buf *path, struct buf *message);
