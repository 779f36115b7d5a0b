/* egress/address.h: addresses that a sandbox may not reach unasked, and the hosts of requests.
 *
 * An address is kept in its IPv6 form (an IPv4 address as ::ffff:a.b.c.d), so that each address has
 * exactly one form to compare and to check.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    EGRESS_HOST_SIZE = 254,   /* a name of DNS, with its NUL */
    EGRESS_ADDRESS_SIZE = 46, /* INET6_ADDRSTRLEN */
};

struct egress_address {
    uint8_t bytes[16];
};

/* The host of a request: a name in lower case without a final dot, or an address. */
struct egress_host {
    char name[EGRESS_HOST_SIZE]; /* of an address, its text */
    bool is_address;
    struct egress_address address;
};

/* Only the forms of inet_pton(3): four decimal numbers, or IPv6 without a zone. */
bool egress_address_parse(const char *text, struct egress_address *out);
void egress_address_print(const struct egress_address *address, char out[EGRESS_ADDRESS_SIZE]);
/* False for another family. */
bool egress_address_from(const struct sockaddr *from, struct egress_address *out);
socklen_t egress_address_to(
    const struct egress_address *address, unsigned port, struct sockaddr_storage *out);
bool egress_address_same(const struct egress_address *a, const struct egress_address *b);

/* What kind of address it is, if a sandbox must not reach it unless a rule lists it: "a private
 * address". NULL: it belongs to the public network. */
const char *egress_address_refusal(const struct egress_address *address);
/* True if it is an address of this machine itself. */
bool egress_address_is_own(const struct egress_address *address);

/* Parses a host as it stands in a request. NULL, or what is wrong with it. Numbers that a resolver
 * would take for an address (0x7f.1, 2130706433, 0177.0.0.1) are wrong. */
const char *egress_host_parse(const char *text, size_t len, struct egress_host *out);
/* The same of HOST:PORT or [IPv6]:PORT. `port` is the default; 0: there must be one. */
const char *egress_authority_parse(
    const char *text, size_t len, struct egress_host *out, unsigned *port);
