/* cli/record/show.h: prints one run of the record, turn by turn. */
#pragma once

#include <stdbool.h>

#include "droste.h"

int show_as_json(droste_record *record, const char *run, droste_error *err);
/* `full`: does not shorten prompts, replies, code and output. */
int show_as_text(droste_record *record, const char *run, bool full, droste_error *err);
