/* serve/openai/response_id.h: the ids of responses. */
#pragma once

#include "serve/http/request.h"

enum { RESPONSE_ID_SIZE = SERVE_ID_SIZE + 5 };

bool response_is_id(const char *id);
/* The id of the response that tells of a run from this event on. */
void response_id(char out[RESPONSE_ID_SIZE], const char *run, int64_t from);
/* Sets the id of the run that a path below /v1/responses names. */
void response_locate(struct request *r, const char *path);
