/* api/options.h: translates settings into the options of sessions and runs. */
#pragma once

#include "api/settings.h"
#include "base/buf.h"
#include "base/list.h"
#include "env/common/environment.h"
#include "rlm/rlm.h"
#include "session/session.h"
#include "volume/volume.h"

struct package_set;
struct schema;
struct workspace;

/* What the options of a session point to. */
struct session_parts {
    struct list shown, allowed;
    struct buf setup;
    struct schema *answer;       /* NULL: any */
    struct volume *volume;       /* NULL: none */
    struct workspace *workspace; /* NULL: none */
    struct image *image;         /* NULL: none, or not staged */
    struct container_spec container;
    struct buf gpus;                    /* of the container, as its devices say */
    struct template *template;          /* NULL: none */
    struct egress_policy *egress;       /* NULL: none */
    const struct package_set *packages; /* of the droste; NULL: none */
};
/* The options point to the settings and the parts. */
int api_session_options(droste *d, const struct settings *s, struct session_parts *parts,
    struct session_options *options, struct error *err);
void session_parts_free(struct session_parts *parts);

/* The options of a run, without its models, its session and its time limit. */
struct rlm_options api_run_options(const struct settings *s);
/* Sets how candidates are selected, and checks that o->env can have several. */
int api_select(droste *d, const struct settings *s, struct rlm_options *o, struct error *err);
/* The setting traceparent; *out is NULL without it. */
int api_traceparent(const struct settings *s, const char **out, struct error *err);
/* Texts for the models of runs, added to `out`. */
int api_instructions(const struct settings *s, struct buf *out, struct error *err);
int api_system_prompt(const struct settings *s, struct buf *out, struct error *err);

/* Addresses that providers read for a run: of public hosts. */
int api_check_image_urls(const struct settings *s, struct error *err);

/* The schema of answers, which the caller drops (schema_drop); NULL: answers are of any type. */
int api_answer_type(const struct settings *s, struct schema **out, struct error *err);
/* The directory of all volumes; the caller frees it. */
int api_volume_root(const struct settings *s, char **out, struct error *err);
/* The limits of new volumes. */
struct volume_limits api_volume_limits(const struct settings *s);
/* A text, or "@" and the path of a file that contains it. `what` names it in errors. */
int api_text(const char *value, const char *what, struct buf *out, struct error *err);
/* Seconds until a guest's call must be answered; 0: no limit. */
double api_broker_timeout(const struct settings *s);

/* Checks the settings "ask-default" and "ask-webhook". */
int api_ask_check_rules(const struct settings *s, struct error *err);
/* Checks "ask", too: a name that is none of the tools would never ask. */
int api_ask_check(const struct settings *s, const struct tools *tools, struct error *err);
struct approval_rules api_ask_rules(const struct settings *s);
