/* mcp/run.h: runs that a client has asked for. */
#ifndef DROSTE_MCP_RUN_H
#define DROSTE_MCP_RUN_H

#include "mcp/call.h"

struct mcp_run {
    struct mcp *mcp;
    struct mcp_call *call;   /* that waits for it; NULL: it is over, or nothing waits any more */
    droste_running *running; /* NULL: it is over */
    char id[DROSTE_RUN_ID_SIZE]; /* "": it has not begun */
    char *question;
    struct mcp_run *next;
};

void mcp_tool_ask(struct mcp_call *c);
/* Ends those under way, and forgets all. */
void mcp_runs_free(struct mcp *mcp);

#endif
