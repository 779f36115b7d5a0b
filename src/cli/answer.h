/* cli/answer.h: what became of a run, for standard output. */
#ifndef DROSTE_CLI_ANSWER_H
#define DROSTE_CLI_ANSWER_H

#include <stdbool.h>

#include "droste.h"

/* Prints the answer, or all of the result as JSON; frees the result. Returns the exit status. */
int answer_print(droste_result *r, bool json);

#endif
