/* broker/tools.h: what a program or a user gives the code of a guest to work with: functions of the
 * host, values, and Python source that defines functions in the sandbox.
 *
 * A function of the host gets its arguments as a JSON object and answers with a JSON value, at once
 * or later. The guest is hostile: what it calls is checked here against the tool's schema, whatever
 * its own signature says; what the arguments mean is for the tool to judge.
 */
#ifndef DROSTE_BROKER_TOOLS_H
#define DROSTE_BROKER_TOOLS_H

#include "base/error.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "session/session.h"

struct tools;
/* One call. Whoever was called holds it until it has answered or failed it, which it does once, even
 * where nobody waits any more. */
struct tool_call;

typedef void tool_fn(void *arg, struct tool_call *call, const char *json, size_t len);

struct tool_spec {
    const char *name;
    const char *description; /* NULL: none */
    const char *parameters;  /* a JSON schema of an object; NULL: any arguments */
    tool_fn *fn;
    void *arg;
    void (*release)(void *arg); /* with the tools; NULL: nothing is to be done */
    bool replaces; /* it may have the name of one of the guest's own functions, in their place */
};

struct tool {
    char *name, *description;   /* the latter may be NULL */
    struct json_object *schema; /* NULL: none */
    tool_fn *fn;
    void *arg;
    void (*release)(void *arg);
};

int tools_new(struct tools **out, struct error *err);
/* NULL is fine. No call is answered by them any more: close the brokers first. */
void tools_free(struct tools *t);

/* ERROR_ARGUMENT for a name that is taken, reserved or none, and for a schema that makes no sense.
 * All texts are copied; `arg` is released also where it fails. */
int tools_add(struct tools *t, const struct tool_spec *spec, struct error *err);
/* False if it has no function of this name. A call under way goes on. */
bool tools_remove(struct tools *t, const char *name);
/* The function as a guest is told of it: a JSON object. */
void tools_describe(const struct tool *tool, struct buf *out);
int tools_add_datum(
    struct tools *t, const char *name, const char *json, size_t len, struct error *err);
/* `name` is for tracebacks. */
int tools_add_source(
    struct tools *t, const char *name, const char *code, size_t len, struct error *err);
/* tool_program.c: a program of this machine, found as a shell would, with the user's rights. */
int tools_add_program(
    struct tools *t, struct loop *loop, const char *name, const char *path, struct error *err);
/* All that the other ones have; what they release stays theirs. */
int tools_add_all(struct tools *t, const struct tools *from, struct error *err);

/* Whether a function or a value of them has this name; what a source defines, only the guest knows. */
bool tools_have(const struct tools *t, const char *name);
/* NULL: there is none. */
const struct tool *tools_find(const struct tools *t, const char *name);
/* What a session is opened with in order to have them; it points to them. */
void tools_offer(const struct tools *t, struct session_options *options);

/* The answer, a JSON value; if it is none, the guest gets a RuntimeError that says so. */
void tool_call_answer(struct tool_call *call, const char *json, size_t len);
/* The guest gets the exception of this name: one of Python's, else ToolError. */
void tool_call_fail(struct tool_call *call, const char *type, const char *message);
/* True once nobody waits for the answer any more. */
bool tool_call_is_cancelled(const struct tool_call *call);
/* To be called then; the call may be answered there. Not called for one that is cancelled already. */
typedef void tool_cancel_fn(void *arg, struct tool_call *call);
void tool_call_on_cancel(struct tool_call *call, tool_cancel_fn *fn, void *arg);

/* tool_schema.c */
/* Whether it is a schema whose words are known well enough to be held to. */
int tool_schema_check(struct json_object *schema, struct error *err);
/* ERROR_ARGUMENT where readers of JSON could take this (well-formed) object for different ones: a name
 * stands there twice, or has a zero in it. */
int tool_arguments_are_plain(
    const char *text, size_t len, struct json_object *arguments, struct error *err);
/* ERROR_ARGUMENT where the arguments do not fit: names, types, enumerations, those of the top level. */
int tool_schema_fits(struct json_object *schema, struct json_object *arguments, struct error *err);

#endif
