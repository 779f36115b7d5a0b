/* jail/zygote_wire.h: what the host and the zygote's helper say to each other.
 *
 * One AF_UNIX SOCK_SEQPACKET pair, a message a datagram. The zygote never runs the guest's code;
 * it and its clones use this socket only before the worker returns into Python.
 */
#ifndef DROSTE_JAIL_ZYGOTE_WIRE_H
#define DROSTE_JAIL_ZYGOTE_WIRE_H

#include <stdint.h>

enum {
    ZYGOTE_CONTROL_FD = 3, /* in the zygote, from its start */
    ZYGOTE_SOURCE_FD = 4,  /* the guest, in Python */
    ZYGOTE_HELPER_FD = 5,  /* the helper, a shared object */
    ZYGOTE_KEEPER_FD = 6,  /* the keeper, a program */
    ZYGOTE_CHANNEL_FD = 3, /* in a worker: the stream of frames */
    ZYGOTE_MESSAGE_MAX = 128 * 1024,
    ZYGOTE_ABI = 4, /* the helper and the library are built together; this catches a mix */
};

enum zygote_request_kind {
    ZYGOTE_SETUP = 1, /* plan: carry out the ZYGOTE stage */
    ZYGOTE_CLONE = 2, /* plan, and descriptors: channel, stdout, stderr, status, and those of enum
                         zygote_extra that `extras` names, in that order */
};

/* What not every sandbox has: the directory of its cgroup, and mounts to attach (JAIL_ATTACH). */
enum zygote_extra { ZYGOTE_CGROUP, ZYGOTE_VOLUME, ZYGOTE_WORKSPACE, ZYGOTE_EXTRA_COUNT };
enum { ZYGOTE_CLONE_FDS = 4, ZYGOTE_CLONE_FDS_MAX = ZYGOTE_CLONE_FDS + ZYGOTE_EXTRA_COUNT };

struct zygote_request {
    uint32_t kind;
    uint32_t id;     /* comes back in the events about this request */
    uint32_t extras; /* 1 << enum zygote_extra */
    /* a struct jail_plan follows */
};

enum zygote_event_kind {
    ZYGOTE_HELLO = 1,   /* after start; the interpreter's facts follow as JSON */
    ZYGOTE_DONE = 2,    /* SETUP is done */
    ZYGOTE_STARTED = 3, /* a clone is there; its pidfd comes along */
    ZYGOTE_FAILED = 4,  /* an operation of the zygote's plan failed, or the clone itself */
};

enum { ZYGOTE_NO_OP = 0xFFFFFFFF }; /* `op` of a failure outside any operation */

struct zygote_event {
    uint32_t kind;
    uint32_t id;
    int32_t pid;
    int32_t sys;  /* errno */
    uint32_t op;  /* index of the operation that failed */
    uint32_t abi; /* in HELLO */
};

/* What comes out of the status pipe; the first record counts. From the keeper when the worker has
 * ended, or from whichever of the two could not carry out its part of the plan. No record and an
 * end of file: the keeper itself was killed. */
struct zygote_status {
    int32_t sys;         /* errno of the operation that failed, 0: none did */
    uint32_t op;         /* its index */
    int32_t wait_status; /* of the worker; -1: it was ended on request */
    int64_t max_rss_kib; /* of the worker and the processes it waited for, the largest */
    int64_t cpu_us;      /* user and system time of all of them */
};

#endif
