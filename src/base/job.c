/* base/job.c: one thread per job, whose end arrives on the loop as a post. */
#include "base/job.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct job {
    struct post post; /* first: a pointer to the post is a pointer to the job */
    struct loop *loop;
    pthread_t thread;
    job_fn *work, *done;
    void *arg;
};

/* Joins the thread, which may still be inside loop_post. */
static void job_ended(struct post *post)
{
    struct job *job = (struct job *)post;
    pthread_join(job->thread, NULL);
    loop_let_go(job->loop);
    job->done(job->arg);
    free(job);
}

static void *job_run(void *arg)
{
    struct job *job = arg;
    job->work(job->arg);
    loop_post(job->loop, &job->post);
    return NULL;
}

int job_start(struct loop *loop, job_fn *work, job_fn *done, void *arg, struct error *err)
{
    sigset_t all, before;
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return error_memory(err);
    *job =
        (struct job){ .post.run = job_ended, .loop = loop, .work = work, .done = done, .arg = arg };
    sigfillset(&all);
    loop_hold(loop);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&job->thread, NULL, job_run, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errno == 0)
        return 0;
    int rc = error_set_errno(err, ERROR_IO, "starting a thread");
    loop_let_go(loop);
    free(job);
    return rc;
}
