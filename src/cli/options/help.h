/* cli/options/help.h: help texts of the commands. */
#pragma once

#include "cli/cli.h"

/* The word after --help selects the size: "all" prints every setting, "man" the manual page,
 * nothing or any other word one screen, whose flags are those of one verb if the command's first
 * word is one. Returns the exit status. */
int help_print(
    const struct command *self, const struct flag *flags, const char *first, const char *style);
/* Prints the list of commands, with `all` that of settings, too. On standard error it is a usage
 * error; returns the exit status. */
int help_print_overview(FILE *out, bool all);
