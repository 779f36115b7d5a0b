/* env/common/environment.h: the interface that every environment implements.
 *
 * An environment only starts guests and moves bytes. Cells, calls, deadlines and results are
 * implemented once, in the layers above. If a specification asks for something that an environment
 * does not support, opening fails with the name of the setting.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/list.h"
#include "base/loop.h"
#include "egress/egress.h"
#include "env/common/devices.h"
#include "env/common/features.h"
#include "env/common/users.h"
#include "jail/jail.h"
#include "volume/volume.h"
#include "volume/workspace.h"

/* The seccomp filter of a container. AUTO: Droste's filter, unless the daemon rejects it or the
 * container has a GPU (drivers need system calls that it denies). */
enum container_seccomp { SECCOMP_AUTO, SECCOMP_DROSTE, SECCOMP_DAEMON };
enum container_pull { PULL_MISSING, PULL_NEVER, PULL_ALWAYS };

/* Properties of a sandbox that is a container or a remote machine. All zero: the defaults. */
struct container_spec {
    const char *image;    /* NULL: the environment's default, usually python:3.12-slim */
    const char *snapshot; /* to start from instead of the image; NULL: the image */
    /* "none", "open", or a network that the environment knows; NULL: none */
    const char *network;
    const struct list *allow; /* reachable addresses (CIDR) and domains; may be NULL */
    const char *region, *app; /* the provider's region and application name; NULL: its defaults */
    const char *resume;       /* id of an existing sandbox to continue in; NULL: a new sandbox */
    bool keep;                /* stop the sandbox at its end instead of deleting it */
    /* seconds: maximum lifetime, and inactivity before a stop; 0: the environment's defaults */
    double life, idle;
    const char *volume;         /* name of the provider's volume (TRAIT_VOLUMES); NULL: none */
    const char *volume_subpath; /* mount only this directory of the volume; NULL: all of it */
    bool volume_there;          /* fail if the volume is missing instead of creating it */
    const char *user;           /* "UID[:GID]" or a name in the image; NULL: an unprivileged user */
    const char *gpus;           /* "all", a number, or device=ID,…; NULL: none */
    const struct list *labels;  /* NAME=VALUE; may be NULL */
    enum container_pull pull;
    enum container_seccomp seccomp;
    uint64_t disk; /* bytes that may be written to the root file system; 0: the daemon's limit */
    bool writable_root; /* the image's files may be modified */
    bool reuse; /* sandboxes with equal settings may share one container, with separate processes */
};

/* The sandbox that the user asked for. Strings and arrays belong to the caller and must outlive the
 * call. */
struct sandbox_spec {
    enum isolation isolation;
    struct jail_limits limits;
    const char *python; /* a path, or a name to look up in PATH; NULL: python3 */
    /* FEATURE_ROOTFS: a directory whose files, and interpreter, it has instead of this machine's */
    const char *rootfs;
    const char *const *read_paths;
    size_t read_path_count;
    const char *const *preload; /* modules that the zygote imports */
    size_t preload_count;
    struct volume *volume; /* open; referenced as long as the sandbox lives; NULL: none */
    /* referenced likewise; in the same store as the volume; NULL: none */
    struct workspace *workspace;
    const struct layout *layout;   /* NULL: the default */
    bool private_root;             /* FEATURE_ROOT: a writable root directory */
    bool loopback;                 /* FEATURE_LOOPBACK: a network of its own that leads back */
    struct device_request devices; /* FEATURE_DEVICE */
    struct egress_policy *egress;  /* FEATURE_EGRESS: destinations beyond it; NULL: none */
    struct egress_grant *grant;    /* this sandbox's own part of it; referenced likewise */
    const struct container_spec *container; /* NULL: the defaults */
    /* as root, each sandbox gets its own id of this range; sandboxes with a volume or workspace
     * share one where it cannot be id-mapped */
    struct user_range users;
    /* 1 << enum feature for each feature that was set explicitly: an error if it is not
     * supported */
    uint64_t asked;
    /* how long the sandbox may wait for room (descriptors, memory, processes) before it fails */
    double start_wait;
    bool one_start;  /* prepare for one start instead of many, which is sooner */
    bool huge_pages; /* FEATURE_HUGE_PAGES: for large Python objects */
    bool epoll;      /* allowed by the filter of local sandboxes */
    unsigned pool; /* sandboxes of this kind to keep ready after this one, if the environment can */
};

