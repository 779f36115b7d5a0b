/* lm/request.h: checks requests and estimates their size. */
#pragma once

#include "lm/call.h"

/* The role as a static string; NULL if unknown. */
const char *lm_role(const char *role);
/* Weight of an image in bytes, at 4 for a token. Images are scaled before they are read, so their
 * size says little: this is what a megapixel costs at the large providers. */
enum { LM_IMAGE_WEIGHT = 4 * 1600 };

/* ERROR_ARGUMENT: no messages, an unknown role, text that is not UTF-8, an invalid part. */
int request_check(const struct lm_request *request, struct error *err);
/* The bytes of text that would cost as much. */
size_t request_weight(const struct lm_request *request);
