/* cli/bench/measure.h: what the measurements of `droste bench` share. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/cli.h"

/* Figures of one thing, mostly times in microseconds. */
struct series {
    const char *name;
    const char *limit; /* the promised bound, in words; NULL: none */
    double *times;
    size_t count;
    const char *skipped; /* why nothing was measured */
    const char *unit;    /* NULL: microseconds */
};

/* In how many rounds a measurement and its baselines take turns. */
extern unsigned bench_rounds;
/* --sessions; 0: not given. */
extern unsigned bench_chosen_sessions;
/* The modules that sandboxes and baselines import in advance; NULL: none. */
extern const char *bench_preload;
extern const char *bench_site; /* where the packages of the setting are; NULL: none */

void bench_add(struct series *s, double value);
double bench_elapsed_us(uint64_t start_ns);
/* How many sessions to open: --sessions, or the measurement's own number. */
unsigned bench_sessions(unsigned fallback);
struct buf;
/* Runs a program to its end, with its output in `out` (or discarded). Its exit status, or -1. */
int bench_run_program(char *const argv[], struct buf *out);
/* Adds the times of n bare os.fork() of this interpreter that run a cell, exit and are reaped. It
 * imports the modules of `preload` (NULL: none) first. */
void bench_bare_forks(struct series *s, char *python, const char *preload, unsigned n);

/* Runs a cell; an error if it does not end with `ok`. */
int bench_execute(droste_session *s, const char *code, droste_error *err);
/* Adds the numbers of the list that the cell submits, without the first `skip`. */
int bench_time_cell(
    droste_session *session, const char *code, unsigned skip, struct series *s, droste_error *err);
/* Sets *err and returns its code, negative. */
int bench_fail(droste_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- density.c ---- */

/* The processes below this one, in the order of their numbers. */
struct bench_processes {
    pid_t *pids;
    size_t count;
};
void bench_processes(struct bench_processes *out);
/* KiB of memory that no other process shares, of all processes below this one that were not there
 * before. */
double bench_private_kib(const struct bench_processes *before);

/* Opens n sessions that each run a cell and stay, measures their memory, and closes them. Fewer if
 * this machine has no room for as many. */
int bench_density(droste *d, struct series *s, unsigned n, droste_error *err);
/* Starts, uses and closes sessions, several at a time. */
int bench_churn(droste *d, struct series *s, unsigned n, droste_error *err);

/* ---- serve.c ---- */

/* Starts a server, makes n requests on one connection, and creates sandboxes, one after the other
 * and with many clients at once. */
int bench_serve(droste *d, struct series *s, unsigned n, droste_error *err);

/* ---- fork.c ---- */

/* Measures the own memory of n forks of a session, and of as many os.fork() in it. */
int bench_fork(droste *d, struct series *s, unsigned n, droste_error *err);

/* ---- template.c ---- */

/* Starts sessions from a template and forks one, beside os.fork() in it. */
int bench_template(droste *d, struct series *s, unsigned n, droste_error *err);

/* ---- values.c ---- */

/* Passes 100 MB in and out n times, as bytes and as text, beside copies. */
int bench_values(droste *d, struct series *s, unsigned n, droste_error *err);
