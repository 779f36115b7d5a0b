/* tests/unit/lm/fixture.h: a loop, a fake server in its own process, and one call as a value. */
#pragma once

#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "lm/lm.h"

#define TEST_KEY "sk-canary-0123456789"

struct fake {
    pid_t pid;
    int in; /* closing it ends the server */
    int port, tls_port;
    char ca_file[256], root[64], url[64], tls_url[64];
    struct loop *loop;
};

/* How one call ended. */
struct answer {
    bool done;
    unsigned times_done;
    struct error error;
    struct buf text, deltas;
    char finish[32];
    struct lm_usage usage;
    unsigned attempts;
    double seconds, cost;
};

static inline void answer_free(struct answer *a)
{
    buf_free(&a->text);
    buf_free(&a->deltas);
}
#define cleanup_answer __attribute__((cleanup(answer_free)))

static inline void on_answer(void *arg, const struct lm_reply *reply)
{
    struct answer *a = arg;
    a->done = true;
    a->times_done++;
    a->error = reply->error;
    buf_append(&a->text, reply->text, reply->len);
    snprintf(a->finish, sizeof a->finish, "%s", reply->finish);
    a->usage = reply->usage;
    a->attempts = reply->attempts;
    a->seconds = reply->seconds;
    a->cost = reply->cost;
}

static inline void on_delta(void *arg, const char *text, size_t len)
{
    struct answer *a = arg;
    buf_append(&a->deltas, text, len);
}

static inline void fake_spawn(struct fake *f, const char *option, const char *value, int out[2])
{
    int in[2];
    char script[512];
    const char *source = getenv("DROSTE_TEST_SOURCE");
    snprintf(script, sizeof script, "%s/tests/fakes/model_server.py", source ? source : ".");
    char *argv[] = { (char *)"/usr/bin/python3", script, (char *)option, (char *)value, NULL };
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    assert_int_equal(posix_spawn(&f->pid, argv[0], &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    f->in = in[1];
}

/* Starts the server, with one option of its own or NULL. */
static inline void fake_start(struct fake *f, const char *option, const char *value)
{
    int out[2];
    char line[1024];
    cleanup_json struct json_object *ready = NULL;
    memset(f, 0, sizeof *f);
    fake_spawn(f, option, value, out);
    FILE *from = fdopen(out[0], "r");
    if (!fgets(line, sizeof line, from))
        fail_msg("the fake server did not start");
    fclose(from);
    assert_ok(json_parse(line, strlen(line), &json_limits_small, &ready, err));
    f->port = (int)json_get_int(ready, "port", 0);
    f->tls_port = (int)json_get_int(ready, "tls_port", 0);
    snprintf(f->ca_file, sizeof f->ca_file, "%s", json_get_string(ready, "ca_file", ""));
    snprintf(f->root, sizeof f->root, "http://127.0.0.1:%d", f->port);
    snprintf(f->url, sizeof f->url, "http://127.0.0.1:%d/v1", f->port);
    snprintf(f->tls_url, sizeof f->tls_url, "https://localhost:%d/v1/", f->tls_port);
    assert_ok(loop_open(&f->loop, err));
}

static inline void fake_stop(struct fake *f)
{
    loop_close(f->loop);
    close(f->in);
    waitpid(f->pid, NULL, 0);
}

/* cmocka's setup and teardown: a server of its own for each test. */
static inline int with_server(void **state)
{
    struct fake *f = malloc(sizeof *f);
    fake_start(f, NULL, NULL);
    *state = f;
    return 0;
}

static inline int without_server(void **state)
{
    fake_stop(*state);
    free(*state);
    return 0;
}

/* GET /stats, over a plain socket of our own. */
static inline struct json_object *fake_stats(const struct fake *f)
{
    static const char get[] = "GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)f->port) };
    cleanup_buf struct buf b = { 0 };
    struct json_object *stats = NULL;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cleanup_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(file_write_all(fd, get, sizeof get - 1), 0);
    shutdown(fd, SHUT_WR);
    assert_ok(file_read_fd(fd, "stats", 64 << 20, &b, err));
    const char *body = strstr(buf_text(&b), "\r\n\r\n");
    assert_non_null(body);
    assert_ok(json_parse(body + 4, strlen(body + 4), &json_limits_small, &stats, err));
    return stats;
}

static inline int64_t fake_stat(const struct fake *f, const char *name)
{
    cleanup_json struct json_object *stats = fake_stats(f);
    return json_get_int(stats, name, -1);
}

static inline struct lm_options options_for(const struct fake *f, const char *model)
{
    return (struct lm_options){
        .model = model,
        .openai = { f->url, TEST_KEY },
        .anthropic = { f->root, TEST_KEY },
        .gemini = { f->root, TEST_KEY },
        .azure = { f->root, TEST_KEY },
        .openrouter = { f->url, TEST_KEY },
    };
}

static inline struct lm *open_lm(struct loop *loop, const struct lm_options *options)
{
    struct lm *lm = NULL;
    assert_ok(lm_open(loop, options, &lm, err));
    return lm;
}

/* A user's message, with a limit that only a hanging test reaches. */
static inline struct lm_call *start(struct lm *lm, const char *model, const char *text, size_t len,
    unsigned depth, struct answer *a)
{
    struct lm_message message = { "user", text, len };
    struct lm_request request = { .model = model,
        .messages = &message,
        .message_count = 1,
        .depth = depth,
        .timeout = 50,
        .temperature = -1 };
    struct lm_call *call = NULL;
    assert_ok(lm_start(lm, &request, on_answer, on_delta, a, &call, err));
    return call;
}

static inline void ask(struct loop *loop, struct lm *lm, const char *text, struct answer *a)
{
    start(lm, NULL, text, strlen(text), 0, a);
    assert_false(a->done); /* never from within lm_start */
    assert_ok(loop_run_until(loop, &a->done, err));
}

/* One call with options of its own. */
static inline void ask_once(struct loop *loop, const struct lm_options *options, struct answer *a)
{
    struct lm *lm = open_lm(loop, options);
    ask(loop, lm, "hello", a);
    lm_close(lm);
}

/* The call failed, with this code and these words in its error (NULL: any). */
static inline void assert_failed(const struct answer *a, int code, const char *words)
{
    if (a->error.code != code)
        fail_msg("ended as %s (%s), not as %s", error_code_name(a->error.code), a->error.text,
            error_code_name((enum error_code)code));
    if (words && !strstr(a->error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", a->error.text, words);
    assert_null(strstr(a->error.text, TEST_KEY));
    assert_int_equal(a->text.len, 0);
}

static inline void assert_answered(const struct answer *a, const char *text)
{
    if (a->error.code != ERROR_NONE)
        fail_msg("failed: %s", a->error.text);
    assert_string_equal(buf_text(&a->text), text);
}
