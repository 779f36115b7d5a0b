/* mcp/call.h: a request of a client, from its arrival to its answer. */
#ifndef DROSTE_MCP_CALL_H
#define DROSTE_MCP_CALL_H

#include <stdbool.h>

#include "base/json/json.h"
#include "base/json/schema.h"
#include "mcp/mcp.h"

/* Codes of JSON-RPC and of MCP. */
enum {
    RPC_PARSE = -32700,
    RPC_REQUEST = -32600,
    RPC_METHOD = -32601,
    RPC_PARAMS = -32602,
    RPC_INTERNAL = -32603,
    RPC_NO_RESOURCE = -32002, /* up to 2025-11-25; later RPC_PARAMS */
    RPC_VERSION = -32022,     /* from 2026-07-28 */
};

struct mcp_run;
struct mcp_session;

struct mcp {
    droste *d;
    char **paths; /* resolved; ends with NULL */
    size_t max_sessions;
    struct schema **schemas; /* of tools, by index */
    struct mcp_session *sessions;
    size_t session_count;
    struct mcp_run *runs;
    struct mcp_peer *peers;
};

struct mcp_peer {
    struct mcp *mcp;
    mcp_send_fn *send;
    void *arg;
    char version[16]; /* that `initialize` agreed on; "": not yet */
    struct mcp_call *calls;
    struct mcp_peer *next;
};

struct mcp_call {
    struct mcp_peer *peer;
    struct json_object *message;        /* the whole request */
    struct json_object *id;             /* of it, as are the following */
    struct json_object *params;         /* an object; NULL: none */
    struct json_object *progress_token; /* NULL: none */
    bool is_stateless;                  /* of 2026-07-28 */
    bool is_cached;                     /* its answer says for how long it holds */
    double progress;
    struct mcp_call *next;

    /* Of what goes on. */
    struct mcp_session *session;
    struct mcp_call *queued; /* the next one that waits for the session */
    struct json_object *arguments;
    void (*begin)(struct mcp_call *c);  /* when the session is free */
    void (*cancel)(struct mcp_call *c); /* the client does not want it any more; it is answered */
    void *state;
    void (*free_state)(void *state);
};

/* Answers, and frees the call. Takes the tree; NULL: out of memory. */
void mcp_call_answer(struct mcp_call *c, struct json_object *result);
void mcp_call_fail(struct mcp_call *c, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with data, which it takes. */
void mcp_call_fail_with(struct mcp_call *c, int code, struct json_object *data, const char *text);
/* Frees it without an answer: its client has gone, or cancelled it. */
void mcp_call_drop(struct mcp_call *c);
/* notifications/progress, if the client asked for that. */
void mcp_call_progress(struct mcp_call *c, const char *text, size_t len);

/* ---- results of tools ---- */

/* A result to which content is added; NULL without memory. */
struct json_object *mcp_result(void);
void mcp_result_add_text(struct json_object *result, const char *text, size_t len);
void mcp_result_add_media(
    struct json_object *result, const char *kind, const char *type, const void *data, size_t len);
/* Sets structuredContent, which it takes, and adds it as text if there is no other content. */
void mcp_result_set_data(struct json_object *result, struct json_object *data);
/* Answers that the tool failed, as models are told. */
void mcp_tool_fail(struct mcp_call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void mcp_tool_fail_error(struct mcp_call *c, const droste_error *err);

/* ---- methods ---- */

/* The client names a tool, resource or prompt. Each answers the call. */
void mcp_tools_list(struct mcp_call *c);
void mcp_tools_call(struct mcp_call *c);
int mcp_tools_prepare(struct mcp *mcp, struct error *err);
void mcp_tools_free(struct mcp *mcp);
void mcp_resources_list(struct mcp_call *c);
void mcp_resources_templates(struct mcp_call *c);
void mcp_resources_read(struct mcp_call *c);
void mcp_prompts_list(struct mcp_call *c);
void mcp_prompts_get(struct mcp_call *c);

#endif
