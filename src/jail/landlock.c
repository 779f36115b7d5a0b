/* jail/landlock.c: queries the kernel's Landlock ABI. */
#include "jail/landlock.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CREATE_RULESET_VERSION = 1 };

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
    return abi > 0 ? (int)abi : 0;
}

struct landlock_ruleset landlock_everything(int abi)
{
    struct landlock_ruleset all = {
        .handled_fs = LANDLOCK_ALL & ~(LANDLOCK_REFER | LANDLOCK_TRUNCATE | LANDLOCK_IOCTL_DEV),
        .handled_net = abi >= 4 ? LANDLOCK_NET_TCP : 0,
        .scoped = abi >= LANDLOCK_SCOPE_ABI ? LANDLOCK_SCOPE_ALL : 0,
    };
    if (abi >= 2)
        all.handled_fs |= LANDLOCK_REFER;
    if (abi >= 3)
        all.handled_fs |= LANDLOCK_TRUNCATE;
    if (abi >= 5)
        all.handled_fs |= LANDLOCK_IOCTL_DEV;
    return all;
}
