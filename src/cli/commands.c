/* cli/commands.c: the table of commands. */
#include <string.h>

#include "base/cleanup.h"
#include "cli/cli.h"

static const struct command *const commands[] = { &command_run, &command_chat, &command_batch,
    &command_exec, &command_repl, &command_serve, &command_mcp, &command_jupyter, &command_keys,
    &command_cluster, &command_runs, &command_volume, &command_cp, &command_packages,
    &command_image, &command_template, &command_env, &command_prompts, &command_smoke,
    &command_doctor, &command_bench, &command_completion, &command_run_basic,
    &command_daytona_smoke };

const struct command *cli_command_at(size_t index)
{
    return index < array_length(commands) ? commands[index] : NULL;
}

const struct command *cli_command_find(const char *name)
{
    for (size_t i = 0; i < array_length(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}
