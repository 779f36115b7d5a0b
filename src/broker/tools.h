/* broker/tools.h: tools for the code of a guest: functions of the host, values, and Python source
 * that defines functions in the sandbox.
 *
 * A host function receives its arguments as a JSON object and answers with a JSON value, at once or
 * later. Guests are hostile, so the broker checks arguments against the tool's schema; the tool
 * judges their meaning.
 */
#pragma once

#include "base/error.h"
#include "base/json/json.h"
#include "session/session.h"

struct tools;
/* One call. The tool owns it until it answers or fails the call, exactly once, even if the call
 * was cancelled. */
struct tool_call;

typedef void tool_fn(void *arg, struct tool_call *call, const char *json, size_t len);
/* Restores the effect of an answered call in a resumed run, or fails, which ends the run. */
typedef int tool_again_fn(void *arg, const char *json, size_t len, struct error *err);

struct tool_spec {
    const char *name;
    const char *description; /* NULL: none */
    const char *parameters;  /* JSON schema of an object; NULL: any arguments */
    const char *returns;     /* JSON schema of the answer of an MCP server; NULL: none */
    tool_fn *fn;
    void *arg;
    void (*release)(void *arg); /* called with the tools' end; NULL: nothing */
    void (*hold)(void *arg);    /* for tools_add_all, whose copy then releases, too; or NULL */
    double seconds;             /* for one call; 0: what the settings say */
    const char *installs;       /* directory of the sets that its answers name; NULL: none */
    tool_again_fn *again;       /* its answer was taken from a record; NULL: nothing to do */
    bool replaces;              /* may replace one of the guest's own functions */
    bool of_server;             /* of an MCP server, with the name MODULE.FUNCTION */
    bool of_client;             /* tool_client.h; has such a name, too, and no function */
};

struct tool {
    char *name, *description;   /* may be NULL */
    struct json_object *schema; /* NULL: none */
    char *returns;              /* may be NULL */
    bool of_server, of_client;
    tool_fn *fn;
    void *arg;
    void (*release)(void *arg), (*hold)(void *arg);
    double seconds;
    char *installs; /* may be NULL */
    tool_again_fn *again;
};

int tools_new(struct tools **out, struct error *err);
/* NULL is allowed. Close all brokers first: no call is answered afterwards. */
void tools_free(struct tools *t);

/* ERROR_ARGUMENT for a name that is taken, reserved or invalid, and for an invalid schema.
 * Copies all texts; releases `arg` also on failure. */
int tools_add(struct tools *t, const struct tool_spec *spec, struct error *err);
/* Returns false if there is no such function. Open calls continue. */
bool tools_remove(struct tools *t, const char *name);
/* Describes the function for a guest: a JSON object. */
void tools_describe(const struct tool *tool, struct buf *out);
/* Copies the value of `datum`. */
int tools_add_datum(struct tools *t, const struct session_datum *datum, struct error *err);
/* `name` appears in tracebacks. */
int tools_add_source(
    struct tools *t, const char *name, const char *code, size_t len, struct error *err);
/* Adds the tools of `other`, which remains responsible for releasing them. */
int tools_add_all(struct tools *t, const struct tools *from, struct error *err);

/* Whether a function, value or module has this name; only the guest knows names from sources. */
bool tools_have(const struct tools *t, const char *name);
/* NULL if there is none. */
const struct tool *tools_find(const struct tools *t, const char *name);
/* Whether it is a function that the client of the run answers. */
bool tools_are_of_client(const struct tools *t, const char *name);
/* Sets the session options for these tools; the options point to them. */
void tools_offer(const struct tools *t, struct session_options *options);
