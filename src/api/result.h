/* api/result.h: results of cells and runs. */
#pragma once

#include "base/buf.h"
#include "broker/budget.h"
#include "droste.h"
#include "rlm/rlm.h"
#include "session/session.h"

struct workspace;

struct droste_result {
    const char *status;
    bool unbegun; /* the run did not begin; its error says why */
    char run[STORE_RUN_ID_SIZE];
    size_t usage_at, usage_len; /* in `json` */
    struct spent spent;
    struct cell_result cell; /* of a cell */
    char *answer;            /* of a run */
    struct error error;
    double seconds;
    struct artifact_list artifacts; /* of a run */
    struct buf json;
    /* Where the submission and the rich results are inserted into `json` on demand, because they
     * may be long; 0: there is none, or it is there. */
    size_t submit_at, bundles_at;
};

/* These return NULL without memory. */
/* A run that did not begin. */
struct droste_result *result_of_failure(enum rlm_status status, const struct error *error);
/* Takes the cell. */
struct droste_result *result_of_cell(struct cell_result *cell, const struct session *session,
    const struct workspace *workspace, bool rules);
struct droste_result *result_of_run(const struct rlm_result *run);

/* Rich results in the public form. NULL is allowed. */
const droste_bundles *result_bundles(const struct bundles *bundles);

/* Appends the JSON of a cell's event: submit, stdout, stderr, error and variables. */
void result_put_event(struct buf *out, const struct cell_result *c);
