/* lm/request.h: what a request may hold, and how much it weighs. */
#ifndef DROSTE_LM_REQUEST_H
#define DROSTE_LM_REQUEST_H

#include "lm/lm.h"

/* The role as a constant of ours; NULL if nobody knows it. */
const char *lm_role(const char *role);
/* ERROR_ARGUMENT: no messages, an unknown role, text that is not UTF-8, a part that makes no sense. */
int request_check(const struct lm_request *request, struct error *err);
/* Bytes of text that would cost the same. */
size_t request_weight(const struct lm_request *request);

#endif
