/* serve/workers.h: several processes that serve one address.
 *
 * Each worker is this program again, with the same arguments: an event loop with sandboxes and
 * zygotes of its own. All accept connections from one socket, so the parent takes part in no
 * request: it starts workers, starts them again, and passes signals on. An id names its worker; a
 * request for the sandbox of another worker is relayed to it (relay.h) over a socket pair, one end
 * of which went to that worker's mailbox as a descriptor. Nothing outside of these processes can
 * reach a mailbox, so what arrives there is trusted to say for which key a request is. What is
 * limited for a key or the server is counted in shared memory (table.h).
 *
 * A worker that dies takes its sandboxes with it. Requests that it was answering get 502, later
 * ones for its sandboxes 410, both with the code worker_lost: the generation in an id tells. It is
 * started again, after a delay that doubles up to ten seconds. If the parent dies, the kernel ends
 * the workers (PR_SET_PDEATHSIG).
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/error.h"
#include "serve/serve.h"
#include "serve/table.h"

struct server;

/* What a worker has from its parent: descriptors. */
struct worker_links {
    unsigned index;
    int listen_fd, table_fd, mailbox, to[TABLE_WORKERS];
};

/* The variable of the environment in which the parent describes the links. */
#define WORKER_VARIABLE "DROSTE_SERVE_WORKER"

/* Runs the workers until SIGTERM or SIGINT. */
int workers_run(const struct serve_options *options, struct error *err);
/* Takes over the links that the parent describes, and dies with it from now on. */
int worker_inherit(const char *text, struct worker_links *out, struct error *err);

/* Gives a worker one end of a connection. -1: it does not run, or has too many already. */
int worker_send_connection(struct server *s, unsigned worker, int fd);
/* Lets a worker look whether it can serve a request that waits. */
void worker_wake(struct server *s, unsigned worker);
/* The next connection in the mailbox; -1: none. */
int worker_receive_connection(int mailbox);
/* The address of a relayed connection, which no client of a socket can have. */
void worker_relay_address(struct sockaddr *out);
bool worker_is_relay(const struct sockaddr *address);
