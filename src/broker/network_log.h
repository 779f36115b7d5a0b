/* broker/network_log.h: requests of a sandbox to the network, which the record has. */
#pragma once

#include <stdbool.h>

struct broker;
struct egress_request;

/* Records that a request begins or has ended; false: it could not be recorded. */
bool network_log_add(struct broker *b, const struct egress_request *request);
void network_log_free(struct broker *b);
