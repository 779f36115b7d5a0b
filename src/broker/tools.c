/* broker/tools.c: see tools.h. Names are checked here for all kinds of tools: they share one namespace
 * with Python's built-ins, which nothing in the sandbox could do without.
 */
#include "broker/tools.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session/names.h"

enum { NAME_MAX_ = 64, TEXT_MAX_ = 16000 };

static const struct json_limits schema_limits = { 1 << 20, 32, 20000 };

struct tools {
    struct tool *list;
    size_t count;
    struct session_datum *data;
    size_t datum_count;
    struct session_source *sources;
    size_t source_count;
    struct buf json; /* the list, as the guest is told of it */
};

static const char *const reserved[] = {
    /* Python's keywords and built-ins, of all versions from 3.8 to 3.14 */
    "abs",
    "aiter",
    "all",
    "and",
    "anext",
    "any",
    "ArithmeticError",
    "as",
    "ascii",
    "assert",
    "AssertionError",
    "async",
    "AttributeError",
    "await",
    "BaseException",
    "BaseExceptionGroup",
    "bin",
    "BlockingIOError",
    "bool",
    "break",
    "breakpoint",
    "BrokenPipeError",
    "BufferError",
    "bytearray",
    "bytes",
    "BytesWarning",
    "callable",
    "case",
    "ChildProcessError",
    "chr",
    "class",
    "classmethod",
    "compile",
    "complex",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "continue",
    "copyright",
    "credits",
    "def",
    "del",
    "delattr",
    "DeprecationWarning",
    "dict",
    "dir",
    "divmod",
    "elif",
    "Ellipsis",
    "else",
    "EncodingWarning",
    "enumerate",
    "EnvironmentError",
    "EOFError",
    "eval",
    "except",
    "Exception",
    "ExceptionGroup",
    "exec",
    "exit",
    "False",
    "FileExistsError",
    "FileNotFoundError",
    "filter",
    "finally",
    "float",
    "FloatingPointError",
    "for",
    "format",
    "from",
    "frozenset",
    "FutureWarning",
    "GeneratorExit",
    "getattr",
    "global",
    "globals",
    "hasattr",
    "hash",
    "help",
    "hex",
    "id",
    "if",
    "import",
    "ImportError",
    "ImportWarning",
    "in",
    "IndentationError",
    "IndexError",
    "input",
    "int",
    "InterruptedError",
    "IOError",
    "is",
    "IsADirectoryError",
    "isinstance",
    "issubclass",
    "iter",
    "KeyboardInterrupt",
    "KeyError",
    "lambda",
    "len",
    "license",
    "list",
    "locals",
    "LookupError",
    "map",
    "match",
    "max",
    "MemoryError",
    "memoryview",
    "min",
    "ModuleNotFoundError",
    "NameError",
    "next",
    "None",
    "nonlocal",
    "not",
    "NotADirectoryError",
    "NotImplemented",
    "NotImplementedError",
    "object",
    "oct",
    "open",
    "or",
    "ord",
    "OSError",
    "OverflowError",
    "pass",
    "PendingDeprecationWarning",
    "PermissionError",
    "pow",
    "print",
    "ProcessLookupError",
    "property",
    "PythonFinalizationError",
    "quit",
    "raise",
    "range",
    "RecursionError",
    "ReferenceError",
    "repr",
    "ResourceWarning",
    "return",
    "reversed",
    "round",
    "RuntimeError",
    "RuntimeWarning",
    "set",
    "setattr",
    "slice",
    "sorted",
    "staticmethod",
    "StopAsyncIteration",
    "StopIteration",
    "str",
    "sum",
    "super",
    "SyntaxError",
    "SyntaxWarning",
    "SystemError",
    "SystemExit",
    "TabError",
    "TimeoutError",
    "True",
    "try",
    "tuple",
    "type",
    "TypeError",
    "UnboundLocalError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "UnicodeError",
    "UnicodeTranslateError",
    "UnicodeWarning",
    "UserWarning",
    "ValueError",
    "vars",
    "Warning",
    "while",
    "with",
    "yield",
    "ZeroDivisionError",
    "zip",
};

