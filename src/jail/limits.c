/* jail/limits.c: the table of limits: names, fields, and what can enforce each.
 *
 * What does enforce a limit is derived from the plan that is executed, so a result never claims
 * more.
 */
#include "jail/jail.h"

#include <string.h>
#include <sys/resource.h>

enum unit { UNIT_COUNT, UNIT_BYTES, UNIT_SECONDS, UNIT_CPUS };

static const struct row {
    const char *name;   /* as in a result's `killed` */
    const char *option; /* the setting */
    size_t offset;
    enum unit unit;
    bool cgroup;  /* a cgroup can enforce it for the whole sandbox */
    int resource; /* the RLIMIT_… that can, or -1 */
    bool host;    /* the host measures, and kills the sandbox */
} rows[LIMIT_COUNT + 1] = {
#define AT(field) offsetof(struct jail_limits, field)
    [LIMIT_MEMORY] = { "memory", "memory", AT(memory), UNIT_BYTES, true, RLIMIT_DATA,
        true }, /* the rlimit applies to each process; the host measures all together */
    [LIMIT_PROCESSES] = { "processes", "processes", AT(processes), UNIT_COUNT, true, RLIMIT_NPROC },
    [LIMIT_CPUS] = { "cpus", "cpus", AT(cpus), UNIT_CPUS, true, -1 },
    [LIMIT_CPU_TIME] = { "cpu time", "cpu-time", AT(cpu_time), UNIT_SECONDS, false, RLIMIT_CPU },
    [LIMIT_OPEN_FILES] = { "open files", "open-files", AT(open_files), UNIT_COUNT, false,
        RLIMIT_NOFILE },
    [LIMIT_FILE_SIZE] = { "file size", "file-size", AT(file_size), UNIT_BYTES, false,
        RLIMIT_FSIZE },
    [LIMIT_TMP_SIZE] = { "size of /tmp", "tmp-size", AT(tmp_size), UNIT_BYTES, false, -1 },
    [LIMIT_VOLUME_SIZE] = { "volume size", "volume-size", AT(volume_size), UNIT_BYTES, false, -1,
        true },
    [LIMIT_VOLUME_FILES] = { "volume files", "volume-files", AT(volume_files), UNIT_COUNT, false,
        -1, true },
    [LIMIT_WORKSPACE_SIZE] = { "workspace size", "workspace-size", AT(workspace_size), UNIT_BYTES,
        false, -1, true },
    [LIMIT_WORKSPACE_FILES] = { "workspace files", "workspace-files", AT(workspace_files),
        UNIT_COUNT, false, -1, true },
    [LIMIT_VOLUME_LOST] = { .name = "volume lost" },
#undef AT
};

static const char *const means_names[] = {
    [LIMIT_BY_NOTHING] = NULL,
    [LIMIT_BY_CGROUP] = "cgroup",
    [LIMIT_BY_RLIMIT] = "rlimit",
    [LIMIT_BY_MOUNT] = "mount",
    [LIMIT_BY_HOST] = "host",
};

const char *limit_name(enum limit limit)
{
    return rows[limit].name;
}

const char *limit_option(enum limit limit)
{
    return rows[limit].option;
}

const char *limit_means_name(enum limit_means means)
{
    return means_names[means];
}

double limit_value(enum limit limit, const struct jail_limits *limits)
{
    const char *at = (const char *)limits + rows[limit].offset;
    if (rows[limit].unit == UNIT_CPUS)
        return *(const double *)(const void *)at;
    return (double)*(const uint64_t *)(const void *)at;
}

/* Prints sizes in the syntax of settings: 64M. */
static void limits_print_size(uint64_t bytes, struct buf *out)
{
    static const char units[] = "KMGT";
    int unit = -1;
    for (; bytes >= 1024 && bytes % 1024 == 0 && units[unit + 1]; bytes /= 1024)
        unit++;
    buf_printf(out, unit < 0 ? "%llu bytes" : "%llu%c", (unsigned long long)bytes,
        units[unit < 0 ? 0 : unit]);
}

void limit_print(enum limit limit, const struct jail_limits *limits, struct buf *out)
{
    double value = limit_value(limit, limits);
    if (rows[limit].unit == UNIT_BYTES)
        limits_print_size((uint64_t)value, out);
    else
        buf_printf(out, rows[limit].unit == UNIT_SECONDS ? "%.10g s" : "%.10g", value);
}

static bool has_rlimit(const struct jail_plan *plan, int resource)
{
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->ops[i].kind == JAIL_LIMIT && plan->ops[i].a == (uint64_t)resource)
            return true;
    return false;
}

static bool has_mount(const struct jail_plan *plan, const char *target)
{
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->ops[i].kind == JAIL_MOUNT &&
            strcmp(jail_plan_text(plan, &plan->ops[i], 1), target) == 0)
            return true;
    return false;
}

enum limit_means limit_means(
    enum limit limit, const struct jail_limits *limits, const struct jail_plan *plan, bool cgroup)
{
    const struct row *row = &rows[limit];
    if (limit_value(limit, limits) == 0)
        return LIMIT_BY_NOTHING;
    if (cgroup && row->cgroup)
        return LIMIT_BY_CGROUP;
    if (row->host)
        return LIMIT_BY_HOST;
    if (row->resource >= 0 && has_rlimit(plan, row->resource))
        return LIMIT_BY_RLIMIT;
    return limit == LIMIT_TMP_SIZE && has_mount(plan, "/dev/shm") ? LIMIT_BY_MOUNT
                                                                  : LIMIT_BY_NOTHING;
}
