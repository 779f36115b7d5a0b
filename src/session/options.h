/* session/options.h: how session.c reads its options. */
#ifndef DROSTE_SESSION_OPTIONS_H
#define DROSTE_SESSION_OPTIONS_H

#include "session/session.h"

/* The head of HELLO: a JSON object. */
void session_write_hello(const struct session_options *options, struct buf *head);

#endif
