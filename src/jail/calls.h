/* jail/calls.h: the system calls that a guest may make, and with which arguments: data.
 *
 * jail/filter.c compiles the tables into a seccomp filter, calls_print prints them
 * (`droste doctor --plan`). Each row says why. A call that no row names is ENOSYS, and so is a value
 * that no row names: what a later kernel adds is refused until somebody has looked at it.
 */
#ifndef DROSTE_JAIL_CALLS_H
#define DROSTE_JAIL_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Where a guest stands: in a root of its own, among the host's files and processes (isolation
 * `landlock`), or in a container. */
enum call_where { CALL_ANYWHERE, CALL_IN_OWN_ROOT, CALL_AMONG_FILES, CALL_IN_CONTAINER };

enum { CALL_ALLOWED = 0, CALL_DOES_NOTHING = -1 }; /* or an errno */

/* Calls by name, separated by spaces. Names that a machine does not have are passed over. With
 * `where`, they are EPERM elsewhere; CALL_IN_OWN_ROOT is a container's, too. With CALL_IN_CONTAINER they
 * are allowed there, and have this answer elsewhere. */
struct call_group {
    const char *names;
    int answer;
    enum call_where where;
    const char *why;
};

/* A value of an argument, or a bit of it. */
struct call_value {
    const char *name;
    uint32_t value;
    int answer;
    uint32_t most; /* of the argument after it; 0: any */
    const char *why;
};

/* What an argument may be. Flags: any of these bits, together; else one of these values. */
struct call_argument {
    unsigned index;
    bool flags;
    const struct call_value *values; /* the last has no name */
};

/* Calls that are allowed if each of their arguments is. */
struct call_rule {
    const char *names;
    struct call_argument arguments[2]; /* the second may have no values: there is one */
};

/* A socket that may be made; without `pairs_only`, by socket(2) too, in a root of its own. */
struct call_socket {
    const char *name;
    uint32_t family, type, protocol;
    bool pairs_only;
};

enum { OPTION_GET = 1, OPTION_SET = 2 };

struct call_option {
    const char *name;
    uint32_t level, option;
    unsigned may; /* OPTION_…; 0: refused with EPERM */
    const char *why;
};

/* The last row of each has no name. */
extern const struct call_group call_groups[];
extern const struct call_rule call_rules[];
extern const struct call_socket call_sockets[];
extern const struct call_option call_options[];

/* What the zygote needs to set a sandbox up, and a guest gets these answers for. */
extern const struct call_group call_set_up[];
extern const struct call_value call_set_up_prctls[], call_clone_flags[];

/* Takes the next of the names, separated by spaces; false: there is none. */
bool call_next_name(const char **names, char *out, size_t size);

int call_answer(const struct call_group *g, enum call_where where);

/* The tables in words, as they are for a guest that stands there. */
void calls_print(enum call_where where, struct buf *out);

#endif
