/* jail/zygote_wire.h: the protocol between the host and the zygote's helper.
 *
 * It uses an AF_UNIX SOCK_SEQPACKET pair with one message per datagram. The zygote never runs guest
 * code; it and its clones use this socket only before the worker returns into Python.
 */
#pragma once

#include <stdint.h>

enum {
    ZYGOTE_CONTROL_FD = 3, /* in the zygote, from its start */
    ZYGOTE_SOURCE_FD = 4,  /* the guest's Python source */
    ZYGOTE_HELPER_FD = 5,  /* the helper, a shared object */
    ZYGOTE_KEEPER_FD = 6,  /* the keeper, a program */
    ZYGOTE_CHANNEL_FD = 3, /* in a worker: the stream of frames */
    ZYGOTE_MESSAGE_MAX = 128 * 1024,
    ZYGOTE_ABI = 9, /* detects a helper and a library from different builds */
};

enum zygote_request_kind {
    ZYGOTE_SETUP = 1, /* with a plan: execute the ZYGOTE stage */
    /* with a plan, and the descriptors channel, stdout, stderr, status, and those of enum
     * zygote_extra in `extras`, in that order */
    ZYGOTE_CLONE = 2,
    /* with a control socket: copy the zygote; the copy says DONE there and serves it. Closes it
     * instead if it cannot. */
    ZYGOTE_COPY = 3,
    /* with a plan: execute the KEEPER and the WORKER stage in a process that then ends */
    ZYGOTE_TRY = 4,
};

/* Optional descriptors: the sandbox's cgroup directory, mounts to attach (JAIL_ATTACH), the pidfd
 * of the keeper of the sandbox to join (JAIL_JOIN), and a socket that takes the one that listens
 * (JAIL_LISTEN). */
enum zygote_extra {
    ZYGOTE_CGROUP,
    ZYGOTE_VOLUME,
    ZYGOTE_WORKSPACE,
    ZYGOTE_JOINED,
    ZYGOTE_LISTENER,
    ZYGOTE_EXTRA_COUNT
};
enum { ZYGOTE_CLONE_FDS = 4, ZYGOTE_CLONE_FDS_MAX = ZYGOTE_CLONE_FDS + ZYGOTE_EXTRA_COUNT };

struct zygote_request {
    uint32_t kind;
    uint32_t id;     /* repeated in the events about this request */
    uint32_t extras; /* 1 << enum zygote_extra */
    uint64_t tag;    /* repeated in the status record */
    /* followed by a struct jail_plan */
};

enum zygote_event_kind {
    ZYGOTE_HELLO = 1,   /* after start; followed by facts about the interpreter as JSON */
    ZYGOTE_DONE = 2,    /* SETUP, COPY or TRY is complete */
    ZYGOTE_STARTED = 3, /* a clone exists; carries its pidfd */
    ZYGOTE_FAILED = 4,  /* an operation of the plan, or the clone itself, failed */
};

enum {
    ZYGOTE_NO_OP = 0xFFFFFFFF,  /* `op` of a failure outside any operation */
    ZYGOTE_FORKED = 0xFFFFFFFE, /* `op` of the first record of a fork: its keeper exists */
};

/* The keeper's name in /proc/PID/comm once it has executed its part of the plan. */
#define KEEPER_NAME "keeper"

/* What the host sends through the status socket of a fork: channel, stdout, stderr, and the keeper
 * program, with one byte. */
enum { ZYGOTE_FORK_FDS = 4 };

struct zygote_event {
    uint32_t kind;
    uint32_t id;
    int32_t pid;
    int32_t sys;  /* errno */
    uint32_t op;  /* index of the operation that failed */
    uint32_t abi; /* in HELLO */
};

/* A record on the status descriptor, a pipe or a socket; the first one counts. The keeper writes it
 * when the worker has ended; before that, the keeper or the worker does if it cannot execute its
 * part of the plan. The keeper also holds the sandbox's standard error: its end of file, or that of
 * a status pipe, without a record means that the keeper itself was killed. */
struct zygote_status {
    uint64_t tag;        /* of the request */
    int32_t sys;         /* errno of the failed operation; 0: none failed */
    uint32_t op;         /* its index */
    int32_t wait_status; /* of the worker; -1: it was killed on request */
    int64_t max_rss_kib; /* the largest of the worker and the processes that it waited for */
    int64_t cpu_us;      /* user and system time of all of them */
};
