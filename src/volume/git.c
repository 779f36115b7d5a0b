/* volume/git.c: runs git as a child process. It uses fork, because posix_spawn cannot set a
 * resource limit or the signal for the parent's death; the child makes only system calls before
 * exec.
 */
#include "volume/git.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/os/spawn.h"
#include "base/text.h"

enum { KEEP_MAX = 64 << 20, TAIL_MAX = 4096, PIECE = 65536, NO_EXEC = 127, MEMORY_MAX = 512 << 20 };

/* ---- arguments and environment of git ---- */

/* The allowed transports, whatever a redirect or a repository requests. */
#define PROTOCOLS "https:ssh:file"

static const char *const fixed[] = { "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=0", "GIT_ATTR_NOSYSTEM=1",
    "GIT_TERMINAL_PROMPT=0", ("GIT_ALLOW_PROTOCOL=" PROTOCOLS), "GIT_NO_REPLACE_OBJECTS=1",
    "GIT_SSH_COMMAND=ssh -oBatchMode=yes", "GIT_ASKPASS=/bin/false", "GIT_OPTIONAL_LOCKS=0" };

/* Passed environment variables. HOME is for ~/.netrc and ssh keys. */
static const char *const passed[] = { "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK",
    "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO" };

static const char *const options[] = { "git", "-c", "core.hooksPath=/dev/null", "-c",
    "core.fsmonitor=false", "-c", "core.attributesFile=/dev/null", "-c", "core.askPass=", "-c",
    "credential.helper=", "-c", "protocol.ext.allow=never", "-c", "submodule.recurse=false", "-c",
    "fetch.recurseSubmodules=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c",
    "transfer.unpackLimit=1", "-c", "core.fsync=none", "-c", "protocol.version=2",
    /* Bounds memory: larger files are streamed without deltas, in one thread, and no more of a
     * pack is mapped at once. */
    "-c", "core.bigFileThreshold=16m", "-c", "core.packedGitLimit=256m", "-c",
    "core.packedGitWindowSize=16m", "-c", "core.deltaBaseCacheLimit=32m", "-c", "pack.threads=1",
    "-c", "pack.windowMemory=64m", "-c", "index.threads=1" };

static int make_environment(struct list *out, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_length(fixed); i++)
        rc = list_add(out, fixed[i], err);
    for (size_t i = 0; rc == 0 && i < array_length(passed); i++) {
        const char *value = getenv(passed[i]);
        cleanup_buf struct buf word = { 0 };
        buf_printf(&word, "%s=%s", passed[i], value ? value : "");
        if (value)
            rc = buf_failed(&word) ? error_memory(err) : list_add(out, buf_text(&word), err);
    }
    return rc < 0 ? rc : list_add_end(out, err);
}

static int make_words(const struct git_call *call, struct list *out, struct error *err)
{
    cleanup_buf struct buf directory = { 0 };
    /* Prevents git from searching parent directories for a repository. */
    buf_printf(&directory, "--git-dir=%s", call->directory ? call->directory : "/dev/null");
    int rc = buf_failed(&directory) ? error_memory(err) : 0;
    for (size_t i = 0; rc == 0 && i < array_length(options); i++)
        rc = list_add(out, options[i], err);
    if (rc == 0)
        rc = list_add(out, buf_text(&directory), err);
    for (size_t i = 0; rc == 0 && call->words[i]; i++)
        rc = list_add(out, call->words[i], err);
    return rc < 0 ? rc : list_add_end(out, err);
}

/* ---- its life ---- */

struct running {
    pid_t pid;
    int out, complaints;
    struct buf tail;
};

/* In the child. If the host has closed its standard streams, other descriptors have their
 * numbers: moves all of them first. */
