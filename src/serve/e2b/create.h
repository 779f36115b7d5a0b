/* serve/e2b/create.h: forks, which are created as their sandbox was (create.c). */
#pragma once

#include "serve/e2b/execute.h"

enum { E2B_FORK_SECONDS = 15 };

/* Creates the forks of the request from its image, and answers when all are there. */
void e2b_forks_begin(struct e2b_snapshot *s, struct e2b_sandbox *e);
/* A request for forks gets no more. False: it is for none. */
bool e2b_fork_refuse(struct request *r, unsigned status, const char *text);
