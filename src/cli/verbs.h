/* cli/verbs.h: commands of several verbs, as `droste runs ls`: which one was said, and which flags are for it. */
#ifndef DROSTE_CLI_VERBS_H
#define DROSTE_CLI_VERBS_H

#include "cli/cli.h"

/* What a row of a command's table of verbs begins with. */
struct verb {
    const char *name;
    unsigned bit;       /* by which flags name it */
    size_t least, most; /* words behind it */
};

/* A flag, whether it was given, and the bits of the verbs that it is for. */
struct verb_flag {
    const char *name;
    bool given;
    unsigned verbs;
};

/* The row of this name in a table of `count` rows of `size` bytes; NULL: there is none, or no word was said. */
const void *verb_find(const void *rows, size_t count, size_t size, const char *word);
/* -1 to go on, else the status of the usage error: a flag was given that is not for this verb. */
int verb_check_flags(const struct command *self, const struct verb *verb,
    const struct verb_flag *flags, size_t count);

#endif