/* Its properties as a container or remote machine, or the defaults. */
static inline const struct container_spec *sandbox_container(const struct sandbox_spec *spec)
{
    static const struct container_spec defaults;
    return spec->container ? spec->container : &defaults;
}

/* How a sandbox ended. */
struct sandbox_exit {
    bool has_status;    /* false: it was killed from outside, or the machine did not report it */
    int wait_status;    /* the worker's, as from waitpid(2); valid if `has_status` */
    enum limit limit;   /* the limit that ended it, if the environment knows; LIMIT_NONE: none */
    struct error error; /* ERROR_ENVIRONMENT if it could not start */
};

/* What a sandbox has used, and what enforces its limits. */
struct sandbox_usage {
    /* bytes; with a cgroup, of all processes together; otherwise of the largest process, known
     * after its end; 0: not known */
    uint64_t memory_peak;
    double cpu_seconds; /* of all processes; without a cgroup known after the end; 0: not known */
    enum limit_means means[LIMIT_COUNT];
};

/* What all processes of a sandbox use now. */
struct sandbox_figures {
    double cpu_seconds;          /* so far */
    uint64_t memory;             /* bytes, with the files */
    uint64_t files, files_limit; /* bytes in its private file system; 0: it has none */
};

struct sandbox_events {
    /* Bytes of the channel, in pieces of any size. True if they end within a message. */
    bool (*bytes)(void *arg, const char *data, size_t len);
    /* Bytes of standard output (1) or error (2). */
    void (*output)(void *arg, int stream, const char *data, size_t len);
    /* The guest has ended. The last event; only `close` may be called afterwards. */
    void (*ended)(void *arg, const struct sandbox_exit *how);
    /* The flush that `settle` started is complete. NULL for callers that do not use `settle`. */
    void (*settled)(void *arg);
    /* Some of the bytes that `unread` counts were sent. NULL for callers that do not use
     * `unread`. */
    void (*room)(void *arg);
    /* The shutdown that `finish` started is complete, or failed with `why`. NULL for callers that
     * do not use `finish`. */
    void (*finished)(void *arg, const struct error *why);
    /* With TRAIT_MEMFD: a descriptor that came with the bytes which `bytes` gets next; the receiver
     * takes it. NULL for callers that want none. */
    void (*descriptor)(void *arg, int fd);
    /* A request of the sandbox's proxy, see egress_events; of a family, to one of its members. NULL
     * for callers that record none. */
    bool (*request)(void *arg, const struct egress_request *request);
    /* One that needs an approval, likewise. NULL for callers that cannot ask. */
    bool (*approve)(void *arg, struct droste_network_request *request);
};

struct sandbox; /* defined by each environment */

enum sandbox_trait {
    TRAIT_MEMFD = 1,   /* passes file descriptors in both directions */
    TRAIT_SIGNAL = 2,  /* `interrupt` reaches a guest that is not reading */
    TRAIT_LATE = 4,    /* starts asynchronously; opening a session waits for READY */
    TRAIT_VOLUMES = 8, /* has its own named volumes; otherwise volumes are on this machine */
    TRAIT_IMAGES = 16, /* images are unpacked on this machine (image/image.h) */
};

struct environment;
/* Called once with the number of removed sandboxes of dead hosts; or with an error. */
typedef void environment_collected_fn(void *arg, unsigned removed, const struct error *why);

