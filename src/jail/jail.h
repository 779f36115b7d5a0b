/* jail/jail.h: the specification of a sandbox, and its compilation into a plan.
 *
 * jail/plan.h defines the plan; jail/compile.c creates it. A zygote's plan prepares the root
 * directory once; each sandbox cloned from the zygote has a second plan.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/error.h"
#include "jail/plan.h"

enum isolation {
    ISOLATION_AUTO, /* the strongest that works here; never `process` */
    ISOLATION_FULL,
    ISOLATION_LIGHT,
    ISOLATION_LANDLOCK,
    ISOLATION_PROCESS,
    /* Isolation of other environments; cannot be requested. */
    ISOLATION_CONTAINER,
    ISOLATION_REMOTE, /* unknown isolation of a remote environment */
    ISOLATION_CUSTOM, /* unknown isolation of the embedding program's environment */
};

/* The name as used by the CLI and in results. */
const char *isolation_name(enum isolation isolation);
/* ERROR_ARGUMENT if it is not a level that can be requested. */
int isolation_parse(const char *word, enum isolation *out, struct error *err);
/* True if the guest has its own root directory and namespaces; false if it runs among the host's
 * files and processes. */
bool isolation_has_own_root(enum isolation isolation);

/* Limits of a sandbox. With a cgroup, `memory` and `processes` apply to the sandbox as a whole. */
struct jail_limits {
    /* bytes; without a cgroup: of private memory per process (RLIMIT_DATA), and of all processes as
     * measured by the host */
    uint64_t memory;
    uint64_t processes; /* including threads; not at `process` without a cgroup */
    /* processor seconds per second, all processes together; only with a cgroup */
    double cpus;
    uint64_t cpu_time;       /* processor seconds per process */
    uint64_t open_files;     /* descriptors per process */
    uint64_t file_size;      /* bytes per file */
    uint64_t tmp_size;       /* bytes of the private /tmp; only with a mount namespace */
    uint64_t volume_size;    /* bytes of its volume, */
    uint64_t volume_files;   /* and files in it; only with a volume */
    uint64_t workspace_size; /* the same for its workspace */
    uint64_t workspace_files;
};

extern const struct jail_limits jail_default_limits;

/* The limits by name (jail/limits.c). The value 0 means unlimited. */
enum limit {
    LIMIT_NONE,
    LIMIT_MEMORY,
    LIMIT_PROCESSES,
    LIMIT_CPUS,
    LIMIT_CPU_TIME,
    LIMIT_OPEN_FILES,
    LIMIT_FILE_SIZE,
    LIMIT_TMP_SIZE,
    LIMIT_VOLUME_SIZE,
    LIMIT_VOLUME_FILES,
    LIMIT_WORKSPACE_SIZE,
    LIMIT_WORKSPACE_FILES,
    LIMIT_COUNT,
    LIMIT_VOLUME_LOST = LIMIT_COUNT, /* none that is set: another machine has the volume */
};

enum limit_means {
    LIMIT_BY_NOTHING,
    LIMIT_BY_CGROUP,
    LIMIT_BY_RLIMIT,
    LIMIT_BY_MOUNT,
    LIMIT_BY_HOST
};

/* "cpu time" as in results, and "cpu-time" as in settings. */
const char *limit_name(enum limit limit);
const char *limit_option(enum limit limit);
double limit_value(enum limit limit, const struct jail_limits *limits);
/* Prints the value: "64M", "10 s". */
void limit_print(enum limit limit, const struct jail_limits *limits, struct buf *out);
/* What enforces the limit in a sandbox with this plan, with or without a cgroup. */
enum limit_means limit_means(
    enum limit limit, const struct jail_limits *limits, const struct jail_plan *plan, bool cgroup);
/* "cgroup", "rlimit", "mount", or "host" (measured periodically); NULL for LIMIT_BY_NOTHING. */
const char *limit_means_name(enum limit_means means);

/* The guest's names for its volume and workspace. Providers declare layouts for the programs that
 * were written for their sandboxes (struct environment_kind). */
