/* net/retry.h: how long a client waits before it tries again: one policy for services and models.
 *
 * The pause doubles from half a second to half a minute, less up to a half of it at random, so
 * that requests that failed together do not come back together. Where a server asked for a pause
 * (Retry-After), that counts, up to a minute; chance only lengthens it. A pause that would end
 * after the deadline is not begun: the server's words are worth more than "timeout". The caller
 * decides what may be tried again, and how often.
 */
#ifndef DROSTE_NET_RETRY_H
#define DROSTE_NET_RETRY_H

/* What counts of the pause that a server asked for, in seconds. */
double retry_asked_seconds(double asked);
/* Seconds until the next try, after `tries` of them; negative: it would end after the `left`
 * seconds (INFINITY: there is no deadline). `asked` is 0 where the server did not. */
double retry_pause_seconds(unsigned tries, double asked, double left);

#endif