struct environment_ops {
    const char *name;
    uint32_t traits;
    const struct feature_state *features; /* indexed by enum feature */
    /* Starts a guest. Bytes can be sent at once. No event fires within the call. */
    int (*open)(struct environment *env, const struct sandbox_spec *spec,
        const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err);
    /* Starts a companion of a sandbox: a process of its own with the same files, user and limits,
     * which ends with it at the latest and must be closed first. NULL: not supported. */
    int (*open_companion)(struct sandbox *of, const struct sandbox_events *events, void *arg,
        struct sandbox **out, struct error *err);
    /* Sends `frame`, which asks the guest to copy itself, with the descriptor that it needs, and
     * makes the sandbox of the copy. If the guest then refuses, that sandbox is only to be closed.
     * NULL: not supported. */
    int (*fork)(struct sandbox *s, const struct iovec *frame, int count,
        const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err);
    /* Replaces the receiver of events. NULL if `fork` is. */
    void (*rebind)(struct sandbox *s, void *arg);
    /* Bytes of private memory of its processes; pages that they share with others count in
     * proportion. NULL: not known. */
    uint64_t (*memory)(const struct sandbox *s);
    /* A number that sandboxes of one zygote have in common, and no others: memory that one of them
     * has saved can be mapped by the others (session/template.h). NULL: not supported. */
    uint64_t (*lineage)(const struct sandbox *s);
    /* Queues bytes; takes ownership of `fd` (or -1), which travels with the first byte. Does
     * nothing after the guest's end, which `ended` reports. */
    int (*send)(struct sandbox *s, const struct iovec *iov, int count, int fd, struct error *err);
    /* Bytes queued in this process because the guest does not read them. NULL: always 0. */
    size_t (*unread)(const struct sandbox *s);
    /* Pauses or resumes reading of the channel. Bytes in transit may still arrive. NULL if `unread`
     * is. */
    void (*hold)(struct sandbox *s, bool on);
    /* With TRAIT_MEMFD: a descriptor would reach the guest at once, and no other one is in
     * transit. */
    bool (*takes_fd)(const struct sandbox *s);
    /* An operation begins: the sandbox's output takes precedence over that of long operations. */
    void (*begin_operation)(struct sandbox *s);
    /* A cell has ended. True: changes to the volume are being transferred to this machine;
     * `settled` follows, or `ended` with the error. False: nothing to wait for. NULL: always
     * false. */
    bool (*settle)(struct sandbox *s);
    /* The session is over. True: the guest is being shut down in order, and its writes to a
     * provider's volume are being made durable. `finished` follows as the only event, and only
     * `close` may be called. False: nothing to wait for. NULL: always false. */
    bool (*finish)(struct sandbox *s);
    /* Sends SIGINT to the guest; the INTERRUPT frame says which operation is meant. */
    void (*interrupt)(struct sandbox *s);
    /* Kills the guest and all its processes; `ended` follows. */
    void (*kill)(struct sandbox *s);
    /* Stops all processes of the sandbox, of its forks and beside it, or lets them go on. A kill
     * ends a pause. NULL: not supported. */
    int (*pause)(struct sandbox *s, bool on, struct error *err);
    /* Nanoseconds for which they were stopped, in all. NULL if `pause` is. */
    uint64_t (*paused_ns)(const struct sandbox *s);
    /* Reads everything that the guest has written to its standard streams so far. */
    void (*drain)(struct sandbox *s);
    enum isolation (*isolation)(const struct sandbox *s);
    void (*usage)(const struct sandbox *s, struct sandbox_usage *out);
    /* False: they are not known. NULL: never known. */
    bool (*figures)(const struct sandbox *s, struct sandbox_figures *out);
    /* It has not started yet because there is no room for it; see start_wait. NULL: never. */
    bool (*waits)(const struct sandbox *s);
    /* Nanoseconds for which its processes ran or were ready to run; 0: not known. NULL: always
     * 0. */
    uint64_t (*busy_ns)(const struct sandbox *s);
    /* The host has spent processor time on a request of the guest, apart from reading it. NULL: not
     * counted. */
    void (*charge)(struct sandbox *s, uint64_t ns);
    /* The connection is down, so silence is not the guest's fault. NULL: always false. */
    bool (*is_cut)(const struct sandbox *s);
    /* The path of the volume in the guest, or NULL. NULL: always NULL. */
    const char *(*volume)(const struct sandbox *s);
    /* The same for the workspace. */
    const char *(*workspace)(const struct sandbox *s);
    /* The provider's id of the sandbox, once it is known; otherwise NULL. NULL: always NULL. */
    const char *(*id)(const struct sandbox *s);
    /* Removes the sandboxes that killed hosts of this machine left there. NULL: none can be
     * left. */
    int (*collect)(
        struct environment *env, environment_collected_fn *done, void *arg, struct error *err);
    /* Closed sandboxes are still being ended remotely, which needs the loop to run. NULL: always
     * false. */
    bool (*settling)(const struct environment *env);
    /* A description for the model of an environment without the guest's functions (guest/python);
     * may be "". NULL: the guest's functions exist. */
    const char *(*about)(const struct environment *env);
    /* Prints the plan of the sandbox for users; may be NULL. */
    void (*describe)(const struct environment *env, const struct sandbox *s, struct buf *out);
    /* Kills what is left and frees it; no event follows. NULL is fine. */
    void (*close)(struct sandbox *s);
    /* In the child of a fork: closes descriptors that are not watched by the loop. May be NULL. */
    void (*forked)(struct environment *env);
    void (*free)(struct environment *env);
};

