/* env/clouds/daytona/terminal.h: a program on a terminal of a sandbox's, and its standard streams over a WebSocket.
 *
 * What the program says while nobody is attached is lost, and so is what was on its way to it: the link above knows that
 * (wire/link.h). A terminal that was not heard of within its time is made anew, as long as the program has not spoken.
 */
#ifndef DROSTE_ENV_CLOUDS_DAYTONA_TERMINAL_H
#define DROSTE_ENV_CLOUDS_DAYTONA_TERMINAL_H

#include <sys/uio.h>

#include "env/clouds/daytona/account.h"

struct terminal;

/* These may do anything but within terminal_open, terminal_close included. */
struct terminal_events {
    /* It stands: the program has spoken; and again after a cut. */
    void (*joined)(void *arg);
    /* From the loader's mark on. */
    void (*bytes)(void *arg, const char *data, size_t len);
    void (*cut)(void *arg);
    /* It cannot be reached for now: what has become of the sandbox? terminal_retry, or terminal_close. */
    void (*doubt)(void *arg, const struct error *why);
    /* The program has ended; the last event. ERROR_NONE: by itself. */
    void (*ended)(void *arg, const struct error *why);
};

/* `base` is the toolbox of the sandbox, `words` the program; what of the shell's comes before it is `first`. */
int terminal_open(const struct daytona_account *account, const char *base, const char *first,
    const char *const *words, const struct terminal_events *events, void *arg,
    struct terminal **out, struct error *err);
/* While it stands. */
void terminal_write(struct terminal *t, const struct iovec *iov, int count);
/* Bytes of that which have not been sent. */
size_t terminal_waiting(const struct terminal *t);
void terminal_pause(struct terminal *t, bool paused);
/* After `doubt`: it is tried again. */
void terminal_retry(struct terminal *t);
/* NULL is fine. */
void terminal_close(struct terminal *t);

#endif
