/* env/common/environment.h: the seam.
 *
 * An environment only starts a guest and moves bytes; cells, calls, deadlines and results are
 * written once, above it. What a spec asks for and an environment cannot give is refused by name.
 */
#ifndef DROSTE_ENV_COMMON_ENVIRONMENT_H
#define DROSTE_ENV_COMMON_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/list.h"
#include "base/loop.h"
#include "env/common/features.h"
#include "env/common/users.h"
#include "jail/jail.h"
#include "volume/volume.h"
#include "volume/workspace.h"

/* The filter of system calls that a container has: Droste's where the daemon takes one and no GPU is asked
 * for (drivers have calls of their own), Droste's, or the daemon's. */
enum container_seccomp { SECCOMP_AUTO, SECCOMP_DROSTE, SECCOMP_DAEMON };
enum container_pull { PULL_MISSING, PULL_NEVER, PULL_ALWAYS };

/* What a sandbox that is a container, or a machine elsewhere, is made of. All zero: the defaults. */
struct container_spec {
    const char *image;        /* NULL: the environment's own, python:3.12-slim for most */
    const char *snapshot;     /* what it starts from instead; NULL: the image */
    const char *network;      /* "none", "open" or one that the environment knows; NULL: none */
    const struct list *allow; /* addresses (CIDR) and domains that it may reach; may be NULL */
    const char *region,
        *app;           /* where, and under which name, the provider has it; NULL: its default */
    const char *resume; /* the id of one that is there, in which to go on; NULL: a new one */
    bool keep;          /* at its end it is stopped, not deleted */
    double life,
        idle; /* seconds after which it is ended, and stopped where nothing happens; 0: the environment's own */
    const char *volume;         /* where TRAIT_VOLUMES: its name; NULL: none */
    const char *volume_subpath; /* of it, to be seen in its place; NULL: the whole */
    bool volume_there;          /* it is not made where it is missing */
    const char *user; /* "UID[:GID]" or a name of the image's; NULL: nobody who is anybody here */
    const char *gpus; /* "all", a number, or device=ID,…; NULL: none */
    const struct list *labels; /* NAME=VALUE; may be NULL */
    enum container_pull pull;
    enum container_seccomp seccomp;
    uint64_t disk; /* bytes of what is written to the image's files; 0: what the daemon allows */
    bool writable_root; /* the image's files can be written to */
    bool reuse; /* sandboxes of the same kind may share one, each with processes of its own */
};

/* What the user asked for. Strings and arrays belong to the caller and must outlive the call. */
struct sandbox_spec {
    enum isolation isolation;
    struct jail_limits limits;
    const char *python; /* a path, or a name to look up in PATH; NULL: python3 */
    const char *const *read_paths;
    size_t read_path_count;
    const char *const *preload; /* modules that the zygote imports */
    size_t preload_count;
    struct volume *volume;       /* open, shared; held as long as the sandbox lives; NULL: none */
    struct workspace *workspace; /* held in the same way; of the same root; NULL: none */
    enum layout layout;          /* the names under which the guest sees them */
    const struct container_spec *container; /* NULL: the defaults */
    struct user_range
        users; /* of which each sandbox is one, as root; those with a volume or workspace share one */
    uint64_t
        asked; /* 1 << enum power, for what somebody has asked for by name: refused where it cannot be had */
    unsigned pool; /* sandboxes of this kind to keep ready after this one, where that is possible */
};

/* How a sandbox ended. */
struct sandbox_exit {
    bool known;         /* false: it was killed from outside, or the machine did not say */
    int wait_status;    /* of the worker, as by waitpid(2), where known */
    enum limit limit;   /* that ended it, as the environment knows; LIMIT_NONE: none */
    struct error error; /* ERROR_ENVIRONMENT where it could not even start */
};

