/* cli/cluster.c: droste cluster: starts and ends the nodes of a cluster, and shows them. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/cli.h"
#include "cli/cluster_look.h"
#include "cli/launch/launch.h"
#include "cli/options/verbs.h"

enum { UP = 1, DOWN = 2, STATUS = 4, LAUNCHER = 8, DOCTOR = 16 };

static int cluster_launch(const struct launch *l, struct error *err)
{
    return launch_exec(l, err);
}

static int cluster_print(const struct launch *l, struct error *err)
{
    return launch_print(l->kind, err);
}

static const struct cluster_verb {
    struct verb verb;
    int (*run)(const struct launch *l, struct error *err);
} cluster_verbs[] = {
    { { "up", UP, 1, 1, "LAUNCHER" }, cluster_launch },
    { { "down", DOWN, 1, 1, "LAUNCHER" }, cluster_launch },
    { { "status", STATUS, 0, 1, "LAUNCHER" }, cluster_launch },
    { { "doctor", DOCTOR, 0, 0, "" }, NULL },
    { { "launcher", LAUNCHER, 1, 1, "LAUNCHER" }, cluster_print },
};

/* The arguments of this command end at `--`; the rest are options of `droste serve`. */
static int cluster_split(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return i;
    return argc;
}

/* The cluster itself, not what has launched its nodes. */
static int cluster_look_at(const struct command *self, const struct cluster_verb *verb,
    struct cluster_look *look, const char *join)
{
    if (!join)
        return cli_usage(
            self, "`status` and `doctor` of a cluster need --join URLS and no launcher");
    look->join = join;
    return verb->verb.bit == DOCTOR ? cluster_look_doctor(look) : cluster_look_status(look);
}

static int cluster_command(const struct command *self, droste *d, int argc, char **argv)
{
    const char *words[3] = { 0 };
    size_t count = 0;
    struct launch l = { 0 };
    struct cluster_look look = { 0 };
    struct error err = { 0 };
    const struct flag flags[] = {
        { "join", "URLS", "The NATS servers where the nodes meet.", &l.join },
        { "cluster", "NAME", "The cluster's name [cluster].", &l.cluster },
        { "nodes", "N", "How many nodes.", &l.nodes },
        { "port", "PORT", "Where each node listens [8710].", &l.port },
        { "program", "PATH", "droste on the machines [found in their PATH].", &l.program },
        { "hosts", "FILE", "ssh, systemd: a line for each, HOST and options of ssh.", &l.hosts },
        { "sbatch", "OPTIONS", "slurm: options of sbatch.", &l.options },
        { "image", "IMAGE", "kubernetes: the container's image [droste:latest].", &l.image },
        { "max-nodes", "N", "kubernetes: add nodes while runs wait, up to N (needs KEDA).",
            &l.most },
        { "nats-creds", "PATH", "status, doctor: credentials for NATS.", &look.credentials },
        { "nats-ca", "PATH", "status, doctor: the NATS servers' authorities (PEM).", &look.ca },
        { "json", NULL, "status, doctor: print one JSON object.", NULL, &look.json },
        { "namespace", "NAME", "kubernetes: the namespace [droste].", &l.namespace },
        { 0 },
    };
    int split = cluster_split(argc, argv);
    int status = cli_parse(self, split, argv, flags, d, words, array_length(words), &count);
    if (status >= 0)
        return status;
    const struct cluster_verb *verb = verb_find(cluster_verbs, array_length(cluster_verbs),
        sizeof *cluster_verbs, count > 0 ? words[0] : NULL);
    if (!verb)
        return verb_refuse(self, count > 0 ? words[0] : NULL);
    bool looks = count == 1 && (verb->verb.bit & (STATUS | DOCTOR));
    if (count != 2 && !looks)
        return cli_usage(self, "expected one of: up, down, status, launcher, and behind it slurm, "
                               "ssh, systemd, kubernetes or ray");
    if (looks || look.credentials || look.ca || look.json)
        return cluster_look_at(self, verb, &look, looks ? l.join : NULL);
    if (split < argc && verb->verb.bit != UP)
        return cli_usage(self, "options behind -- are those of the nodes: for `up` alone");
    l.verb = words[0];
    l.kind = words[1];
    l.serve = (const char *const *)argv + (split < argc ? split + 1 : argc);
    l.serve_count = split < argc ? (size_t)(argc - split - 1) : 0;
    return cli_end(verb->run(&l, &err), &err, "the script");
}

const struct command command_cluster = {
    .name = "cluster",
    .synopsis = "up LAUNCHER --join URLS [-- OPTION OF droste serve ...] | down LAUNCHER | "
                "status LAUNCHER | launcher LAUNCHER | status --join URLS | doctor --join URLS",
    .summary = "start and end the nodes of a cluster",
    .details =
        "  up         start `droste serve --join URLS` on each machine\n"
        "  down       drain the nodes and end them\n"
        "  status     show what the scheduler reports of the nodes;\n"
        "             with --join URLS alone: the nodes and the runs in the queue\n"
        "  doctor     check NATS, JetStream, certificates, nodes, versions, clocks and\n"
        "             the queue, and say what to do; exit status 4 if something is wrong\n"
        "  launcher   print the launcher's script, to change it and run it yourself\n"
        "\n"
        "Launchers: slurm (a job array), ssh (a file of hosts), systemd (services on the\n"
        "same hosts), kubernetes (prints a manifest for `kubectl apply -f -`) and ray (an actor\n"
        "for each machine; needs the Python package ray). They start nodes only; nodes start sandboxes. The launcher\n"
        "prints what its scheduler says, and its exit status is that of the command.\n"
        "See docs/cluster.md.\n",
    .examples =
        "  droste cluster up slurm --join nats://head:4222 --nodes 8 --sbatch '--mem=64G' -- "
        "--keys keys.json\n"
        "  droste cluster up ssh --hosts hosts.txt --join nats://head:4222 -- --keys keys.json\n"
        "  droste cluster down ssh --hosts hosts.txt\n"
        "  droste cluster doctor --join nats://head:4222\n",
    .settings = SETTINGS_NONE,
    .verbs = { cluster_verbs, array_length(cluster_verbs), sizeof *cluster_verbs },
    .arguments = "LAUNCHER",
    .run = cluster_command,
};
