/* cli/env.c: droste env: which environments there are, and what killed hosts have left in them. */
#include <stdlib.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/verbs.h"
#include "env/docker.h"

struct env_verb {
    struct verb verb;
    int (*run)(droste *d, struct error *err);
};

static int list(droste *d, struct error *err)
{
    for (size_t i = 0; environment_name(i); i++)
        printf("%-8s  %s\n", environment_name(i),
            environment_needs(i) ? "not in this version" : environment_about(i));
    return 0;
}

/* ---- gc ---- */

struct swept {
    bool done;
    unsigned removed;
    struct error why;
};

static void swept(void *arg, unsigned removed, const struct error *why)
{
    *(struct swept *)arg = (struct swept){ .done = true, .removed = removed, .why = *why };
}

static int collect(droste *d, struct error *err)
{
    struct swept result = { 0 };
    struct settings *s = &d->settings;
    struct environment *env;
    int rc = settings_set(s, "env", "docker", "droste env gc", err);
    if (rc == 0)
        rc = api_environment(d, s, &env, err);
    if (rc == 0)
        rc = docker_sweep(env, swept, &result, err);
    if (rc == 0)
        rc = loop_run_until(d->loop, &result.done, err);
    if (rc < 0)
        return rc;
    printf("%u container%s of hosts that are gone removed\n", result.removed,
        result.removed == 1 ? "" : "s");
    *err = result.why;
    return -(int)result.why.code;
}

static int run(const struct command *self, droste *d, int argc, char **argv)
{
    static const struct env_verb verbs[] = {
        { { "ls", 1, 0, 0 }, list },
        { { "gc", 2, 0, 0 }, collect },
    };
    const char *words[2];
    size_t count;
    const struct flag flags[] = { { 0 } };
    struct error err = { 0 };
    int status = cli_parse(self, argc, argv, flags, d, words, array_length(words), &count);
    if (status >= 0)
        return status;
    const struct env_verb *verb =
        verb_find(verbs, array_length(verbs), sizeof *verbs, count > 0 ? words[0] : NULL);
    if (!verb || count != 1)
        return cli_usage(self, "expected one of: ls, gc");
    return cli_end(verb->run(d, &err), &err, "the list");
}

const struct command command_env = {
    .name = "env",
    .synopsis = "ls | gc",
    .summary = "list the environments; remove what killed hosts left in Docker",
    .details =
        "  ls    the environments by name\n"
        "  gc    remove containers that a host of this machine made which is gone: the first\n"
        "        sandbox of each program does it too\n\n"
        "The daemon is that of DOCKER_HOST (docs/environments.md).\n"
        "Exit status: 0, 2 usage, 4 no daemon answers.\n",
    .examples = "  droste env ls\n"
                "  droste env gc\n",
    .run = run,
};
