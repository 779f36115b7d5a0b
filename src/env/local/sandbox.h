/* env/local/sandbox.h: a sandbox of the environment `local`, and the files that implement it, each
 * of which uses only those above it.
 */
#pragma once

#include "env/common/environment.h"
#include "env/common/fair_reading.h"
#include "env/common/mounts.h"
#include "env/common/scratch_dir.h"
#include "env/common/send_queue.h"
#include "env/local/cgroup.h"
#include "env/local/cpu_group.h"
#include "env/local/cpu_priority.h"
#include "env/local/memory_watch.h"
#include "env/local/reports.h"
#include "env/local/room.h"
#include "env/local/zygote.h"

enum { LOCAL_ZYGOTES_MAX = 16 };

struct local {
    struct environment_base base;
    struct zygote *zygotes[LOCAL_ZYGOTES_MAX];
    size_t zygote_count;
    struct pool *pool;
    struct cgroups *groups; /* NULL: no_cgroups has the reason */
    struct error no_cgroups;
    struct fair_reading *fair_reading;
    struct quotas *quotas;
    struct memory_watches *memory_watches;
    struct reports *reports;
    struct room *room;
    struct egress_hub *egress;
    struct users *users;
    bool weighs;                 /* cgroups have weights */
    struct cpu_group *cpu_group; /* without `groups`; NULL: there is none */
    struct cpu_priorities cpu_priorities;
    unsigned most; /* the largest number since memory was last returned */
};

/* Whether a family's processes are stopped, see pause.c. */
struct pause {
    bool on, by_group; /* by_group: its cgroup is frozen */
    uint64_t since_ns; /* if it is on */
    uint64_t total_ns; /* of earlier ones */
    pid_t *already;    /* processes that had stopped before, and stay so */
    size_t already_count;
};

/* What leads beyond its loopback network, see network.c. */
struct network {
    struct egress_grant *grant; /* NULL: nothing */
    int ends[2]; /* over which the listening socket comes: the host's, and the keeper's */
    struct watch *watch;
    struct egress *proxy; /* once it has come */
};

enum port { PORT_CHANNEL, PORT_OUT, PORT_ERR, PORT_STATUS, PORT_COUNT };

struct sandbox {
    struct local *env;
    struct zygote *zygote;
    uint64_t lineage;  /* the zygote's, which may be freed earlier */
    uint32_t clone_id; /* of the clone in progress; 0 once it is answered */
    enum isolation isolation;
    struct jail_plan *plan;
    struct sandbox *companion_of; /* this process is beside that one, which owns what both have */
    struct sandbox *companions, *next_companion; /* the processes beside this one */
    struct sandbox *waits;  /* beside this one; to be cloned when this one's clone is answered */
    struct timer *retry;    /* of the one that waits: the namespaces are not complete yet */
    int theirs[PORT_COUNT]; /* of the one that waits; otherwise -1 */
    struct jail_limits limits;
    struct jail_mount place;
    struct cgroup *cgroup;  /* NULL: its limits are rlimits */
    uint64_t memory_limit;  /* bytes, of each member of a family without a cgroup; 0: none */
    struct sandbox *family; /* of a fork: the sandbox that was first, whose namespaces it is in */
    struct sandbox *next_fork; /* of the same family; of the first one: the newest fork */
    unsigned forks;            /* of the first one: the other members */
    bool has_forked;           /* its keeper stays until the family ends */
    bool closed;               /* exists only for its forks */
    struct pause pause;        /* of the family; of its first sandbox */
    uint32_t user;             /* its own uid outside the sandbox; 0: its zygote's */
    char *workdir; /* without a private /tmp: its temporary directory, removed at the end */
    struct scratch_dir *scratch_dir; /* contains the workdir */
    struct mounts mounts;
    /* the limit that the host found exceeded; LIMIT_NONE: none */
    enum limit over;
    struct network network;            /* of the first sandbox of a family */
    struct memory_watch *memory_watch; /* NULL: a cgroup counts its memory, or there is no limit */
    struct sandbox_events events;
    void *arg;
    int fds[PORT_COUNT];
    struct watch *watches[PORT_COUNT];
    struct fair_reader waiting[PORT_STATUS]; /* of the ports with unbounded output */
    uint64_t report_tag;                     /* 0: its keeper reports on a status port of its own */
    /* Of the keeper. With a report_tag it is opened when it is needed, and -1 otherwise. */
    int pidfd;
    pid_t keeper;                      /* 0: not known yet */
    struct cpu_priority *cpu_priority; /* NULL until the clone exists */
    bool wants_kill, wants_interrupt;  /* requested before the pidfd was known */
    bool in_use;                       /* not in the pool */
    bool held;                         /* its channel is not read for now */
    bool ended;
    struct sandbox_exit how;
    struct sandbox_usage usage;   /* figures as of its end */
    struct send_queue send_queue; /* for the channel */
};

/* ---- keeper.c ---- */

