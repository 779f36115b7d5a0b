/* A call of the public interface that must succeed; its error is in API_ERROR of the test. */
#ifndef DROSTE_TEST_API_ASSERT_FINE_H
#define DROSTE_TEST_API_ASSERT_FINE_H

#define assert_fine(call)                                                                          \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            fail_msg("%s failed: %s", #call, API_ERROR.text);                                      \
    } while (0)

#endif
