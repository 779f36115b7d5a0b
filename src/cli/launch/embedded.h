/* cli/launch/embedded.h: the launchers' scripts, embedded in the program (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_slurm[], embedded_ssh[], embedded_kubernetes[], embedded_ray[];
extern const size_t embedded_slurm_size, embedded_ssh_size, embedded_kubernetes_size,
    embedded_ray_size;
