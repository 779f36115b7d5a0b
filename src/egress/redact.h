/* egress/redact.h: removes the values of secrets from what servers send.
 *
 * A value is found as it is, and as base64 (with + and / or with - and _, at any offset), as
 * hexadecimal, percent-encoded, and escaped for JSON, HTML or a form; each is overwritten with
 * asterisks, so lengths stay.
 *
 * The guest may be able to make the server send what it likes, and must not learn from the proxy
 * whether the beginning of a guess was right. So how many bytes wait for what follows them depends
 * on their number alone: as many as a form has, but none before a line's end, because no form has
 * one. Text that comes in lines (Server-Sent Events, JSON lines) is not delayed by this. The search
 * is by a rolling hash with a random base over as many bytes as the shortest form has.
 */
#pragma once

#include <stdint.h>

#include "egress/secret.h"

/* The forms of some secrets. */
struct egress_forms;
/* Adds the forms of a secret to *forms, which is NULL at first. */
int egress_forms_add(
    struct egress_forms **forms, const struct egress_secret *secret, struct error *err);
void egress_forms_free(struct egress_forms *forms); /* overwrites them; NULL is fine */

/* Overwrites all forms in the bytes. */
void egress_redact_all(const struct egress_forms *forms, char *data, size_t len);

/* A stream, of which the end waits. A zeroed one is empty. */
struct egress_redactor {
    struct buf waiting;
};
/* Appends to `out` what need not wait. */
void egress_redact(const struct egress_forms *forms, struct egress_redactor *r, const char *data,
    size_t len, struct buf *out);
/* Appends the rest. */
void egress_redact_end(struct egress_redactor *r, struct buf *out);
void egress_redactor_free(struct egress_redactor *r);
