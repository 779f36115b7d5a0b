/* env/common/features.h: what environments can do, and what they cannot, and why. Each has one table: specs are checked against it,
 * `droste env show NAME` prints it, and so does the documentation. */
#ifndef DROSTE_ENV_COMMON_FEATURES_H
#define DROSTE_ENV_COMMON_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum feature {
    FEATURE_STREAM,   /* one live guest, to which bytes flow both ways */
    FEATURE_REATTACH, /* a stream that is cut is joined again, and nothing is lost */
    FEATURE_SNAPSHOT, /* a sandbox starts from one that was prepared */
    FEATURE_RESUME,   /* a sandbox outlives its session, and another goes on in it */
    FEATURE_IDLE,     /* it is stopped when nothing happens for so long */
    FEATURE_IMAGE,
    FEATURE_PULL,
    FEATURE_VOLUME,    /* a directory that outlives sessions */
    FEATURE_WORKSPACE, /* repositories and files that are staged */
    FEATURE_READ,      /* paths of this machine are seen in it */
    FEATURE_NETWORK,   /* none, unless it is asked for */
    FEATURE_ALLOW,     /* some of the network, and no more */
    FEATURE_MEMORY,
    FEATURE_PROCESSES,
    FEATURE_CPUS,
    FEATURE_DISK,
    FEATURE_GPUS,
    FEATURE_USER,      /* whose processes they are */
    FEATURE_SECCOMP,   /* its filter of system calls can be chosen */
    FEATURE_READ_ONLY, /* what is there before the session cannot be changed */
    FEATURE_LABELS,
    FEATURE_REUSE, /* sessions share a sandbox, each with processes of its own */
    FEATURE_REGION,
    FEATURE_APP,
    FEATURE_ISOLATION, /* how strong the wall is can be chosen */
    FEATURE_PRELOAD,
    FEATURE_COUNT
};

struct feature_state {
    bool given;
    const char *text; /* how; or why not. NULL: not, and there is no more to say */
};

#define FEATURE_YES(text)                                                                          \
    {                                                                                              \
        true, text                                                                                 \
    }
#define FEATURE_NO(text)                                                                           \
    {                                                                                              \
        false, text                                                                                \
    }

/* By enum power. */
struct features {
    struct feature_state of[FEATURE_COUNT];
};

/* "network policy" */
const char *feature_name(enum feature p);
/* The settings that ask for it, in one text with a space between them; "": none does. */
const char *feature_settings(enum feature p);
/* What one of them asks for; FEATURE_COUNT: it asks for no power. */
enum feature feature_of_setting(const char *setting);
/* ERROR_UNSUPPORTED, by the name of the first of these settings that asks for what it has not. `asked` has bit 1 << p for each
 * power that somebody has asked for. */
int features_check(
    const struct features *features, const char *environment, uint64_t asked, struct error *err);

#endif
