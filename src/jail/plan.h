/* jail/plan.h: the plan of a jail: a list of operations.
 *
 * The host compiles it (jail/compile.c). The zygote and its children execute it in order with plain
 * system calls (jail/enter.c, which is linked into the helper that the interpreter loads, so
 * neither may need more than libc). Nothing happens that is not in the list. It can be printed
 * (`droste doctor --plan`) and tested without privileges.
 *
 * A plan is one block of bytes: this header, the operations, then their NUL-terminated strings.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum jail_op_kind {
    JAIL_UNSHARE,       /* a: CLONE_NEW… flags */
    JAIL_MAP_SELF,      /* a, b: user and group id inside that map to the caller's own */
    JAIL_BECOME,        /* a, b: user and group id to change to, without supplementary groups */
    JAIL_BECOME_LENDER, /* the same, keeping the ability to run each child as another user */
    JAIL_PRIVATE,       /* stop mount propagation in both directions */
    JAIL_MOUNT,         /* text 0: type, 1: target, 2: data; a: MS_… flags */
    /* text 0: where pseudo-terminals are mounted, unless they are; 2: options */
    JAIL_TERMINALS,
    JAIL_BIND, /* text 0: source, 1: target (created if missing); a: MOUNT_ATTR_… to set */
    /* the same for files of an image: no component of either path may be a link; b: 1 if the target
     * is within an earlier one */
    JAIL_GRAFT,
    /* text 0: directory, 1: path below it without links, 2: mount point; a, b: the device and inode
     * that it must have */
    JAIL_VOLUME,
    JAIL_ATTACH, /* text 1: mount point; a: index of the mount that came with the request */
    /* a: CLONE_NEW… flags: the namespaces of the sandbox that came with the request as a pidfd */
    JAIL_JOIN,
    JAIL_READ_ONLY, /* text 0: mount point; only this mount, not those below it */
    JAIL_DIRECTORY, /* text 0: path, created with its parents; a: mode */
    JAIL_FILE,      /* text 0: path, 1: contents; a: mode */
    JAIL_SYMLINK,   /* text 0: target of the link, 1: its path */
    JAIL_PIVOT,     /* text 0: new root, 1: path of the old root below it */
    JAIL_DETACH,    /* text 0: mount point, detached with everything below it */
    JAIL_CHDIR,     /* text 0: path */
    JAIL_HOSTNAME,  /* text 0: name */
    JAIL_LOOPBACK,  /* raises the interface of the network namespace that leads back to it */
    /* a: a port of 127.0.0.1 at which a socket listens, which goes to the host over the one that
     * came with the request */
    JAIL_LISTEN,
    /* a: RLIMIT_…, b: soft and hard value; for RLIMIT_CPU the hard limit is a second later */
    JAIL_LIMIT,
    JAIL_SESSION,      /* its own session and process group */
    JAIL_GROUP,        /* its own process group, in the zygote's session */
    JAIL_HIDE,         /* the process's memory and files are hidden from others of its user */
    JAIL_DROP_BOUND,   /* drops the capability bounding set */
    JAIL_DROP_CAPS,    /* drops all other capability sets, including ambient */
    JAIL_NO_NEW_PRIVS, /* set-user-id and file capabilities have no effect */
    JAIL_KEYRING,      /* joins a new, empty session keyring */
    JAIL_SCHEDULE,     /* ordinary scheduling, if real-time priority was inherited */
    JAIL_MASK,         /* text 0: a file to hide under an empty one */
    /* begins a Landlock domain; a: file rights that it controls, b: network rights, and << 32
     * scopes (jail/landlock.h) */
    JAIL_RULESET,
    /* text 0: path, including everything below it; a: rights granted; b: the inode that it must
     * have, 0: any */
    JAIL_RULE,
    JAIL_CONFINE, /* enters the domain, irrevocably */
    JAIL_FILTER,  /* text 0: a seccomp filter of `a` bytes (jail/filter.c) */
    JAIL_OP_COUNT,
};

/* The process that executes an operation. */
enum jail_stage {
    JAIL_OUTSIDE, /* with an image: in the process that makes the zygote's, in its namespaces */
    /* once, before the first clone; with an image: before the interpreter starts */
    JAIL_ZYGOTE,
    JAIL_KEEPER, /* in each clone, before the worker is forked from it */
    JAIL_WORKER, /* in the process that runs the guest's code */
    JAIL_GUARD,  /* in the keeper, after the fork */
};

struct jail_op {
    uint16_t kind;
    uint16_t stage;
    uint32_t optional; /* a failure is ignored */
    uint32_t text[3];  /* offsets into the strings; 0 is the empty string */
    uint32_t unused;
    uint64_t a, b;
};

struct jail_plan {
    uint32_t size; /* of the whole block */
    uint32_t count;
    uint64_t clone_flags; /* of each child: CLONE_NEW… */
    uint32_t user, group; /* of each child outside; user 0: the zygote's */
    /* of a zygote's plan: each sandbox gets a root of its own (jail/private_root.c) */
    uint32_t private_root;
    uint32_t loopback; /* of a zygote's plan: each sandbox gets a loopback network of its own */
    uint32_t devices;  /* of a zygote's plan: each sandbox may use devices, which lock its memory */
    struct jail_op ops[];
};

static inline const char *jail_plan_text(
    const struct jail_plan *plan, const struct jail_op *op, int i)
{
    return (const char *)(plan->ops + plan->count) + op->text[i];
}

/* Called around the clone of a child with another user. The zygote becomes that user for the clone,
 * because a user namespace belongs to its creator. `in_cgroup`: it keeps its own group for file
 * access, because the kernel checks whether it may write to the cgroup. 0, or -1 with errno. */
int jail_lend_user(const struct jail_plan *plan, int in_cgroup);
int jail_take_user_back(const struct jail_plan *plan);

/* Sets the descriptors for JAIL_ATTACH, the pidfd for JAIL_JOIN and the socket for JAIL_LISTEN (-1:
 * none), before the keeper's stage. */
enum { JAIL_MOUNTS = 2, JAIL_JOINED = JAIL_MOUNTS, JAIL_LISTENER, JAIL_LENT };
void jail_lend(const int descriptors[JAIL_LENT]);

/* Executes one stage. 0, or -1 with errno and the operation's index in *failed. */
int jail_enter(const struct jail_plan *plan, enum jail_stage stage, uint32_t *failed);
