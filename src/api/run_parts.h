/* api/run_parts.h: what single runs and conversations share: what a run is made of, what the record
 * has of one, and waiting for it.
 */
#ifndef DROSTE_API_RUN_PARTS_H
#define DROSTE_API_RUN_PARTS_H

#include "api/api.h"
#include "base/json.h"

/* What a run is made of. */
struct run_parts {
    struct context *context;
    struct models models;
    bool shared; /* the models are a conversation's */
    struct tools *tools;
    struct store *store;   /* the droste's */
    const char *resume;    /* the run to go on with; NULL: a new one */
    struct rlm_run *after; /* the next four as in rlm_options */
    const char *previous;
    bool again, keep;
    struct buf instructions;
    struct buf settings; /* as the record keeps them */
};

void run_parts_free(struct run_parts *p);
int run_parts_make(droste *d, const char *context, struct run_parts *p, struct error *err);

/* Somebody who waits for a run. */
struct run_waiting {
    bool done;
    droste_event_fn *fn;
    void *arg;
    droste_result *result;
    char run[STORE_RUN_ID_SIZE];
    struct error error;
};

/* The run has ended then; it is the caller's. */
int run_and_wait(droste *d, const char *question, struct run_parts *p, struct run_waiting *w,
    struct rlm_run **out, struct error *err);

/* What the record has of a run. */
struct run_past {
    struct store *store;
    char id[STORE_RUN_ID_SIZE], previous[STORE_RUN_ID_SIZE]; /* "": it began a conversation */
    char status[32];
    struct buf question, settings;
    struct json_object *context; /* NULL: there was none */
    struct buf context_data;
};

int run_past_find(droste *d, const char *run, struct run_past *past, struct error *err);
void run_past_free(struct run_past *past);
/* The context as it was, or an error. */
int run_past_context(droste *d, struct run_past *past, struct run_parts *p, struct error *err);

/* chat_api.c: goes over the runs up to this one, for one more with these parts. All of it belongs to
 * the chat, which is the caller's. */
int chat_before(
    droste *d, const char *run, droste_chat **out, struct run_parts *p, struct error *err);

#endif
