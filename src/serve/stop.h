/* serve/stop.h: the end of a server.
 *
 * A signal begins the drain: new work is refused, and requests and runs that have begun may end
 * within --drain. Then sandboxes end and runs are suspended. A node of a cluster commits its
 * volumes after that (sandbox/leaving.h), for which other nodes still reach it.
 */
#pragma once

#include "serve/http/request.h"

/* For each signal: the second one ends the drain, the third one the commits, too. */
void stop_drain(struct server *s);
/* Whether a request comes too late to be answered. */
bool stop_excludes(const struct request *r);
/* True: nothing is waited for any more, and the loop is to stop. */
bool stop_is_due(struct server *s);
/* Ends everything, when the loop has stopped or was never run. */
void stop_close(struct server *s);
