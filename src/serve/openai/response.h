/* serve/openai/response.h: /v1/responses: a run as a response, its steps as items.
 *
 * What the client sent is kept in ID.json of its account's files, with its run; all else comes from
 * the record, so that a response looks the same while it streams, afterwards, and from any worker.
 */
#pragma once

#include "serve/openai/containers.h"
#include "serve/openai/openai.h"
#include "serve/openai/response_id.h"

enum { RESPONSE_STORED_MAX = 4 << 20 };
enum { RESPONSE_CHAIN_MAX = 100 };

/* A response as it is told: the items so far. */
struct response {
    struct openai_answer *answer; /* of a stream; NULL: nothing is pushed */
    struct json_object *asked;    /* the request */
    struct request *r;            /* that it is told to */
    char run[SERVE_ID_SIZE];
    char container[STORE_ID_SIZE];
    int64_t from;     /* the event of the record after which it tells; 0: from the beginning */
    int64_t until;    /* the last one, where calls waited for approvals; 0: the run's end */
    struct buf items; /* JSON, with commas */
    unsigned count;   /* of them */
    int64_t sequence;
};

/* Begins it: what was asked, and of which run. */
void response_open(
    struct response *p, struct request *r, struct json_object *asked, const char *run);
/* Reads its steps from the record; the number of the last event. */
int64_t response_add_steps(struct response *p, droste_record *record);
/* Adds items that wait for the client. */
void response_add_waiting(struct response *p, struct json_object *items);
/* Adds the answer, if the run has one. */
void response_add_answer(struct response *p, const droste_record_run *run);
/* The object. `status` NULL: that of the run. */
void response_put(
    struct buf *out, const struct response *p, const droste_record_run *run, const char *status);

/* OpenAI's word for the status of a run. */
const char *response_status(const droste_record_run *run);
/* Adds a step: a call of the model, or a cell. */
void response_add_call(struct response *p, const droste_record_call *call);
void response_add_cell(struct response *p, const droste_record_cell *cell);
/* Begins an event's data; the caller adds members, and response_push ends it. */
void response_event(struct response *p, struct buf *out, const char *type);
void response_push(struct response *p, struct buf *out, const char *type);
/* Pushes an event with the whole object. */
void response_push_whole(
    struct response *p, const char *type, const droste_record_run *run, const char *status);

/* ---- response_approvals.c ---- */

/* The label of the tools whose calls the client wants to approve; NULL: it does not. */
const char *response_label(struct json_object *asked);
/* Items for calls that wait (functions_waiting) after event `at`; NULL without memory. */
struct json_object *response_items(
    struct json_object *calls, struct json_object *asked, int64_t at);
/* Keeps that the response ended there, in what was stored (NULL: read it). */
bool response_pause(struct request *r, const struct response *p, int64_t until,
    struct json_object *items, struct json_object *stored);
/* Whether the input answers approval requests. */
bool response_has_approvals(struct json_object *asked);
/* Takes the answers, and goes on with their run. */
void response_take_approvals(struct request *r);
/* After which event the request's response tells; negative: it was refused. */
int64_t response_from(struct request *r);

/* ---- response_store.c ---- */

/* Keeps the request; false: it was refused. */
bool response_store(struct request *r, int64_t from);
/* True: another node, which may have the response, answers, or the request was refused. */
bool response_is_elsewhere(struct request *r, const char *id);
/* Adds the messages of the responses before, the oldest first; false: the request was refused. */
bool response_ask_previous(struct openai_ask *a, const char *previous);
/* Adds the items of an input, the last user message as the question if it is to be one. */
bool response_ask_input(struct openai_ask *a, struct json_object *input, bool has_question);
