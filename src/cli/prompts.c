/* cli/prompts.c: droste prompts: lists and prints the prompts for models. */
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/terminal/screen.h"

static void print_prompt_list(void)
{
    cleanup_buf struct buf out = { 0 };
    const char *name, *about;
    for (size_t i = 0; droste_prompt_at(i, &name, &about); i++)
        buf_printf(&out, "%-23s  %s\n", name, about);
    screen_print_text(stdout, buf_text(&out));
}

static int print_prompt(const struct command *self, const char *wanted)
{
    const char *name, *text;
    for (size_t i = 0; (text = droste_prompt_at(i, &name, NULL)); i++)
        if (strcmp(name, wanted) == 0)
            return puts(text) < 0 ? EXIT_ENVIRONMENT : EXIT_FINE;
    return cli_usage(self, "there is no prompt '%s'; `droste prompts` lists them", wanted);
}

static int prompts(const struct command *self, droste *d, int argc, char **argv)
{
    static const struct flag flags[] = { { 0 } };
    const char *name = NULL;
    int status = cli_parse(self, argc, argv, flags, NULL, &name, 1, NULL);
    (void)d;
    if (status >= 0)
        return status;
    status = EXIT_FINE;
    if (name)
        status = print_prompt(self, name);
    else
        print_prompt_list();
    return cli_finish(status, "the prompts");
}

const struct command command_prompts = {
    .name = "prompts",
    .synopsis = "[NAME]",
    .summary = "list the prompts that models get, or print one",
    .details = "The setting system-prompt replaces the prompt `system`: edit a copy, and give it\n"
               "as --system-prompt @FILE. Words in braces are placeholders: {session} is the\n"
               "list of what the session has, {model_notes} advice for the model's family; the\n"
               "others are {rules}, {answer_schema}, {instructions} and {tools}. If the text\n"
               "lacks one of the last three, its content is appended.\n",
    .examples =
        "  droste prompts\n"
        "  droste prompts system > mine.txt\n"
        "  droste run --system-prompt @mine.txt 'Which customer spent most?' --context orders.log\n",
    .arguments = "PROMPT",
    .run = prompts,
};