/* The first member of every environment. */
struct environment_base {
    const struct environment_ops *ops;
    struct loop *loop;
    /* A line for the user about a slow step, such as pulling an image. NULL: not wanted. */
    void (*notice)(void *arg, const char *text);
    void *notice_arg;
};

/* Strings are copied. */
struct environment_options {
    const char *ca_file; /* certificates to trust instead of the system's; NULL: the system's */
};

/* What a built-in environment declares about itself, in its own directory. */
struct environment_kind {
    const char *name;
    const char *about; /* one line about its sandboxes */
    /* the environment variables that it reads when it is opened, separated by spaces */
    const char *variables;
    const struct feature_state *features; /* indexed by enum feature */
    const struct layout *layout;          /* for programs written for its sandboxes; NULL: none */
    bool keeps_volumes;                   /* TRAIT_VOLUMES */
    /* Whether it is configured (a key, a socket); sends nothing. The error says what to set. NULL:
     * it always is. */
    int (*configured)(struct error *err);
    int (*open)(struct loop *loop, const struct environment_options *options,
        struct environment **out, struct error *err);
};
extern const struct environment_kind local_environment, docker_environment, daytona_environment,
    prime_environment, e2b_environment, modal_environment;

/* The built-in environments, in order; NULL after the last. */
const struct environment_kind *environment_at(size_t i);
/* NULL: there is none of this name. */
const struct environment_kind *environment_named(const char *name);
/* NULL stands for the default. ERROR_ARGUMENT if there is no such layout. */
int environment_layout(const char *name, const struct layout **out, struct error *err);
/* A path in a volume as any layout names it, relative to the volume: "/data/a" is "a". Other paths
 * are returned as they are. */
const char *environment_volume_path(const char *path);
/* A digest of the current values of its variables, without revealing keys. An environment that is
 * already open can be reused while the digest is unchanged. */
enum { ENVIRONMENT_CIRCUMSTANCES_SIZE = 65 };
int environment_circumstances(
    const char *name, char out[ENVIRONMENT_CIRCUMSTANCES_SIZE], struct error *err);

/* Opens an environment by its name, or as bridge:PATH. */
int environment_open(const char *name, struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);
/* ERROR_UNSUPPORTED, naming the setting that this environment does not support. */
int environment_check(
    const struct environment *env, const struct sandbox_spec *spec, struct error *err);
/* Blocks until closed sandboxes have ended, for a few seconds at most. Not from within the loop. */
void environment_settle(struct environment *env);
void environment_close(struct environment *env);
void environment_on_notice(
    struct environment *env, void (*notice)(void *arg, const char *text), void *arg);

static inline const struct environment_ops *environment_ops_of(const struct environment *env)
{
    return ((const struct environment_base *)env)->ops;
}
