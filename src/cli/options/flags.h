/* cli/options/flags.h: finds the flags and settings that a command line names. */
#pragma once

#include "cli/cli.h"

/* Finds a flag by its name of `len` bytes in a table that ends with a NULL name; NULL: none. */
const struct flag *flag_find(const struct flag *flags, const char *name, size_t len);
/* The same, for the library's settings. */
const droste_option *flag_find_option(const char *name, size_t len);
/* Iterates over the settings that a command line may set and no flag of the command replaces.
 * Advances *index; NULL after the last. */
const droste_option *flag_next_option(const struct flag *flags, size_t *index);
/* The settings that a screen of help shows, the most used one first; NULL after the last. */
const droste_option *flag_common_option(
    const struct command *self, const struct flag *flags, size_t *index);
