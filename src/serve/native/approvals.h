/* serve/native/approvals.h: calls of tools that wait for an approval (docs/approvals.md). */
#pragma once

struct request;
struct server;

void handle_approval_list(struct request *r);
void handle_approval_get(struct request *r);
void handle_approval_decide(struct request *r);

/* Sessions and runs that begin afterwards ask here. */
void approvals_open(struct server *s);