/* What a sandbox has used, and what enforces its limits. */
struct sandbox_usage {
    uint64_t memory_peak; /* bytes: of all its processes at once with a cgroup; else, after its end,
                             of its largest one; 0: not known */
    double cpu_seconds;   /* of all its processes; without a cgroup after its end; 0: not known */
    enum limit_means means[LIMIT_COUNT];
};

struct sandbox_events {
    /* Bytes of the channel, in pieces of any size. True if they end within a message. */
    bool (*bytes)(void *arg, const char *data, size_t len);
    /* Bytes of standard output (1) or error (2). */
    void (*output)(void *arg, int stream, const char *data, size_t len);
    /* The guest is gone; the last event, after which only `close` may be called. */
    void (*ended)(void *arg, const struct sandbox_exit *how);
    /* What `settle` was called for is done. NULL for who does not call it. */
    void (*settled)(void *arg);
    /* Some of the bytes that `unread` counts have gone. NULL for a receiver that does not ask for them. */
    void (*room)(void *arg);
    /* What `finish` was called for is done; or why it is not. NULL for who does not call it. */
    void (*finished)(void *arg, const struct error *why);
};

struct sandbox; /* each environment has its own; the first member is this: */
struct sandbox_base {
    const struct environment_ops *ops;
};

enum sandbox_trait {
    TRAIT_MEMFD = 1,  /* takes descriptors to the guest */
    TRAIT_SIGNAL = 2, /* `interrupt` reaches a guest that is not reading */
    TRAIT_LATE =
        4, /* whether one could be started is known late: who opens a session waits for it */
    TRAIT_VOLUMES = 8, /* it keeps volumes of its own, by name; else they are this machine's */
};

struct environment;
/* Told once: how many sandboxes of hosts that are gone were removed; or why it is not known. */
typedef void environment_collected_fn(void *arg, unsigned removed, const struct error *why);

struct environment_ops {
    const char *name;
    uint32_t traits;
    const struct features *features;
    /* Starts a guest. It may be written to at once. No event fires within the call. */
    int (*open)(struct environment *env, const struct sandbox_spec *spec,
        const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err);
    /* Queues bytes; takes `fd` (or -1), which goes with the first byte. After the guest's end it
     * does nothing: `ended` says what there is to say. */
    int (*send)(struct sandbox *s, const struct iovec *iov, int count, int fd, struct error *err);
    /* Bytes that wait here because the guest does not read them. NULL: none ever do. */
    size_t (*unread)(const struct sandbox *s);
    /* Reads nothing more of the channel, or goes on. What is on its way may still come. NULL where `unread` is. */
    void (*hold)(struct sandbox *s, bool on);
    /* With TRAIT_MEMFD: a descriptor would reach the guest at once, and no other is on its way. */
    bool (*takes_fd)(const struct sandbox *s);
    /* An operation begins: it goes before those that have lasted long. */
    void (*attend)(struct sandbox *s);
    /* A cell has ended. True: what it did to the volume is on its way here, and `settled` is told when it is, or `ended` why not. The whole may
     * be NULL: there is never anything to wait for. */
    bool (*settle)(struct sandbox *s);
    /* The session is over. True: the guest is being ended in good order, and what it wrote to a
     * volume of the provider's is made durable; `finished` is told when it is, or why it is not, and
     * no other event follows. Only `close` may be called then. False: there is nothing to wait for.
     * The whole may be NULL: there never is. */
    bool (*finish)(struct sandbox *s);
    /* Rings the guest's doorbell (SIGINT); the frame INTERRUPT says what for. */
    void (*interrupt)(struct sandbox *s);
    /* Ends the guest and all its processes at once; `ended` follows. */
    void (*kill)(struct sandbox *s);
    /* Reads what the guest has written to its standard streams up to now. */
    void (*drain)(struct sandbox *s);
    enum isolation (*isolation)(const struct sandbox *s);
    void (*usage)(const struct sandbox *s, struct sandbox_usage *out);
    /* Nanoseconds for which its processes were at work, or ready to be; 0: not known. NULL: never is. */
    uint64_t (*busy_ns)(const struct sandbox *s);
    /* The host has spent processor time on something that the guest asked for, outside of its reading. NULL:
     * it is not counted. */
    void (*charge)(struct sandbox *s, uint64_t ns);
    /* The way to it is cut for now: that it says nothing is not its own doing. NULL: never is. */
    bool (*is_cut)(const struct sandbox *s);
    /* Where the guest sees its volume; NULL: it has none. The whole may be NULL: never does. */
    const char *(*volume)(const struct sandbox *s);
    /* The same of its workspace. */
    const char *(*workspace)(const struct sandbox *s);
    /* What the provider calls it, once that is known; NULL: not, or nothing. The whole may be NULL: never does. */
    const char *(*id)(const struct sandbox *s);
    /* Removes what killed hosts of this machine have left there. NULL: nothing is ever left. */
    int (*collect)(
        struct environment *env, environment_collected_fn *done, void *arg, struct error *err);
    /* Sandboxes that are closed have yet to be ended far away, for which the loop must turn. NULL: never. */
    bool (*settling)(const struct environment *env);
    /* Its code has nothing of guest/python: what else it has, for the model; "": nothing. NULL: guest/python is there. */
    const char *(*about)(const struct environment *env);
    /* Text of the plan that made it, for people; may be NULL. */
    void (*describe)(const struct environment *env, const struct sandbox *s, struct buf *out);
    /* Kills what is left and frees; no event follows. NULL is fine. */
    void (*close)(struct sandbox *s);
    /* In the child of a fork: closes what is no watch of the loop's. May be NULL. */
    void (*forked)(struct environment *env);
    void (*free)(struct environment *env);
};

