/* base/os/spawn.h: starts and ends users' programs. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

/* Starts a program, found through PATH; `words` are its name and arguments, followed by NULL.
 * `ends` become its standard input, output and error. It leads a process group, so that the
 * terminal's interrupt does not reach it and its whole tree can be killed, and has default
 * signal handlers. `what` names it in errors: ERROR_NOT_FOUND, ERROR_CONFIG. */
int spawn_program(
    const char *const *words, const char *what, const int ends[3], pid_t *pid, struct error *err);

/* The same with an environment of its own, of NAME=VALUE, followed by NULL; NULL: ours. The program
 * is found through our PATH. */
int spawn_program_in(const char *const *words, const char *const *environment, const char *what,
    const int ends[3], pid_t *pid, struct error *err);

/* As spawn_program, for a program that the calling thread waits for: the kernel kills it with that
 * thread, and so with a host that is killed. */
int spawn_with_thread(
    const char *const *words, const char *what, const int ends[3], pid_t *pid, struct error *err);

/* Kills its group, waits for it, and returns its status as waitpid; status 255 if it is unknown
 * because the host ignores SIGCHLD or waits for all children. */
int spawn_end(pid_t pid);
