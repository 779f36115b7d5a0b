/* api/approval_api.h: approvals of tool calls, for the program (droste/approval.h). */
#pragma once

#include "api/api.h"
#include "rlm/rlm.h"

/* How calls of a session (NULL: of a run) ask the program: as `approve` of broker_options, with the
 * argument. */
void api_approve_run(void *d, struct approval *approval);
void api_approve_session(void *session, struct approval *approval);
