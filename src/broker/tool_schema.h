/* broker/tool_schema.h: checks a tool's schema, and a call's arguments against it. */
#pragma once

#include "base/error.h"
#include "base/json/json.h"

/* Whether the schema's checked keywords are well-formed. */
int tool_schema_check(struct json_object *schema, struct error *err);
/* ERROR_ARGUMENT if JSON parsers could disagree about this (well-formed) object: duplicate names
 * or NUL characters. */
int tool_arguments_are_plain(
    const char *text, size_t len, struct json_object *arguments, struct error *err);
/* ERROR_ARGUMENT unless the arguments match the names, types and enumerations at the top level. */
int tool_schema_fits(struct json_object *schema, struct json_object *arguments, struct error *err);
