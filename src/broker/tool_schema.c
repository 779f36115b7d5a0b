/* broker/tool_schema.c: checks arguments against a tool's JSON schema.
 *
 * Checks only what a function's signature expresses: `properties` with `type` and `enum`,
 * `required`, and additional properties unless `additionalProperties` is true. The tool checks the
 * contents of arrays and objects. Schemas of any dialect are accepted, unlike in
 * base/json/schema.h, which rejects unknown keywords.
 */
#include "broker/tool_schema.h"

#include <string.h>

#include "base/json/schema.h"

static bool is_type(struct json_object *name)
{
    return json_object_is_type(name, json_type_string) &&
           schema_is_type(json_object_get_string(name));
}

static int check_types(const char *name, struct json_object *type, struct error *err)
{
    size_t count = json_length(type);
    bool fine = count > 0 || is_type(type);
    for (size_t i = 0; i < count; i++)
        fine = fine && is_type(json_object_array_get_idx(type, i));
    return fine ? 0
                : error_set(err, ERROR_ARGUMENT,
                      "the schema's parameter '%.60s' has an unknown type", name);
}

static int check_properties(struct json_object *properties, struct error *err)
{
    json_object_object_foreach(properties, name, about)
    {
        struct json_object *type = NULL;
        if (!json_object_is_type(about, json_type_object) &&
            !json_object_is_type(about, json_type_boolean))
            return error_set(
                err, ERROR_ARGUMENT, "the schema's parameter '%.60s' is not a schema", name);
        if (json_object_is_type(about, json_type_object) &&
            json_object_object_get_ex(about, "type", &type) && check_types(name, type, err) < 0)
            return -(int)ERROR_ARGUMENT;
    }
    return 0;
}

int tool_schema_check(struct json_object *schema, struct error *err)
{
    struct json_object *properties = NULL, *required = NULL;
    if (!json_object_is_type(schema, json_type_object) ||
        strcmp(json_get_string(schema, "type", "object"), "object") != 0)
        return error_set(err, ERROR_ARGUMENT,
            "the parameters must be a JSON schema of an object: {\"type\": \"object\", "
            "\"properties\": {…}}");
    if (json_object_object_get_ex(schema, "properties", &properties) &&
        !json_object_is_type(properties, json_type_object))
        return error_set(err, ERROR_ARGUMENT, "the schema's `properties` must be an object");
    if (json_object_object_get_ex(schema, "required", &required) &&
        !json_object_is_type(required, json_type_array))
        return error_set(err, ERROR_ARGUMENT, "the schema's `required` must be an array");
    return properties ? check_properties(properties, err) : 0;
}

/* ---- arguments ---- */

/* Returns the end of the string that begins at `at`; *zero: it contains a NUL character. */
static size_t tool_schema_skip_string(const char *text, size_t at, bool *zero)
{
    *zero = false;
    for (at++; text[at] != '"'; at++) {
        if (text[at] != '\\')
            continue;
        *zero |= strncmp(text + at, "\\u0000", 6) == 0;
        at++;
    }
    return at + 1;
}

int tool_arguments_are_plain(
    const char *text, size_t len, struct json_object *arguments, struct error *err)
{
    int members = 0, depth = 0;
    bool zero = false;
    for (size_t at = 0; at < len;) {
        char c = text[at];
        if (c == '"') {
            at = tool_schema_skip_string(text, at, &zero);
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        members += c == ':' && depth == 1;
        if (c == ':' && depth == 1 && zero)
            return error_set(err, ERROR_ARGUMENT, "the name of an argument contains a zero byte");
        at++;
    }
    return members == json_object_object_length(arguments)
               ? 0
               : error_set(err, ERROR_ARGUMENT, "an argument is given twice");
}

static bool fits_types(struct json_object *value, struct json_object *type)
{
    if (!json_object_is_type(type, json_type_array))
        return schema_has_type(value, json_object_get_string(type));
    for (size_t i = 0; i < json_object_array_length(type); i++)
        if (schema_has_type(value, json_object_get_string(json_object_array_get_idx(type, i))))
            return true;
    return false;
}

static bool is_one_of(struct json_object *value, struct json_object *list)
{
    size_t count = json_length(list);
    for (size_t i = 0; i < count; i++)
        if (json_object_equal(value, json_object_array_get_idx(list, i)))
            return true;
    return false;
}

static int check_argument(
    const char *name, struct json_object *value, struct json_object *about, struct error *err)
{
    struct json_object *type = NULL, *list = NULL;
    if (!json_object_is_type(about, json_type_object))
        return 0;
    if (json_object_object_get_ex(about, "type", &type) && !fits_types(value, type))
        return error_set(err, ERROR_ARGUMENT, "the argument '%.60s' must be of type %.60s", name,
            json_object_is_type(type, json_type_string) ? json_object_get_string(type)
                                                        : json_object_to_json_string(type));
    if (json_object_object_get_ex(about, "enum", &list) && !is_one_of(value, list))
        return error_set(err, ERROR_ARGUMENT, "the argument '%.60s' must be one of %.140s", name,
            json_object_to_json_string(list));
    return 0;
}

static int check_required(
    struct json_object *schema, struct json_object *arguments, struct error *err)
{
    struct json_object *required = json_get_typed(schema, "required", json_type_array);
    size_t count = json_length(required);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(required, i));
        if (name && !json_object_object_get_ex(arguments, name, NULL))
            return error_set(err, ERROR_ARGUMENT, "the argument '%.60s' is missing", name);
    }
    return 0;
}

int tool_schema_fits(struct json_object *schema, struct json_object *arguments, struct error *err)
{
    struct json_object *properties = json_get_typed(schema, "properties", json_type_object);
    bool open = !properties || json_get_bool(schema, "additionalProperties", false);
    int rc = check_required(schema, arguments, err);
    if (rc < 0)
        return rc;
    json_object_object_foreach(arguments, name, value)
    {
        struct json_object *about = NULL;
        if (properties && json_object_object_get_ex(properties, name, &about))
            rc = check_argument(name, value, about, err);
        else if (!open)
            rc = error_set(err, ERROR_ARGUMENT, "there is no parameter '%.60s'", name);
        if (rc < 0)
            return rc;
    }
    return 0;
}
