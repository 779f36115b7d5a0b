/* egress/secret.h: secrets that code may use and never see.
 *
 *     NAME[=SOURCE] for [http://]HOST[:PORT] [PLACE]
 *
 * The guest has a random text in the variable NAME. In PLACE of a request to HOST, and nowhere
 * else, the proxy replaces that text by the secret's value:
 *
 *     header FIELD: TEXT   the field with this value, in which {} stands for the secret;
 *                          the default is "header Authorization: Bearer {}"
 *     basic [USER]         the password of basic authentication, of this user or of any
 *     query NAME           the parameter of this name
 *
 * SOURCE says where the value is: @FILE, fd:N, env:VARIABLE or !COMMAND; without it, in the
 * environment variable NAME. The caller reads it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "egress/address.h"
#include "egress/head.h"

enum {
    SECRET_LEAST = 8, /* bytes; shorter ones would be found by chance */
    SECRET_MOST = 4096,
    SECRETS_MAX = 32, /* of a policy */
    PLACEHOLDER_SIZE = 48,
};

enum secret_place { PLACE_HEADER, PLACE_BASIC, PLACE_QUERY };

struct egress_secret {
    char *name, *source; /* source: "" or as written */
    bool is_tls;
    struct egress_host host;
    unsigned port;
    enum secret_place place;
    char *key;             /* the field, the user (NULL: any), or the parameter */
    char *before, *behind; /* of a field: the text around the secret */
    char *value;
    size_t len;
};

/* Parses one, without its value. */
int egress_secret_parse(const char *text, struct egress_secret *out, struct error *err);
/* Takes a copy of the value, without the line's end that a file may have. */
int egress_secret_set(
    struct egress_secret *secret, const char *value, size_t len, struct error *err);
/* Overwrites its value and frees it. */
void egress_secret_clear(struct egress_secret *secret);
bool egress_secret_is_bound(
    const struct egress_secret *secret, bool is_tls, const struct egress_host *host, unsigned port);

/* Appends the value of a field with the secret in place of the placeholder. False: the field is not
 * its place, or has no placeholder there; nothing is appended. */
bool egress_secret_put_field(const struct egress_secret *secret, const char *placeholder,
    const struct egress_field *field, struct buf *out);
/* The same of a path with its query. */
bool egress_secret_put_query(const struct egress_secret *secret, const char *placeholder,
    const char *path, size_t len, struct buf *out);
