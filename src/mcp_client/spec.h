/* mcp_client/spec.h: how an MCP server is reached, as a setting says it:
 *
 *     NAME=COMMAND WORD…             a program that speaks over its standard streams; words are
 *                                    quoted as in a shell, and nothing else of a shell is known
 *     NAME=https://HOST/PATH         streamable HTTP
 *     NAME={"command": …, "args": […], "env": {…}}
 *     NAME={"url": …, "headers": {…}}
 *                                    the objects that agents have in their `mcpServers`
 *
 * In the values of `env` and `headers`, and in the URL, ${VARIABLE} and ${VARIABLE:-DEFAULT} stand
 * for variables of Droste's environment. They are looked up when the server is reached, so neither
 * the record nor a message has them.
 */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"

struct mcp_spec {
    char *name;
    struct list words;       /* the program and its arguments; none: HTTP */
    struct list environment; /* NAME=VALUE, beside the usual ones; not expanded */
    char *url;               /* NULL: a program; not expanded */
    struct list headers;     /* "NAME: VALUE"; not expanded */
};

/* ERROR_ARGUMENT says what is wrong. After an error, there is nothing to free. */
int mcp_spec_parse(const char *value, struct mcp_spec *out, struct error *err);
int mcp_spec_copy(struct mcp_spec *to, const struct mcp_spec *from, struct error *err);
void mcp_spec_free(struct mcp_spec *spec);

/* Appends the setting with `null` for the values of `env` and `headers`, unless they consist of
 * ${VARIABLE}s: for the record. */
void mcp_spec_write_public(const char *value, struct buf *out);
/* The length of the NAME of a setting; 0: it has none. */
size_t mcp_spec_name_length(const char *value);

/* Appends the text with its variables. ERROR_CONFIG names one that is not set. */
int mcp_spec_expand(const char *text, struct buf *out, struct error *err);
/* Sets `out`, of NAME=VALUE and a NULL at its end, to the whole environment of the program. */
int mcp_spec_environment(const struct mcp_spec *spec, struct list *out, struct error *err);
