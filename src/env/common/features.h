/* env/common/features.h: tables of what environments support.
 *
 * Each environment has one table, with reasons. Specifications are checked against it, `droste env
 * show NAME` prints it, and the documentation is generated from it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum feature {
    FEATURE_STREAM,   /* one live guest with a byte stream in both directions */
    FEATURE_REATTACH, /* an interrupted stream is rejoined without loss */
    FEATURE_SNAPSHOT, /* starting from a prepared sandbox */
    FEATURE_RESUME,   /* continuing in the sandbox of an earlier session */
    FEATURE_IDLE,     /* stopping after a time without activity */
    FEATURE_IMAGE,
    FEATURE_PULL,
    FEATURE_VOLUME,    /* a directory that outlives sessions */
    FEATURE_WORKSPACE, /* staged repositories and files */
    FEATURE_FILES,     /* files are read and written while a cell runs */
    FEATURE_READ,      /* host paths visible in the sandbox */
    FEATURE_NETWORK,   /* network access on request, none by default */
    FEATURE_ALLOW,     /* network access restricted to listed destinations */
    FEATURE_MEMORY,
    FEATURE_PROCESSES,
    FEATURE_CPUS,
    FEATURE_DISK,
    FEATURE_GPUS,
    FEATURE_DEVICE,    /* devices of this machine, with their drivers */
    FEATURE_USER,      /* choice of the processes' user */
    FEATURE_SECCOMP,   /* choice of the seccomp filter */
    FEATURE_READ_ONLY, /* a read-only root file system */
    FEATURE_ROOT,      /* a writable root of its own over read-only system directories */
    FEATURE_ROOTFS,    /* another directory's files and interpreter instead of this machine's */
    FEATURE_LABELS,
    FEATURE_REUSE, /* sessions share a sandbox, with separate processes */
    FEATURE_REGION,
    FEATURE_APP,
    FEATURE_ISOLATION, /* choice of the isolation level */
    FEATURE_PRELOAD,
    FEATURE_PACKAGES,   /* built in a sandbox, shared read-only */
    FEATURE_HUGE_PAGES, /* for large Python objects */
    FEATURE_LOOPBACK,   /* TCP and UDP between the sandbox's own processes */
    FEATURE_EGRESS,     /* listed destinations, through a proxy in the host */
    FEATURE_COUNT
};

struct feature_state {
    bool given;
    const char *text; /* how, or why not; NULL: unsupported, without a reason */
};

#define FEATURE_YES(text)                                                                          \
    {                                                                                              \
        true, text                                                                                 \
    }
#define FEATURE_NO(text)                                                                           \
    {                                                                                              \
        false, text                                                                                \
    }

/* What all remote environments have in common. */
#define FEATURES_OF_REMOTE                                                                         \
    [FEATURE_FILES] = FEATURE_YES("a process beside the guest"),                                   \
    [FEATURE_PRELOAD] = FEATURE_YES("in the worker, before the session"),                          \
    [FEATURE_PACKAGES] = FEATURE_NO("use an image that has them"),                                 \
    [FEATURE_HUGE_PAGES] = FEATURE_NO("they are for forks, which local sandboxes have"),           \
    [FEATURE_LOOPBACK] = FEATURE_NO("the sandbox has one, or its network policy decides"),         \
    [FEATURE_EGRESS] =                                                                             \
        FEATURE_NO("network and network-allow are its own policy, where it has one")

/* For example "network policy". */
const char *feature_name(enum feature p);
/* The settings that ask for the feature, separated by spaces; "": none does. */
const char *feature_settings(enum feature p);
/* The feature that a setting asks for; FEATURE_COUNT: none. */
enum feature feature_of_setting(const char *setting);
/* ERROR_UNSUPPORTED, naming the first setting that asks for an unsupported feature. `asked` has bit
 * 1 << p for each feature p that was set explicitly. */
int features_check(const struct feature_state features[FEATURE_COUNT], const char *environment,
    uint64_t asked, struct error *err);
