/* cli/bench/measure.c: what the measurements share: figures, cells, and bare forks to compare
 * with.
 */
#include "cli/bench/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"

enum { SAMPLES_MAX = 100000 };

unsigned bench_rounds = 10, bench_chosen_sessions;
const char *bench_preload, *bench_site;

void bench_add(struct series *s, double value)
{
    if (!s->times)
        s->times = calloc(SAMPLES_MAX, sizeof *s->times);
    if (s->times && s->count < SAMPLES_MAX)
        s->times[s->count++] = value;
}

double bench_elapsed_us(uint64_t start_ns)
{
    return (double)(clock_ns() - start_ns) / 1e3;
}

int bench_run_program(char *const argv[], struct buf *out)
{
    posix_spawn_file_actions_t actions;
    int ends[2], status = -1;
    pid_t pid;
    char data[4096];
    ssize_t n;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    while (rc == 0 && (n = read(ends[0], data, sizeof data)) > 0)
        if (out)
            buf_append(out, data, (size_t)n);
    close(ends[0]);
    if (rc != 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The modules are those that the zygote has (guest/python: boot.py, PRELOAD, and the imports of
 * frames.py), and numeric libraries have one thread, as there. */
static char fork_script[] =
    "import _socket,_thread,ast,builtins,gc,json,linecache,mmap,os,select,signal,struct,sys,"
    "traceback,types,collections,csv,datetime,functools,heapq,itertools,math,random,re,string,"
    "textwrap,time,ctypes,importlib\n"
    "for name in 'OPENBLAS_NUM_THREADS','OMP_NUM_THREADS','MKL_NUM_THREADS':\n"
    "    os.environ[name]='1'\n"
    "sys.path += filter(None,sys.argv[3:])\n"
    "for name in filter(None,sys.argv[2].split(',')):\n"
    "    importlib.import_module(name.strip())\n"
    "gc.collect();gc.disable();gc.freeze()\n"
    "for i in range(int(sys.argv[1])):\n"
    "    t=time.perf_counter()\n"
    "    pid=os.fork()\n"
    "    if pid==0:\n"
    "        exec(compile('x = 1 + 1','<cell>','exec'),{})\n"
    "        os._exit(0)\n"
    "    os.waitpid(pid,0)\n"
    "    print((time.perf_counter()-t)*1e6)\n";

void bench_bare_forks(struct series *s, char *python, const char *preload, unsigned n)
{
    char count[16], isolated[] = "-I", command[] = "-c";
    cleanup_buf struct buf out = { 0 };
    cleanup_free char *modules = strdup(preload ? preload : "");
    cleanup_free char *site = strdup(bench_site ? bench_site : "");
    char *argv[] = { python, isolated, command, fork_script, count, modules, site, NULL };
    snprintf(count, sizeof count, "%u", n);
    if (bench_run_program(argv, &out) != 0)
        s->skipped = "the interpreter failed";
    for (const char *p = buf_text(&out); *p;) {
        char *end;
        double t = strtod(p, &end);
        if (end == p)
            break;
        bench_add(s, t);
        p = end + strspn(end, "\n");
    }
}

int bench_fail(droste_error *err, const char *format, ...)
{
    va_list args;
    *err = (droste_error){ .code = DROSTE_ERROR_ENVIRONMENT };
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return -err->code;
}

int bench_execute(droste_session *s, const char *code, droste_error *err)
{
    droste_result *r = NULL;
    int rc = droste_session_exec(s, code, strlen(code), 0, &r, err);
    if (rc == 0 && strcmp(droste_result_status(r), "ok") != 0)
        rc = bench_fail(err, "the benchmark's cell ended with '%s'", droste_result_status(r));
    droste_result_free(r);
    return rc;
}

/* Adds the numbers of a submitted list, without the first `skip`. */
static void add_submitted(struct series *s, const char *submit, unsigned skip)
{
    const char *p = submit ? strchr(submit, '[') : NULL;
    for (unsigned i = 0; p; i++) {
        char *end;
        double t = strtod(p + 1, &end);
        if (end == p + 1)
            break;
        if (i >= skip)
            bench_add(s, t);
        p = *end == ',' ? end : NULL;
    }
}

int bench_time_cell(
    droste_session *session, const char *code, unsigned skip, struct series *s, droste_error *err)
{
    droste_result *r = NULL;
    int rc = droste_session_exec(session, code, strlen(code), 0, &r, err);
    add_submitted(s, rc == 0 ? droste_result_submit(r, NULL) : NULL, skip);
    droste_result_free(r);
    return rc;
}

unsigned bench_sessions(unsigned fallback)
{
    return bench_chosen_sessions ? bench_chosen_sessions : fallback;
}
