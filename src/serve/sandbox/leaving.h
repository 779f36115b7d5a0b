/* serve/sandbox/leaving.h: the last commits of a node that leaves its cluster in order.
 *
 * Another node goes on with a volume from its last commit. So that nothing is missing there, a node
 * that is stopped commits its volumes once more, when nothing uses them any more.
 */
#pragma once

#include "serve/server.h"

/* Begins with the volumes that have a commit, one after the other. Unless the nodes share a
 * directory, others must reach this one until leaving_is_over. What cannot be committed is logged.
 */
void leaving_start(struct server *s);
/* Or was not started. */
bool leaving_is_over(const struct server *s);
/* Gives up what is left. After owners_close. */
void leaving_close(struct server *s);
