/* base/json/schema.h: whether a value fits a JSON Schema.
 *
 * A subset of draft 2020-12: type, enum, const; properties, required, additionalProperties,
 * patternProperties, propertyNames, minProperties, maxProperties; items, prefixItems, minItems,
 * maxItems, uniqueItems; minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf;
 * minLength, maxLength, pattern (base/pattern.h); anyOf, oneOf, allOf, not; $ref to a place in the
 * schema itself ("#/$defs/NAME"), $defs and definitions. What only describes (title, description,
 * default, examples, format…) is passed over. Any other keyword is refused by name, since to ignore it
 * could turn the outcome round; names that begin with "x-" are passed over.
 *
 * Whole numbers that do not fit in 64 bits count as the nearest that do.
 *
 * Why not a library: Debian 12 has none in C (valijson is C++), and none there bounds the work of a
 * check, which here is a million steps (some 0.2 s).
 *
 * Schemas come from whoever runs the program, values from guests: the work of a check is bounded.
 */
#ifndef DROSTE_BASE_JSON_SCHEMA_H
#define DROSTE_BASE_JSON_SCHEMA_H

#include "base/error.h"
#include "base/json/json.h"

struct schema;

enum { SCHEMA_BYTES_MAX = 256 << 10 };

/* ERROR_ARGUMENT says where it is none, or what of it is not supported. */
int schema_parse(const char *text, size_t len, struct schema **out, struct error *err);
/* It lives as long as somebody holds it; who parsed it does. NULL is fine for both. */
struct schema *schema_hold(struct schema *schema);
void schema_drop(struct schema *schema);

/* Its JSON on one line. */
const char *schema_text(const struct schema *schema);
/* The properties that an object which fits has or may have, in their order; NULL, and *count is 0,
 * where the schema does not describe an object by its properties. */
const char *const *schema_names(const struct schema *schema, size_t *count);

/* Whether it is one of the seven names of types, and whether a value is of that type: 2.0 is an integer,
 * too. */
bool schema_is_type(const char *name);
bool schema_has_type(struct json_object *value, const char *name);

/* 0 if it fits; else ERROR_ARGUMENT says where it does not, as a JSON pointer, and what was expected
 * there. */
int schema_check(const struct schema *schema, struct json_object *value, struct error *err);

#endif
