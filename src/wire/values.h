/* wire/values.h: the container of typed values: a JSON tree with raw buffers beside it.
 *
 * python/droste/_encoding/container.py has the layout, docs/values.md the meaning of the tree. The
 * host passes containers on; only the Python package reads what is in them.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"

enum { VALUES_VERSION = 1 };

/* Checks a guest's container: the version, buffers in order that do not overlap, and a tree of
 * strict, bounded JSON. ERROR_PROTOCOL. */
int values_check(const char *data, size_t len, struct error *err);
