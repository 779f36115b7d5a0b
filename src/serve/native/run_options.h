/* serve/native/run_options.h: the options that a client may set for its run. */
#pragma once

#include "serve/http/request.h"

/* Appends the settings of the run that the request asks for, as sandbox_setting does: its options
 * (NULL: none), checked, and the limits of server and key. False: the request was refused. */
bool run_settings(struct request *r, struct json_object *options, struct buf *words);
/* The same for a run that waits in a queue: nothing is held for it yet. */
bool run_settings_queued(struct request *r, struct json_object *options, struct buf *words);
/* The same without the limits. */
bool run_options(struct request *r, struct json_object *options, struct buf *words);
/* Whether a client may ask for these settings, names and values (docs/batch.md: a task's). */
int runs_check_settings(struct server *s, const char *const *settings, droste_error *err);
/* Appends the limits of server and account to settings, names and values, which `words` has
 * already; *held: what the run may cost, until it ends. False: the account may spend no more. */
bool runs_put_limits(struct server *s, struct account *account, const char *const *settings,
    double *held, struct buf *words);
