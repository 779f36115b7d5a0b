/* api/droste.c: a `droste`: its life, its settings, its loop, interrupts. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "api/packages.h"
#include "api/packages_build.h"
#include "api/api.h"
#include "api/custom_api.h"
#include "api/forward_api.h"
#include "api/mcp_api.h"
#include "api/models.h"
#include "api/running.h"
#include "api/secrets.h"
#include "api/session_api.h"
#include "api/session_ops.h"
#include "api/stage.h"
#include "api/template_store.h"
#include "base/cleanup.h"
#include "base/loop.h"
#include "base/os/file.h"
#include "broker/tools.h"
#include "packages/shown.h"
#include "rlm/prompt.h"
#include "store/store.h"

const char *droste_version(void)
{
    return DROSTE_VERSION;
}

const char *droste_error_name(int code)
{
    return error_code_name((enum error_code)code);
}

/* ---- interrupts ---- */

void droste_interrupt(droste *d)
{
    uint64_t one = 1;
    int saved = errno; /* this may be a signal handler */
    (void)!write(d->interrupt_fd, &one, sizeof one);
    errno = saved;
}

static void api_interrupted(void *arg, int status, int events)
{
    droste *d = arg;
    uint64_t count;
    if (read(d->interrupt_fd, &count, sizeof count) < 0)
        return;
    if (d->on_interrupt)
        d->on_interrupt(d->on_interrupt_arg);
    else
        api_cancel_runs(d);
    if (d->finishing)
        rlm_finish_cancel(d->finishing);
    if (d->staging)
        staging_cancel(d->staging);
    api_interrupt_sessions(d);
}

/* ---- a host with a loop of its own ---- */

static int watch_for_host(int poll_fd, int fd, struct error *err)
{
    struct epoll_event readable = { .events = EPOLLIN };
    return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &readable) == 0
               ? 0
               : error_set_errno(err, ERROR_IO, "making a descriptor for another loop");
}

static int make_poll_fd(droste *d, struct error *err)
{
    d->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    d->timer_due_ms = 0;
    if (d->poll_fd < 0 || d->timer_fd < 0)
        return error_set_errno(err, ERROR_IO, "making a descriptor for another loop");
    int rc = watch_for_host(d->poll_fd, loop_backend(d->loop), err);
    return rc < 0 ? rc : watch_for_host(d->poll_fd, d->timer_fd, err);
}

int droste_fd(droste *d, droste_error *err)
{
    int rc = d->poll_fd >= 0 ? 0 : make_poll_fd(d, api_error(err));
    if (rc < 0) {
        close_fd(&d->poll_fd);
        close_fd(&d->timer_fd);
        return rc;
    }
    return d->poll_fd;
}

int droste_turn(droste *d, int milliseconds, droste_error *err)
{
    err = api_error(err);
    int rc = api_enter(d, err);
    if (rc < 0)
        return rc;
    loop_turn(d->loop, d->run_count > 0 || milliseconds > 0 ? milliseconds : 0);
    api_tell_sessions(d);
    api_tell_runs(d);
    d->waits = false;
    return d->run_count < INT_MAX ? (int)d->run_count : INT_MAX;
}

int droste_dispatch(droste *d, droste_error *err)
{
    int rc = droste_turn(d, 0, err);
    if (rc >= 0 && d->timer_fd >= 0)
        loop_settle(d->loop, d->timer_fd, &d->timer_due_ms);
    return rc;
}

int droste_every(droste *d, unsigned milliseconds, droste_tick_fn *fn, void *arg, droste_error *err)
{
    timer_free(d->tick);
    d->tick = fn ? timer_new(d->loop, fn, arg) : NULL;
    if (fn && !d->tick)
        return error_memory(api_error(err));
    if (fn)
        timer_start(d->tick, milliseconds, milliseconds);
    return 0;
}

void droste_wake(droste *d)
{
    loop_nudge(d->loop);
}

void droste_forked(droste *d)
{
    loop_forked(d->loop);
    if (d->env && environment_ops_of(d->env)->forked)
        environment_ops_of(d->env)->forked(d->env);
    close_fd(&d->poll_fd);
    close_fd(&d->timer_fd);
}

/* ---- life ---- */

/* Called by a timer when operations or runs have ended. Functions of the program may start
 * others. */
