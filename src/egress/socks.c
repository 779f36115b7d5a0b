/* egress/socks.c: SOCKS 5 (RFC 1928): CONNECT without authentication. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "egress/connection.h"

enum {
    SOCKS_VERSION = 5,
    SOCKS_NO_AUTHENTICATION = 0,
    SOCKS_NO_METHOD = 0xff,
    SOCKS_CONNECT = 1,
    SOCKS_IPV4 = 1,
    SOCKS_NAME = 3,
    SOCKS_IPV6 = 4
};

/* Replies for the statuses of HTTP. */
static const struct {
    int status;
    char reply;
} socks_replies[] = { { 200, 0 }, { 403, 2 }, { 429, 2 }, { 400, 1 }, { 405, 7 }, { 415, 8 },
    { 502, 4 }, { 504, 6 } };

void socks_answer(struct connection *c, int status)
{
    char reply[] = { SOCKS_VERSION, 1, 0, SOCKS_IPV4, 0, 0, 0, 0, 0, 0 };
    for (size_t i = 0; i < array_length(socks_replies); i++)
        if (socks_replies[i].status == status)
            reply[1] = socks_replies[i].reply;
    side_send(&c->client, reply, sizeof reply);
}

/* Takes the list of methods; false: it is incomplete, or refused. */
static bool socks_take_greeting(struct connection *c)
{
    const unsigned char *in = (const unsigned char *)c->in.data;
    size_t len = c->in.len >= 2 ? 2 + (size_t)in[1] : 2;
    if (c->in.len < len)
        return false;
    bool open = memchr(in + 2, SOCKS_NO_AUTHENTICATION, len - 2) != NULL;
    const unsigned char chosen[] = { SOCKS_VERSION,
        open ? SOCKS_NO_AUTHENTICATION : SOCKS_NO_METHOD };
    side_send(&c->client, chosen, sizeof chosen);
    buf_consume(&c->in, len);
    c->phase = PHASE_SOCKS;
    if (!open)
        connection_last(c);
    return open;
}

/* The length of the request; 0: not known yet. */
static size_t socks_request_length(const unsigned char *in, size_t len)
{
    if (len < 5)
        return 0;
    return in[3] == SOCKS_IPV4   ? 10
           : in[3] == SOCKS_IPV6 ? 22
           : in[3] == SOCKS_NAME ? 7u + in[4]
                                 : 5;
}

/* NULL, or what is wrong. */
static const char *socks_take_host(const unsigned char *in, struct egress_host *out)
{
    struct sockaddr_in in4 = { .sin_family = AF_INET };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
    if (in[3] == SOCKS_NAME)
        return egress_host_parse((const char *)in + 5, in[4], out);
    memcpy(in[3] == SOCKS_IPV4 ? (void *)&in4.sin_addr : (void *)&in6.sin6_addr, in + 4,
        in[3] == SOCKS_IPV4 ? 4 : 16);
    *out = (struct egress_host){ .is_address = true };
    egress_address_from(in[3] == SOCKS_IPV4 ? (const struct sockaddr *)(const void *)&in4
                                            : (const struct sockaddr *)(const void *)&in6,
        &out->address);
    egress_address_print(&out->address, out->name);
    return NULL;
}

static void socks_take_request(struct connection *c)
{
    const unsigned char *in = (const unsigned char *)c->in.data;
    size_t len = socks_request_length(in, c->in.len);
    if (len == 0 || c->in.len < len)
        return;
    bool known = in[3] == SOCKS_IPV4 || in[3] == SOCKS_IPV6 || in[3] == SOCKS_NAME;
    if (in[0] != SOCKS_VERSION || in[2] != 0 || !known) {
        connection_refuse(c, known ? 400 : 415, "the request of SOCKS is malformed");
        return;
    }
    if (in[1] != SOCKS_CONNECT) {
        connection_refuse(c, 405, "of SOCKS, only CONNECT is there");
        return;
    }
    const char *wrong = socks_take_host(in, &c->target.host);
    c->target.port = (unsigned)in[len - 2] << 8 | in[len - 1];
    if (!wrong && c->target.port == 0)
        wrong = "the port is not a number";
    buf_consume(&c->in, len);
    if (wrong)
        connection_refuse(c, 400, wrong);
    else
        connection_ask(c);
}

void socks_step(struct connection *c)
{
    c->target.is_tunnel = true;
    snprintf(c->target.method, sizeof c->target.method, "SOCKS");
    if (c->phase == PHASE_GREETING && !socks_take_greeting(c))
        return;
    if (c->phase == PHASE_SOCKS && c->in.len > 0)
        socks_take_request(c);
}
