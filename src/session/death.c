/* session/death.c: determines why a sandbox is gone: the host, a limit, a signal, or its own exit.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "session/internal.h"

static void name_signal(int signal, char *out, size_t size)
{
    /* sigabbrev_np() of glibc 2.32 is too new for the systems on which wheels run. */
    static const char *const names[] = {
        [SIGHUP] = "HUP",
        [SIGINT] = "INT",
        [SIGQUIT] = "QUIT",
        [SIGILL] = "ILL",
        [SIGTRAP] = "TRAP",
        [SIGABRT] = "ABRT",
        [SIGBUS] = "BUS",
        [SIGFPE] = "FPE",
        [SIGKILL] = "KILL",
        [SIGUSR1] = "USR1",
        [SIGSEGV] = "SEGV",
        [SIGUSR2] = "USR2",
        [SIGPIPE] = "PIPE",
        [SIGALRM] = "ALRM",
        [SIGTERM] = "TERM",
        [SIGSTKFLT] = "STKFLT",
        [SIGCHLD] = "CHLD",
        [SIGCONT] = "CONT",
        [SIGSTOP] = "STOP",
        [SIGTSTP] = "TSTP",
        [SIGTTIN] = "TTIN",
        [SIGTTOU] = "TTOU",
        [SIGURG] = "URG",
        [SIGXCPU] = "XCPU",
        [SIGXFSZ] = "XFSZ",
        [SIGVTALRM] = "VTALRM",
        [SIGPROF] = "PROF",
        [SIGWINCH] = "WINCH",
        [SIGIO] = "POLL",
        [SIGPWR] = "PWR",
        [SIGSYS] = "SYS",
    };
    const char *name = signal > 0 && (size_t)signal < array_length(names) ? names[signal] : NULL;
    snprintf(out, size, "signal %d%s%s", signal, name ? " SIG" : "", name ? name : "");
}

/* Returns the limit for which the kernel killed the worker, or LIMIT_NONE. */
static enum limit limit_that_ended(const struct session *s, const struct sandbox_usage *usage)
{
    static const struct {
        int signal;
        enum limit limit;
    } signals[] = { { SIGXCPU, LIMIT_CPU_TIME }, { SIGXFSZ, LIMIT_FILE_SIZE } };
    const struct sandbox_exit *how = &s->how;
    if (how->limit != LIMIT_NONE || !how->has_status || !WIFSIGNALED(how->wait_status))
        return how->limit;
    int signal = WTERMSIG(how->wait_status);
    for (size_t i = 0; i < array_length(signals); i++)
        if (signals[i].signal == signal && usage->means[signals[i].limit] != LIMIT_BY_NOTHING)
            return signals[i].limit;
    /* The kernel sends SIGKILL one second after an ignored SIGXCPU. */
    double cpu_time = limit_value(LIMIT_CPU_TIME, &s->settings.limits.sandbox);
    bool spent = signal == SIGKILL && cpu_time > 0 && usage->cpu_seconds >= cpu_time;
    return spent ? LIMIT_CPU_TIME : LIMIT_NONE;
}

/* If a limit has ended it, describes the limit and how to raise it, and returns true. */
static bool explain_limit(struct session *s)
{
    struct sandbox_usage usage;
    cleanup_buf struct buf value = { 0 };
    s->ops->usage(s->sandbox, &usage);
    enum limit limit = limit_that_ended(s, &usage);
    if (limit == LIMIT_NONE)
        return false;
    snprintf(s->killed, sizeof s->killed, "%s", limit_name(limit));
    if (limit == LIMIT_VOLUME_LOST) {
        error_set(&s->death, ERROR_LOST,
            "the sandbox was ended because its volume was moved away: another node of the cluster "
            "may have it; what was not committed is lost");
        return true;
    }
    limit_print(limit, &s->settings.limits.sandbox, &value);
    if (limit == LIMIT_WORKSPACE_SIZE || limit == LIMIT_WORKSPACE_FILES) {
        error_set(&s->death, ERROR_LOST,
            "the sandbox was killed because its workspace exceeded the limit of %s (%s); its "
            "variables are gone; raise it with --%s",
            limit_name(limit), buf_text(&value), limit_option(limit));
        return true;
    }
    if (usage.means[limit] == LIMIT_BY_HOST && limit != LIMIT_MEMORY) {
        error_set(&s->death, ERROR_LOST,
            "the sandbox was killed because its volume exceeded the limit of %s (%s); its "
            "variables are gone; remove files with `droste volume rm`, or raise the limit with "
            "`droste volume limit`",
            limit_name(limit), buf_text(&value));
        return true;
    }
    error_set(&s->death, ERROR_LOST,
        "%s reached the limit of %s (%s) and was killed; its variables are gone; raise it with --%s",
        usage.means[limit] == LIMIT_BY_RLIMIT ? "the guest's process" : "the sandbox as a whole",
        limit_name(limit), buf_text(&value), limit_option(limit));
    return true;
}

void session_explain_death(struct session *s)
{
    const struct sandbox_exit *how = &s->how;
    if (s->death.code != ERROR_NONE)
        return;
    if (how->error.code != ERROR_NONE) {
        s->death = how->error;
        return;
    }
    if (explain_limit(s))
        return;
    if (how->has_status && WIFSIGNALED(how->wait_status)) {
        name_signal(WTERMSIG(how->wait_status), s->killed, sizeof s->killed);
        error_set(&s->death, ERROR_LOST,
            "the guest's process was killed by %s; its variables are "
            "gone",
            s->killed);
    } else if (how->has_status) {
        snprintf(s->killed, sizeof s->killed, "exit %d", WEXITSTATUS(how->wait_status));
        error_set(&s->death, ERROR_LOST,
            "the guest's process exited with status %d; its variables are gone",
            WEXITSTATUS(how->wait_status));
    } else {
        error_set(&s->death, ERROR_LOST, "the sandbox is gone; the cell's outcome is unknown");
    }
}

void session_death(const struct session *s, struct cell_result *out)
{
    *out = (struct cell_result){ .status = s->killed[0] ? CELL_KILLED : CELL_LOST,
        .reason = s->death };
    snprintf(out->killed, sizeof out->killed, "%s", s->killed);
    if (s->death.code == ERROR_TIMEOUT)
        out->status = CELL_TIMEOUT;
}
