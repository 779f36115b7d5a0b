/* base/json/schema.h: checks whether a value fits a JSON Schema.
 *
 * A subset of draft 2020-12: type, enum, const; properties, required, additionalProperties,
 * patternProperties, propertyNames, minProperties, maxProperties; items, prefixItems, minItems,
 * maxItems, uniqueItems; minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf;
 * minLength, maxLength, pattern (base/pattern.h); anyOf, oneOf, allOf, not; $ref to a place in the
 * schema itself ("#/$defs/NAME"), $defs and definitions. Annotations (title, description, default,
 * examples, format…) and names that begin with "x-" are ignored. Any other keyword is an error,
 * because ignoring it could reverse the outcome.
 *
 * Integers that do not fit in 64 bits count as the nearest that does.
 *
 * Why not a library: Debian 12 has none in C (valijson is C++), and none bounds the work of a
 * check, which is a million steps here (some 0.2 s). Users supply schemas, but guests supply
 * values.
 */
#pragma once

#include "base/error.h"
#include "base/json/json.h"

struct schema;

enum { SCHEMA_BYTES_MAX = 256 << 10 };

/* ERROR_ARGUMENT names an invalid or unsupported part. */
int schema_parse(const char *text, size_t len, struct schema **out, struct error *err);
/* Reference counting; schema_parse returns the first reference. NULL is fine for both. */
struct schema *schema_hold(struct schema *schema);
void schema_drop(struct schema *schema);

/* The schema as one line of JSON. */
const char *schema_text(const struct schema *schema);
/* The properties that a fitting object has or may have, in order; NULL, with a *count of 0, if
 * the schema does not describe an object by its properties. */
const char *const *schema_names(const struct schema *schema, size_t *count);

/* Whether it is one of the seven names of types, and whether a value has that type: 2.0 is also
 * an integer. */
bool schema_is_type(const char *name);
bool schema_has_type(struct json_object *value, const char *name);

/* 0 if it fits; otherwise ERROR_ARGUMENT with the place as a JSON pointer, and what was
 * expected. */
int schema_check(const struct schema *schema, struct json_object *value, struct error *err);
