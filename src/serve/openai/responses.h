/* serve/openai/responses.h: /v1/responses: a run as a response, its steps as items.
 *
 * What the client sent is kept in ID.json of its account's files, with its run; all else comes from
 * the record, so that a response looks the same while it streams, afterwards, and from any worker.
 */
#ifndef DROSTE_SERVE_OPENAI_RESPONSES_H
#define DROSTE_SERVE_OPENAI_RESPONSES_H

#include "serve/openai/file_store.h"

enum { RESPONSE_ID_SIZE = SERVE_ID_SIZE + 5, RESPONSE_STORED_MAX = 4 << 20 };
enum { RESPONSE_CHAIN_MAX = 100 };

/* A response as it is told: the items so far. */
struct response {
    struct openai_answer *answer; /* of a stream; NULL: nothing is pushed */
    struct json_object *asked;    /* the request */
    char run[SERVE_ID_SIZE];
    struct buf items; /* JSON, with commas */
    unsigned count;   /* of them */
    int64_t sequence;
};

/* Reads all steps of the record. */
void response_add_steps(struct response *p, droste_record *record);
/* Adds the answer, if the run has one. */
void response_add_answer(struct response *p, const droste_record_run *run);
/* The object. `status` NULL: that of the run. */
void response_put(
    struct buf *out, const struct response *p, const droste_record_run *run, const char *status);
void response_id(char out[RESPONSE_ID_SIZE], const char *run);

/* ---- response_store.c ---- */

/* Keeps the request; false: it was refused. */
bool response_store(struct request *r);
/* Adds the messages of the responses before, the oldest first; false: the request was refused. */
bool response_ask_previous(struct openai_ask *a, const char *previous);
/* Adds the items of an input, the last user message as the question if it is to be one. */
bool response_ask_input(struct openai_ask *a, struct json_object *input, bool has_question);
/* Sets the id of the run that a path below /v1/responses names. */
void response_locate(struct request *r, const char *path);

#endif
