/* broker/given.h: a value that a guest hands to child runs as their context.
 *
 * Many children may have the same one. Its bytes are kept once, and the sealed file that sandboxes
 * map is there only while some child is at work with it: a guest that gives a thousand values costs
 * the host as many descriptors as children are at work, not a thousand.
 */
#ifndef DROSTE_BROKER_GIVEN_H
#define DROSTE_BROKER_GIVEN_H

#include "session/context.h"

struct given;

/* Copies the bytes; the caller holds it. NULL without memory. */
struct given *given_new(enum value_kind kind, const char *data, size_t len);
struct given *given_hold(struct given *given);
/* NULL is fine. */
void given_drop(struct given *given);

const char *given_bytes(const struct given *given, size_t *len);
/* Of its bytes; valid as long as the value, NULL if it cannot be made. */
const char *given_hash(struct given *given, struct error *err);

/* As a context, until given_rest has been called as often. */
int given_use(struct given *given, const struct context **out, struct error *err);
void given_rest(struct given *given);

#endif
