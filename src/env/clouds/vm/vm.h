/* env/clouds/vm/vm.h: sandboxes that are virtual machines of a provider with an HTTP API for their life and a process service inside
 * (env/remote/process_service.h): what Prime and E2B share. A provider says what to ask for in each step and what the answer means
 * (prime.c, e2b.c); the order of the steps, the waiting, the losses and the leaving are here.
 */
#ifndef DROSTE_ENV_CLOUDS_VM_VM_H
#define DROSTE_ENV_CLOUDS_VM_VM_H

#include <sys/queue.h>

#include "base/json/json.h"
#include "base/list.h"
#include "base/os/random.h"
#include "env/common/orphans.h"
#include "env/remote/stdio_env.h"
#include "env/remote/process_service.h"
#include "net/rest.h"

enum { VM_ID_SIZE = 80 };

/* What is asked of the API. A provider that has nothing to ask in one of the optional steps leaves it out. */
enum vm_step {
    VM_CREATE,
    VM_RESUME, /* one that is there: its id is known */
    VM_LOOK,   /* how is it? Again and again until it runs, and when it is lost */
    VM_ENTER,  /* optional: a token for what is inside */
    VM_STAY,   /* optional: now and then as long as the session lives, so that it is not ended */
    VM_KEEP,   /* optional: instead of VM_DELETE, of one that is to stay */
    VM_DELETE,
    VM_LIST, /* those of Droste */
};

struct vm_ask {
    const char *cursor; /* given, in VM_LIST: where to go on; NULL: at the beginning */
    const char *method; /* NULL: nothing is asked in this step */
    struct buf path;
    struct json_object *body; /* is handed over */
    char *header;             /* a further one (is handed over) */
};

enum vm_health { VM_STARTS, VM_BUILDS, VM_RUNS, VM_GONE };

/* What an answer says of a machine. */
struct vm_facts {
    enum vm_health health;
    char id[VM_ID_SIZE];
    char words[160]; /* of VM_GONE: why; of VM_BUILDS: what */
};

/* Seconds by which a machine outlives its session's time: the session's own end is told first. */
enum { VM_MARGIN = 60 };

struct vm;
struct vms; /* the environment */

struct vm_provider {
    const char *name, *title; /* "prime", "Prime" */
    const struct features *features;
    const struct process_dialect *dialect;
    /* The spec: only in VM_CREATE and VM_RESUME. */
    int (*ask)(struct vm *vm, enum vm_step step, const struct sandbox_spec *spec,
        struct vm_ask *ask, struct error *err);
    /* Of the answers to VM_CREATE, VM_RESUME and VM_LOOK. ERROR_PROTOCOL; ERROR_UNSUPPORTED. */
    int (*read)(
        struct vm *vm, struct json_object *answer, struct vm_facts *facts, struct error *err);
    /* Once it runs, and it is known how to get in: how to reach what is inside, for vm_gate. Of the answer to VM_ENTER, or NULL
     * where there is no such step. */
    int (*enter)(struct vm *vm, struct json_object *answer, struct error *err);
    /* The i-th machine of an answer to VM_LIST: false where there is none. NULL for what it has not. */
    bool (*listed)(struct json_object *answer, size_t i, char id[VM_ID_SIZE], struct buf *owner,
        struct buf *machine);
    /* Where the list goes on behind this answer; false: it does not. */
    bool (*more)(const struct rest_answer *answer, struct buf *cursor);
    const char *cursor_header; /* of an answer to VM_LIST, if it is one that says so; or NULL */
};

struct vms {
    struct loop *loop;
    const struct vm_provider *provider;
    struct transport_ops ops;
    struct rest *api;
    char *ca_file, *team, *domain, *sandbox_url; /* NULL: not set */
    LIST_HEAD(vm_list, vm) all;
    struct orphans orphans;
    struct rest_request *collecting; /* for them; NULL: none */
};

/* The labels by which Droste finds its own again. */
#define VM_LABEL "droste"

struct vm {
    LIST_ENTRY(vm) link;
    struct vms *env;
    struct transport *transport; /* NULL: its session is over, and it is left */
    enum vm_phase {
        PHASE_CREATING,
        PHASE_WAITING,
        PHASE_ENTERING,
        PHASE_LIVE,
        PHASE_JUDGING, /* why it is lost */
        PHASE_OVER,    /* told; not left yet */
        PHASE_LEAVING,
    } phase;
    char id[VM_ID_SIZE];  /* "": not known */
    char key[UUID_SIZE];  /* of its creation */
    char *token, *domain; /* of what is inside, where the first answer has them; NULL: it has not */
    bool keep, resumed;
    bool notice_told;
    uint64_t begun_ns;         /* its life, where the provider counts it */
    double life, stay_seconds; /* stay_seconds: between two VM_STAY; 0: there is none */
    struct list words;
    struct rest *gate; /* to what is inside */
    struct process_service *process;
    struct rest_request
        *request; /* the one that is under way, of its phase; of VM_ENTER when it is live */
    struct connect_call *killing;
    struct rest_request *staying;
    struct timer *timer; /* the next look; the next token */
    struct timer *stay;
    unsigned looks, refusals; /* refusals: of a token, one after the other */
    uint64_t since_ns;        /* of its phase */
    struct error lost;        /* what the process service said */
    char *told;               /* what was asked for, for people */
};

/* How what is inside is reached: a base URL, headers with the secret among them (its name and value), and for how long the
 * secret holds (seconds; 0: as long as the machine). For `enter`. */
int vm_gate(struct vm *vm, const char *base_url, const char *secret, const char *const *headers,
    size_t header_count, double seconds, struct error *err);

/* The options: with what `api` is opened; the rest of the environment's fields are the provider's to fill. */
int vms_open(struct loop *loop, const struct vm_provider *provider, const struct rest_options *api,
    struct vms **out, struct error *err);
/* Makes it an environment, which owns it from then on, also where this fails. */
int vms_carry(struct vms *env, struct environment **out, struct error *err);
/* Of one that is no environment. NULL is fine. */
void vms_free(struct vms *env);

/* The service's network policies: false where it is one that is none of "none", "open" and a list. */
int vm_check_network(const struct vms *env, const struct sandbox_spec *spec, struct error *err);
const struct container_spec *vm_container(const struct sandbox_spec *spec);

#endif
