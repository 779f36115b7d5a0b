/* serve/console.h: the console at `/`. */
#pragma once

#include "serve/http/request.h"

extern const struct routes console_routes;
