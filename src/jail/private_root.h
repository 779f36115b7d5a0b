/* jail/private_root.h: a writable root directory for one sandbox. */
#pragma once

#include "jail/builder.h"
#include "jail/jail.h"

#define PRIVATE_ROOT_HOME  "/home/user"
#define PRIVATE_ROOT_TOOLS "/opt/droste/bin"

/* Of its processes, instead of the same ones of other guests; ends with NULL. */
extern const char *const private_root_variables[];

/* Adds the operations that make it, when volumes are mounted in the zygote's root. */
void private_root_make(struct builder *b, const struct jail_plan *zygote,
    const struct jail_mount *place, uint64_t size);
/* The options of a tmpfs. */
void private_root_size(char *out, size_t size, unsigned mode, uint64_t bytes);
