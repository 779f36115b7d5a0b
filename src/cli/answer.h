/* cli/answer.h: prints the result of a run on standard output. */
#pragma once

#include <stdbool.h>

#include "droste.h"

/* Prints the answer, or the whole result as JSON, and frees it. Returns the exit status. */
int answer_print(droste *d, droste_result *r, bool json);
/* The exit status for the status of a run. */
int answer_status(const char *status, int otherwise);
/* An answer in JSON: a string as its text, everything else as it is. */
void answer_print_value(const char *json, size_t len);