static void report_ends(void *arg)
{
    droste *d = arg;
    loop_wake(d->loop);
    api_tell_sessions(d);
    api_tell_runs(d);
}

static int api_set_up(droste *d, struct error *err)
{
    int rc = settings_init(&d->settings, err);
    if (rc == 0)
        rc = loop_open(&d->loop, err);
    if (rc < 0)
        return rc;
    d->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->interrupt_fd < 0)
        return error_set_errno(err, ERROR_IO, "making an eventfd");
    d->interrupt_watch = watch_new(d->loop, d->interrupt_fd, api_interrupted, d);
    if (!d->interrupt_watch)
        return error_memory(err);
    watch_events(d->interrupt_watch, UV_READABLE);
    d->tell = timer_new(d->loop, report_ends, d);
    return d->tell ? 0 : error_memory(err);
}

int droste_new(droste **out, droste_error *err)
{
    err = api_error(err);
    droste *d = calloc(1, sizeof *d);
    if (!d)
        return error_memory(err);
    d->interrupt_fd = d->poll_fd = d->timer_fd = -1;
    d->make_template = api_template_make;
    d->build_packages = api_packages_build;
    d->open_another = droste_new;
    d->close_another = droste_free;
    TAILQ_INIT(&d->answered);
    TAILQ_INIT(&d->runs);
    TAILQ_INIT(&d->ended);
    int rc = api_set_up(d, err);
    if (rc < 0) {
        droste_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void droste_free(droste *d)
{
    if (!d)
        return;
    api_drop_session_stagings(d); /* before their ends start something */
    api_drop_run_stagings(d);
    if (d->loop)
        loop_run_posts(d->loop); /* while their calls exist */
    api_drop_runs(d);
    while (d->sessions)
        droste_session_close(d->sessions);
    while (d->templates)
        droste_template_free(d->templates);
    api_mcp_close(d);
    environment_close(d->env);
    api_packages_free(d);
    api_customs_free(d);
    store_close(d->store);
    api_end_forwards(d);
    api_end_models(d);
    lm_queue_free(d->queue);
    watch_free(d->interrupt_watch);
    timer_free(d->tell);
    timer_free(d->tick);
    loop_close(d->loop); /* waits for jobs */
    package_shown_close(steal(&d->shown));
    close_fd(&d->interrupt_fd);
    close_fd(&d->poll_fd);
    close_fd(&d->timer_fd);
    settings_free(&d->settings);
    list_clear(&d->contexts);
    list_clear(&d->images);
    tools_free(d->tools);
    api_secrets_free(d->secrets);
    buf_free(&d->tool_facts);
    buf_free(&d->recipe);
    free(d->env_name);
    free(d->store_path);
    free(d->volume_root);
    free(d->python);
    free(d->record_path);
    free(d);
}

/* ---- settings ---- */

int droste_set(droste *d, const char *option, const char *value, droste_error *err)
{
    char source[80];
    snprintf(source, sizeof source, "--%s", option);
    int rc = settings_set(&d->settings, option, value, source, api_error(err));
    if (rc == 0)
        d->set_by_program[settings_index(option)] = true;
    return rc;
}

const char *droste_get(droste *d, const char *option)
{
    return settings_text(&d->settings, option);
}

int droste_get_number(droste *d, const char *option, double *value)
{
    return settings_number(&d->settings, option, value);
}

int droste_configure(droste *d, const char *path, droste_error *err)
{
    err = api_error(err);
    cleanup_free char *home = NULL;
    cleanup_buf struct buf file = { 0 };
    int rc = settings_from_environment(&d->settings, err);
    if (rc == 0 && !path && file_config_home(&home, NULL) == 0) {
        buf_printf(&file, "%s/config.ini", home);
        rc = settings_from_file(&d->settings, buf_text(&file), true, err);
    } else if (rc == 0 && path) {
        rc = settings_from_file(&d->settings, path, false, err);
    }
    return rc;
}

/* ---- what the settings name ---- */

const char *droste_prompt_at(size_t index, const char **name, const char **about)
{
    if (index >= PROMPT_COUNT)
        return NULL;
    if (name)
        *name = prompt_texts[index].name;
    if (about)
        *about = prompt_texts[index].about;
    return prompt_texts[index].text;
}
