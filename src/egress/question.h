/* egress/question.h: asks about a request that the rules allow: the program (droste/network.h),
 * or for an approval.
 *
 * The connection waits in PHASE_ASK. A question stays until it is answered, maybe longer than its
 * connection, which forgets it when it ends.
 */
#pragma once

#include <stdbool.h>

struct connection;
struct egress_question;

/* Asks the program. False: no memory. Afterwards question_is_decided tells whether it has its
 * answer already; otherwise connection_decided follows. */
bool question_ask(struct connection *c);
/* The same, for an approval, of the whole destination or the request. False: nothing can ask. */
bool question_approve(struct connection *c, bool whole);
/* The connection has its answer: forgets the question, and sets *why if it is refused. */
bool question_is_decided(struct connection *c, bool *allow);
/* The connection does not wait for the answer any more. */
void question_forget(struct connection *c);
