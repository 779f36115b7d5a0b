/* env/local/network.c: the proxy of a sandbox that may reach more than itself.
 *
 * The keeper makes the socket that listens, in the sandbox's namespace and before any code of the
 * guest runs, and sends it here (JAIL_LISTEN). The proxy then belongs to the family of forks, which
 * share the namespace.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/ancillary.h"
#include "env/local/sandbox.h"

void network_init(struct network *n)
{
    *n = (struct network){ .ends = { -1, -1 } };
}

/* The sandbox itself, or, once it is closed, one of its forks. */
static bool network_on_request(void *arg, const struct egress_request *request)
{
    struct sandbox *s = arg;
    while (s && (s->closed || s->ended || !s->events.request))
        s = s->next_fork;
    return !s || s->events.request(s->arg, request);
}

static bool network_on_approve(void *arg, droste_network_request *request)
{
    struct sandbox *s = arg;
    while (s && (s->closed || s->ended || !s->events.approve))
        s = s->next_fork;
    return s && s->events.approve(s->arg, request);
}

static const struct egress_events network_events = { .request = network_on_request,
    .approve = network_on_approve };

static void network_stop_waiting(struct network *n)
{
    watch_free(n->watch);
    n->watch = NULL;
    close_fd(&n->ends[0]);
}

/* Without a socket, what the sandbox does with its network fails, and its start has failed, too. */
static void network_on_socket(void *arg, int status, int events)
{
    struct sandbox *s = arg;
    struct network *n = &s->network;
    char byte;
    int fd = -1, count = 0;
    ssize_t got = ancillary_receive(n->ends[0], &byte, 1, MSG_DONTWAIT, &fd, 1, &count);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    network_stop_waiting(n);
    if (count == 1)
        (void)egress_open(s->env->egress, n->grant, fd, &network_events, s, &n->proxy, NULL);
}

int network_prepare(struct sandbox *s, struct error *err)
{
    struct network *n = &s->network;
    if (!n->grant)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, n->ends) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a socket for the proxy");
    n->watch = watch_new(s->env->base.loop, n->ends[0], network_on_socket, s);
    if (!n->watch || watch_events(n->watch, UV_READABLE) < 0)
        return error_memory(err);
    watch_background(n->watch, true);
    return 0;
}

void network_cloned(struct network *n)
{
    close_fd(&n->ends[1]);
}

void network_close(struct network *n)
{
    network_stop_waiting(n);
    close_fd(&n->ends[1]);
    egress_close(steal(&n->proxy));
    egress_grant_release(steal(&n->grant));
}
