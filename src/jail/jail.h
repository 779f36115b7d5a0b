/* jail/jail.h: from what a sandbox may do to the list of operations that makes it so.
 *
 * jail/plan.h is the list; jail/compile.c writes it. Two plans belong together: one for the zygote,
 * which prepares the root directory once, and one for each sandbox cloned from it.
 */
#ifndef DROSTE_JAIL_JAIL_H
#define DROSTE_JAIL_JAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "jail/plan.h"

enum isolation {
    ISOLATION_AUTO, /* the strongest that works here; never `process` */
    ISOLATION_FULL,
    ISOLATION_LIGHT,
    ISOLATION_LANDLOCK,
    ISOLATION_PROCESS,
    /* Not of a jail's, and not to be asked for: what other environments have. */
    ISOLATION_CONTAINER,
    ISOLATION_REMOTE, /* whatever there is at the far end */
    ISOLATION_CUSTOM, /* whatever the embedding program does */
};

/* The name, as in the CLI and in results. */
const char *isolation_name(enum isolation isolation);
/* ERROR_ARGUMENT for a word that is none that can be asked for. */
int isolation_parse(const char *word, enum isolation *out, struct error *err);
/* True if the guest has a root directory of its own, and namespaces; false where it stands among the
 * host's files and processes. */
bool isolation_has_own_root(enum isolation isolation);

/* What a sandbox may use. With a cgroup, `memory` and `processes` are of the sandbox as a whole. */
struct jail_limits {
    uint64_t
        memory; /* bytes; without a cgroup: of private memory of a process (RLIMIT_DATA), and of
                            all as the host measures it */
    uint64_t processes;  /* with their threads; not at `process` without a cgroup */
    double cpus;         /* processors' worth of time, all processes together; only with a cgroup */
    uint64_t cpu_time;   /* seconds of processor time of a process */
    uint64_t open_files; /* descriptors of a process */
    uint64_t file_size;  /* bytes of one file */
    uint64_t tmp_size;   /* bytes of the private /tmp; only with a mount namespace */
    uint64_t volume_size;    /* bytes of its volume, and */
    uint64_t volume_files;   /* files in it; only with one */
    uint64_t workspace_size; /* the same of its workspace */
    uint64_t workspace_files;
};

extern const struct jail_limits jail_default_limits;

/* The same by name (jail/limits.c). A value of 0 is no limit. */
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
};

enum limit_means {
    LIMIT_BY_NOTHING,
    LIMIT_BY_CGROUP,
    LIMIT_BY_RLIMIT,
    LIMIT_BY_MOUNT,
    LIMIT_BY_HOST
};

/* "cpu time", as results name it, and "cpu-time", the setting. */
const char *limit_name(enum limit limit);
const char *limit_option(enum limit limit);
double limit_value(enum limit limit, const struct jail_limits *limits);
/* "64M", "10 s". */
void limit_print(enum limit limit, const struct jail_limits *limits, struct buf *out);
/* What enforces it in a sandbox of this plan, with or without a cgroup. */
enum limit_means limit_means(
    enum limit limit, const struct jail_limits *limits, const struct jail_plan *plan, bool cgroup);
/* "cgroup", "rlimit", "mount", "host" (which looks now and then); NULL for LIMIT_BY_NOTHING. */
const char *limit_means_name(enum limit_means means);

/* Under which names the guest finds its places: Droste's own, or also those of Daytona's sandboxes, for programs that were
 * written for them. */
enum layout { LAYOUT_DROSTE, LAYOUT_DAYTONA };

/* The places of a layout, in a root of the guest's own. */
struct layout_paths {
    const char *volume[2]; /* the second: the same again; NULL: nowhere else */
    const char
        *workspace[2]; /* of the directory that was filled for its session (volume/workspace.h) */
};
const struct layout_paths *layout_paths(enum layout layout);

/* What the interpreter needs to see, as it told itself, and who starts it. */
struct jail_host {
    uid_t uid;
    gid_t gid;
    const char *const *prefixes; /* sys.prefix and its kin */
    size_t prefix_count;
    const char *const *read_paths; /* of the user: to be seen read-only, under the same path */
    size_t read_path_count;
    const char *workdir; /* without a root of its own: where the zygote stands, and cleans up if the
                          * host is killed */
    /* The directory of all volumes and workspaces; NULL: none. Each sandbox gets one of those that it may. */
    const char *volumes;
    bool has_volume, has_workspace;
    bool lends_users; /* as root: each sandbox may be another user (struct jail_mount) */
    enum layout layout;
};

enum {
    JAIL_INSIDE_UID = 1000, /* who the guest is to itself */
    JAIL_NOBODY = 65534,    /* who root's zygotes are, and guests that have no user of their own */
};

/* A directory that is the host's, for the guest to write to. */
struct jail_volume {
    const char *path;       /* NULL: none. With a root of its own: below the zygote's `volumes` */
    uint64_t device, inode; /* what it must be */
    bool mapped; /* a mount of it comes along, in which it belongs to the sandbox's user */
};

/* What is this sandbox's alone. */
struct jail_mount {
    struct jail_volume volume, workspace;
    enum layout layout;
    bool shares_session; /* with its zygote, whose terminal is none; else it has one of its own */
    uint32_t user; /* and group, that it is outside, of a zygote that lends them; 0: the zygote's */
    /* without a root of its own: */
    const char *workdir;     /* the session's temporary directory */
    uint64_t user_processes; /* processes and threads that its user has already */
};

/* Plans are heap blocks (free). */
int jail_compile_zygote(enum isolation isolation, const struct jail_host *host,
    struct jail_plan **out, struct error *err);
/* `zygote` is the plan of the one that it is cloned from. */
int jail_compile_sandbox(enum isolation isolation, const struct jail_plan *zygote,
    const struct jail_limits *limits, const struct jail_mount *place, struct jail_plan **out,
    struct error *err);

/* One line an operation, numbered as failures are reported. */
void jail_print(const struct jail_plan *plan, struct buf *out);
/* "mount proc on /proc" for one operation; for error messages. */
void jail_print_op(const struct jail_plan *plan, uint32_t index, struct buf *out);

#endif