/* ---- names ---- */

static bool is_identifier(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > NAME_MAX_ || isdigit((unsigned char)name[0]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return false;
    return true;
}

static bool is_reserved(const char *name)
{
    for (size_t i = 0; i < array_length(reserved); i++)
        if (strcmp(reserved[i], name) == 0)
            return true;
    return guest_name_is_ours(name);
}

static bool is_taken(const struct tools *t, const char *name)
{
    for (size_t i = 0; i < t->datum_count; i++)
        if (strcmp(t->data[i].name, name) == 0)
            return true;
    return tools_find(t, name) != NULL;
}

static int check_name(const struct tools *t, const char *name, struct error *err)
{
    if (!is_identifier(name))
        return error_set(err, ERROR_ARGUMENT,
            "'%.70s' is no name for a tool: use letters, digits and '_', at most %d", name,
            NAME_MAX_);
    if (is_reserved(name))
        return error_set(err, ERROR_ARGUMENT,
            "the name '%s' is reserved, by Python or by the guest; give the tool another", name);
    if (is_taken(t, name))
        return error_set(err, ERROR_ARGUMENT, "there are two tools with the name '%s'", name);
    return 0;
}

/* ---- the registry ---- */

int tools_new(struct tools **out, struct error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : error_memory(err);
}

static void free_tool(struct tool *tool)
{
    if (tool->release)
        tool->release(tool->arg);
    json_object_put(tool->schema);
    free(tool->name);
}

void tools_free(struct tools *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++)
        free_tool(&t->list[i]);
    for (size_t i = 0; i < t->datum_count; i++) {
        free((char *)(uintptr_t)t->data[i].name);
        free((char *)(uintptr_t)t->data[i].json);
    }
    for (size_t i = 0; i < t->source_count; i++) {
        free((char *)(uintptr_t)t->sources[i].name);
        free((char *)(uintptr_t)t->sources[i].code);
    }
    free(t->list);
    free(t->data);
    free(t->sources);
    buf_free(&t->json);
    free(t);
}

/* Room for one more at the end of an array; false without memory. */
static bool grow(void *array, size_t count, size_t size)
{
    void *grown = reallocarray(*(void **)array, count + 1, size);
    if (grown)
        *(void **)array = grown;
    return grown != NULL;
}

static void append_text(struct buf *out, const char *text)
{
    cleanup_buf struct buf clean = { 0 };
    size_t len = text ? strlen(text) : 0;
    text_append_utf8(&clean, text ? text : "", len < TEXT_MAX_ ? len : TEXT_MAX_);
    json_append_string(out, buf_text(&clean), clean.len);
}

/* One more in the list that the guest is told. */
static int tell(
    struct buf *json, const struct tool_spec *spec, struct json_object *schema, struct error *err)
{
    if (json->len > 0)
        json->data[json->len - 1] = ',';
    else
        buf_putc(json, '[');
    buf_printf(json, "{\"name\":\"%s\",\"description\":", spec->name);
    append_text(json, spec->description);
    buf_printf(json, ",\"parameters\":%s}]", schema ? json_text(schema, NULL) : "null");
    return buf_failed(json) ? error_memory(err) : 0;
}

static int add(struct tools *t, const struct tool_spec *spec, struct tool *tool, struct error *err)
{
    const char *parameters = spec->parameters;
    int rc = check_name(t, spec->name, err);
    if (rc == 0 && parameters)
        rc = json_parse(parameters, strlen(parameters), &schema_limits, &tool->schema, err);
    if (rc == 0 && parameters)
        rc = tool_schema_check(tool->schema, err);
    if (rc < 0)
        return error_wrap(err, "tool '%.64s'", spec->name);
    if (!(tool->name = strdup(spec->name)) || !grow(&t->list, t->count, sizeof *t->list))
        return error_memory(err);
    return tell(&t->json, spec, tool->schema, err);
}

