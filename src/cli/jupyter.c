/* cli/jupyter.c: droste jupyter: adds the kernel of the Python package to Jupyter. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/options/verbs.h"

enum { WORDS_MAX = 128 };

static const struct verb jupyter_verbs[] = { { "install", 0 } };

/* Becomes the program that installs it: `PYTHON -m droste.jupyter install …`. */
static int jupyter_install(
    const char *python, const char *const *flags, const char **words, size_t count)
{
    const char *argv[WORDS_MAX + 16] = { python, "-m", "droste.jupyter", "install" };
    size_t n = 4;
    for (; flags[0]; flags += 2)
        if (flags[1]) {
            argv[n++] = flags[0];
            argv[n++] = flags[1];
        }
    argv[n++] = "--";
    for (size_t i = 0; i < count; i++)
        argv[n++] = words[i];
    fflush(NULL);
    execvp(python, (char *const *)argv);
    return cli_fail(EXIT_ENVIRONMENT, "running %s: %s", python, strerror(errno));
}

static int jupyter_command(const struct command *self, droste *d, int argc, char **argv)
{
    const char *words[WORDS_MAX], *name = NULL, *title = NULL, *prefix = NULL, *python = NULL;
    size_t count;
    const struct flag flags[] = {
        { "name", "NAME", "The kernel's name (droste).", &name },
        { "display-name", "TEXT", "The kernel's name in menus (Python (Droste)).", &title },
        { "prefix", "PATH", "Install below this directory (default: for the user).", &prefix },
        { "python", "PATH", "The Python that has ipykernel and droste (python3).", &python },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, words, WORDS_MAX, &count);
    if (status >= 0)
        return status;
    if (count == 0 ||
        !verb_find(jupyter_verbs, array_length(jupyter_verbs), sizeof *jupyter_verbs, words[0]))
        return verb_refuse(self, count > 0 ? words[0] : NULL);
    const char *given[] = { "--name", name, "--display-name", title, "--prefix", prefix, NULL };
    return jupyter_install(python ? python : "python3", given, words + 1, count - 1);
}

const struct command command_jupyter = {
    .name = "jupyter",
    .synopsis = "install [--name NAME] [--prefix PATH] [-- --SETTING VALUE ...]",
    .summary = "add a kernel to Jupyter whose cells run in a sandbox",
    .details = "The kernel is part of the Python package and needs ipykernel: pip install\n"
               "'droste[jupyter]'. Settings of its sandboxes follow `--`. See docs/jupyter.md.\n"
               "\n"
               "Exit status: 0, 1 or 2 as of the program that installs it, 4 there is no Python.\n",
    .examples = "  droste jupyter install\n"
                "  droste jupyter install --name data -- --memory 4G --preload pandas\n",
    .settings = SETTINGS_NONE,
    .verbs = { jupyter_verbs, array_length(jupyter_verbs), sizeof *jupyter_verbs },
    .run = jupyter_command,
};
