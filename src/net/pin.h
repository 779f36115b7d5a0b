/* net/pin.h: a host's addresses, looked up once and not again for a minute.
 *
 * libcurl looks a name up once for each transfer that finds none in its cache, in a thread each:
 * a thousand transfers that start together on a fresh cache are a thousand threads. So the name is
 * looked up here, by libuv, and each transfer is told the answer (CURLOPT_RESOLVE).
 */
#ifndef DROSTE_NET_PIN_H
#define DROSTE_NET_PIN_H

#include "base/loop.h"

struct pin;
/* `error` is NULL, or says why no address was found. */
typedef void pin_fn(void *arg, const char *error);

/* `ready` is called when a look-up ended for which somebody waits; NULL without memory. */
struct pin *pin_new(struct loop *loop, const char *host, unsigned port, pin_fn *ready, void *arg);
/* True if the caller may go on; else `ready` will come. Old addresses go on being used while new
 * ones are looked up; a look-up that failed is made again for the next who asks. */
bool pin_ready(struct pin *pin);
/* "+host:port:address[,address…]"; NULL: libcurl must look itself. */
const char *pin_entry(const struct pin *pin);
/* NULL is fine. */
void pin_free(struct pin *pin);

#endif