int tools_add(struct tools *t, const struct tool_spec *spec, struct error *err)
{
    struct tool tool = { .fn = spec->fn, .arg = spec->arg, .release = spec->release };
    int rc = add(t, spec, &tool, err);
    if (rc < 0)
        free_tool(&tool);
    else
        t->list[t->count++] = tool;
    return rc;
}

int tools_add_datum(
    struct tools *t, const char *name, const char *json, size_t len, struct error *err)
{
    int rc = check_name(t, name, err);
    if (rc == 0)
        rc = json_check(json, len, &json_limits_large, err);
    if (rc < 0)
        return error_wrap(err, "tool-data '%.64s'", name);
    struct session_datum datum = { strdup(name), text_copy(json, len), len };
    if (!datum.name || !datum.json || !grow(&t->data, t->datum_count, sizeof *t->data)) {
        free((char *)(uintptr_t)datum.name);
        free((char *)(uintptr_t)datum.json);
        return error_memory(err);
    }
    t->data[t->datum_count++] = datum;
    return 0;
}

/* The name as tracebacks show it. */
static int add_source(
    struct tools *t, const char *name, const char *code, size_t len, struct error *err)
{
    struct session_source source = { strdup(name), text_copy(code, len), len };
    if (!source.name || !source.code || !grow(&t->sources, t->source_count, sizeof *t->sources)) {
        free((char *)(uintptr_t)source.name);
        free((char *)(uintptr_t)source.code);
        return error_memory(err);
    }
    t->sources[t->source_count++] = source;
    return 0;
}

int tools_add_source(
    struct tools *t, const char *name, const char *code, size_t len, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    size_t bad = 0;
    if (!text_is_utf8(code, len, &bad))
        return error_set(
            err, ERROR_ARGUMENT, "the tools of %.100s are not UTF-8 at byte %zu", name, bad);
    buf_puts(&shown, "<tools ");
    text_append_visible(&shown, name, strlen(name));
    buf_putc(&shown, '>');
    return add_source(t, buf_text(&shown), code, len, err);
}

/* As it was added: its own line of the list has the description. */
static int add_copy(
    struct tools *t, const struct tool *tool, struct json_object *told, struct error *err)
{
    struct tool_spec spec = { .name = tool->name,
        .description = json_get_string(told, "description", NULL),
        .parameters = tool->schema ? json_text(tool->schema, NULL) : NULL,
        .fn = tool->fn,
        .arg = tool->arg };
    return tools_add(t, &spec, err);
}

int tools_add_all(struct tools *t, const struct tools *from, struct error *err)
{
    cleanup_json struct json_object *list = NULL;
    int rc = 0;
    if (from->count > 0)
        rc = json_parse(from->json.data, from->json.len, &json_limits_large, &list, err);
    for (size_t i = 0; rc == 0 && i < from->count; i++)
        rc = add_copy(t, &from->list[i], json_object_array_get_idx(list, i), err);
    for (size_t i = 0; rc == 0 && i < from->datum_count; i++)
        rc = tools_add_datum(t, from->data[i].name, from->data[i].json, from->data[i].len, err);
    for (size_t i = 0; rc == 0 && i < from->source_count; i++) {
        const struct session_source *source = &from->sources[i];
        rc = add_source(t, source->name, source->code, source->len, err);
    }
    return rc;
}

const struct tool *tools_find(const struct tools *t, const char *name)
{
    for (size_t i = 0; t && i < t->count; i++)
        if (strcmp(t->list[i].name, name) == 0)
            return &t->list[i];
    return NULL;
}

void tools_offer(const struct tools *t, struct session_options *o)
{
    o->tools = t && t->count > 0 ? buf_text(&t->json) : NULL;
    o->data = t ? t->data : NULL;
    o->datum_count = t ? t->datum_count : 0;
    o->sources = t ? t->sources : NULL;
    o->source_count = t ? t->source_count : 0;
}
