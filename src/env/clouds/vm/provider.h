/* env/clouds/vm/provider.h: sandboxes that are virtual machines, shared by Prime and E2B.
 *
 * The provider has an HTTP API for the life of machines, and a process service inside each
 * (env/clouds/vm/process_service.h). prime.c and e2b.c build the request of each step and interpret
 * the answer; vm.c has the order of the steps, the waiting, the recovery and the shutdown.
 */
#pragma once

#include <sys/queue.h>

#include "base/json/json.h"
#include "base/list.h"
#include "base/os/random.h"
#include "env/common/orphans.h"
#include "env/remote/stdio_env.h"
#include "env/clouds/vm/process_service.h"
#include "net/rest.h"

enum { VM_ID_SIZE = 80, VM_SETTINGS = 2 };

/* Requests to the API. A provider may have no request for an optional step. */
enum vm_step {
    VM_CREATE,
    VM_RESUME, /* continue an existing machine, by its id */
    VM_LOOK,   /* its state: polled until it runs, and after a loss */
    VM_ENTER,  /* optional: a token for the process service */
    VM_STAY,   /* optional: periodically, to extend its life */
    VM_KEEP,   /* optional: instead of VM_DELETE, for a machine that is kept */
    VM_DELETE,
    VM_LIST, /* machines with Droste's labels */
};

struct vm_ask {
    const char *cursor; /* for VM_LIST, input: where to continue; NULL: the beginning */
    const char *method; /* NULL: this step has no request */
    struct buf path;
    struct json_object *body; /* owned by the caller */
    char *header;             /* an additional header (owned by the caller) */
};

enum vm_health { VM_STARTS, VM_BUILDS, VM_RUNS, VM_GONE };

/* What an answer says about a machine. */
struct vm_facts {
    enum vm_health health;
    char id[VM_ID_SIZE];
    char words[160]; /* VM_GONE: the reason; VM_BUILDS: the progress */
};

/* Seconds by which a machine outlives its session's deadline, which is to be reported first. */
enum { VM_MARGIN = 60 };

struct vm;
struct vms; /* the environment */

struct vm_provider {
    const char *name, *title; /* "prime", "Prime" */
    const char *key_variable; /* has the key of its API */
    const char *key_header;   /* of requests with it: "X-API-KEY: " */
    /* further variables, whose values are read once */
    const char *settings[VM_SETTINGS];
    const struct feature_state *features; /* indexed by enum feature */
    const struct process_dialect *dialect;
    /* `spec` is given for VM_CREATE and VM_RESUME only. */
    int (*ask)(struct vm *vm, enum vm_step step, const struct sandbox_spec *spec,
        struct vm_ask *ask, struct error *err);
    /* Reads the answer to VM_CREATE, VM_RESUME or VM_LOOK. ERROR_PROTOCOL; ERROR_UNSUPPORTED. */
    int (*read)(
        struct vm *vm, struct json_object *answer, struct vm_facts *facts, struct error *err);
    /* The machine runs: reads how to reach its process service, and calls vm_gate. `answer` is that
     * to VM_ENTER; NULL if there is no such step. */
    int (*enter)(struct vm *vm, struct json_object *answer, struct error *err);
    /* The i-th machine of an answer to VM_LIST; false after the last. Missing labels are left
     * empty. */
    bool (*listed)(struct json_object *answer, size_t i, char id[VM_ID_SIZE], struct buf *owner,
        struct buf *machine);
    /* Where the list continues after this answer; false: this was the end. */
    bool (*more)(const struct rest_answer *answer, struct buf *cursor);
    const char *cursor_header; /* the header of an answer to VM_LIST with the cursor; NULL: none */
};

struct vms {
    struct loop *loop;
    const struct vm_provider *provider;
    struct transport_ops ops;
    struct rest *api;
    char *ca_file;               /* NULL: not set */
    char *settings[VM_SETTINGS]; /* the values of the provider's; NULL: not set */
    LIST_HEAD(vm_list, vm) all;
    struct orphans orphans;
    struct rest_request *collecting; /* for orphans; NULL: none */
};

extern const struct process_dialect prime_process, e2b_process;

/* The labels by which Droste identifies its machines. */
#define VM_LABEL "droste"

struct vm {
    LIST_ENTRY(vm) link;
    struct vms *env;
    struct transport *transport; /* NULL: its session is over */
    enum vm_phase {
        PHASE_CREATING,
        PHASE_WAITING,
        PHASE_ENTERING,
        PHASE_LIVE,
        PHASE_JUDGING, /* the API is asked why it is lost */
        PHASE_OVER,    /* reported; not closed yet */
        PHASE_LEAVING,
    } phase;
    char id[VM_ID_SIZE];  /* "": not known */
    char key[UUID_SIZE];  /* idempotency key of its creation */
    char *token, *domain; /* for the process service, if the first answer has them; else NULL */
    bool keep, resumed;
    bool notice_sent;
    uint64_t begun_ns;         /* start of its life, if the provider counts it */
    double life, stay_seconds; /* stay_seconds: interval of VM_STAY; 0: none */
    struct list words;
    struct rest *gate; /* client for the process service */
    struct process_service *process;
    struct rest_request *request; /* the current one of its phase; VM_ENTER while live */
    struct connect_call *killing;
    struct rest_request *staying;
    struct timer *timer; /* next poll, or next token */
    struct timer *stay;
    unsigned looks, refusals; /* refusals: consecutive rejections of a token */
    uint64_t since_ns;        /* start of its phase */
    struct error lost;        /* reported by the process service */
    char *request_text;       /* the create request, for display */
};

/* Opens the client for the process service: a base URL, headers (the secret's name and value among
 * them), and the secret's lifetime in seconds (0: that of the machine). Called by `enter`. */
int vm_gate(struct vm *vm, const char *base_url, const char *secret, const char *const *headers,
    size_t header_count, double seconds, struct error *err);

/* The value of an environment variable (free); NULL if it is empty. */
char *vm_variable(const char *name);
/* ERROR_CONFIG if the provider's key is not set. */
int vm_configured(const struct vm_provider *provider, struct error *err);
/* Opens the environment. `url` is the base URL of the provider's API. */
int vms_open(struct loop *loop, const struct vm_provider *provider, const char *url,
    const struct environment_options *options, struct environment **out, struct error *err);
