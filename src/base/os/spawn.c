/* base/os/spawn.c: posix_spawn(3) with a process group, default signals and three streams. */
#include "base/os/spawn.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

int spawn_program_in(const char *const *words, const char *const *environment, const char *what,
    const int ends[3], pid_t *pid, struct error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGINT);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, ends[i], i);
    int rc = posix_spawnp(pid, words[0], &actions, &attributes, (char *const *)(uintptr_t)words,
        environment ? (char *const *)(uintptr_t)environment : environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (rc == 0)
        return 0;
    *pid = 0;
    errno = rc;
    return error_set_errno(
        err, rc == ENOENT ? ERROR_NOT_FOUND : ERROR_CONFIG, "starting %.60s%.100s", what, words[0]);
}

int spawn_program(
    const char *const *words, const char *what, const int ends[3], pid_t *pid, struct error *err)
{
    return spawn_program_in(words, NULL, what, ends, pid, err);
}

int spawn_end(pid_t pid)
{
    enum { UNKNOWN = 255 << 8 };
    int status = 0;
    pid_t ended;
    kill(-pid, SIGKILL); /* before waiting: until then the pid cannot be reused */
    do
        ended = waitpid(pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    return ended == pid ? status : UNKNOWN;
}