static void become_git(char *const *words, char *const *environment, const int ends[3],
    const struct git_call *call, const struct git_bounds *bounds)
{
    static const int usual[] = { SIGPIPE, SIGINT, SIGCHLD };
    sigset_t none;
    struct rlimit limit = { bounds->file_bytes, bounds->file_bytes };
    struct rlimit memory = { MEMORY_MAX, MEMORY_MAX };
    sigemptyset(&none);
    for (size_t i = 0; i < array_length(usual); i++)
        signal(usual[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* A file over the limit is then an error that git reports; it does not always report a
     * child's death. */
    signal(SIGXFSZ, SIG_IGN);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (bounds->file_bytes > 0)
        setrlimit(RLIMIT_FSIZE, &limit);
    /* For each process: a pack of some KiB can contain a blob of GiB. RLIMIT_DATA counts private
     * memory, not mapped files. */
    setrlimit(RLIMIT_DATA, &memory);
    int high[3];
    if (call->lock >= 0)
        (void)!fcntl(call->lock, F_DUPFD, 3);
    for (int i = 0; i < 3; i++)
        high[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 3; i++)
        dup2(high[i], i);
    environ = (char **)(uintptr_t)environment;
    execvp("git", words);
    _exit(errno == ENOENT ? NO_EXEC : NO_EXEC - 1);
}

static int git_start(struct running *r, const struct git_call *call,
    const struct git_bounds *bounds, struct error *err)
{
    struct list words = { 0 }, environment = { 0 };
    int out[2] = { -1, -1 }, complaints[2] = { -1, -1 };
    cleanup_fd int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int rc = make_words(call, &words, err);
    if (rc == 0)
        rc = make_environment(&environment, err);
    if (rc == 0 && (nothing < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(complaints, O_CLOEXEC) < 0 ||
                       (r->pid = fork()) < 0))
        rc = error_set_errno(err, ERROR_IO, "starting git");
    if (rc == 0 && r->pid == 0) {
        const int ends[] = { call->input >= 0 ? call->input : nothing, out[1], complaints[1] };
        become_git(words.items, environment.items, ends, call, bounds);
    }
    if (rc == 0)
        setpgid(r->pid, r->pid); /* parent and child both set it, since either may run first */
    list_clear(&words);
    list_clear(&environment);
    close_fd(&out[1]);
    close_fd(&complaints[1]);
    r->out = out[0];
    r->complaints = complaints[0];
    return rc;
}

int git_check_bounds(const struct git_bounds *bounds, struct error *err)
{
    struct pollfd interrupt = { .fd = bounds->interrupt, .events = POLLIN };
    if (bounds->interrupt >= 0 && poll(&interrupt, 1, 0) > 0)
        return error_set(err, ERROR_CANCELLED, "interrupted while the repository was staged");
    if (clock_ns() >= bounds->deadline_ns)
        return error_set(err, ERROR_TIMEOUT,
            "git took longer than --repo-timeout allows; raise it, or try again later");
    return 0;
}

/* Waits for output, the end or a bound. */
static int git_wait_for(const struct running *r, const struct git_bounds *bounds, struct error *err)
{
    struct pollfd fds[] = { { r->out, POLLIN, 0 }, { r->complaints, POLLIN, 0 },
        { bounds->interrupt, POLLIN, 0 } };
    uint64_t now = clock_ns();
    uint64_t left = now < bounds->deadline_ns ? (bounds->deadline_ns - now) / 1000000 + 1 : 0;
    (void)!poll(fds, array_length(fds), left > 3600000 ? 3600000 : (int)left);
    return git_check_bounds(bounds, err);
}

/* Reads available data; closes the stream at its end. */
static int read_stream(int *fd, git_take_fn *take, void *arg, struct error *err)
{
    char piece[PIECE];
    struct pollfd p = { .fd = *fd, .events = POLLIN };
    if (*fd < 0 || poll(&p, 1, 0) <= 0)
        return 0;
    ssize_t n = read(*fd, piece, sizeof piece);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0)
        close_fd(fd);
    return n > 0 && take ? take(arg, piece, (size_t)n, err) : 0;
}

static int keep_tail(void *arg, const char *data, size_t len, struct error *err)
{
    struct buf *tail = arg;
    buf_append(tail, data, len);
    if (tail->len > TAIL_MAX)
        buf_consume(tail, tail->len - TAIL_MAX);
    return 0;
}

int git_keep(void *arg, const char *data, size_t len, struct error *err)
{
    struct buf *out = arg;
    if (out->len + len > KEEP_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "the repository is too large: the list of its files or refs alone is larger than %d MiB",
            KEEP_MAX >> 20);
    buf_append(out, data, len);
    return buf_failed(out) ? error_memory(err) : 0;
}

/* ---- what became of it ---- */

/* Maps messages of git, ssh and curl to errors; the first match counts. */
static const struct meaning {
    const char *message;
    enum error_code code;
    const char *text;
} meanings[] = {
    { "No space left on device", ERROR_IO, "the disk is full; free some space" },
    { "Disk quota exceeded", ERROR_IO, "the disk quota is used up; free some space" },
    { "ut of memory", ERROR_ARGUMENT,
        "the repository needs more than the 512 MiB of memory that git may have here: it has very "
        "large files or trees" },
    { "mmap failed: Cannot allocate memory", ERROR_ARGUMENT,
        "the repository needs more than the 512 MiB of memory that git may have here: it has very "
        "large files or trees" },
    { "File too large", ERROR_ARGUMENT,
        "the repository is too large; raise --workspace-size, or name a whole commit id" },
    { "Could not resolve", ERROR_IO,
        "there is no such host, or no network; check the URL and the connection" },
    { "Temporary failure in name resolution", ERROR_IO, "there is no network; try again later" },
    { "Failed to connect", ERROR_IO, "no connection to the host; check the URL and the network" },
    { "Couldn't connect", ERROR_IO, "no connection to the host; check the URL and the network" },
    { "Connection refused", ERROR_IO, "no connection to the host; check the URL and the network" },
    { "Network is unreachable", ERROR_IO, "there is no network; try again later" },
    { "Connection timed out", ERROR_IO, "the host does not answer; check the network" },
    { "certificate", ERROR_PERMISSION, "the host's certificate is not trusted" },
    { "Host key verification failed", ERROR_PERMISSION,
        "ssh does not know the host's key; connect to it once by hand" },
    { "could not read Username", ERROR_PERMISSION,
        "the host requires authentication: put a token into ~/.netrc, or use ssh://; or there is "
        "no such repository" },
    { "Authentication failed", ERROR_PERMISSION, "the host rejects the token in ~/.netrc" },
    { "Permission denied (", ERROR_PERMISSION,
        "the host rejects your ssh key; add an accepted key to the agent" },
    { "dubious ownership", ERROR_PERMISSION,
        "the directory belongs to another user; run as that user, or use a copy" },
    { "does not appear to be a git repository", ERROR_NOT_FOUND, "there is no git repository" },
    { "epository not found", ERROR_NOT_FOUND, "there is no such repository" },
    { "' not found", ERROR_NOT_FOUND, "there is no such repository" },
    { "not allow", ERROR_PERMISSION,
        "the host denies access to the repository; check the URL and "
        "your permissions" },
    { "not our ref", ERROR_NOT_FOUND, "the repository has no such commit" },
};

static int git_explain(const struct running *r, int wait_status, struct error *err)
{
    const char *output = buf_text(&r->tail);
    cleanup_buf struct buf seen = { 0 };
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == NO_EXEC)
        return error_set(err, ERROR_UNSUPPORTED,
            "staging a repository needs the program git, which is not in PATH; install it");
    for (size_t i = 0; i < array_length(meanings); i++)
        if (strstr(output, meanings[i].message))
            return error_set(err, meanings[i].code, "%s", meanings[i].text);
    size_t len = strcspn(output, "\n");
    text_append_visible(&seen, output, len < 120 ? len : text_utf8_floor(output, r->tail.len, 120));
    if (WIFSIGNALED(wait_status))
        return error_set(err, ERROR_IO, "git was killed by signal %d", WTERMSIG(wait_status));
    return error_set(
        err, ERROR_IO, "git ended with status %d: %s", WEXITSTATUS(wait_status), buf_text(&seen));
}

