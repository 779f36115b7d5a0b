/* cli/options/verbs.h: commands with verbs, such as `droste runs ls`: finds the verb, checks its
 * flags. */
#pragma once

#include "cli/cli.h"

/* The first member of each row in a command's table of verbs. */
struct verb {
    const char *name;
    unsigned bit;          /* for verb_flag.verbs */
    size_t least, most;    /* number of arguments after it */
    const char *arguments; /* their kinds, for completion; NULL: those of the command */
    const char *takes;     /* the arguments in words; NULL: "no argument" */
};

/* A flag, whether it was used, and the bits of the verbs that accept it. */
struct verb_flag {
    const char *name;
    bool used;
    unsigned verbs;
};

/* Finds a verb in a table of `count` rows of `size` bytes; NULL if `word` is unknown or NULL. */
const void *verb_find(const void *rows, size_t count, size_t size, const char *word);
/* The usage error for a word that is not a verb of the command; NULL: there was none. */
int verb_refuse(const struct command *self, const char *word);
/* The row of the verb words[0] in the command's table, if the number of arguments fits and the verb
 * accepts the flags that were used; otherwise NULL, and *status is that of a usage error. */
const void *verb_pick(const struct command *self, const char *const *words, size_t count,
    const struct verb_flag *flags, size_t flag_count, int *status);
/* Returns -1 to continue, or the status of a usage error: the verb does not accept a used flag. */
int verb_check_flags(const struct command *self, const struct verb *verb,
    const struct verb_flag *flags, size_t count);
