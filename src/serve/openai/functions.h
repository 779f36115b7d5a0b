/* serve/openai/functions.h: functions of a request ("tools" of the type function), which its client
 * answers.
 *
 * The run has them as the setting client-tools: its code calls functions.NAME, and the call waits
 * in the record (droste/approval.h). When calls wait, the answer to the request ends with them, and
 * the run goes on waiting. The client's next request ends with their results, in messages of the
 * role "tool" or items function_call_output, which are put into the record; its answer is about
 * the same run, from where the first one ended. The id of a call, call_NUMBER_EVENT, says which
 * call of the record it is and after which event the next answer begins, so nothing else has to be
 * kept.
 */
#pragma once

#include "serve/openai/openai.h"

/* False: the request names functions, or a choice among them, that it cannot have, and was
 * refused. */
bool functions_check(struct request *r);
/* Whether it has any. */
bool functions_are_in(struct json_object *asked);
/* Appends the setting of the run. */
void functions_put_settings(struct request *r, struct buf *words);
/* Appends what the request wants of them ("tool_choice") to the question. False: the request was
 * refused. */
bool functions_put_choice(struct request *r, struct buf *question);

/* Appends the member `tools` of a response, in which functions have all their members. */
void functions_put_tools(struct buf *out, struct json_object *tools);

/* What of a run waits for the client of a request: functions, if the request has any, and calls
 * that ask for approval (`with_approvals`). A list of {"run", "number", "name", "arguments",
 * "is_function"}; NULL: nothing, or calls are still being added. *wait_ns: how long the run is to
 * wait without a client. */
struct json_object *functions_waiting(struct request *r, const char *run, struct json_object *asked,
    bool with_approvals, uint64_t *wait_ns);

enum { FUNCTION_ID_SIZE = 96 };
/* The id of such a call, after whose answer event `at` has been told. It has the run's id, because
 * numbers are those of one node. */
void functions_call_id(char out[FUNCTION_ID_SIZE], struct json_object *call, int64_t at);

/* Whether the request ends with results. */
bool functions_have_results(struct json_object *asked);
/* After which event its answer begins; 0: it has no results. */
int64_t functions_from(struct json_object *asked);
/* Keeps the results, and goes on with their run. */
void functions_take_results(struct request *r);

/* Adds a call, or an item with a result, to a conversation that is asked about. */
bool functions_ask_call(struct openai_ask *a, struct json_object *call);
