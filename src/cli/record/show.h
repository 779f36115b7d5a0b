/* cli/record/show.h: one run of the record, turn by turn. */
#ifndef DROSTE_CLI_RECORD_SHOW_H
#define DROSTE_CLI_RECORD_SHOW_H

#include "droste.h"
#include "base/buf.h"

/* Whitespace runs as one blank, and at most `max` characters, with … where there are more. */
void show_one_line(struct buf *out, droste_value text, size_t max);

/* {"source":…,"bytes":…,"files":…,"left_out":…} in words; nothing where it is something else. */
void show_context(struct buf *out, const char *json, size_t len);

int show_as_json(droste_record *record, const char *run, droste_error *err);
/* `full`: prompts, replies, code and output are not shortened. */
int show_as_text(droste_record *record, const char *run, bool full, droste_error *err);

#endif
