/* tests/unit/env/wait.h: waiting for what must come. */
#pragma once

#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"

/* Runs the loop until the condition holds; a minute is for a machine under load. */
#define wait_until(f, condition)                                                                   \
    do {                                                                                           \
        uint64_t start_ = clock_ns();                                                              \
        while (!(condition)) {                                                                     \
            if (clock_seconds_since(start_) > 60)                                                  \
                fail_msg("%s did not come true", #condition);                                      \
            loop_turn((f)->loop, 0);                                                               \
            usleep(200);                                                                           \
        }                                                                                          \
    } while (0)
