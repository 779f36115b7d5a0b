/* broker/shared_value.h: a value that a guest hands to child runs as their context.
 *
 * Many children may have the same one. Its bytes are kept once, and the sealed file that sandboxes
 * map is there only while some child is at work with it: a guest that gives a thousand values costs
 * the host as many descriptors as children are at work, not a thousand.
 */
#ifndef DROSTE_BROKER_SHARED_VALUE_H
#define DROSTE_BROKER_SHARED_VALUE_H

#include "session/context.h"

struct shared_value;

/* Copies the bytes; the caller holds it. NULL without memory. */
struct shared_value *shared_value_new(enum value_kind kind, const char *data, size_t len);
struct shared_value *shared_value_hold(struct shared_value *value);
/* NULL is fine. */
void shared_value_drop(struct shared_value *value);

const char *shared_value_bytes(const struct shared_value *value, size_t *len);
/* Of its bytes; valid as long as the value, NULL if it cannot be made. */
const char *shared_value_hash(struct shared_value *value, struct error *err);

/* As a context, until shared_value_rest has been called as often. */
int shared_value_use(struct shared_value *value, const struct context **out, struct error *err);
void shared_value_rest(struct shared_value *value);

#endif
