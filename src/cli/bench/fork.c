/* cli/bench/fork.c: how much memory a fork of a session has for itself, beside os.fork().
 *
 * Own memory is what no other process shares: Private_Clean and Private_Dirty of smaps_rollup
 * (proc(5)), of all processes that the fork consists of. Page tables, which the kernel keeps, are
 * not part of it. A copy that runs more code writes to more pages, and so has copies of them.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cli/bench/measure.h"

/* As in bench/fork: a heap of 40 MB in small objects. */
static const char fork_heap[] = "data = [bytes(1000) for _ in range(40000)]";
static const char fork_cell[] = "1 + 1";
/* The child waits in read(2) until it is told to end: at once, or after it has run the code. */
static const char fork_bare[] = "import os\n"
                                "def bare(code):\n"
                                "    r, w = os.pipe()\n"
                                "    done, tell = os.pipe()\n"
                                "    pid = os.fork()\n"
                                "    if pid == 0:\n"
                                "        os.close(w)\n"
                                "        if code: exec(compile(code, '<cell>', 'exec'), {})\n"
                                "        os.write(tell, b'x')\n"
                                "        os.read(r, 1)\n"
                                "        os._exit(0)\n"
                                "    os.read(done, 1)\n"
                                "    for fd in r, done, tell: os.close(fd)\n"
                                "    return pid, w\n"
                                "def end(pid, w):\n"
                                "    os.close(w)\n"
                                "    os.waitpid(pid, 0)\n";

/* What the fork's processes have for themselves once they wait: fork() returns before. */
static double fork_own_mib(const struct bench_processes *before)
{
    enum { PAUSE_US = 2000, LOOKS = 500 };
    double last = -1, now = bench_private_kib(before);
    for (int i = 0; i < LOOKS && now != last; i++) {
        usleep(PAUSE_US);
        last = now;
        now = bench_private_kib(before);
    }
    return now / 1024;
}

/* One fork of the session: its memory at once, and after its first cell. */
static int fork_measure(droste_session *s, struct series *series, droste_error *err)
{
    droste_session *fork = NULL;
    struct bench_processes before = { 0 };
    bench_processes(&before);
    int rc = droste_session_fork(s, &fork, err);
    if (rc == 0)
        bench_add(&series[0], fork_own_mib(&before));
    if (rc == 0)
        rc = bench_execute(fork, fork_cell, err);
    if (rc == 0)
        bench_add(&series[1], fork_own_mib(&before));
    droste_session_close(fork);
    free(before.pids);
    return rc;
}

static int fork_measure_bare(
    droste_session *s, const char *code, struct series *series, droste_error *err)
{
    char cell[64];
    struct bench_processes before = { 0 };
    bench_processes(&before);
    snprintf(cell, sizeof cell, "child = bare('%s')", code);
    int rc = bench_execute(s, cell, err);
    if (rc == 0)
        bench_add(series, bench_private_kib(&before) / 1024);
    free(before.pids);
    return rc < 0 ? rc : bench_execute(s, "end(*child)", err);
}

int bench_fork(droste *d, struct series *series, unsigned n, droste_error *err)
{
    droste_session *s = NULL;
    int rc = droste_set(d, "pool", "0", err); /* no other process comes or goes meanwhile */
    if (rc == 0)
        rc = droste_session_open(d, &s, err);
    if (rc == 0)
        rc = bench_execute(s, fork_heap, err);
    if (rc == 0)
        rc = bench_execute(s, fork_bare, err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = fork_measure(s, series, err);
        if (rc == 0)
            rc = fork_measure_bare(s, "", &series[2], err);
        if (rc == 0)
            rc = fork_measure_bare(s, fork_cell, &series[3], err);
    }
    droste_session_close(s);
    return rc;
}
