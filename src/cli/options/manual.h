/* cli/options/manual.h: the manual pages of the commands. */
#pragma once

#include "cli/cli.h"

void manual_print(const struct command *self, const struct flag *flags);