/* Its keeper is known and can be signalled. */
bool local_has_keeper(const struct sandbox *s);
/* Opens a pidfd of the keeper for as long as the sandbox exists. */
void local_keep_pidfd(struct sandbox *s);
void local_signal_keeper(const struct sandbox *s, int signal);
/* Its keeper has mounted everything, cloned the worker and become its program. */
bool local_is_set_up(const struct sandbox *s);
/* It waits for room, and has neither a plan nor ports. */
bool local_waits(const struct sandbox *s);
/* The plan with which its sandbox was created. */
const struct jail_plan *local_plan(const struct sandbox *s);
/* The current figures of its cgroup, if it has one; the others stay as they are. */
void local_read_cgroup(const struct sandbox *s, struct sandbox_usage *out, bool *out_of_memory);
/* It could not start: an operation of its plan, or the clone itself, failed with this errno. */
void local_explain_failure(struct sandbox *s, uint32_t op, int sys);

/* ---- pause.c ---- */

/* Stops all processes of a sandbox, its forks and those beside it, or lets them go on. */
int local_pause(struct sandbox *s, bool on, struct error *err);
/* For how long they were stopped, in all. */
uint64_t local_paused_ns(const struct sandbox *s);
/* Processes are about to be signalled, or freed: nothing stays stopped. */
void local_pause_end(struct sandbox *s);
bool local_is_paused(const struct sandbox *s);

/* ---- kill.c ---- */

void local_interrupt(struct sandbox *s);
void local_kill(struct sandbox *s);
/* Ends the sandbox and all its processes, forks included. */
void local_kill_family(struct sandbox *s);
/* The host found a limit exceeded. */
void local_end_for_limit(struct sandbox *s, enum limit limit);
/* Has the host watch the memory of its processes; 0: no limit. */
int local_watch_memory(struct sandbox *s, uint64_t limit, struct error *err);

/* ---- fork_status.c ---- */

enum status_read {
    STATUS_RECORD,  /* how the worker has ended */
    STATUS_PENDING, /* nothing yet */
    STATUS_ENDED,   /* there will be no record */
};
/* Reads a message of the fork's status socket. */
enum status_read fork_read_status(struct sandbox *s, struct zygote_status *out);

/* ---- ports.c ---- */

/* There are none yet. */
void ports_init(struct sandbox *s);
/* Creates the descriptors: the sandbox's own, and `theirs`, which go to the clone; of a fork, all
 * but the status port. */
int ports_make(struct sandbox *s, int theirs[PORT_COUNT], struct error *err);
/* Reads and writes them from the loop from now on. */
int ports_watch(struct sandbox *s, struct error *err);
void ports_close(struct sandbox *s);
/* An operation begins, for which earlier use of the host's time does not count. */
void ports_forget_use(struct sandbox *s);
/* A report_fn. */
void ports_reported(void *sandbox, const struct zygote_status *status);
/* The end was seen, but not reported because the clone is not answered yet. */
bool ports_saw_end(const struct sandbox *s);
/* The guest has ended: reads what is left, and reports the end. */
void ports_finish(struct sandbox *s);
/* Whether messages to the guest wait here, those to come included. */
void ports_hold_back(struct sandbox *s, bool on);
/* For the operations of the environment. */
int ports_send(struct sandbox *s, const struct iovec *iov, int count, int fd, struct error *err);
void ports_hold(struct sandbox *s, bool on);
void ports_drain(struct sandbox *s);

/* ---- network.c ---- */

/* There is none yet. */
void network_init(struct network *n);
/* Prepares for the listening socket of the sandbox, which will run with this policy; NULL: none. */
int network_prepare(struct sandbox *s, struct error *err);
/* The clone has been made: what was its is closed here. */
void network_cloned(struct network *n);
void network_close(struct network *n);

/* ---- start.c ---- */

/* False once a dead zygote has been freed. */
bool local_has_zygote(const struct local *env, const struct zygote *z);
/* A sandbox without ports; NULL: no memory. */
struct sandbox *local_sandbox_new(
    struct local *env, struct zygote *z, const struct sandbox_events *events, void *arg);
/* Its keeper, and the sandbox, stay as long as there are forks. */
void local_announce_forks(struct sandbox *s);

/* Clones a sandbox from a zygote. `spec` has its volume and workspace; NULL: none, and it does not
 * wait for room. */
int local_make(struct local *env, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_spec *spec, const struct sandbox_events *events, void *events_arg,
    struct sandbox **out, struct error *err);
/* Starts a process beside a sandbox: one that has the same files, user and limits. It must be
 * closed first. */
int local_make_companion(struct sandbox *of, const struct sandbox_events *events, void *arg,
    struct sandbox **out, struct error *err);
/* A room_fn: starts a sandbox that has waited. */
void local_start_waiting(struct sandbox *s, const struct error *why);
/* Kills it if it runs, removes what it leaves, and frees it. NULL is fine. */
void local_close(struct sandbox *s);

/* ---- fork.c ---- */

/* Sends `frame`, which asks the guest to fork, and makes the sandbox of the fork. */
int local_fork(struct sandbox *parent, const struct iovec *frame, int count,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err);
void local_rebind(struct sandbox *s, void *arg);
uint64_t local_memory(const struct sandbox *s);
