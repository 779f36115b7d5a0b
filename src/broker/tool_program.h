/* broker/tool_program.h: tools that are programs of this machine. */
#pragma once

#include "base/error.h"

struct loop;
struct tools;

/* Adds a program, found through PATH. It runs with the user's rights. */
int tools_add_program(
    struct tools *t, struct loop *loop, const char *name, const char *path, struct error *err);
