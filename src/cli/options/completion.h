/* cli/options/completion.h: candidates for a shell's completion of a command line. */
#pragma once

#include "cli/cli.h"

/* True while cli_parse completes the last argument of a command instead of running it. */
bool completion_is_wanted(void);
/* Prints them; returns the exit status. The arguments are those of cli_parse. */
int completion_answer(
    const struct command *self, const struct flag *flags, droste *d, int argc, char **argv);
/* The same for the words after "droste", the last one as typed so far. */
int completion_words(droste *d, char **words, size_t count);
