/* cli/completion.c: droste completion: prints the shells' scripts. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/embedded.h"
#include "cli/options/completion.h"

static const struct {
    const char *shell;
    const unsigned char *text;
    const size_t *size;
} scripts[] = {
    { "bash", embedded_bash, &embedded_bash_size },
    { "zsh", embedded_zsh, &embedded_zsh_size },
    { "fish", embedded_fish, &embedded_fish_size },
};

static int completion_run(const struct command *self, droste *d, int argc, char **argv)
{
    static const struct flag flags[] = { { 0 } };
    cleanup_free const char **words = calloc((size_t)argc, sizeof *words);
    size_t count = 0;
    if (!words)
        return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    int status = cli_parse(self, argc, argv, flags, NULL, words, (size_t)argc, &count);
    if (status >= 0)
        return status;
    if (count > 1 && strcmp(words[0], "words") == 0)
        return completion_words(d, argv + argc - (count - 1), count - 1);
    for (size_t i = 0; count == 1 && i < array_length(scripts); i++)
        if (strcmp(scripts[i].shell, words[0]) == 0) {
            fwrite(scripts[i].text, 1, *scripts[i].size, stdout);
            return cli_finish(EXIT_FINE, "the script");
        }
    struct error why = { 0 };
    if (count != 1)
        return cli_usage(self, "name a shell: bash, zsh or fish");
    suggest_refuse(
        "shell", words[0], &scripts[0].shell, sizeof scripts[0], array_length(scripts), &why);
    return cli_usage(self, "%s", why.text);
}

const struct command command_completion = {
    .name = "completion",
    .synopsis = "bash | zsh | fish | words -- WORD...",
    .summary = "print a shell's completion script",
    .details =
        "The script completes commands, flags, settings, and the names of runs, volumes and\n"
        "what is in them, templates, environments and keys. `make install` and the packages\n"
        "install it. To load it by hand:\n"
        "  bash   source <(droste completion bash)\n"
        "  zsh    source <(droste completion zsh)\n"
        "  fish   droste completion fish | source\n"
        "\n"
        "`words` prints the candidates for the last WORD, one a line: the candidate, a tab\n"
        "and a description. The line `:files` stands for names of files.\n",
    .examples = "  droste completion bash > ~/.local/share/bash-completion/completions/droste\n"
                "  droste completion words -- exec --is\n",
    .arguments = "bash|zsh|fish",
    .run = completion_run,
};
