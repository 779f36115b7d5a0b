/* serve/http/listen.h: the socket that a server listens on. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/error.h"

struct listener {
    int fd;            /* -1: none */
    bool is_file;      /* only what may open a file reaches it, so that no web page does */
    bool is_inherited; /* from a manager that keeps it: LISTEN_FDS, sd_listen_fds(3) */
};

/* "127.0.0.1:80" or "[::1]:80"; the length of the address, 0 if it is none. */
socklen_t listen_parse(const char *where, struct sockaddr_storage *out);
/* Opens "ADDRESS:PORT", with the address in numbers, or "unix:PATH"; a socket from a manager takes
 * their place. Without keys only a loopback address. */
int listen_open(const char *where, bool has_keys, struct listener *out, struct error *err);
/* Whether it could be opened, as far as that can be said without doing it. */
int listen_check(const char *where, bool has_keys, struct error *err);
/* The address for people and programs, with the port that the system chose for 0; free it. */
int listen_address(int fd, bool is_tls, char **out, struct error *err);
/* Whether a socket that was opened before is a file. */
bool listen_is_file(int fd);
/* Removes the socket's file, if it has one that this program has made. */
void listen_remove(const struct listener *l, const char *where);
