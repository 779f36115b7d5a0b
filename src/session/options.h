/* session/options.h: validates session options and encodes them for the guest. */
#pragma once

#include "session/session.h"

/* ERROR_UNSUPPORTED, with the option's name, if the environment executes cells without
 * guest/python, which implements the option. */
int session_check_custom(
    const struct session_options *options, const char *environment, struct error *err);
/* The member "output_fields":[…] for the guest, from the type of answers; empty: any. */
void session_write_fields(const struct schema *answer, struct buf *head);
/* The member "env":{…} for the guest, of an open object; nothing without variables. */
void session_write_variables(
    const struct session_options *options, const struct egress_grant *grant, struct buf *head);
/* Writes the head of HELLO: a JSON object, or nothing. `volume` and `workspace` are paths in the
 * guest; NULL: none. */
void session_write_hello(const struct session_options *options, const struct egress_grant *grant,
    const char *volume, const char *workspace, struct buf *head);

/* The directory in which cells start, allocated; NULL: the sandbox's default. */
char *session_directory(const struct session_options *o, const char *workspace);
