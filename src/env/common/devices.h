/* env/common/devices.h: the devices of this machine that a sandbox may use, as the setting `device`
 * names them: "nvidia" is all of its GPUs, "nvidia:0,2" are two.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"

enum { DEVICE_GPUS_MAX = 64 };

struct device_request {
    bool nvidia;   /* NVIDIA's GPUs */
    uint64_t gpus; /* 1 << N for each /dev/nvidiaN; 0: all */
};

/* Adds what the text names. ERROR_ARGUMENT. */
int device_parse(const char *text, struct device_request *to, struct error *err);
/* Prints the numbers, "0,2"; nothing for all. */
void device_print_gpus(const struct device_request *request, struct buf *out);
