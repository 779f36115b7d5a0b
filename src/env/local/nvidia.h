/* env/local/nvidia.h: NVIDIA's GPUs of this machine, and what CUDA needs of their driver. */
#pragma once

#include "base/error.h"
#include "env/common/devices.h"
#include "jail/jail.h"

struct nvidia {
    struct jail_devices devices; /* paths of this machine */
    unsigned count;              /* of GPUs */
    char *directory;             /* of libcuda.so.1 */
    bool cached;                 /* the loader of this machine finds it there */
};

/* Finds what `request` names. `root` stands before each path that is looked at, and in none of the
 * results; "" on a real machine. ERROR_NOT_FOUND (no driver, no such GPU), ERROR_PERMISSION (a
 * device that the users of sandboxes cannot open); both say what to do. */
int nvidia_find(
    const char *root, const struct device_request *request, struct nvidia *out, struct error *err);
/* A zeroed one is fine. */
void nvidia_clear(struct nvidia *n);
