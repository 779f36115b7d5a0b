/* api/packages_install.h: install_packages(), with which code gets packages while its session runs
 * (the setting allow-install).
 */
#pragma once

#include "api/settings.h"
#include "base/buf.h"
#include "droste.h"

struct tools;

/* Adds the function, if the settings permit it. */
int api_install_offer(
    droste *d, const struct settings *s, struct tools *tools, struct buf *facts, struct error *err);
