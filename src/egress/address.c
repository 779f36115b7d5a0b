/* egress/address.c: classifies addresses, and parses hosts.
 *
 * The table lists what IANA's registries of special-purpose addresses do not call globally
 * reachable, and the addresses at which clouds serve credentials. Whatever embeds an IPv4 address
 * is judged by that address (NAT64, RFC 6052), or refused (6to4, Teredo), because a translator
 * would unpack it behind our back.
 */
#include "egress/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <string.h>

#include "base/cleanup.h"

#define MAPPED(a, b, c, d)                                                                         \
    {                                                                                              \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d                                       \
    }
#define V4_BITS 96

static const uint8_t mapped_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
static const uint8_t nat64_prefix[12] = { 0x00, 0x64, 0xff, 0x9b };

static const struct {
    uint8_t prefix[16];
    unsigned bits;
    const char *what;
} special[] = {
    { MAPPED(0, 0, 0, 0), V4_BITS + 8, "an address of this machine" },
    { MAPPED(10, 0, 0, 0), V4_BITS + 8, "a private address" },
    { MAPPED(100, 64, 0, 0), V4_BITS + 10, "a carrier's shared address" },
    { MAPPED(127, 0, 0, 0), V4_BITS + 8, "a loopback address" },
    { MAPPED(168, 63, 129, 16), V4_BITS + 32, "a cloud's metadata service" },
    { MAPPED(169, 254, 0, 0), V4_BITS + 16, "a link-local address" },
    { MAPPED(172, 16, 0, 0), V4_BITS + 12, "a private address" },
    { MAPPED(192, 0, 0, 0), V4_BITS + 24, "a reserved address" },
    { MAPPED(192, 0, 2, 0), V4_BITS + 24, "an address for documentation" },
    { MAPPED(192, 31, 196, 0), V4_BITS + 24, "a reserved address" },
    { MAPPED(192, 52, 193, 0), V4_BITS + 24, "a reserved address" },
    { MAPPED(192, 88, 99, 0), V4_BITS + 24, "a 6to4 relay" },
    { MAPPED(192, 168, 0, 0), V4_BITS + 16, "a private address" },
    { MAPPED(192, 175, 48, 0), V4_BITS + 24, "a reserved address" },
    { MAPPED(198, 18, 0, 0), V4_BITS + 15, "an address for benchmarks" },
    { MAPPED(198, 51, 100, 0), V4_BITS + 24, "an address for documentation" },
    { MAPPED(203, 0, 113, 0), V4_BITS + 24, "an address for documentation" },
    { MAPPED(224, 0, 0, 0), V4_BITS + 4, "a multicast address" },
    { MAPPED(240, 0, 0, 0), V4_BITS + 4, "a reserved address" },
    { { 0x20, 0x01, 0x00 }, 23, "a reserved address" }, /* Teredo and others */
    { { 0x20, 0x01, 0x0d, 0xb8 }, 32, "an address for documentation" },
    { { 0x20, 0x02 }, 16, "a 6to4 address" },
    { { 0x3f, 0xff, 0x00 }, 20, "an address for documentation" },
    { { 0xfc }, 7, "a private address" },
    { { 0xfe, 0x80 }, 10, "a link-local address" },
    { { 0xff }, 8, "a multicast address" },
};

/* Only this part of IPv6 has been given out for global unicast. */
static const uint8_t global_unicast[16] = { 0x20 };
enum { GLOBAL_UNICAST_BITS = 3 };

static bool address_is_within(
    const struct egress_address *address, const uint8_t prefix[16], unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    uint8_t mask = (uint8_t)(0xff00u >> rest);
    return memcmp(address->bytes, prefix, whole) == 0 &&
           (rest == 0 || (address->bytes[whole] & mask) == (prefix[whole] & mask));
}

static bool address_is_v4(const struct egress_address *address)
{
    return memcmp(address->bytes, mapped_prefix, sizeof mapped_prefix) == 0;
}

