/* jail/builder.h: builds a plan. Running out of memory is reported at the end, by plan_finish. */
#pragma once

#include <linux/mount.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "jail/plan.h"

/* <sys/mount.h> and <linux/mount.h> cannot be included together in glibc 2.36. */
#define MS_NOSUID 2
#define MS_NODEV  4
#define MS_NOEXEC 8

/* Attributes of read-only host paths in the sandbox. */
enum { BIND_SYSTEM = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };

struct builder {
    struct buf ops, text;
    enum jail_stage stage; /* of the operations that are added */
    bool own_root;
};

void plan_begin(struct builder *b);
/* The plan is a heap block (free); the builder is empty afterwards. `head` has the header's fields
 * except sizes. */
int plan_finish(
    struct builder *b, const struct jail_plan *head, struct jail_plan **out, struct error *err);

/* Adds an operation with up to two strings (NULL: none). It may be modified until the next is
 * added. */
struct jail_op *plan_add(struct builder *b, enum jail_op_kind kind, const char *t0, const char *t1,
    uint64_t a, uint64_t value);
void plan_add_mount(
    struct builder *b, const char *type, const char *target, const char *data, uint64_t flags);
/* Grants rights to a path and everything below it, in the current Landlock domain. */
void plan_add_rule(struct builder *b, const char *path, uint64_t rights);
/* Its offset in the plan's strings, for an operation's `text`. */
uint32_t plan_add_text(struct builder *b, const char *text);
uint32_t plan_add_bytes(struct builder *b, const void *bytes, size_t len);
