/* export/public_error.h: errors in the form of the library's interface. */
#pragma once

#include "droste.h"

struct error;
void public_error_copy(const struct error *why, droste_error *err);
/* As error_set, error_set_errno and error_memory: an error in the form of the library. */
int public_error_set(droste_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int public_error_set_errno(droste_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int public_error_set_memory(droste_error *err);
