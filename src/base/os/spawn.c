/* base/os/spawn.c: posix_spawn(3) with a process group, default signals and three streams. */
#include "base/os/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

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

/* In the child; writes errno to `told` if it fails. */
static void spawn_become(const char *const *words, const int ends[3], int told, pid_t parent)
{
    static const int usual[] = { SIGPIPE, SIGINT };
    sigset_t none;
    int high[3];
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (size_t i = 0; i < array_length(usual); i++)
        signal(usual[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; i < 3; i++) /* their numbers may be 0 to 2 */
        high[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 3; i++)
        dup2(high[i], i);
    execvp(words[0], (char *const *)(uintptr_t)words);
    (void)!write(told, &errno, sizeof errno);
    _exit(1);
}

/* posix_spawn cannot set the signal of a parent's death. */
int spawn_with_thread(
    const char *const *words, const char *what, const int ends[3], pid_t *pid, struct error *err)
{
    int pipe[2], failed = 0;
    pid_t parent = getpid();
    *pid = 0;
    if (pipe2(pipe, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_IO, "making a pipe");
    pid_t child = fork();
    if (child == 0) {
        int told = fcntl(pipe[1], F_DUPFD_CLOEXEC, 3); /* not one of those that are replaced */
        spawn_become(words, ends, told, parent);
    }
    int rc = child < 0 ? error_set_errno(err, ERROR_IO, "starting %.100s", words[0]) : 0;
    close(pipe[1]);
    if (rc == 0 && read(pipe[0], &failed, sizeof failed) == sizeof failed) {
        waitpid(child, NULL, 0);
        errno = failed;
        rc = error_set_errno(err, failed == ENOENT ? ERROR_NOT_FOUND : ERROR_CONFIG,
            "starting %.60s%.100s", what, words[0]);
    }
    close(pipe[0]);
    if (rc == 0)
        *pid = child;
    return rc;
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
