/* serve/listen.h: the socket that a server listens on. */
#ifndef DROSTE_SERVE_LISTEN_H
#define DROSTE_SERVE_LISTEN_H

#include <stdbool.h>

#include "base/error.h"

/* Opens "ADDRESS:PORT", with the address in numbers, or "unix:PATH". Without keys only a loopback
 * address. *is_file: only what may open a file reaches it, so that no web page does. Returns the
 * descriptor. */
int listen_open(const char *where, bool has_keys, bool *is_file, struct error *err);
/* The address for people and programs, with the port that the system chose for 0; free it. */
int listen_address(int fd, const char *where, char **out, struct error *err);
/* Whether a socket that was opened before is a file. */
bool listen_is_file(int fd);
/* Removes the socket's file, if it has one. */
void listen_remove(const char *where);

#endif