static int git_hear(struct running *r, const struct git_call *call, const struct git_bounds *bounds,
    struct error *err)
{
    int rc = 0;
    while (rc == 0 && (r->out >= 0 || r->complaints >= 0)) {
        rc = git_wait_for(r, bounds, err);
        if (rc == 0)
            rc = read_stream(&r->complaints, keep_tail, &r->tail, err);
        if (rc == 0)
            rc = read_stream(&r->out, call->take, call->arg, err);
    }
    return rc;
}

/* After closing its streams, git and its children are about to exit. */
static int wait_for_end(const struct running *r, struct git_end *end, struct error *err)
{
    int status = 0;
    pid_t ended;
    do
        ended = waitpid(r->pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    if (ended < 0)
        return error_set_errno(err, ERROR_IO,
            "the exit status of git is unknown; a host that ignores SIGCHLD, or waits for all "
            "children, cannot stage repositories");
    end->quiet = WIFEXITED(status);
    end->status = end->quiet ? WEXITSTATUS(status) : -1;
    return status == 0 ? 0 : git_explain(r, status, err);
}

int git_run(const struct git_call *call, const struct git_bounds *bounds, struct git_end *end,
    struct error *err)
{
    struct running r = { .out = -1, .complaints = -1 };
    struct git_end unused;
    end = end ? end : &unused;
    *end = (struct git_end){ 0 };
    int rc = git_start(&r, call, bounds, err);
    if (rc == 0)
        rc = git_hear(&r, call, bounds, err);
    if (r.pid > 0 && rc == 0)
        rc = wait_for_end(&r, end, err);
    else if (r.pid > 0)
        spawn_end(r.pid);
    close_fd(&r.out);
    close_fd(&r.complaints);
    buf_free(&r.tail);
    return rc;
}
