/* api/packages_embedded.h: the files of guest/packages, embedded in the library (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_packages_build[];
extern const size_t embedded_packages_build_size;
extern const unsigned char embedded_packages_configuration[];
extern const size_t embedded_packages_configuration_size;