/* The first member of every environment. */
struct environment_base {
    const struct environment_ops *ops;
    struct loop *loop;
    /* A line for people about what takes its time: an image is fetched. NULL: nobody asks. */
    void (*notice)(void *arg, const char *text);
    void *notice_arg;
};

/* The names, in order; NULL behind the last one. */
const char *environment_name(size_t i);
/* What the sandboxes of one of them are. */
const char *environment_about(size_t i);
/* The variables of the process's environment that one of them reads when it is opened, with spaces between. */
const char *environment_variables(size_t i);
/* A digest of what these say now, by the environment's name: whether one that was opened before is still what is asked
 * for. It does not tell keys. */
enum { ENVIRONMENT_CIRCUMSTANCES_SIZE = 65 };
int environment_circumstances(
    const char *name, char out[ENVIRONMENT_CIRCUMSTANCES_SIZE], struct error *err);
/* Whether one of them can be tried: a key, a socket; nothing is sent. The error says what to set. */
int environment_configured(size_t i, struct error *err);
/* What one of them can do, by its name, without opening it; NULL where that is not known. */
const struct features *environment_features(const char *name);

/* Texts are copied. */
struct environment_options {
    const char *ca_file; /* certificates to trust instead of the system's; NULL: those */
};
/* The environment by its name, or bridge:PATH. */
int environment_open(const char *name, struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);
/* ERROR_UNSUPPORTED by the name of what the spec asks for and the environment has not. */
int environment_check(
    const struct environment *env, const struct sandbox_spec *spec, struct error *err);
/* Waits until what was closed has ended, for some seconds at most; not from within the loop. */
void environment_settle(struct environment *env);
void environment_close(struct environment *env);
void environment_on_notice(
    struct environment *env, void (*notice)(void *arg, const char *text), void *arg);

static inline const struct environment_ops *environment_ops_of(const struct environment *env)
{
    return ((const struct environment_base *)env)->ops;
}

static inline const struct environment_ops *sandbox_ops_of(const struct sandbox *s)
{
    return ((const struct sandbox_base *)s)->ops;
}

#endif