bool egress_address_same(const struct egress_address *a, const struct egress_address *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool egress_address_parse(const char *text, struct egress_address *out)
{
    memcpy(out->bytes, mapped_prefix, sizeof mapped_prefix);
    return inet_pton(AF_INET, text, out->bytes + sizeof mapped_prefix) == 1 ||
           inet_pton(AF_INET6, text, out->bytes) == 1;
}

void egress_address_print(const struct egress_address *address, char out[EGRESS_ADDRESS_SIZE])
{
    bool v4 = address_is_v4(address);
    out[0] = '\0';
    inet_ntop(v4 ? AF_INET : AF_INET6, address->bytes + (v4 ? sizeof mapped_prefix : 0), out,
        EGRESS_ADDRESS_SIZE);
}

bool egress_address_from(const struct sockaddr *from, struct egress_address *out)
{
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;
        memcpy(out->bytes, mapped_prefix, sizeof mapped_prefix);
        memcpy(out->bytes + sizeof mapped_prefix, &in->sin_addr, 4);
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    memcpy(out->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
    return true;
}

socklen_t egress_address_to(
    const struct egress_address *address, unsigned port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address_is_v4(address)) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        memcpy(&in->sin_addr, address->bytes + sizeof mapped_prefix, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons((uint16_t)port);
    memcpy(&in6->sin6_addr, address->bytes, 16);
    return sizeof *in6;
}

const char *egress_address_refusal(const struct egress_address *address)
{
    struct egress_address inner = { MAPPED(0, 0, 0, 0) };
    if (memcmp(address->bytes, nat64_prefix, sizeof nat64_prefix) == 0) {
        memcpy(inner.bytes + sizeof mapped_prefix, address->bytes + sizeof nat64_prefix, 4);
        return egress_address_refusal(&inner);
    }
    for (size_t i = 0; i < array_length(special); i++)
        if (address_is_within(address, special[i].prefix, special[i].bits))
            return special[i].what;
    if (address_is_v4(address) || address_is_within(address, global_unicast, GLOBAL_UNICAST_BITS))
        return NULL;
    return address->bytes[0] == 0 ? "an address of this machine" : "a reserved address";
}

bool egress_address_is_own(const struct egress_address *address)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        struct egress_address own;
        found = at->ifa_addr && egress_address_from(at->ifa_addr, &own) &&
                egress_address_same(&own, address);
    }
    freeifaddrs(all);
    return found;
}

/* ---- hosts ---- */

static bool host_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool host_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || host_is_digit(c) || c == '-' || c == '_';
}

/* The last label decides, as for URLs of browsers: a name cannot end with a number. */
static bool host_ends_with_number(const char *name)
{
    const char *dot = strrchr(name, '.'), *label = dot ? dot + 1 : name;
    size_t digits = strspn(label, "0123456789");
    return label[digits] == '\0' || strncmp(label, "0x", 2) == 0;
}

/* Labels of 1 to 63 letters. */
static bool host_has_labels(const char *name)
{
    size_t label = 0;
    for (; *name; name++) {
        if (*name != '.' && !host_is_letter(*name))
            return false;
        label = *name == '.' ? 0 : label + 1;
        if (label > 63 || (*name == '.' && (name[1] == '.' || name[1] == '\0')))
            return false;
    }
    return label > 0;
}

const char *egress_host_parse(const char *text, size_t len, struct egress_host *out)
{
    *out = (struct egress_host){ .is_address = false };
    if (len > 0 && text[len - 1] == '.')
        len--;
    if (len == 0 || len >= EGRESS_HOST_SIZE || text[0] == '.')
        return "the host is empty or too long";
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] >= 0x80)
            return "the host is not ASCII: use its form with xn--";
        out->name[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i];
    }
    if (strchr(out->name, '\0') != out->name + len)
        return "the host contains a NUL";
    if (egress_address_parse(out->name, &out->address)) {
        out->is_address = true;
        egress_address_print(&out->address, out->name);
        return NULL;
    }
    if (!host_has_labels(out->name))
        return "the host is not a name";
    if (host_ends_with_number(out->name))
        return "the host is an odd form of an address: write four decimal numbers";
    return NULL;
}

static const char *authority_port(const char *text, size_t len, unsigned *port)
{
    *port = 0;
    for (size_t i = 0; i < len && i < 6; i++) {
        if (!host_is_digit(text[i]))
            return "the port is not a number";
        *port = *port * 10 + (unsigned)(text[i] - '0');
    }
    return len == 0 || len > 5 || *port == 0 || *port > 65535 ? "the port is not a number" : NULL;
}

const char *egress_authority_parse(
    const char *text, size_t len, struct egress_host *out, unsigned *port)
{
    bool bracketed = len > 0 && text[0] == '[';
    const char *end = bracketed ? memchr(text, ']', len) : memchr(text, ':', len);
    if (bracketed && !end)
        return "the address has no end";
    const char *colon = bracketed ? end + 1 : end;
    size_t host_len = end ? (size_t)(end - text) : len;
    const char *wrong = bracketed ? egress_host_parse(text + 1, host_len - 1, out)
                                  : egress_host_parse(text, host_len, out);
    if (!wrong && bracketed && (!out->is_address || !memchr(text, ':', host_len)))
        wrong = "only IPv6 addresses have brackets";
    if (wrong)
        return wrong;
    if (!colon || colon == text + len)
        return *port ? NULL : "there is no port";
    if (*colon != ':')
        return "the port is not a number";
    return authority_port(colon + 1, (size_t)(text + len - colon) - 1, port);
}
