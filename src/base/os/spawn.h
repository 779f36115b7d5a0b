/* base/os/spawn.h: programs of the user's, started beside this one. */
#ifndef DROSTE_BASE_OS_SPAWN_H
#define DROSTE_BASE_OS_SPAWN_H

#include <sys/types.h>

#include "base/error.h"

/* Starts a program (found as a shell would): its name and its arguments, with a NULL behind them. `ends` become its
 * standard input, output and error. It leads a process group, so that the terminal's interrupt is for us and its whole tree
 * can be killed, and has the usual signals. `what` names it in errors: ERROR_NOT_FOUND, ERROR_CONFIG. */
int spawn_program(
    const char *const *words, const char *what, const int ends[3], pid_t *pid, struct error *err);

/* Kills its group, waits for it, and says how it ended (as waitpid): with status 255 where that is not known,
 * because the host ignores SIGCHLD or waits for all children. */
int spawn_end(pid_t pid);

#endif
