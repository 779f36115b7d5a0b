/* api/secrets.c: reads the values of secrets.
 *
 * A value is read when the first session needs it, and kept as long as the `droste` object: a
 * descriptor can be read only once, and a command may ask its user something. A variable is read
 * for each session, so that one that has changed counts.
 */
#include "api/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/spawn.h"
#include "base/text.h"
#include "egress/policy.h"

struct secret_value {
    struct secret_value *next;
    char *source; /* as in the setting; of a program's value: "=NAME" */
    char *value;
    size_t len;
};

enum { VALUE_MAX = 64 << 10 };

static void secret_wipe(struct buf *b)
{
    if (b->data)
        OPENSSL_cleanse(b->data, b->cap);
    buf_free(b);
}

#define cleanup_wipe __attribute__((cleanup(secret_wipe)))

static void secret_value_free(struct secret_value *value)
{
    if (value->value)
        OPENSSL_cleanse(value->value, value->len);
    free(value->value);
    free(value->source);
    free(value);
}

void api_secrets_free(struct secret_value *first)
{
    while (first) {
        struct secret_value *next = first->next;
        secret_value_free(first);
        first = next;
    }
}

static struct secret_value *secret_find(droste *d, const char *source)
{
    struct secret_value *at = d->secrets;
    while (at && strcmp(at->source, source) != 0)
        at = at->next;
    return at;
}

static int secret_keep(
    droste *d, const char *source, const char *value, size_t len, struct error *err)
{
    struct secret_value *made = calloc(1, sizeof *made);
    if (!made)
        return error_memory(err);
    made->source = strdup(source);
    made->value = text_copy(value, len);
    made->len = len;
    if (!made->source || !made->value) {
        secret_value_free(made);
        return error_memory(err);
    }
    made->next = d->secrets;
    d->secrets = made;
    return 0;
}

/* ---- sources ---- */

static int secret_read_variable(const char *variable, struct buf *out, struct error *err)
{
    const char *value = getenv(variable);
    if (!value || !*value)
        return error_set(err, ERROR_CONFIG, "the variable %.64s is not set", variable);
    buf_puts(out, value);
    return buf_failed(out) ? error_memory(err) : 0;
}

static int secret_read_descriptor(const char *number, struct buf *out, struct error *err)
{
    char *end;
    errno = 0;
    long fd = strtol(number, &end, 10);
    if (*end || errno || fd < 0 || fd > 1 << 20)
        return error_set(err, ERROR_ARGUMENT, "'fd:%.32s' names no descriptor", number);
    if (file_read_fd((int)fd, number, VALUE_MAX, out, err) < 0)
        return error_wrap(err, "reading descriptor %ld", fd);
    return out->len > 0 ? 0 : error_set(err, ERROR_CONFIG, "descriptor %ld has no bytes", fd);
}

/* Its standard error is ours, for a program that asks its user. */
static int secret_read_command(const char *command, struct buf *out, struct error *err)
{
    const char *const words[] = { "/bin/sh", "-c", command, NULL };
    int pipe_ends[2], status = 0;
    pid_t pid;
    cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || pipe2(pipe_ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_IO, "making a pipe for a command");
    const int ends[3] = { null, pipe_ends[1], STDERR_FILENO };
    int rc = spawn_program(words, "the command of a secret: ", ends, &pid, err);
    close(pipe_ends[1]);
    if (rc == 0)
        rc = file_read_fd(pipe_ends[0], "the command's output", VALUE_MAX, out, err);
    close(pipe_ends[0]);
    if (rc < 0) {
        if (pid > 0)
            spawn_end(pid);
        return rc;
    }
    pid_t ended;
    do
        ended = waitpid(pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    if (ended == pid && status != 0) /* a host that ignores SIGCHLD cannot know */
        return error_set(err, ERROR_CONFIG, "its command failed");
    return 0;
}

static int secret_read(const struct egress_secret *s, struct buf *out, struct error *err)
{
    const char *source = s->source;
    if (source[0] == '@')
        return file_read(source + 1, VALUE_MAX, out, err);
    if (source[0] == '!')
        return secret_read_command(source + 1, out, err);
    if (strncmp(source, "fd:", 3) == 0)
        return secret_read_descriptor(source + 3, out, err);
    return secret_read_variable(strncmp(source, "env:", 4) == 0 ? source + 4 : s->name, out, err);
}

/* ---- all of them ---- */

static int secret_fill(droste *d, struct egress_secret *s, struct error *err)
{
    cleanup_wipe struct buf read = { 0 };
    cleanup_free char *given = text_printf("=%s", s->name);
    cleanup_free char *variable = text_printf("env:%s", s->name);
    if (!given || !variable)
        return error_memory(err);
    const char *source = s->source[0] ? s->source : secret_find(d, given) ? given : variable;
    const struct secret_value *value = secret_find(d, source);
    if (value)
        return egress_secret_set(s, value->value, value->len, err);
    int rc = secret_read(s, &read, err);
    if (rc == 0 && strncmp(source, "env:", 4) != 0)
        rc = secret_keep(d, source, buf_text(&read), read.len, err);
    if (rc < 0)
        return error_wrap(err, "secret %s", s->name);
    return egress_secret_set(s, buf_text(&read), read.len, err);
}

int api_add_secrets(
    droste *d, const struct settings *s, struct egress_policy *policy, struct error *err)
{
    if (s->secret.count > 0 && !policy)
        return error_set(err, ERROR_ARGUMENT,
            "a secret goes to a destination that --allow-net allows, and it allows none");
    for (size_t i = 0; i < s->secret.count; i++) {
        struct egress_secret secret;
        int rc = egress_secret_parse(s->secret.items[i], &secret, err);
        if (rc == 0)
            rc = secret_fill(d, &secret, err);
        if (rc == 0)
            rc = egress_policy_add_secret(policy, &secret, err);
        egress_secret_clear(&secret);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int droste_secret(droste *d, const char *name, const char *value, size_t len, droste_error *err)
{
    err = api_error(err);
    cleanup_free char *source = name ? text_printf("=%s", name) : NULL;
    if (!name || !value || !text_is_identifier(name))
        return error_set(err, ERROR_ARGUMENT, "a secret has the name of a variable, and a value");
    return source ? secret_keep(d, source, value, len, err) : error_memory(err);
}
