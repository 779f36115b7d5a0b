/* serve/console.h: the console at `/`. */
#ifndef DROSTE_SERVE_CONSOLE_H
#define DROSTE_SERVE_CONSOLE_H

#include "serve/http/request.h"

extern const struct routes console_routes;

#endif
