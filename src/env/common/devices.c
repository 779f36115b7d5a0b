/* env/common/devices.c: see devices.h. */
#include "env/common/devices.h"

#include <stdlib.h>
#include <string.h>

static int device_parse_gpus(
    const char *text, const char *numbers, uint64_t *gpus, struct error *err)
{
    for (const char *at = numbers;; at++) {
        char *end;
        unsigned long number = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : DEVICE_GPUS_MAX;
        if (number >= DEVICE_GPUS_MAX || (*end != ',' && *end != '\0'))
            return error_set(err, ERROR_ARGUMENT,
                "device '%.60s': after 'nvidia:', expected numbers of GPUs from 0 to %d, as in "
                "nvidia:0,1",
                text, DEVICE_GPUS_MAX - 1);
        *gpus |= (uint64_t)1 << number;
        at = end;
        if (*at == '\0')
            return 0;
    }
}

int device_parse(const char *text, struct device_request *to, struct error *err)
{
    static const char name[] = "nvidia";
    const char *rest = text + strlen(name);
    bool had_all = to->nvidia && to->gpus == 0;
    if (strncmp(text, name, strlen(name)) != 0 || (*rest != '\0' && *rest != ':'))
        return error_set(err, ERROR_ARGUMENT,
            "device '%.60s': expected nvidia, or nvidia:N,N,... for some of the GPUs", text);
    uint64_t gpus = 0;
    int rc = *rest ? device_parse_gpus(text, rest + 1, &gpus, err) : 0;
    if (rc < 0)
        return rc;
    to->nvidia = true;
    to->gpus = had_all || gpus == 0 ? 0 : to->gpus | gpus;
    return 0;
}

void device_print_gpus(const struct device_request *request, struct buf *out)
{
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++)
        if (request->gpus & (uint64_t)1 << i)
            buf_printf(out, "%s%u", request->gpus & (((uint64_t)1 << i) - 1) ? "," : "", i);
}
