/* api/api.c: a `droste`: settings, loop, environment, models. */
#include "api/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "api/stage.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "rlm/prompt.h"

_Static_assert(sizeof(droste_error) == sizeof(struct error), "the public error is the inner one");
_Static_assert((int)DROSTE_ERROR_STORE == (int)ERROR_STORE &&
                   (int)DROSTE_ERROR_MODEL_REPLAY == (int)ERROR_MODEL_REPLAY &&
                   (int)DROSTE_ERROR_BUDGET_RECORD == (int)ERROR_BUDGET_RECORD,
    "the public codes are the inner ones");

const char *droste_version(void)
{
    return DROSTE_VERSION;
}

const char *droste_error_name(int code)
{
    return error_code_name((enum error_code)code);
}

int api_fail(droste_error *out, const struct error *err, int rc)
{
    if (out) {
        out->code = (int)err->code;
        out->sys = err->sys;
        memcpy(out->text, err->text, sizeof out->text);
    }
    return rc;
}

/* ---- interrupts ---- */

void droste_interrupt(droste *d)
{
    uint64_t one = 1;
    int saved = errno; /* this may be a signal handler */
    (void)!write(d->interrupt_fd, &one, sizeof one);
    errno = saved;
}

void api_forget_interrupt(droste *d)
{
    uint64_t count;
    (void)!read(d->interrupt_fd, &count, sizeof count);
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
    if (d->poll_fd < 0 || d->timer_fd < 0)
        return error_set_errno(err, ERROR_IO, "making a descriptor for another loop");
    int rc = watch_for_host(d->poll_fd, loop_backend(d->loop), err);
    return rc < 0 ? rc : watch_for_host(d->poll_fd, d->timer_fd, err);
}

int droste_fd(droste *d, droste_error *err)
{
    struct error why = { 0 };
    int rc = d->poll_fd >= 0 ? 0 : make_poll_fd(d, &why);
    if (rc < 0) {
        close_fd(&d->poll_fd);
        close_fd(&d->timer_fd);
        return api_fail(err, &why, rc);
    }
    return d->poll_fd;
}

int droste_dispatch(droste *d, droste_error *err)
{
    int rc = droste_turn(d, 0, err);
    if (rc >= 0 && d->timer_fd >= 0)
        loop_settle(d->loop, d->timer_fd);
    return rc;
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
    d->tell = timer_new(d->loop, api_tell, d);
    return d->tell ? 0 : error_memory(err);
}

int droste_new(droste **out, droste_error *err)
{
    struct error why = { 0 };
    droste *d = calloc(1, sizeof *d);
    if (!d)
        return api_fail(err, &why, error_memory(&why));
    d->interrupt_fd = d->poll_fd = d->timer_fd = -1;
    TAILQ_INIT(&d->answered);
    TAILQ_INIT(&d->runs);
    TAILQ_INIT(&d->ended);
    int rc = api_set_up(d, &why);
    if (rc < 0) {
        droste_free(d);
        return api_fail(err, &why, rc);
    }
    *out = d;
    return 0;
}

void droste_free(droste *d)
{
    if (!d)
        return;
    api_drop_stagings(d); /* before their ends begin something */
    if (d->loop)
        loop_run_posts(d->loop); /* their calls are still there */
    api_drop_runs(d);
    while (d->sessions)
        droste_session_close(d->sessions);
    environment_close(d->env);
    api_customs_free(d);
    store_close(d->store);
    api_end_models(d);
    lm_queue_free(d->queue);
    watch_free(d->interrupt_watch);
    timer_free(d->tell);
    loop_close(d->loop);
    close_fd(&d->interrupt_fd);
    close_fd(&d->poll_fd);
    close_fd(&d->timer_fd);
    settings_free(&d->settings);
    list_clear(&d->contexts);
    tools_free(d->tools);
    buf_free(&d->tool_facts);
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
    struct error why = { 0 };
    char source[80];
    snprintf(source, sizeof source, "--%s", option);
    return api_fail(err, &why, settings_set(&d->settings, option, value, source, &why));
}

const char *droste_get(droste *d, const char *option)
{
    return settings_text(&d->settings, option);
}

