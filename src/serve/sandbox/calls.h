/* serve/sandbox/calls.h: calls of a sandbox's code that its client answers. */
#pragma once

#include "serve/sandbox/sandbox.h"

/* From now on, models that are "callback" are answered by clients. */
void calls_open(struct server *s);
/* The sandbox has a stream: it tells of the calls that waited for one. */
void calls_tell(struct sandbox *sb);
/* The client has left. */
void calls_fail(struct sandbox *sb);
/* A fork has the model of the first sandbox, and no tools until its client sets them. */
void calls_inherit(struct sandbox *fork, const struct sandbox *of);
void calls_close(struct sandbox *sb);

/* Handlers of routes. */
void handle_tools(struct request *r);
void handle_call_answer(struct request *r);
