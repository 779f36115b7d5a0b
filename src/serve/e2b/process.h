/* serve/e2b/process.h: what the streams of processes and the calls about them share. */
#pragma once

#include "serve/e2b/connect.h"

/* The HTTP status that stands for an error of a command. */
unsigned process_status(const droste_error *err);
/* Sets the tag or the pid of `out` from a selector: {"process": {"pid"} or {"tag"}}; false if there
 * is neither. */
bool process_select(struct json_object *message, droste_command_request *out);
/* The bytes of {"input": {"stdin"} or {"pty"}}, which the caller frees; NULL if there are none. */
char *process_input(struct json_object *message, size_t *len);
