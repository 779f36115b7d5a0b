/* env/remote_files.c: see remote_files.h. A worker of the supervisor takes them (guest/py/unpack.py), with no other part in the
 * session; it ends when all is there. They are copied to a file first: what they are when the session is asked for is what it gets. */
#include "env/remote_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "volume/pack.h"

enum { SAID_MAX = 4000 };

struct delivery {
    struct remote *remote;
    struct sandbox *worker; /* NULL once it has ended */
    struct timer *over;     /* nobody is told from within its end */
    struct error why;
    char *to;
    bool passing;
    struct buf said; /* on its standard error */
};

void delivery_close(struct delivery *d)
{
    if (!d)
        return;
    remote_close_sandbox(d->worker);
    timer_free(d->over);
    buf_free(&d->said);
    free(d->to);
    free(d);
}

const char *delivery_place(const struct delivery *d)
{
    return d->to;
}

static bool bytes_came(void *arg, const char *data, size_t len)
{
    return true;
}

static void output_came(void *arg, int stream, const char *data, size_t len)
{
    struct delivery *d = arg;
    if (d->said.len < SAID_MAX)
        buf_append(&d->said, data, len);
}

static void ended(void *arg, const struct sandbox_exit *how)
{
    struct delivery *d = arg;
    cleanup_buf struct buf shown = { 0 };
    text_append_visible(&shown, buf_text(&d->said), d->said.len);
    d->why = how->error;
    if (how->error.code != ERROR_NONE)
        error_wrap(&d->why, "sending files to %.80s", d->to);
    else if (!how->known || !WIFEXITED(how->wait_status) || WEXITSTATUS(how->wait_status) != 0)
        error_set(&d->why, ERROR_ENVIRONMENT, "sending files to %.80s failed there: %.120s", d->to,
            shown.len ? buf_text(&shown) : "it was ended");
    timer_start(d->over, 0, 0);
}

static void told(void *arg)
{
    struct delivery *d = arg;
    remote_close_sandbox(steal(&d->worker));
    remote_release(d->remote, d->why.code == ERROR_NONE ? NULL : &d->why);
}

static int begin(struct delivery *d, const struct environment_ops *ops, const struct volume *v,
    struct error *err)
{
    static const struct sandbox_events events = { bytes_came, output_came, ended };
    cleanup_fd int file = -1;
    cleanup_buf struct buf json = { 0 };
    int rc = volume_pack_file(v, &file, err);
    if (rc < 0)
        return rc;
    buf_puts(&json, "{\"files\":");
    json_append_string(&json, d->to, strlen(d->to));
    buf_puts(&json, d->passing ? ",\"passing\":true}" : "}");
    return remote_open_worker(d->remote, ops, &json, steal_fd(&file), &events, d, &d->worker, err);
}

int delivery_open(struct loop *loop, struct remote *r, const struct environment_ops *ops,
    const struct volume *v, const char *to, struct delivery **out, struct error *err)
{
    uint64_t number = 0;
    struct delivery *d = calloc(1, sizeof *d);
    if (!d)
        return error_memory(err);
    d->remote = r;
    (void)!getrandom(&number, sizeof number, 0);
    d->passing = !to;
    d->to = to ? strdup(to) : text_printf("/tmp/droste-files-%016llx", (unsigned long long)number);
    d->over = timer_new(loop, told, d);
    int rc = d->to && d->over ? begin(d, ops, v, err) : error_memory(err);
    if (rc < 0) {
        delivery_close(d);
        return rc;
    }
    remote_hold(r);
    *out = d;
    return 0;
}
