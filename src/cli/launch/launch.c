/* cli/launch/launch.c: see launch.h. The scripts beside it say which variables they take. */
#include "cli/launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/launch/embedded.h"

enum { NEEDS_JOIN = 1, NEEDS_NODES = 2, NEEDS_HOSTS = 4 };

static const struct launcher {
    const char *name;
    const unsigned char *script;
    const size_t *size;
    unsigned needs; /* of `up`; NEEDS_HOSTS: of every verb */
} launchers[] = {
    { "slurm", embedded_slurm, &embedded_slurm_size, NEEDS_JOIN | NEEDS_NODES },
    { "ssh", embedded_ssh, &embedded_ssh_size, NEEDS_JOIN | NEEDS_HOSTS },
    { "systemd", embedded_ssh, &embedded_ssh_size, NEEDS_JOIN | NEEDS_HOSTS },
    { "kubernetes", embedded_kubernetes, &embedded_kubernetes_size, NEEDS_JOIN | NEEDS_NODES },
    { "ray", embedded_ray, &embedded_ray_size, NEEDS_JOIN },
};

const char *launch_name_at(size_t index)
{
    return index < array_length(launchers) ? launchers[index].name : NULL;
}

static const struct launcher *launcher_find(const char *name, struct error *err)
{
    for (size_t i = 0; i < array_length(launchers); i++)
        if (strcmp(launchers[i].name, name) == 0)
            return &launchers[i];
    error_set(err, ERROR_ARGUMENT,
        "there is no launcher '%.40s': slurm, ssh, systemd, kubernetes or ray", name);
    return NULL;
}

/* A name stands in the names of jobs, objects and files; numbers in scripts. */
static int launch_check_words(const struct launch *l, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const struct {
        const char *flag, *value;
        long most;
    } numbers[] = { { "nodes", l->nodes, 100000 }, { "max-nodes", l->most, 100000 },
        { "port", l->port, 65535 } };
    size_t len = l->cluster ? strlen(l->cluster) : 0;
    if (l->cluster && (len == 0 || len > 40 || strspn(l->cluster, letters) < len))
        return error_set(err, ERROR_ARGUMENT,
            "--cluster takes a name of lower-case letters, digits and '-', at most 40");
    for (size_t i = 0; i < array_length(numbers); i++) {
        const char *value = numbers[i].value;
        size_t digits = value ? strspn(value, "0123456789") : 0;
        if (value && (value[0] == '0' || digits == 0 || digits > 6 || value[digits] ||
                         strtol(value, NULL, 10) > numbers[i].most))
            return error_set(err, ERROR_ARGUMENT, "--%s takes a number from 1 to %ld",
                numbers[i].flag, numbers[i].most);
    }
    return 0;
}

static int launch_check(const struct launch *l, unsigned needs, struct error *err)
{
    bool up = strcmp(l->verb, "up") == 0;
    if (needs & NEEDS_HOSTS && !l->hosts)
        return error_set(
            err, ERROR_ARGUMENT, "%s needs --hosts FILE, a line for each machine", l->kind);
    if (up && needs & NEEDS_JOIN && !l->join)
        return error_set(
            err, ERROR_ARGUMENT, "up needs --join nats://HOST:PORT, where the nodes meet");
    if (up && needs & NEEDS_NODES && !l->nodes)
        return error_set(err, ERROR_ARGUMENT, "%s needs --nodes N", l->kind);
    return 0;
}

/* `sh -c SCRIPT NAME VERB OPTION...` */
static char **launch_words(const struct launch *l, char *script)
{
    static char sh[] = "sh", c[] = "-c";
    char **words = calloc(l->serve_count + 6, sizeof *words);
    size_t n = 0;
    if (!words)
        return NULL;
    words[n++] = sh;
    words[n++] = c;
    words[n++] = script;
    words[n++] = (char *)l->kind;
    words[n++] = (char *)l->verb;
    for (size_t i = 0; i < l->serve_count; i++)
        words[n++] = (char *)l->serve[i];
    return words;
}

int launch_exec(const struct launch *l, struct error *err)
{
    const struct {
        const char *name, *value, *none;
    } variables[] = {
        { "CLUSTER", l->cluster, "cluster" },
        { "JOIN", l->join, "" },
        { "NODES", l->nodes, "" },
        { "PORT", l->port, "8710" },
        { "PROGRAM", l->program, "droste" },
        { "HOSTS", l->hosts, "" },
        { "OPTIONS", l->options, "" },
        { "IMAGE", l->image, "droste:latest" },
        { "MOST", l->most, "" },
        { "NAMESPACE", l->namespace, "droste" },
        { "DRAIN", NULL, "45" },
        { "LAUNCHER", l->kind, "" },
    };
    const struct launcher *launcher = launcher_find(l->kind, err);
    if (!launcher)
        return -ERROR_ARGUMENT;
    int rc = launch_check_words(l, err);
    if (rc == 0)
        rc = launch_check(l, launcher->needs, err);
    if (rc < 0)
        return rc;
    cleanup_free char *script = strndup((const char *)launcher->script, *launcher->size);
    cleanup_free char **words = script ? launch_words(l, script) : NULL;
    bool ok = words != NULL;
    for (size_t i = 0; ok && i < array_length(variables); i++)
        ok = setenv(variables[i].name, variables[i].value ? variables[i].value : variables[i].none,
                 1) == 0;
    if (!ok)
        return error_memory(err);
    fflush(NULL);
    execv("/bin/sh", words);
    return error_set_errno(err, ERROR_ENVIRONMENT, "running /bin/sh");
}

int launch_print(const char *kind, struct error *err)
{
    const struct launcher *launcher = launcher_find(kind, err);
    if (!launcher)
        return -ERROR_ARGUMENT;
    fwrite(launcher->script, 1, *launcher->size, stdout);
    return 0;
}
