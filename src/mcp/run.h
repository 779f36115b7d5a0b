/* mcp/run.h: runs that a client has asked for. */
#pragma once

#include "mcp/call.h"

#define RUN_URI "droste://runs/"

struct mcp_run {
    struct mcp *mcp;
    uint64_t number;         /* random: it names the model of the run, and no other client may */
    struct mcp_call *call;   /* that waits for it; NULL: it is over, or nothing waits any more */
    droste_running *running; /* NULL: it waits for room, or is over */
    struct mcp_place place;
    bool samples;                /* its model is the client's */
    char id[DROSTE_RUN_ID_SIZE]; /* "": it has not begun */
    char *question;
    char **contexts; /* paths, until it begins; ends with NULL */
    struct mcp_run *next;
};

void mcp_tool_ask(struct mcp_call *c);
/* Lets runs use their clients' models, and ask their users. */
void mcp_runs_prepare(struct mcp_server *server);
void mcp_approvals_prepare(struct mcp_server *server);
/* Ends those under way, and forgets all. */
void mcp_runs_free(struct mcp *mcp);
