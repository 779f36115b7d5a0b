/* jail/calls.h: tables of the system calls and arguments that a guest may use.
 *
 * jail/filter.c compiles the tables into a seccomp filter; calls_print prints them (`droste doctor
 * --plan`). Each row has a reason. Calls and values without a row get ENOSYS, so whatever a later
 * kernel adds is denied until it has been reviewed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The kind of guest: with its own root, among the host's files and processes (isolation
 * `landlock`), or in a container. */
enum call_where { CALL_ANYWHERE, CALL_IN_OWN_ROOT, CALL_AMONG_FILES, CALL_IN_CONTAINER };

enum { CALL_ALLOWED = 0, CALL_DOES_NOTHING = -1 }; /* or an errno */

/* Calls by name, separated by spaces. Names that this machine lacks are skipped. With `where`, the
 * row applies there, and elsewhere the calls are EPERM; CALL_IN_OWN_ROOT includes containers. With
 * CALL_IN_CONTAINER, the calls are allowed in containers and get this answer elsewhere. */
struct call_group {
    const char *names;
    int answer;
    enum call_where where;
    const char *why;
};

/* A value of an argument, or one of its bits. */
struct call_value {
    const char *name;
    uint32_t value;
    int answer;
    uint32_t most; /* upper bound of the next argument; 0: any */
    const char *why;
};

/* The allowed values of an argument. Flags: any combination of these bits; otherwise one of these
 * values. */
struct call_argument {
    unsigned index;
    bool flags;
    const struct call_value *values; /* ends with a row without a name */
};

/* Calls that are allowed if all listed arguments are. */
struct call_rule {
    const char *names;
    struct call_argument arguments[2]; /* the second has no values if only one is checked */
};

/* A socket that may be created: by socketpair(2), and unless `pairs_only` also by socket(2) in a
 * private root. */
struct call_socket {
    const char *name;
    uint32_t family, type, protocol;
    bool pairs_only;
};

enum { OPTION_GET = 1, OPTION_SET = 2 };

struct call_option {
    const char *name;
    uint32_t level, option;
    unsigned may; /* OPTION_…; 0: denied with EPERM */
    const char *why;
};

/* Commands of ioctl(2) that have `value` in the bits of `mask`. */
struct call_commands {
    const char *name;
    uint32_t mask, value;
    const char *why;
};

/* Each table ends with a row without a name. */
extern const struct call_group call_groups[];
extern const struct call_rule call_rules[];
extern const struct call_socket call_sockets[];
extern const struct call_option call_options[];

/* Of sandboxes with NVIDIA's GPUs. A filter does not see which file a command is for. */
extern const struct call_commands call_device_commands[];

/* Calls that the zygote needs to set up a sandbox, with the answers that guests get for them. */
extern const struct call_group call_set_up[];
extern const struct call_value call_set_up_prctls[], call_clone_flags[];
extern const struct call_socket call_set_up_socket; /* raises a sandbox's loopback interface */

/* Extracts the next of the names, separated by spaces; false at the end. */
bool call_next_name(const char **names, char *out, size_t size);

int call_answer(const struct call_group *g, enum call_where where);

/* Prints the tables as they apply to this kind of guest. */
void calls_print(enum call_where where, struct buf *out);
