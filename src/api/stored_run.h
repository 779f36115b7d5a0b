/* api/stored_run.h: runs of the record: to continue them, or for their results. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "droste.h"
#include "rlm/rlm.h"
#include "store/store.h"

struct json_object;
struct settings;

/* The record of a run that is to be continued. */
struct stored_run {
    struct store *store;
    char id[STORE_RUN_ID_SIZE], previous[STORE_RUN_ID_SIZE]; /* "": it began a conversation */
    char status[32];
    struct buf question, settings, tool_facts;
    struct json_object *context; /* NULL: none */
    struct buf context_data;
};
int stored_run_find(droste *d, const char *run, struct stored_run *stored_run, struct error *err);
void stored_run_free(struct stored_run *stored_run);
/* The settings of the run, with the secrets and the record of the droste. Free `out` also after an
 * error; it must own nothing before. */
int stored_run_settings(
    const droste *d, const struct stored_run *stored_run, struct settings *out, struct error *err);
/* The status of this name; RLM_ERROR for an unknown one. */
enum rlm_status stored_run_status(const char *name);
/* The result of a run that has ended. */
int stored_run_result(droste *d, const char *run, droste_result **out, struct error *err);
/* The same of the description of a run that droste_record_json has printed. */
int stored_run_read(struct json_object *run, droste_result **out, struct error *err);
