/* session/options.h: how session.c reads its options. */
#ifndef DROSTE_SESSION_OPTIONS_H
#define DROSTE_SESSION_OPTIONS_H

#include "session/session.h"

/* Of the type of answers, for the guest: "output_fields":[…]; empty: any. */
/* ERROR_UNSUPPORTED by the name of what is done by guest/python, where an environment executes cells without it. */
int session_check_custom(
    const struct session_options *options, const char *environment, struct error *err);
void session_write_fields(const struct schema *answer, struct buf *head);
/* The head of HELLO: a JSON object, or nothing. `volume` and `workspace` are where the guest sees them; NULL: it
 * has none. */
void session_write_hello(const struct session_options *options, const char *volume,
    const char *workspace, struct buf *head);

#endif
