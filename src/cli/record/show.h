/* cli/record/show.h: prints one run of the record, turn by turn. */
#ifndef DROSTE_CLI_RECORD_SHOW_H
#define DROSTE_CLI_RECORD_SHOW_H

#include <stdbool.h>

#include "droste.h"

int show_as_json(droste_record *record, const char *run, droste_error *err);
/* `full`: does not shorten prompts, replies, code and output. */
int show_as_text(droste_record *record, const char *run, bool full, droste_error *err);

#endif
