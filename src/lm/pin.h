/* lm/pin.h: a host's addresses, looked up once and not again for a minute.
 *
 * libcurl looks a name up once for each transfer that finds none in its cache, in a thread each:
 * a thousand transfers that start together on a fresh cache are a thousand threads. So the name is
 * looked up here, by libuv, and each transfer is told the answer (CURLOPT_RESOLVE).
 */
#ifndef DROSTE_LM_PIN_H
#define DROSTE_LM_PIN_H

#include "base/loop.h"

struct pin;
typedef void pin_fn(void *arg);

/* `ready` is called when a first look-up ended, well or not; NULL without memory. */
struct pin *pin_new(struct loop *loop, const char *host, unsigned port, pin_fn *ready, void *arg);
/* True if the caller may go on, with or without an entry; else `ready` will come. Old addresses go
 * on being used while new ones are looked up. */
bool pin_ready(struct pin *pin);
/* "+host:port:address[,address…]", or NULL: let libcurl look (and say what is wrong). */
const char *pin_entry(const struct pin *pin);
/* NULL is fine. */
void pin_free(struct pin *pin);

#endif