struct layout {
    const char *name;
    const char *volume[2];    /* in a private root; the second is an alias; NULL: none */
    const char *workspace[2]; /* of the directory prepared for its session (volume/workspace.h) */
    /* that an empty volume gets, parents first; NULL after the last; NULL: none */
    const char *const *directories;
};
extern const struct layout default_layout;
/* NULL in the structures below stands for the default. */
static inline const struct layout *layout_of(const struct layout *layout)
{
    return layout ? layout : &default_layout;
}

/* Devices of this machine that all sandboxes of a zygote may use, as paths of this machine. */
struct jail_devices {
    struct list files;     /* to read and write */
    struct list libraries; /* of their driver; links stay links */
    struct list facts;     /* directories of /sys, or links to them, to read */
};

/* Where `libraries` are with an image, whose loader does not look for them elsewhere. */
#define JAIL_DEVICE_LIBRARIES "/run/nvidia/lib"

/* What the interpreter needs, as reported by itself, and who starts it. */
struct jail_host {
    uid_t uid;
    gid_t gid;
    const char *const *prefixes; /* sys.prefix and related directories */
    size_t prefix_count;
    /* the directory whose files its sandboxes see instead of the host's: an absolute path without
     * links; NULL: none. The interpreter is its own, and starts in it. */
    const char *image;
    const char *const *read_paths; /* the user's: visible read-only under the same path */
    size_t read_path_count;
    /* without a private root: the zygote's working directory, which it removes if the host is
     * killed */
    const char *workdir;
    /* The directory that contains all volumes and workspaces; NULL: none. Each sandbox sees only
     * its own. */
    const char *volumes;
    bool has_volume, has_workspace;
    bool lends_users; /* as root: each sandbox may be another user (struct jail_mount) */
    const struct layout *layout;
    const struct jail_devices *devices; /* NULL: none */
    bool private_root;                  /* its sandboxes can write to their root directories */
    bool loopback;             /* each of its sandboxes has a network of its own that leads back */
    const struct buf *filters; /* by jail_compile_filters; NULL: compiled now */
};

enum {
    JAIL_FILTERS = 2,
    JAIL_INSIDE_UID = 1000, /* the guest's uid inside its user namespace */
    JAIL_NOBODY = 65534,    /* of root's zygotes, and of guests without their own user */
};

/* A host directory that the guest may write to. */
struct jail_volume {
    /* NULL: none. With a private root: relative to the zygote's `volumes` */
    const char *path;
    uint64_t device, inode; /* of the directory, to be verified */
    /* the request has an id-mapped mount of it, in which it belongs to the sandbox's user */
    bool mapped;
};

/* What belongs to this sandbox only. */
struct jail_mount {
    struct jail_volume volume, workspace;
    const struct layout *layout;
    bool shares_session; /* uses its zygote's session, which has no terminal, instead of its own */
    const char *python;  /* with a private root: the interpreter's path */
    uint32_t user;       /* uid and gid outside, of a zygote with lends_users; 0: the zygote's */
    /* with a loopback network: the port at which the host listens in it; 0: none */
    unsigned proxy_port;
    /* without a private root: */
    const char *workdir;     /* the session's temporary directory */
    uint64_t user_processes; /* processes and threads that its user has already */
};

/* Compiles the filters of system calls for jail_compile_zygote, which takes milliseconds and needs
 * no facts about the interpreter. The caller frees the buffers. `more`: see jail/filter.h. */
int jail_compile_filters(
    enum isolation isolation, unsigned more, struct buf out[JAIL_FILTERS], struct error *err);

/* Plans are heap blocks (free). */
int jail_compile_zygote(enum isolation isolation, const struct jail_host *host,
    struct jail_plan **out, struct error *err);
/* `zygote` is the plan of the zygote that it is cloned from. */
int jail_compile_sandbox(enum isolation isolation, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, struct jail_plan **out,
    struct error *err);

/* The plan of a process beside a sandbox: with its limits and rights, in its namespaces. The
 * request has the pidfd of its keeper (JAIL_JOIN). */
int jail_compile_companion(enum isolation isolation, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, struct jail_plan **out,
    struct error *err);

/* Prints one line per operation, with the numbers that failures refer to. */
void jail_print(const struct jail_plan *plan, struct buf *out);
/* Prints one operation, such as "mount proc on /proc", for error messages. */
void jail_print_op(const struct jail_plan *plan, uint32_t index, struct buf *out);
