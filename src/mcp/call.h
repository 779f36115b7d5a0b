/* mcp/call.h: a request of a client, from its arrival to its answer, for methods and tools. */
#pragma once

#include <stdbool.h>

#include "base/json/json.h"
#include "base/json/rpc.h"
#include "base/json/schema.h"
#include "mcp/mcp.h"

enum { CALL_TOKEN_SIZE = 33 };

#define META "io.modelcontextprotocol/"

struct mcp_run;
struct mcp_call;

/* A tool, of the table or of an extension. */
struct mcp_tool {
    const char *name, *title, *description;
    const char *input, *output, *hints; /* JSON; output and hints may be NULL */
    void (*run)(struct mcp_call *c);
};

/* What a program offers beside the tables. Lists are JSON arrays; all may be NULL. */
struct mcp_extension {
    const struct mcp_tool *tools;
    size_t tool_count;
    const char *resources, *templates, *prompts;
    /* False: it is none of these. Otherwise they answer the call. */
    bool (*read)(struct mcp_call *c, const char *uri);
    bool (*prompt)(struct mcp_call *c, const char *name);
    bool lists_change; /* mcp_notify_list may be called for tools and prompts */
};

struct mcp_server {
    droste *d;
    char **paths; /* resolved; ends with NULL */
    size_t max_sessions;
    const struct mcp_host *host;
    const struct mcp_extension *extension;
    bool roots_bound;
    bool has_questions;      /* that are not sent */
    struct schema **schemas; /* of tools, by index */
    struct mcp *users;
    uint64_t call_count;
};

struct mcp {
    struct mcp_server *server;
    void *user;
    struct mcp_session *sessions;
    size_t session_count;
    struct mcp_run *runs;
    struct mcp_peer *peers;
    struct mcp *next;
};

struct mcp_subscription {
    char *uri;
    struct mcp_subscription *next;
};

struct mcp_peer {
    struct mcp *mcp;
    mcp_send_fn *send;
    void *arg;
    char version[16]; /* that `initialize` agreed on; "": not yet */
    char log_level[16];
    struct json_object *capabilities; /* of `initialize` */
    struct mcp_subscription *subscriptions;
    size_t subscription_count;
    struct json_object *roots; /* of the client; NULL: not asked yet */
    uint64_t questions;        /* asked so far, for their ids */
    struct mcp_call *calls;
    struct mcp_peer *next;
};

/* The client's answer, or NULL and why there is none. The call may have ended: then it is NULL. */
typedef void mcp_reply_fn(
    void *arg, struct mcp_call *c, struct json_object *result, const char *why);

/* Something that is asked of the client for a request of its own. */
struct mcp_question {
    char key[64]; /* as clients see it; up to 2025-11-25, the id of the request */
    char *method;
    struct json_object *params;
    bool is_sent;
    mcp_reply_fn *fn;
    void *arg;
    struct mcp_question *next;
};

struct mcp_call {
    struct mcp_peer *peer;
    uint64_t serial;             /* no other call of the server has it */
    struct json_object *message; /* the whole request */
    struct json_object *origin;  /* its first form, to which params belongs; NULL: the message */
    struct json_object *id;      /* of the message, as are the following */
    struct json_object *params;  /* an object; NULL: none */
    struct json_object *capabilities;   /* of the client; NULL: none */
    struct json_object *progress_token; /* NULL: none */
    struct json_object *responses;      /* to questions, which came with it */
    const char *method, *log_level;
    void *stream;      /* the transport's */
    bool is_stateless; /* of 2026-07-28 */
    bool is_cached;    /* its answer says for how long it holds */
    bool is_refusal;   /* it is not a request of the protocol */
    double progress;
    struct mcp_call *next;

    /* Questions to its client, until the next message of that one. */
    struct mcp_question *questions;
    bool is_parked; /* it was answered with questions, and waits for the request to be repeated */
    char token[CALL_TOKEN_SIZE]; /* by which that one names it */
    uint64_t parked_ns;
    struct json_object *kept; /* its answer, which came meanwhile; takes the next id */

    /* Of what goes on. */
    struct mcp_session *session;
    struct mcp_call *queued; /* the next one that waits for the session */
    struct json_object *arguments;
    struct json_object *filter;         /* of subscriptions/listen */
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
void mcp_question_free(struct mcp_question *q);
/* Ends what it has under way, and frees it without an answer. */
void mcp_call_cancel(struct mcp_call *c);
/* notifications/progress, if the client asked for that. */
void mcp_call_progress(struct mcp_call *c, const char *text, size_t len);
void mcp_call_progress_of(struct mcp_call *c, double done, double total, const char *text);
/* notifications/message, if the client wants this level; takes the data. */
void mcp_call_log(
    struct mcp_call *c, const char *level, const char *logger, struct json_object *data);
/* Takes the message; NULL is fine. */
void mcp_call_note(struct mcp_call *c, struct json_object *message);

/* ---- questions to the client (question.c) ---- */

/* Whether the client offers it: "sampling", "elicitation", "roots". */
bool mcp_call_can(const struct mcp_call *c, const char *capability);
/* Asks the client: `fn` is called once. Takes the params. `key` names the question for clients of
 * 2026-07-28, whose answer may already have come with the request. */
void mcp_call_ask(struct mcp_call *c, const char *key, const char *method,
    struct json_object *params, mcp_reply_fn *fn, void *arg);
/* Answers that the client lacks a capability. */
void mcp_call_fail_capability(struct mcp_call *c, const char *capability);
/* The answer to a question, from a client of a revision with `initialize`. */
void mcp_peer_take_answer(struct mcp_peer *peer, const struct rpc_message *m);
/* A request that repeats one which was answered with questions. True: the call was taken over, or
 * answered. */
bool mcp_call_resume(struct mcp_call *c);

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

/* Puts what the program wrote as JSON; false without memory. */
bool mcp_put_written(struct json_object *o, const char *key, const char *json);
/* Appends the items of a list that the program wrote; NULL: none. */
bool mcp_list_append(struct json_object *list, const char *json);

/* ---- methods ---- */

/* The client names a tool, resource or prompt. Each answers the call. */
void mcp_tools_list(struct mcp_call *c);
void mcp_tools_call(struct mcp_call *c);
int mcp_tools_prepare(struct mcp_server *server, struct error *err);
void mcp_tools_free(struct mcp_server *server);
void mcp_resources_list(struct mcp_call *c);
void mcp_resources_templates(struct mcp_call *c);
void mcp_resources_read(struct mcp_call *c);
void mcp_prompts_list(struct mcp_call *c);
void mcp_prompts_get(struct mcp_call *c);
void mcp_complete(struct mcp_call *c);
void mcp_log_set_level(struct mcp_call *c);

/* ---- subscriptions (subscribe.c) ---- */

void mcp_resources_subscribe(struct mcp_call *c);
void mcp_resources_unsubscribe(struct mcp_call *c);
void mcp_subscriptions_listen(struct mcp_call *c);
void mcp_subscriptions_free(struct mcp_peer *peer);
/* A resource of the user has changed; the list `which` ("tools", "prompts", "resources") has. */
void mcp_notify_updated(struct mcp *mcp, const char *uri);
void mcp_notify_list(struct mcp *mcp, const char *which);
