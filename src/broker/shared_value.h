/* broker/shared_value.h: a value that a guest passes to child runs as their context.
 *
 * Many children may share one. Its bytes are stored once. The sealed file that sandboxes map exists
 * only while a child is active: a thousand values cost the host as many descriptors as there are
 * active children, not a thousand.
 */
#pragma once

#include "session/context.h"

struct shared_value;

/* Copies the bytes and returns a reference. NULL without memory. */
struct shared_value *shared_value_new(enum value_kind kind, const char *data, size_t len);
struct shared_value *shared_value_hold(struct shared_value *value);
/* NULL is allowed. */
void shared_value_drop(struct shared_value *value);

const char *shared_value_bytes(const struct shared_value *value, size_t *len);
/* Returns the hash of its bytes; valid as long as the value, NULL on failure. */
const char *shared_value_hash(struct shared_value *value, struct error *err);

/* Returns it as a context until shared_value_rest has been called as many times. */
int shared_value_use(struct shared_value *value, const struct context **out, struct error *err);
void shared_value_rest(struct shared_value *value);
