/* cli/bench/template.c: sessions that start from a template, beside os.fork() and forks.
 *
 * All of them get a heap of 40 MB in small objects, as in bench_fork.c, without filling it again.
 * os.fork() is that of the session's own interpreter: what a copy of this process costs at least.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "cli/bench/measure.h"

static const char template_heap[] = "data = [bytes(1000) for _ in range(40000)]";
static const char template_cell[] = "1 + 1";
/* From the call until the child has run the cell and written a byte. */
static const char template_bare[] = "import os, time\n"
                                    "begun = time.perf_counter()\n"
                                    "r, w = os.pipe()\n"
                                    "pid = os.fork()\n"
                                    "if pid == 0:\n"
                                    "    exec(compile('1 + 1', '<cell>', 'exec'), {})\n"
                                    "    os.write(w, b'x')\n"
                                    "    os._exit(0)\n"
                                    "os.read(r, 1)\n"
                                    "took = 1e6 * (time.perf_counter() - begun)\n"
                                    "os.waitpid(pid, 0)\n"
                                    "os.close(r)\n"
                                    "os.close(w)\n"
                                    "SUBMIT([took])";

/* Times a session that starts from the template (NULL: a fork) and runs a cell. */
static int template_time(
    droste_session *s, droste_template *t, struct series *series, droste_error *err)
{
    droste_session *copy = NULL;
    uint64_t begun = clock_ns();
    int rc =
        t ? droste_session_start_from(t, NULL, &copy, err) : droste_session_fork(s, &copy, err);
    if (rc == 0)
        rc = bench_execute(copy, template_cell, err);
    if (rc == 0)
        bench_add(series, bench_elapsed_us(begun));
    droste_session_close(copy);
    return rc;
}

static int template_time_making(droste_session *s, struct series *series, droste_error *err)
{
    droste_template *t = NULL;
    uint64_t start = clock_ns();
    int rc = droste_session_template(s, &t, err);
    if (rc == 0)
        bench_add(series, bench_elapsed_us(start));
    droste_template_free(t);
    return rc;
}

int bench_template(droste *d, struct series *series, unsigned n, droste_error *err)
{
    droste_session *s = NULL;
    droste_template *t = NULL;
    int rc = droste_set(d, "pool", "0", err);
    if (rc == 0)
        rc = droste_session_open(d, &s, err);
    if (rc == 0)
        rc = bench_execute(s, template_heap, err);
    if (rc == 0)
        rc = droste_session_template(s, &t, err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = bench_time_cell(s, template_bare, 0, &series[0], err);
        if (rc == 0)
            rc = template_time(s, t, &series[1], err);
        if (rc == 0)
            rc = template_time(s, NULL, &series[2], err);
        if (rc == 0)
            rc = template_time_making(s, &series[3], err);
    }
    droste_template_free(t);
    droste_session_close(s);
    return rc;
}