int droste_configure(droste *d, const char *path, droste_error *err)
{
    struct error why = { 0 };
    cleanup_free char *home = NULL;
    cleanup_buf struct buf file = { 0 };
    int rc = settings_from_environment(&d->settings, &why);
    if (rc == 0 && !path && file_config_home(&home, NULL) == 0) {
        buf_printf(&file, "%s/config.ini", home);
        rc = settings_from_file(&d->settings, buf_text(&file), true, &why);
    } else if (rc == 0 && path) {
        rc = settings_from_file(&d->settings, path, false, &why);
    }
    return api_fail(err, &why, rc);
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

int api_settings_set(struct settings *s, const char *const *words, struct error *err)
{
    int rc = 0;
    for (; rc == 0 && words && words[0]; words += 2) {
        char source[80];
        snprintf(source, sizeof source, "setting %.60s", words[0]);
        if (!words[1])
            return error_set(err, ERROR_ARGUMENT, "%s has no value", source);
        rc = settings_set(s, words[0], words[1], source, err);
    }
    return rc;
}

/* The one that is open is not what is asked for: it is closed, where nothing uses it. */
static int leave_environment(
    droste *d, const char *name, const char *circumstances, struct error *err)
{
    bool renamed = d->env && strcmp(d->env_name, name) != 0;
    bool moved = d->env && strcmp(d->env_circumstances, circumstances) != 0;
    if (!renamed && !moved)
        return 0;
    if (api_has_sessions(d) || d->run_count > 0)
        return renamed
                   ? error_set(err, ERROR_ARGUMENT,
                         "the environment cannot change from %s to %.40s while sessions or "
                         "runs are open",
                         d->env_name, name)
                   : error_set(err, ERROR_ARGUMENT,
                         "the variables of %s have changed (see `droste env ls`) while sessions "
                         "or runs are open: close them first",
                         d->env_name);
    environment_close(d->env);
    d->env = NULL;
    return 0;
}

int api_environment(
    droste *d, const struct settings *s, struct environment **out, struct error *err)
{
    const char *name = s->env ? s->env : "local";
    char circumstances[ENVIRONMENT_CIRCUMSTANCES_SIZE];
    if (environment_circumstances(name, circumstances, err) < 0 ||
        leave_environment(d, name, circumstances, err) < 0)
        return -(int)err->code;
    if (!d->env) {
        free(steal(&d->env_name));
        d->env_name = strdup(name);
        struct environment_options options = { .ca_file = s->ca_file };
        int rc = d->env_name ? api_custom_open(d, d->env_name, &d->env, err) : error_memory(err);
        if (rc == 0 && !d->env)
            rc = environment_open(name, d->loop, &options, &d->env, err);
        if (rc < 0)
            return rc;
        memcpy(d->env_circumstances, circumstances, sizeof circumstances);
    }
    environment_on_notice(d->env, d->notice, d->notice_arg);
    *out = d->env;
    return 0;
}

void droste_on_notice(droste *d, droste_notice_fn *fn, void *arg)
{
    d->notice = fn;
    d->notice_arg = arg;
    if (d->env)
        environment_on_notice(d->env, fn, arg);
}

struct context_filter api_filter(const struct settings *s, const int *interrupt)
{
    return (struct context_filter){ (const char *const *)s->include.items, s->include.count,
        (uint64_t)s->context_size, interrupt };
}

int api_context_kind(const struct settings *s, enum value_kind *kind, struct error *err)
{
    return context_kind_parse(s->context_type ? s->context_type : "auto", kind, err);
}

int api_store(droste *d, struct store **out, struct error *err)
{
    return api_store_at(d, d->settings.database, out, err);
}

int api_store_at(droste *d, const char *wanted, struct store **out, struct error *err)
{
    const char *path = wanted ? wanted : "";
    *out = NULL;
    if (strcmp(path, "none") == 0)
        return 0;
    if (d->store && strcmp(path, d->store_path) != 0) {
        if (d->run_count > 0 || d->store_users > 0)
            return error_set(
                err, ERROR_ARGUMENT, "the record cannot be another one while runs are under way");
        store_close(d->store);
        d->store = NULL;
    }
    if (!d->store) {
        free(steal(&d->store_path));
        d->store_path = strdup(path);
        int rc =
            d->store_path ? store_open(path[0] ? path : NULL, &d->store, err) : error_memory(err);
        if (rc < 0)
            return rc;
    }
    *out = d->store;
    return 0;
}
