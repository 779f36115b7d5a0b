/* broker/network_ask.h: requests of a sandbox to the network that need an approval.
 *
 * Such a request is a call of a tool that has no code: it is counted, recorded, asked about and
 * found again in a resumed run as any call of a tool is (tool_call.h). A decision is for one
 * destination, or one request of HTTP, and for the rest of the run or session, so code that
 * connects twice asks once. Requests that come meanwhile wait for the same decision.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "droste/network.h"

struct ask;
struct broker;
struct frame_parts;
struct json_object;
struct session;

/* Answers the request (egress_answer), at once or later. False: it cannot ask. */
bool network_ask(struct broker *b, struct session *s, droste_network_request *request);

/* As broker_function.take. */
int network_ask_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
