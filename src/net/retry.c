/* net/retry.c: exponential backoff with jitter. */
#include "net/retry.h"

#include <math.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/os/random.h"

#define PAUSE_FIRST   0.5
#define PAUSE_LONGEST 30.0
#define ASKED_MOST    60.0

/* Without random bytes, the clock is random enough. */
static double random_fraction(void)
{
    uint32_t r = (uint32_t)clock_ns();
    (void)random_bytes(&r, sizeof r, NULL);
    return (double)r / (double)UINT32_MAX;
}

double retry_asked_seconds(double asked)
{
    return fmin(asked, ASKED_MOST);
}

double retry_pause_seconds(unsigned tries, double asked, double left)
{
    double pause = fmin(ldexp(PAUSE_FIRST, (int)tries - 1), PAUSE_LONGEST);
    if (asked > 0)
        pause = retry_asked_seconds(asked) * (1.0 + 0.1 * random_fraction());
    else
        pause *= 0.5 + 0.5 * random_fraction();
    return pause < left ? pause : -1;
}
