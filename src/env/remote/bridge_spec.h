/* env/remote/bridge_spec.h: translates a specification to a bridge's "open" message, and its
 * greeting to features.
 *
 * Both use the names of settings (docs/configuration.md). A setting is sent only if it was set
 * explicitly. "timeout" and "labels" are always sent, because a remote sandbox must end some day
 * and be identifiable as Droste's.
 */
#pragma once

#include "base/buf.h"
#include "base/json/json.h"
#include "env/common/environment.h"

/* What a bridge may support; assumed until it has sent its greeting. */
extern const struct feature_state bridge_features[FEATURE_COUNT];

/* The features that such a specification needs from the program: bits, 1 << enum feature. */
uint64_t bridge_spec_needs(const struct sandbox_spec *spec);
/* Writes {"open":ID,…} and a newline. `keeps_volumes`: the volume is the provider's. */
void bridge_spec_write(struct buf *out, int64_t id, const struct sandbox_spec *spec,
    const char *const *words, bool keeps_volumes);
/* Updates the table with the features that the program declares; all other optional features become
 * unsupported. NULL: it declares none. */
void bridge_spec_take_features(
    struct feature_state table[FEATURE_COUNT], struct json_object *features);
