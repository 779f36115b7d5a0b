/* A call of the public interface that must succeed; its error is in API_ERROR of the test. */
#pragma once

#define assert_fine(call)                                                                          \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            fail_msg("%s failed: %s", #call, API_ERROR.text);                                      \
    } while (0)
