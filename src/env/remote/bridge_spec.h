/* env/remote/bridge_spec.h: what a bridge is told of a spec, and what it says that it can.
 *
 * Both go by the names of settings (docs/configuration.md). A wish is told only where somebody has asked for it;
 * "timeout" and "labels" always, because what is elsewhere must end some day, and be known as ours. */
#ifndef DROSTE_ENV_REMOTE_BRIDGE_SPEC_H
#define DROSTE_ENV_REMOTE_BRIDGE_SPEC_H

#include "base/buf.h"
#include "base/json/json.h"
#include "env/common/environment.h"

/* What a bridge may be able to do; where it has said nothing yet, it is taken to be. */
extern const struct features bridge_features;

/* What such a spec asks for that the program must have said that it can: bits, 1 << enum power. */
uint64_t bridge_spec_wishes(const struct sandbox_spec *spec);
/* {"open":ID,…} and a newline. `keeps_volumes`: the program has the volume of that name. */
void bridge_spec_write(struct buf *out, int64_t id, const struct sandbox_spec *spec,
    const char *const *words, bool keeps_volumes);
/* Lays what the program says over the table: it can what is there, and none of the other wishes. NULL: it says nothing. */
void bridge_spec_take_features(struct features *table, struct json_object *said);

#endif
