/* cli/options/manual.h: the manual pages of the commands. */
#ifndef DROSTE_CLI_MANUAL_H
#define DROSTE_CLI_MANUAL_H

#include "cli/cli.h"

void manual_print(const struct command *self, const struct flag *flags);

#endif
