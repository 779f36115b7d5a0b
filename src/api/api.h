/* api/api.h: the `droste` object, and what all its functions share: errors, waiting, the record. */
#pragma once

#include <sys/queue.h>

#include "api/settings.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "env/common/environment.h"

struct custom_entry;
struct droste_forward;
struct droste_running;
struct lm_queue;
struct mcp_entry;
struct loop;
struct recipe;
struct package_job;
struct package_set;
struct package_shown;
struct package_use;
struct rlm_run;
struct secret_value;
struct shared_forwarder;
struct shared_lm;
struct staging;
struct store;
struct timer;
struct tools;
struct watch;

TAILQ_HEAD(running_list, droste_running);
TAILQ_HEAD(ended_list, droste_session);

struct droste {
    struct settings settings;
    bool set_by_program[SETTINGS_MAX]; /* not by the configuration */
    struct loop *loop;
    struct environment *env; /* opened when first needed */
    char *env_name;
    char env_circumstances[ENVIRONMENT_CIRCUMSTANCES_SIZE]; /* its variables when it was opened */
    size_t env_sessions;                                    /* sessions that use it */
    struct custom_entry *customs;                           /* environments of the program */
    droste_notice_fn *notice;                               /* NULL: notices are dropped */
    void *notice_arg;
    int interrupt_fd; /* an eventfd: droste_interrupt writes, the loop reads */
    struct watch *interrupt_watch;
    char *volume_root;               /* the last result of droste_volume_root */
    char *python;                    /* of droste_python */
    struct buf recipe;               /* of droste_template_read */
    char *record_path;               /* of droste_record_path */
    struct list contexts;            /* added by the program, PATH or NAME=PATH each */
    struct store *store;             /* the record, opened when first needed */
    char *store_path;                /* the value of the setting when it was opened */
    size_t store_users;              /* sessions whose child runs it records */
    struct droste_session *sessions; /* all open sessions */
    struct ended_list answered;      /* sessions whose operations have ended, unreported */
    bool started;                    /* a session or run was opened before */
    struct running_list runs;        /* active runs, the oldest first */
    struct running_list ended;       /* ended runs whose results are unreported */
    size_t run_count;                /* of both lists */
    struct timer *tell;              /* reports ends, never from within a run */
    struct timer *tick;              /* of droste_every; NULL: none */
    struct rlm_run *finishing;       /* droste_chat_finish waits for its session; NULL: none */
    struct staging *staging;         /* staging_run waits for it; NULL: none */
    bool waits;                      /* a function is running the loop */
    int poll_fd, timer_fd;           /* of droste_fd; -1: not requested yet */
    uint64_t timer_due_ms;           /* see loop_settle */
    struct lm_queue *queue;          /* of all models; opened with the first */
    struct shared_lm *models;        /* open models */
    struct shared_forwarder *forwarders;
    struct droste_forward *forwards; /* active ones */
    droste_model_fn *model_fn;
    void *model_arg;
    droste_rate_fn *rate_fn;
    void *rate_arg;
    droste_ask_fn *ask_fn;
    void *ask_arg;
    droste_network_fn *network_fn;
    void *network_arg;
    droste_select_fn *select_fn;
    void *select_arg;
    struct droste_template *templates;
    struct package_use *packages; /* sets that it uses */
    struct package_shown *shown;  /* where sessions see what they install; NULL: none does */
    struct list images;           /* that its sessions have had, by name */
    /* api_packages_build, with what it needs of droste.c: an object of its own */
    int (*build_packages)(
        const struct package_job *job, struct package_set **out, struct error *err);
    int (*open_another)(droste **out, droste_error *err);
    void (*close_another)(droste *d);
    bool makes_image; /* of preloaded packages */
    /* api_template_make, which opens a session, for those that open one from a template */
    int (*make_template)(droste *d, const char *name, const struct recipe *r,
        const struct settings *s, struct droste_template **out, struct error *err);
    struct secret_value *secrets;    /* for the network of sandboxes */
    struct mcp_entry *mcp_servers;   /* of mcp_api.h */
    struct tools *tools;             /* of the program; NULL: none */
    struct buf tool_facts;           /* of these tools */
    void (*on_interrupt)(void *arg); /* replaces cancelling; NULL: no function waits for a batch */
    void *on_interrupt_arg;
};

/* The caller's error, cleared; one that lasts until the end of the block if the caller has passed
 * NULL. */
#define api_error(err) api_error_or((err), &(struct error){ 0 })
struct error *api_error_or(struct error *err, struct error *other);

/* Begins to run the loop. ERROR_ARGUMENT from within a callback, which may not wait. */
int api_enter(droste *d, struct error *err);
/* Runs the loop until *done. ERROR_ARGUMENT as api_enter. */
int api_wait(droste *d, const bool *done, struct error *err);
/* The same with the arguments of loop_wait_soon. */
int api_wait_soon(droste *d, const bool *done, const bool *soon, int ms, struct error *err);
/* Drops an interrupt that arrived while nothing was active. */
void api_forget_interrupt(droste *d);

/* Opens the record of the settings; *out is NULL if they say "none". It stays open, because the
 * last close of a database costs more than a run. */
int api_store(droste *d, struct store **out, struct error *err);
/* Opens the record at this path (NULL: the default). ERROR_ARGUMENT while another one is in use. */
int api_store_at(droste *d, const char *path, struct store **out, struct error *err);
