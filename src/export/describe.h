/* export/describe.h: values of the record in a few words. */
#pragma once

#include "droste.h"
#include "base/buf.h"

/* Collapses white space, and cuts the text after `max` characters, with … at the end. */
void describe_line(struct buf *out, droste_value text, size_t max);

/* Describes {"source":…,"bytes":…,"files":…,"left_out":…} in words; writes nothing for others. */
void describe_context(struct buf *out, const char *json, size_t len);
