/* jail/plan.h: a jail is data.
 *
 * The host compiles a jail_spec into a list of operations (jail/compile.c); the zygote and its
 * children carry them out in order with plain system calls (jail/enter.c, which is linked into the
 * helper that the interpreter loads, so neither may need more than libc). What is not in the list
 * does not happen. The list can be printed (`droste doctor --plan`) and tested without privileges.
 *
 * A plan is one block of bytes: this header, the operations, then their NUL-terminated strings.
 */
#ifndef DROSTE_JAIL_PLAN_H
#define DROSTE_JAIL_PLAN_H

#include <stddef.h>
#include <stdint.h>

enum jail_op_kind {
    JAIL_UNSHARE,       /* a: CLONE_NEW… flags */
    JAIL_MAP_SELF,      /* a, b: user and group id inside, for the caller's own outside */
    JAIL_BECOME,        /* a, b: user and group id to change to, without supplementary groups */
    JAIL_BECOME_LENDER, /* the same, and able to have each child be another user */
    JAIL_PRIVATE,       /* stop the propagation of mounts, in both directions */
    JAIL_MOUNT,         /* text 0: type, 1: target, 2: data; a: MS_… flags */
    JAIL_BIND,          /* text 0: source, 1: target (made as needed); a: MOUNT_ATTR_… to set */
    JAIL_VOLUME, /* text 0: directory, 1: a path below it without links, 2: mount point; a: device,
                        * b: inode that it must be */
    JAIL_ATTACH, /* text 1: mount point; a: which of the mounts that came with the request */
    JAIL_READ_ONLY,    /* text 0: mount point; one mount, not those below it */
    JAIL_DIRECTORY,    /* text 0: path, parents made too; a: mode */
    JAIL_FILE,         /* text 0: path, 1: contents; a: mode */
    JAIL_SYMLINK,      /* text 0: what it points to, 1: path */
    JAIL_PIVOT,        /* text 0: new root, 1: where the old one goes below it */
    JAIL_DETACH,       /* text 0: mount point, unmounted with all below it */
    JAIL_CHDIR,        /* text 0: path */
    JAIL_HOSTNAME,     /* text 0: name */
    JAIL_LIMIT,        /* a: RLIMIT_…, b: soft and hard value; RLIMIT_CPU: a second between */
    JAIL_SESSION,      /* own session and process group */
    JAIL_GROUP,        /* own process group, in the zygote's session */
    JAIL_DROP_BOUND,   /* the bounding set of capabilities */
    JAIL_DROP_CAPS,    /* all other sets, the ambient one too */
    JAIL_NO_NEW_PRIVS, /* set-user-id files and file capabilities have no effect */
    JAIL_KEYRING,      /* a session keyring of its own, empty */
    JAIL_SCHEDULE,     /* ordinary scheduling, where real-time priority was inherited */
    JAIL_MASK,         /* text 0: a file, hidden by an empty one */
    JAIL_RULESET,      /* begins a Landlock domain; a: rights to files that it controls,
                        * b: to the network, and << 32 the scopes (jail/landlock.h) */
    JAIL_RULE,    /* text 0: path, with all below it; a: rights to it; b: the inode that it must
                        * be, 0: any */
    JAIL_CONFINE, /* enters the domain, for good */
    JAIL_FILTER,  /* text 0: a seccomp filter of a bytes (jail/filter.c) */
    JAIL_OP_COUNT,
};

/* Who carries an operation out. */
enum jail_stage {
    JAIL_ZYGOTE, /* once, before the first clone */
    JAIL_KEEPER, /* in each clone, before the worker is forked from it */
    JAIL_WORKER, /* in the process that runs the guest's code */
    JAIL_GUARD,  /* in the keeper, after the fork */
};

struct jail_op {
    uint16_t kind;
    uint16_t stage;
    uint32_t optional; /* a failure is passed over */
    uint32_t text[3];  /* offsets into the strings; 0 is the empty one */
    uint32_t unused;
    uint64_t a, b;
};

struct jail_plan {
    uint32_t size; /* of the whole block */
    uint32_t count;
    uint64_t clone_flags; /* of each child: CLONE_NEW… */
    uint32_t user, group; /* that each child is outside; user 0: the zygote's own */
    struct jail_op ops[];
};

static inline const char *jail_plan_text(
    const struct jail_plan *plan, const struct jail_op *op, int i)
{
    return (const char *)(plan->ops + plan->count) + op->text[i];
}

/* Around the clone of a child that is another user than the zygote: the zygote is that user meanwhile, as a
 * user namespace belongs to the one who makes it. `in_cgroup`: but for its files, which it opens as itself, as
 * the kernel asks who may write to the cgroup. 0, or -1 with errno. */
int jail_lend_user(const struct jail_plan *plan, int in_cgroup);
int jail_take_user_back(const struct jail_plan *plan);

/* The descriptors that JAIL_ATTACH means, -1: none; before the stage of the keeper. */
enum { JAIL_MOUNTS = 2 };
void jail_lend_mounts(const int mounts[JAIL_MOUNTS]);

/* Carries out one stage. 0, or -1 with errno and *failed the index of the operation. */
int jail_enter(const struct jail_plan *plan, enum jail_stage stage, uint32_t *failed);

#endif
