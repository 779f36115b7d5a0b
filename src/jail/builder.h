/* jail/builder.h: a plan under construction. What fails for want of memory is said at its end. */
#ifndef DROSTE_JAIL_BUILDER_H
#define DROSTE_JAIL_BUILDER_H

#include <linux/mount.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "jail/plan.h"

/* <sys/mount.h> and <linux/mount.h> cannot be included together in glibc 2.36. */
#define MS_NOSUID 2
#define MS_NODEV  4
#define MS_NOEXEC 8

/* What of the host is shown: it changes nothing there. */
enum { BIND_SYSTEM = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };

struct builder {
    struct buf ops, text;
    enum jail_stage stage; /* of what is added */
    bool own_root;
};

void plan_begin(struct builder *b);
/* The plan is a heap block (free); the builder is empty then. `head`: its fields but for the sizes. */
int plan_finish(
    struct builder *b, const struct jail_plan *head, struct jail_plan **out, struct error *err);

/* An operation with up to two texts (NULL: none), to be changed until the next is added. */
struct jail_op *plan_add(struct builder *b, enum jail_op_kind kind, const char *t0, const char *t1,
    uint64_t a, uint64_t value);
void plan_add_mount(
    struct builder *b, const char *type, const char *target, const char *data, uint64_t flags);
/* Rights to a path with all below it, in the Landlock domain that was begun. */
void plan_add_rule(struct builder *b, const char *path, uint64_t rights);
/* Where in the plan's text it is, for an operation's `text`. */
uint32_t plan_add_text(struct builder *b, const char *text);
uint32_t plan_add_bytes(struct builder *b, const void *bytes, size_t len);

#endif
