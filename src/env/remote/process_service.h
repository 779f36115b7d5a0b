/* env/remote/process_service.h: one program in a machine elsewhere, by a process service: E2B's process.Process, and Prime's
 * command_session.CommandSession, which is the same but for names and keys. Start gives a stream of what the program says,
 * Connect another one after a loss, and what it is to read goes by SendInput: a few, each begun after the one before it, which all the
 * same may overtake it: the link asks again for what it misses.
 *
 * A stream that is cut is joined again, for a minute. What the program said meanwhile is lost, and so may be what was being
 * sent: the link in wire/ makes up for both.
 */
#ifndef DROSTE_ENV_REMOTE_PROCESS_SERVICE_H
#define DROSTE_ENV_REMOTE_PROCESS_SERVICE_H

#include <sys/uio.h>

#include "base/loop.h"
#include "net/connect.h"

/* In what the two differ. */
struct process_dialect {
    const char *path;      /* of the service, behind the base URL: "/process.Process" */
    uint32_t start_key;    /* field of a Start by which the program is known from then on */
    uint32_t selector_key; /* field of a selector that names it so */
    bool keyed; /* Start and SendInput may be repeated: their key says that they are the same */
};

extern const struct process_dialect process_of_prime, process_of_e2b;

struct process_service;

/* None comes from within the functions below. They may do anything but close `rest` and, but for `ended`, the service. */
struct process_events {
    void (*joined)(void *arg);
    void (*cut)(void *arg);
    void (*bytes)(void *arg, const char *data, size_t len);
    /* The token is not taken any more: process_renewed is to follow, or process_close. */
    void (*refused)(void *arg);
    /* It cannot be joined again for now; it is tried further. Who knows that the machine is gone ends it. */
    void (*doubtful)(void *arg, const struct connect_result *why);
    /* The last. ERROR_NONE: the program has ended by itself. */
    void (*ended)(void *arg, const struct error *why);
};

/* Starts the program, whose words end with a NULL and are copied. */
int process_service_open(struct loop *loop, struct rest *rest,
    const struct process_dialect *dialect, const char *const *words,
    const struct process_events *events, void *arg, struct process_service **out,
    struct error *err);
/* There is another token. */
void process_service_renewed(struct process_service *p);
/* It is reached by another way from now on; it may be told that it is cut meanwhile. */
void process_service_move(struct process_service *p, struct rest *rest);
/* Only while it is joined. Takes all bytes. */
void process_service_write(struct process_service *p, const struct iovec *iov, int count);
/* Bytes of that which the server has not confirmed. */
size_t process_service_waiting(const struct process_service *p);
/* Forgets it: the program is ended by who ends its machine. NULL is fine. */
void process_service_close(struct process_service *p);
/* What is to be sent to have the program killed, where it is not ended with its machine; false: there is none. */
bool process_service_kill(const struct process_service *p, struct buf *path, struct buf *message);

#endif
