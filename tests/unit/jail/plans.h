/* Compiled plans, and how to find operations in them, for the tests of jail/compile.c. */
#pragma once

#include "../test.h"

#include "base/cleanup.h"
#include "jail/jail.h"

static const char *const prefixes[] = { "/home/ann/venv", "/usr", "/home/ann/venv",
    "/opt/python-3.12", "relative", "/" };
static const char *const read_paths[] = { "/data/set" };

static const struct jail_mount place = { .workdir = "/work", .user_processes = 500 };

static inline struct jail_plan *zygote_plan(enum isolation isolation, uid_t uid)
{
    struct jail_host host = { .uid = uid,
        .gid = uid,
        .prefixes = prefixes,
        .prefix_count = array_length(prefixes),
        .read_paths = read_paths,
        .read_path_count = 1 };
    struct jail_plan *plan = NULL;
    assert_ok(jail_compile_zygote(isolation, &host, &plan, err));
    return plan;
}

static inline struct jail_plan *sandbox_plan(enum isolation isolation)
{
    cleanup_free struct jail_plan *zygote = zygote_plan(isolation, 0);
    struct jail_plan *plan = NULL;
    assert_ok(jail_compile_sandbox(isolation, zygote, &jail_default_limits, &place, &plan, err));
    return plan;
}

/* The index of the first operation of a kind at or after `from`, of a stage; -1: there is none. */
static inline int find_stage(
    const struct jail_plan *plan, enum jail_stage stage, enum jail_op_kind kind, int from)
{
    for (uint32_t i = (uint32_t)from; i < plan->count; i++)
        if (plan->ops[i].kind == kind && plan->ops[i].stage == stage)
            return (int)i;
    return -1;
}

static inline int find(const struct jail_plan *plan, enum jail_op_kind kind, int from)
{
    return find_stage(plan, JAIL_ZYGOTE, kind, from);
}

static inline const char *text(const struct jail_plan *plan, int index, int i)
{
    return jail_plan_text(plan, &plan->ops[index], i);
}
