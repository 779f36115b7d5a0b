/* tests/unit/test.h: what every unit test includes. cmocka wants its own four headers first. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails with the error's own words where a call that must succeed did not. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        struct error err_ = { 0 };                                                                 \
        struct error *err = &err_;                                                                 \
        if ((call) < 0)                                                                            \
            fail_msg("%s failed: %s", #call, err_.text);                                           \
    } while (0)

/* The call (which mentions `err`) must fail with this code. */
#define assert_fails(expected, call)                                                               \
    do {                                                                                           \
        struct error err_ = { 0 };                                                                 \
        struct error *err = &err_;                                                                 \
        int rc_ = (call);                                                                          \
        if (rc_ != -(int)(expected) || err_.code != (int)(expected))                               \
            fail_msg("%s gave %d (%s), not %s", #call, rc_, err_.text, error_code_name(expected)); \
    } while (0)

/* The same, and its text contains these words. */
#define assert_fails_saying(expected, words, call)                                                 \
    do {                                                                                           \
        struct error err_ = { 0 };                                                                 \
        struct error *err = &err_;                                                                 \
        int rc_ = (call);                                                                          \
        if (rc_ != -(int)(expected) || err_.code != (int)(expected) ||                             \
            !strstr(err_.text, (words)))                                                           \
            fail_msg("%s gave %d (%s), not %s: %s", #call, rc_, err_.text,                         \
                error_code_name(expected), (words));                                               \
    } while (0)
