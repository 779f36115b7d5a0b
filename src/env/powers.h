/* env/powers.h: what environments can do, and what they cannot, and why. Each has one table: specs are checked against it,
 * `droste env show NAME` prints it, and so does the documentation. */
#ifndef DROSTE_ENV_POWERS_H
#define DROSTE_ENV_POWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum power {
    POWER_STREAM,   /* one live guest, to which bytes flow both ways */
    POWER_REATTACH, /* a stream that is cut is joined again, and nothing is lost */
    POWER_SNAPSHOT, /* a sandbox starts from one that was prepared */
    POWER_RESUME,   /* a sandbox outlives its session, and another goes on in it */
    POWER_IDLE,     /* it is stopped when nothing happens for so long */
    POWER_IMAGE,
    POWER_PULL,
    POWER_VOLUME,    /* a directory that outlives sessions */
    POWER_WORKSPACE, /* repositories and files that are staged */
    POWER_READ,      /* paths of this machine are seen in it */
    POWER_NETWORK,   /* none, unless it is asked for */
    POWER_ALLOW,     /* some of the network, and no more */
    POWER_MEMORY,
    POWER_PROCESSES,
    POWER_CPUS,
    POWER_DISK,
    POWER_GPUS,
    POWER_USER,      /* whose processes they are */
    POWER_READ_ONLY, /* what is there before the session cannot be changed */
    POWER_LABELS,
    POWER_REUSE, /* sessions share a sandbox, each with processes of its own */
    POWER_REGION,
    POWER_APP,
    POWER_ISOLATION, /* how strong the wall is can be chosen */
    POWER_PRELOAD,
    POWER_COUNT
};

struct power_state {
    bool given;
    const char *text; /* how; or why not. NULL: not, and there is no more to say */
};

#define POWER_YES(text)                                                                            \
    {                                                                                              \
        true, text                                                                                 \
    }
#define POWER_NO(text)                                                                             \
    {                                                                                              \
        false, text                                                                                \
    }

/* By enum power. */
struct powers {
    struct power_state of[POWER_COUNT];
};

/* "network policy" */
const char *power_name(enum power p);
/* The settings that ask for it, in one text with a space between them; "": none does. */
const char *power_settings(enum power p);
/* What one of them asks for; POWER_COUNT: it asks for no power. */
enum power power_of_setting(const char *setting);
/* ERROR_UNSUPPORTED, by the name of the first of these settings that asks for what it has not. `asked` has bit 1 << p for each
 * power that somebody has asked for. */
int powers_check(
    const struct powers *powers, const char *environment, uint64_t asked, struct error *err);

#endif
