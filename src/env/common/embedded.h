/* env/common/embedded.h: data embedded in the library at build time (scripts/embed): the guest, its
 * filter rules and helpers, and the Modal bridge.
 */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_guest[];
extern const size_t embedded_guest_size;
extern const unsigned char embedded_rules[];
extern const size_t embedded_rules_size;
extern const unsigned char embedded_helper[];
extern const size_t embedded_helper_size;
extern const unsigned char embedded_keeper[];
extern const size_t embedded_keeper_size;
extern const unsigned char embedded_bridge[];
extern const size_t embedded_bridge_size;
