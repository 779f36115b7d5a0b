/* api/forward_api.h: requests that go to a provider as they are. */
#ifndef DROSTE_API_FORWARD_API_H
#define DROSTE_API_FORWARD_API_H

#include "droste.h"

/* Drops the requests under way, without a word, and closes the connections. */
void api_end_forwards(droste *d);

#endif
