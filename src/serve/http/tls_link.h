/* serve/http/tls_link.h: connections with TLS, which libmicrohttpd gets as plain ones. */
#pragma once

#include "serve/server.h"

/* Accepts connections of the server's listening socket. */
int tls_listen(struct server *s, struct error *err);
/* Accepts no more; the socket is closed. */
void tls_listen_stop(struct server *s);
/* Some times a second: ends connections whose clients do not close them. */
void tls_sweep(struct server *s, uint64_t now_ns);
/* Ends all, when libmicrohttpd has ended. */
void tls_links_close(struct server *s);
