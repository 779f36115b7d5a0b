/* cli/record/show.h: prints one run of the record, turn by turn. */
#ifndef DROSTE_CLI_RECORD_SHOW_H
#define DROSTE_CLI_RECORD_SHOW_H

#include "droste.h"
#include "base/buf.h"

/* Collapses white space, and cuts the text after `max` characters, with … at the end. */
void show_one_line(struct buf *out, droste_value text, size_t max);

/* Describes {"source":…,"bytes":…,"files":…,"left_out":…} in words; writes nothing for others. */
void show_context(struct buf *out, const char *json, size_t len);

int show_as_json(droste_record *record, const char *run, droste_error *err);
/* `full`: does not shorten prompts, replies, code and output. */
int show_as_text(droste_record *record, const char *run, bool full, droste_error *err);

#endif
