/* api/forward_api.h: requests that go to a provider as they are. */
#pragma once

#include "droste.h"

/* Drops the requests under way, without a word, and closes the connections. */
void api_end_forwards(droste *d);
