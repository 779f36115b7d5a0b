/* mcp/embedded.h: fetch_context.py, embedded in the program (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_fetch_context[];
extern const size_t embedded_fetch_context_size;
