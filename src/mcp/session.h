/* mcp/session.h: Python sessions by name. */
#pragma once

#include "mcp/call.h"

enum { SESSION_NAME_SIZE = 65 };

struct mcp_session {
    struct mcp *mcp;
    char name[SESSION_NAME_SIZE];
    droste_session *session; /* NULL: it waits for room */
    void *held;              /* the host's */
    struct mcp_place place;
    struct mcp_call *running; /* whose operation is under way; NULL: none, or its client has gone */
    bool is_busy;
    bool is_opening;        /* busy with its volume, setup code and MCP servers */
    struct mcp_call *queue; /* that wait, in their order */
    void (*done)(
        struct mcp_session *s, struct mcp_call *c, droste_result *result, const droste_error *err);
    struct mcp_session *next;
};

/* Calls c->begin when that session, which is opened if there is none, has no operation; `at_once`:
 * when it is open. */
void mcp_session_use(struct mcp_call *c, bool at_once);
/* An operation that was started for the call: `done` is called at its end, with the call if that
 * still waits. rc < 0: it failed at once, which is answered. */
void mcp_session_await(struct mcp_session *s, struct mcp_call *c, int rc, const droste_error *err,
    void (*done)(
        struct mcp_session *s, struct mcp_call *c, droste_result *result, const droste_error *err));
void mcp_sessions_free(struct mcp *mcp);
/* The host of a program that has its sandboxes itself. */
extern const struct mcp_host mcp_own_host;

/* Tools. */
void mcp_tool_sessions_list(struct mcp_call *c);
void mcp_tool_session_close(struct mcp_call *c);
void mcp_tool_session_interrupt(struct mcp_call *c);
void mcp_tool_session_fork(struct mcp_call *c);
void mcp_tool_python_run(struct mcp_call *c);
void mcp_tool_context_load(struct mcp_call *c);
void mcp_tool_file_read(struct mcp_call *c);
void mcp_tool_file_write(struct mcp_call *c);
void mcp_tool_files_list(struct mcp_call *c);

/* The path on this machine that the client names, resolved, if the operator allows it (free); NULL:
 * the call was answered. */
char *mcp_path(struct mcp_call *c, const char *path);
/* Calls `go` when the client's roots are known, if they bound the paths. */
void mcp_roots_need(struct mcp_call *c, void (*go)(struct mcp_call *c));
