/* env/clouds/daytona/terminal.h: runs a program on a terminal in a Daytona sandbox, and transports
 * its standard streams over a WebSocket.
 *
 * Output while no connection is attached is lost, as is input in transit; the link retransmits both
 * (wire/link.h). A terminal that cannot be reached in time is created again, unless the program has
 * already written something.
 */
#pragma once

#include <sys/uio.h>

#include "env/clouds/daytona/account.h"

struct terminal;

/* These may call any function, including terminal_close, but do not fire within terminal_open. */
struct terminal_events {
    /* The program has written its mark; again after a reconnection. */
    void (*joined)(void *arg);
    /* Output from the loader's mark on. */
    void (*bytes)(void *arg, const char *data, size_t len);
    void (*cut)(void *arg);
    /* It cannot be reached: the owner checks the sandbox and calls terminal_retry or
     * terminal_close. */
    void (*doubt)(void *arg, const struct error *why);
    /* The program has ended; the last event. ERROR_NONE: by itself. */
    void (*ended)(void *arg, const struct error *why);
};

/* `base` is the URL of the sandbox's toolbox, `words` the program with its arguments. `first` has
 * shell commands to run before it. */
int terminal_open(const struct daytona_account *account, const char *base, const char *first,
    const char *const *words, const struct terminal_events *events, void *arg,
    struct terminal **out, struct error *err);
/* Only while joined. */
void terminal_write(struct terminal *t, const struct iovec *iov, int count);
/* Bytes accepted by terminal_write and not sent yet. */
size_t terminal_waiting(const struct terminal *t);
void terminal_pause(struct terminal *t, bool paused);
/* After `doubt`: tries again. */
void terminal_retry(struct terminal *t);
/* NULL is fine. */
void terminal_close(struct terminal *t);
